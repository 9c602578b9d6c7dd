"""Where a pending job stands: behind jobs that the queue policy tries first, on hosts it could have."""

from dataclasses import replace

from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot
from rm.core.registry import load
from rm.core.scheduling.queue_position import QueuePosition, queue_position
from tests import builders


def of(job: Job, pending: list[Job], snapshot: Snapshot, queue: str = "priority") -> QueuePosition | None:
    return queue_position(job, pending, load("queue", queue), snapshot)


def numbers(found: QueuePosition | None) -> tuple[int, list[int]]:
    assert found is not None
    return found.position, [job.id for job in found.ahead]


def test_the_order_is_the_queue_policys() -> None:
    jobs = [builders.job(1), builders.job(2, priority=5), builders.job(3), builders.job(4, priority=9)]
    snapshot = builders.snapshot(builders.host("a"))
    assert numbers(of(jobs[2], jobs, snapshot)) == (4, [4, 2, 1])
    assert numbers(of(jobs[2], jobs, snapshot, "fifo")) == (3, [1, 2])
    assert numbers(of(jobs[3], jobs, snapshot)) == (1, [])


def test_jobs_that_may_not_be_tried_now_are_ahead_of_none_and_have_no_position() -> None:
    held = replace(builders.job(1), held=True)
    later = builders.job(2, begin_us=10)
    last = builders.job(3)
    for now_us, place in ((5, (1, [])), (10, (2, [2]))):
        snapshot = builders.snapshot(builders.host("a"), now_us=now_us)
        assert numbers(of(last, [held, later, last], snapshot)) == place
        assert of(held, [held, later, last], snapshot) is None


def test_only_jobs_for_the_same_hosts_are_ahead() -> None:
    hosts = [
        builders.host("a", partitions=("cpu",)),
        builders.host("b", partitions=("gpu", "debug")),
        builders.host("c", partitions=("gpu",)),
    ]
    snapshot = builders.snapshot(*hosts)
    asked = ["cpu", "gpu", "debug", "", "cpu,debug", "lost", "lost"]
    jobs = [builders.job(n, partition=name) for n, name in enumerate(asked, 1)]
    ahead = {job.id: numbers(of(job, jobs, snapshot))[1] for job in jobs}
    assert ahead == {1: [], 2: [], 3: [2], 4: [1, 2, 3], 5: [1, 2, 3, 4], 6: [], 7: [6]}


def test_all_are_counted_and_the_first_named() -> None:
    jobs = [builders.job(n) for n in range(1, 101)]
    assert numbers(of(jobs[-1], jobs, builders.snapshot(builders.host("a")))) == (100, [1, 2, 3, 4, 5])


def test_a_job_that_is_gone_has_no_position() -> None:
    assert of(builders.job(9), [builders.job(1)], builders.snapshot(builders.host("a"))) is None
