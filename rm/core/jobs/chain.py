"""The chain in front of a job: for which jobs it waits, for which these wait, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from rm.arrays import mask
from rm.core.jobs.array_state import state_of
from rm.core.jobs.dependents import Group, group_of, submission_of
from rm.core.model.asked.dependency import Standing
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
            for link in _links(one, jobs, first):
                count += 1
                if count <= LINKS_MAX:
                    links.append(link)
                awaited = jobs.get(link.awaited)
                if awaited is not None and awaited.state is JobState.PENDING and awaited.id not in seen:
                    seen.add(awaited.id)
                    further.append(awaited)
        level = further
    return Chain(tuple(links), count - len(links))


def _links(job: Job, jobs: Mapping[int, Job], first: Callable[[], Mapping[Group, Job]]) -> Iterator[Link]:
    for one in job.dependencies:
        awaited = jobs.get(one.job)
        if one.kind == SINGLETON and one.standing is Standing.UNFULFILLED:
            awaited = first().get(group_of(job))
        if awaited is not None:
            state = awaited.state
            if one.tasks and awaited.array is not None:
                state = state_of(awaited.array.only(mask(one.tasks)))
            yield Link(job.id, one.kind, awaited.id, one.standing, state, awaited.spec.name, one.tasks)
        elif one.kind != SINGLETON:
            ended = JobState(one.ended) if one.ended else None
            yield Link(job.id, one.kind, one.job, one.standing, ended, None, one.tasks)


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
