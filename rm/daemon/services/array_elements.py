"""Elements of job arrays, as users name them: `36_2` may have a job of its own, in memory or in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from rm.arrays import JobId, each, mask, text_of
from rm.core.jobs.elements import shown_element
from rm.core.jobs.handlers.updating import refuse_many
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job
from rm.core.store import Store
from rm.errors import NotFound, UsageError

PART = 200  # elements with jobs of their own that one request of the leader changes
DEPENDENT = 10  # the same, where it searches for each whether it would come to wait for itself


def one_element(record: Job, array_tasks: str) -> int:
    """The only one that is named.

    Raises:
        NotFound: the job is no array.
        UsageError: several are named.
    """
    if record.array is None:
        raise NotFound(f"Job {record.id} is no job array.", "Leave the index out.")
    chosen = each(mask(array_tasks))
    if len(chosen) != 1:
        raise UsageError(
            f"{JobId(record.id, array_tasks)} names {len(chosen)} elements.", "Name one of them."
        )
    return chosen[0]


async def stored_element(store: Store, record: Job, task: int) -> Job:
    """An element without a job in memory.

    Raises:
        NotFound: the array has no such element, or what became of it is not kept any more.
    """
    assert record.array is not None
    of = record.array.set_of(task)
    if of in ("waiting", "dropped"):
        shown = shown_element(record, task)
        assert shown is not None
        return shown
    kept = await asyncio.to_thread(store.elements, record.id, (task,)) if of else []
    if not kept:
        why = "is not kept any more" if of else "does not exist"
        raise NotFound(f"Element {task} of job array {record.id} {why}.", f"See: rmx show {record.id}")
    return kept[0]


def to_change(record: Job, array_tasks: str) -> list[str]:
    """The elements that are asked for, in parts that the leader takes in one turn each: those that wait come
    first, since else they would take the place of the others."""
    array = record.array
    assert array is not None
    chosen = mask(array_tasks) if array_tasks else ~0
    alive = each((array.has("requeued") | array.has("running")) & chosen)
    if len(alive) <= PART:
        return [array_tasks]
    waiting = array.has("waiting") & chosen
    return [text_of(part) for part in ([waiting] if waiting else []) + _parts(alive)]


def to_update(record: Job, array_tasks: str, most: int = PART) -> list[str]:
    """The elements that are to differ from their array, in parts that the leader takes in one turn each.

    Raises:
        IllegalTransition: they are too many: each gets a record of its own.
    """
    array = record.array
    assert array is not None
    chosen = mask(array_tasks)
    leave = array.has("waiting") & chosen
    refuse_many(record, leave)
    alive = each(leave | ((array.has("requeued") | array.has("running")) & chosen))
    return [text_of(part) for part in _parts(alive, most)] or [array_tasks]


def divided(jobs: Sequence[Job], most: int) -> tuple[list[Job], list[Job]]:
    """Those that one turn of the leader can end, and arrays whose elements on hosts are too many for it, so
    that it would end more than `most` jobs. Elements of an array among the jobs end with the array."""
    arrays = {job.id for job in jobs if job.array is not None}
    few = [job for job in jobs if job.array is None and not (job.array_job and job.array_job in arrays)]
    wide: list[Job] = []
    most -= len(few)
    for job in jobs:
        if job.array is None:
            continue
        alive = (job.array.has("requeued") | job.array.has("running")).bit_count()
        if alive > most:
            wide.append(job)
        else:
            few.append(job)
            most -= alive
    return few, wide


def to_requeue(record: Job, array_tasks: str, failed: bool) -> list[str]:
    """The elements that are asked for, in parts that the leader takes in one turn each; where there is
    nothing to do one part, of which the core says why."""
    array = record.array
    assert array is not None
    chosen = mask(array_tasks) if array_tasks else ~0
    own = (
        array.has("failed")
        if failed
        else array.has("running") | array.has("completed") | array.has("failed") | array.has("cancelled")
    )
    parts = _parts(each(own & chosen))
    if not failed and (dropped := array.has("dropped") & chosen):
        parts = [*parts, dropped]
    return [text_of(part) for part in parts] or [array_tasks]


def _parts(tasks: list[int], most: int = PART) -> list[int]:
    return [sum(1 << task for task in tasks[at : at + most]) for at in range(0, len(tasks), most)]


async def gone(store: Store, job: Job, array_tasks: str, known: Collection[int]) -> tuple[Job, ...]:
    """Jobs that a requeue needs and that may have left memory: the job itself, its array, and elements of it
    that are not among the `known` indices."""
    if job.array is not None:
        there = frozenset(known)  # each may be as many as the array has elements
        missing = tuple(task for task in each(mask(array_tasks)) if task not in there) if array_tasks else ()
        found = await asyncio.to_thread(store.elements, job.id, missing) if missing else []
        return (job, *found)
    record = await asyncio.to_thread(store.job, job.array_job) if job.array_task is not None else None
    return (job,) if record is None else (record, job)


def not_there(jobs: Collection[Job], state: ClusterState) -> tuple[Job, ...]:
    return tuple(job for job in jobs if job.id not in state.jobs and job.state.final)
