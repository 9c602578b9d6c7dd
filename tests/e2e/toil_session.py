"""A workflow of toil whose jobs are jobs of the cluster. Arguments: toil's own."""

from __future__ import annotations

from collections.abc import Sequence

from toil.common import Toil
from toil.job import Job

SMALL = {"memory": "100M", "cores": 1, "disk": "10M"}


def square(job: Job, number: int) -> int:
    return number * number


def total(job: Job, values: Sequence[int]) -> int:
    return sum(values)


def begin(job: Job, numbers: int) -> object:
    parts = [job.addChildJobFn(square, number, **SMALL).rv() for number in range(numbers)]
    return job.addFollowOnJobFn(total, parts, **SMALL).rv()


if __name__ == "__main__":  # workers import it
    options = Job.Runner.getDefaultArgumentParser().parse_args()
    with Toil(options) as toil:
        assert toil.start(Job.wrapJobFn(begin, 4, **SMALL)) == 14
    print("done")
