"""Elements of job arrays as commands choose and tell them.

It imports little, so that the quick commands can use it.
"""

from __future__ import annotations

from rm.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rm.api.job_rows import JobRow
    from rm.api.jobs import Job
    from rm.arrays import JobId

# of an array or some of its elements together, the first that holds: as the daemon says it of a whole array
_STATES = (
    ("waiting", "PENDING"), ("running", "RUNNING"), ("requeued", "PENDING"), ("failed", "FAILED"),
    ("cancelled", "CANCELLED"), ("dropped", "CANCELLED"),
)  # fmt: skip


def state_of(job: Job, tasks: str) -> str:
    """The state of the job; of an array the one that these elements have together."""
    if job.array is None or not tasks:
        return job.state
    from rm.arrays import mask

    chosen = mask(tasks)
    return next((state for name, state in _STATES if mask(getattr(job.array, name)) & chosen), "COMPLETED")


def chosen_of(job: Job, tasks: str) -> int:
    """The elements of an array that are named, as a set; "" is all.

    Raises:
        NotFound: the array has not all of them, or the job is none.
    """
    from rm.arrays import mask, parse, text_of

    if job.array is None:
        raise NotFound(f"Job {job.id} is no job array.", "Leave the index out.")
    whole = parse(job.spec.array).mask
    if not tasks:
        return whole
    chosen = mask(tasks)
    if beyond := chosen & ~whole:
        raise NotFound(f"Job array {job.id} has no element {text_of(beyond):.80}.")
    return chosen


def tasks_of(job: JobRow, ids: Sequence[JobId]) -> str | None:
    """What of a listed job is meant by `ids`, which are all jobs where there are none: "" the job, or of an
    array that is listed those elements that have no jobs of their own; None: nothing."""
    rest = job.array_rest or ""
    array = job.array_job or job.id
    if not ids or any(not one.tasks and one.job in (job.id, array) for one in ids):
        return rest
    from rm.arrays import mask, text_of

    mine = mask(rest) if rest else 0 if job.array_task is None else 1 << job.array_task
    chosen = 0
    for one in ids:
        if one.job == array and one.tasks:
            chosen |= mask(one.tasks) & mine
    if not chosen:
        return None
    return text_of(chosen) if rest else ""


def targets(lines: Sequence[JobRow], ids: Sequence[JobId]) -> list[JobId]:
    """What is meant by `ids` of the jobs whose lines are given: each job once."""
    from rm.arrays import JobId, mask, text_of

    found: dict[int, int] = {}
    for line in lines:
        tasks = tasks_of(line, ids)
        if tasks is not None:
            found[line.id] = found.get(line.id, 0) | (mask(tasks) if tasks else 0)
    return [JobId(job, text_of(chosen)) for job, chosen in found.items()]
