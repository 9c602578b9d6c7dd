"""Limits of what is submitted, for jobs that come under them later: by another account, QOS or partition,
or requeued after they had ended. The submission itself asks `rm.core.scheduling.limits.admission`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rm.arrays import parse
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job
from rm.core.sharing.limits import SUBMITTED
from rm.core.sharing.tally import Key, Ruled, Tally, unfinished
from rm.errors import IllegalTransition, Refusal


def refuse_moved(state: ClusterState, changes: Iterable[tuple[Job, Job]]) -> None:
    """Of jobs as they are and as they are to be, those that would come under other limits.

    Raises:
        IllegalTransition: there would be too many, or a job array is too large there.
    """
    tally, more = state.tally, Counter[Key]()
    for old, new in changes:
        if not tally.rules or _ruled(tally, old) is _ruled(tally, new):
            continue
        before = frozenset(_keys(tally, old))
        for key in _keys(tally, new):
            more[key] += unfinished(new) - (unfinished(old) if key in before else 0)
        _refuse_large(tally, new)
    _refuse(tally, more)


def refuse_again(state: ClusterState, jobs: Iterable[Job], waiting: int = 0, of: Job | None = None) -> None:
    """Of jobs that are to wait again those that have ended; and `waiting` elements `of` an array.

    Raises:
        IllegalTransition: there would be too many.
    """
    tally, more = state.tally, Counter[Key]()
    if not tally.rules:
        return
    for job in jobs:
        more.update(_keys(tally, job) if job.state.final else ())
    for key in _keys(tally, of) if of is not None else ():
        more[key] += waiting
    _refuse(tally, more)


def _keys(tally: Tally, job: Job) -> tuple[Key, ...]:
    return _ruled(tally, job).keys


def _ruled(tally: Tally, job: Job) -> Ruled:
    """While it waits."""
    where = job.spec.partitions if tally.by_partition else ()
    return tally.of(job.account, job.spec.user, job.qos, where)


def _refuse(tally: Tally, more: Counter[Key]) -> None:
    for key, count in more.items():
        limit, there = tally.limits[key].get(SUBMITTED), tally.submitted[key]
        if limit is not None and count > 0 and there + count > limit:
            raise IllegalTransition(
                f"{key} has {there} of at most {limit} submitted jobs, and would have {there + count}.",
                "Try again when some have ended.",
                Refusal.LIMIT_REACHED,
            )


def _refuse_large(tally: Tally, job: Job) -> None:
    most = _ruled(tally, job).job.get("elements")
    if job.array is None or most is None:
        return
    elements = parse(job.spec.array).mask.bit_count()
    if elements > most[0]:
        raise IllegalTransition(
            f"Job array {job.id} has {elements} elements, and one of {most[1]} at most {most[0]}.",
            refusal=Refusal.LIMIT_REACHED,
        )
