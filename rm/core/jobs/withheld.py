"""Launches that a host which is back does not get again: what was given up there still holds their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rm.core.jobs import events as ev
from rm.core.jobs.free import left_on
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held, lacking
from rm.core.model.job import Job, Placement


def withheld(
    state: ClusterState, host: str, strays: Iterable[ev.StrayFound], launches: Collection[tuple[int, int]]
) -> list[ev.LaunchWithheld]:
    """Of the open launches, by (job, attempt), those that would begin on what the strays still use.

    A job that preempted others borrows their processors. When its host is silent for so long that those are
    given up, and it is not yet itself (a fenced job is given up later), they come back as strays, and nothing
    is lent any more. Older jobs keep their place before newer ones.
    """
    held: list[Held] = [one.held for one in strays if one.held is not None]
    if not held or not launches:
        return []
    mine = state.hosts[host]
    waiting = [job for job, _ in sorted(launches) if job in state.jobs_on.get(host, ())]
    there = {n: _place(state, n) for n in sorted(state.jobs_on.get(host, set()).difference(waiting))}
    found, lacks = list[ev.LaunchWithheld](), lacking(left_on(mine, there.values()), mine, held)
    for job in waiting:
        beside = left_on(mine, [*there.values(), _place(state, job)])
        more = lacking(beside, mine, held)
        if more.within(lacks):
            there[job], lacks = _place(state, job), more
        else:
            found.append(ev.LaunchWithheld(job, state.jobs[job].attempt, host))
    return found


def _place(state: ClusterState, job: int) -> tuple[Job, Placement]:
    return state.jobs[job], state.placed[job].placement
