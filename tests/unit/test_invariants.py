"""The checks of the whole state: a state that a step made passes them, and each change to it does not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held
from rm.core.model.job import JobState
from rm.core.model.network.alignment import Alignment, Schedule
from rm.core.model.progress import Progress
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from tests import builders
from tests.invariants import Seen, validate_state


def played() -> ClusterState:
    """A gang of two that runs, one that shares a GPU, and one that waits."""
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
    cycle = Cycle(ClusterState(), policies)
    wide = builders.spec(ntasks=2, tasks_per_host=1, cpus_per_task=3, gpus_per_task=1)
    shares = builders.spec(gpus_per_task=1, gpu_mem_bytes=1 << 30)
    cycle.step([ev.HostAdded(builders.host(name, cpus=4, gpus=2)) for name in ("h1", "h2")], 1)
    cycle.step([ev.JobSubmitted(1, wide, "key"), ev.JobSubmitted(2, shares), ev.JobSubmitted(3, wide)], 2)
    validate_state(cycle.state)
    assert [job.state for job in cycle.state.jobs.values()] == ["CONFIGURING", "CONFIGURING", "PENDING"]
    return cycle.state


def change(of: ClusterState, number: int, **fields: object) -> None:
    of.jobs[number] = replace(of.jobs[number], **fields)  # type: ignore[arg-type]


BREAKS: dict[str, Callable[[ClusterState], object]] = {
    "a job waits and is not queued": lambda s: s.pending.clear(),
    "a job is queued and does not wait": lambda s: s.pending.update({1: None}),
    "the next id is taken": lambda s: setattr(s, "next_job", 3),
    "a key is forgotten": lambda s: s.submissions.clear(),
    "a key names another's job": lambda s: s.submissions.update({("alice", "key"): [2]}),
    "a job ended and does not say when": lambda s: change(s, 3, state=JobState.FAILED),
    "a job is placed before its first attempt": lambda s: change(s, 1, attempt=0),
    "a part of a gang is missing": lambda s: change(s, 1, tasks=s.jobs[1].tasks[:1]),
    "a job is placed and nobody sees it": lambda s: s.placed.pop(1),
    "a job is seen with another profile": lambda s: change(s, 1, traffic=builders.profile(9, (0, 1, 1))),
    "two jobs were placed at one turn": lambda s: s.placed.update(
        {2: replace(s.placed[2], sequence=s.placed[1].sequence)}
    ),
    "a host does not know its job": lambda s: s.jobs_on["h1"].discard(1),
    "a host knows a job that is not there": lambda s: s.jobs_on["h1"].add(3),
    "progress is kept of one that waits": lambda s: s.progress.update({3: Progress(3, 1, 5)}),
    "one that waits is aligned": lambda s: setattr(
        s, "alignment", Alignment(100.0, schedules=(Schedule(3, 1, 0, 10, 10),))
    ),
    "resources did not come back": lambda s: s.free.update({"h2": replace(s.free["h2"], cpus=0)}),
    "a GPU is free and taken": lambda s: s.free.update({"h1": replace(s.free["h1"], gpus=(0, 1))}),
    "memory of a shared GPU is lost": lambda s: s.free.update({"h1": replace(s.free["h1"], gpu_mem=())}),
    "a host has nothing free, not even zero": lambda s: s.free.pop("h2"),
    "one that is gone is silent": lambda s: s.silent_since.update({"h9": 1}),
    "a key has nothing": lambda s: s.submissions.update({("alice", "other"): []}),
    "strays hold nothing": lambda s: s.strays.update({"h2": {(7, 1): Held((0,), cpus=1)}}),
    "a zone is unknown": lambda s: s.zones.clear(),
    "one that is gone is measured": lambda s: s.network.update({("h1", "h9"): builders.linkstats()}),
    "one that was placed is still to be tried": lambda s: s.fresh.update({1: None}),
    "the pass did not look at what came free": lambda s: s.freed.update({"h1": None}),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_state_is_found(what: str) -> None:
    state = played()
    BREAKS[what](state)
    with pytest.raises(AssertionError):
        validate_state(state)


@pytest.mark.parametrize("what", BREAKS)
def test_a_state_that_breaks_later_is_found(what: str) -> None:
    """What was in order before is looked at again where it has changed."""
    state, seen = played(), Seen()
    validate_state(state, seen)
    BREAKS[what](state)
    with pytest.raises(AssertionError):
        validate_state(state, seen)
