"""Launches that a host which is back does not get again: what was given up there still holds their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rm.core.jobs import events as ev
from rm.core.jobs.free import left_on
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held, fits_beside


def withheld(
    state: ClusterState, host: str, strays: Iterable[ev.StrayFound], launches: Collection[tuple[int, int]]
) -> list[ev.LaunchWithheld]:
    """Of the open launches, by (job, attempt), those that would begin on what the strays still use.

    A job that preempted others borrows their processors. When its host is silent for so long that those are
    given up, and it is not yet itself (a fenced job is given up later), they come back as strays, and nothing
    is lent any more. Older jobs keep their place before newer ones.
    """
    found: list[ev.LaunchWithheld] = []
    held: list[Held] = [one.held for one in strays if one.held is not None]
    if not held or not launches:
        return found
    mine = state.hosts[host]
    there = {
        job: (state.jobs[job], state.placed[job].placement) for job in sorted(state.jobs_on.get(host, ()))
    }
    waiting = [job for job, _ in sorted(launches) if job in there]
    for job in reversed(waiting):
        if fits_beside(left_on(mine, there.values()), mine.gpus, held):
            break
        del there[job]
        found.append(ev.LaunchWithheld(job, state.jobs[job].attempt, host))
    return found[::-1]
