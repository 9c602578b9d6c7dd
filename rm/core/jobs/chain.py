"""The chain in front of a job: for which jobs it waits, for which these wait, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from rm.arrays import mask
from rm.core.jobs.array_state import state_of
from rm.core.jobs.dependents import Group, group_of, submission_of
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.job import Job, JobState
from rm.dependencies import SINGLETON

LINKS_MAX = 100  # that are named


@dataclass(frozen=True, slots=True)
class Link:
    """`job` waits for `awaited`, or for its elements `tasks`. `state` and `name` are those of the latter;
    None: not known any more."""

    job: int
    kind: str
    awaited: int
    standing: Standing
    state: JobState | None
    name: str | None
    tasks: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """The nearest links first; `left_out` more are not among them."""

    links: tuple[Link, ...] = ()
    left_out: int = 0


def chain_of(job: Job, jobs: Mapping[int, Job]) -> Chain:
    """Of a pending job among all jobs; breadth first, each job once."""
    first = cache(lambda: _first_alike(jobs))  # a look at all jobs, for a singleton only
    links: list[Link] = []
    count, seen, level = 0, {job.id}, [job]
    while level:
        further: list[Job] = []
        for one in level:
            for condition in one.dependencies:
                awaited = _awaited(one, condition, jobs, first)
                if awaited is None and condition.kind == SINGLETON:
                    continue
                count += 1
                if count <= LINKS_MAX:  # of a chain of many thousands only these take time
                    links.append(_link(one, condition, awaited))
                if awaited is not None and awaited.state is JobState.PENDING and awaited.id not in seen:
                    seen.add(awaited.id)
                    further.append(awaited)
        level = further
    return Chain(tuple(links), count - len(links))


def _awaited(
    job: Job, condition: Dependency, jobs: Mapping[int, Job], first: Callable[[], Mapping[Group, Job]]
) -> Job | None:
    """None: not known any more, or, of a singleton, nobody."""
    if condition.kind == SINGLETON and condition.standing is Standing.UNFULFILLED:
        return first().get(group_of(job))
    return jobs.get(condition.job)


def _link(job: Job, condition: Dependency, awaited: Job | None) -> Link:
    kind, standing, tasks = condition.kind, condition.standing, condition.tasks
    if awaited is None:
        ended = JobState(condition.ended) if condition.ended else None
        return Link(job.id, kind, condition.job, standing, ended, None, tasks)
    state = awaited.state
    if tasks and awaited.array is not None:
        state = state_of(awaited.array.only(mask(tasks)))
    return Link(job.id, kind, awaited.id, standing, state, awaited.spec.name, tasks)


def _first_alike(jobs: Mapping[int, Job]) -> Mapping[Group, Job]:
    """By user and name the unfinished job that others of them wait for: one that runs, else the first."""
    found: dict[Group, Job] = {}
    for job in jobs.values():
        if job.state.final:
            continue
        best = found.setdefault(group_of(job), job)
        if (not job.occupies, submission_of(job)) < (not best.occupies, submission_of(best)):
            found[group_of(job)] = job
    return found
