"""Fencing by lease: a job is given up only when its lost host has certainly ended it."""

from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Launch, Stop
from rm.core.jobs.handlers.fencing import DRIFT, MARGIN_US, ended_after_us, over_at_us, waiting
from rm.core.jobs.handlers.transitions import LOSS_BACKOFF_US
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import KINDS, load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from tests import builders

S = 1_000_000
START_US = 100_000 * S
LEASE_US, GRACE_US, DOWN_US = 60 * S, 30 * S, 20 * S
RULES = Rules(grace_us=GRACE_US, down_after_us=DOWN_US)
OVER_US = LEASE_US + GRACE_US + (LEASE_US + GRACE_US) // DRIFT + MARGIN_US
PLAIN = {"queue": "fifo", "placement": "first-fit", "comm": "none"}


class World:
    """A cycle over two hosts, on the first of which a job runs since the start."""

    def __init__(self, **spec: Any) -> None:
        policies = Policies(*(load(kind, PLAIN[kind], {}) for kind in KINDS))
        self.now_us = START_US
        self.cycle = Cycle(ClusterState(), policies, RULES)
        self.do(*(ev.HostAdded(builders.host(name, cpus=1)) for name in ("h1", "h2")))
        self.do(*(ev.HostUp(name, "boot", "1") for name in ("h1", "h2")))
        self.do(ev.JobSubmitted(1, builders.spec(**{"fence_us": LEASE_US, **spec})))
        for host in {task.host for task in self.job.tasks}:
            self.do(ev.TasksPrepared(1, 1, host)) if self.job.spec.ntasks > 1 else None
        for task in self.job.tasks:
            self.do(ev.TasksStarted(1, 1, task.host, self.now_us, (task.rank,)))
        assert self.job.state is JobState.RUNNING

    def do(self, *events: ev.Event, at_s: float | None = None) -> list[Any]:
        """The actions that follow; `at_s` after the start."""
        if at_s is not None:
            self.now_us = START_US + round(at_s * S)
        return [intent.action for intent in self.cycle.step(events, self.now_us).intents]

    @property
    def job(self) -> Job:
        return self.cycle.state.jobs[1]

    def lose(self) -> None:
        """The first host falls silent at the start, and is DOWN when the time has come."""
        self.do(ev.HostSilent("h1", "cut"), at_s=0)
        self.do(at_s=DOWN_US / S)

    def why(self) -> str:
        reason = waiting(self.cycle.state, self.job, RULES, self.now_us)
        return reason.message if reason is not None else ""


def test_a_lease_is_over_after_its_length_the_grace_and_a_margin() -> None:
    world = World()
    assert ended_after_us(world.job) == OVER_US
    state = world.cycle.state
    assert over_at_us(world.job, "h1", state, RULES) is None
    state.silent_since["h1"] = 7
    assert over_at_us(world.job, "h1", state, RULES) == 7 + OVER_US
    assert over_at_us(world.job, "h2", state, RULES) is None


def test_a_lease_shorter_than_the_time_after_which_a_host_is_down_does_not_hasten_it() -> None:
    job = replace(World().job, spec=builders.spec(fence_us=10 * S), fence_grace_us=0)
    state = ClusterState(silent_since={"h1": 0})
    assert over_at_us(job, "h1", state, RULES) == DOWN_US


@pytest.mark.parametrize("fence_us", [None, 0])
def test_a_job_without_a_lease_is_given_up_when_its_host_is_down(fence_us: int | None) -> None:
    world = World(fence_us=fence_us)
    world.lose()
    assert (world.job.attempt, world.job.tasks[0].host) == (2, "h2")


def test_a_fenced_job_is_given_up_only_when_its_lease_is_over() -> None:
    world = World()
    world.lose()
    assert (world.job.state, world.job.attempt) == (JobState.RUNNING, 1)
    assert world.job.reason is not None
    assert world.job.reason.code is ReasonCode.LEASE
    assert world.cycle.next_due_us() == START_US + OVER_US
    world.do(at_s=OVER_US / S - 12)
    assert "lease of host h1 has run out (12 s)" in world.why()
    assert world.do(at_s=(OVER_US - 1) / S) == []
    again = world.do(at_s=OVER_US / S)
    assert [a for a in again if isinstance(a, Launch)] == [
        Launch(1, 2, "h2", world.job.placement.tasks, hold=False)  # type: ignore[union-attr]
    ]
    assert "the lease of the job there has run out" in world.job.earlier[0].why
    assert world.why() == ""


def test_a_fenced_job_whose_host_answers_in_time_goes_on() -> None:
    world = World()
    world.lose()
    world.do(ev.HostUp("h1", "boot", "1"), at_s=50)
    assert (world.job.state, world.job.attempt, world.job.reason) == (JobState.RUNNING, 1, None)
    world.do(at_s=10_000)
    assert world.job.attempt == 1


def test_the_lease_counts_anew_from_the_next_silence_and_after_a_restart() -> None:
    world = World()
    world.lose()
    world.do(ev.HostUp("h1", "boot", "1"), at_s=50)
    world.do(ev.HostSilent("h1", "cut again"), at_s=60)
    world.do(at_s=OVER_US / S + 59)
    assert world.job.attempt == 1
    state, now_us = world.cycle.state, world.now_us
    again = rebuild(state.jobs.values(), state.hosts.values(), (), {}, 2, 100, now_us)
    world.cycle = Cycle(again, world.cycle.policies, replace(RULES, grace_us=0))  # as rm.toml has it now
    world.now_us = now_us + OVER_US - 1
    world.do()
    assert world.job.attempt == 1
    world.now_us += 1
    world.do(ev.HostUp("h2", "boot", "1"))
    assert world.job.attempt == 2


def test_a_cancelled_job_on_a_lost_host_ends_when_its_lease_is_over() -> None:
    world = World()
    world.lose()
    assert [type(a) for a in world.do(ev.CancelRequested(1, "bob"), at_s=30)] == [Stop]
    assert world.job.state is JobState.COMPLETING
    assert "run out" in world.why()
    world.do(at_s=OVER_US / S)
    assert world.job.state is JobState.CANCELLED


def test_a_job_that_is_not_requeued_fails_when_its_lease_is_over() -> None:
    world = World(requeue=False)
    world.lose()
    world.do(at_s=OVER_US / S)
    assert world.job.state is JobState.NODE_FAIL


def test_a_gang_is_given_up_when_all_its_lost_hosts_have_ended_it() -> None:
    world = World(ntasks=2)
    assert {t.host for t in world.job.tasks} == {"h1", "h2"}
    world.lose()
    stops = world.do(at_s=OVER_US / S)
    assert [(type(a), a.host) for a in stops] == [(Stop, "h2")]
    assert world.job.state is JobState.COMPLETING
    world.do(ev.TaskExited(1, 1, "h2", 1, 0, 15, None, world.now_us, why="abort"))
    assert (world.job.state, world.job.attempt) == (JobState.PENDING, 1)


@pytest.mark.parametrize(("requeue", "state"), [(True, JobState.CONFIGURING), (False, JobState.NODE_FAIL)])
def test_a_job_that_its_host_has_fenced_has_lost_a_host(requeue: bool, state: JobState) -> None:
    world = World(requeue=requeue)
    world.do(ev.HostSilent("h1", "cut"), at_s=0)
    told = ev.TaskExited(1, 1, "h1", 0, 0, 15, None, START_US + 70 * S, why="fence")
    world.do(ev.HostUp("h1", "boot", "1"), told, at_s=80)
    assert (world.job.state, world.job.losses) == (state, int(requeue))
    said = [what for _, what in world.job.history]
    assert "fenced: no daemon for 60 s on host h1" in said


@pytest.mark.parametrize("max_losses", [0, 2])
def test_a_job_that_is_fenced_again_and_again_waits_and_is_held(max_losses: int) -> None:
    """Whoever says so: its hosts may lie, and it may be the cause."""
    world = World()
    world.cycle = Cycle(world.cycle.state, world.cycle.policies, replace(RULES, max_losses=max_losses))
    waits_us = []
    for attempt in range(1, 4):
        host = world.job.tasks[0].host
        world.do(ev.TasksStarted(1, attempt, host, world.now_us, (0,)))
        world.do(ev.TaskExited(1, attempt, host, 0, 0, 15, None, world.now_us, why="fence"))
        if world.job.held:
            break
        waits_us.append(max(0, world.job.not_before_us - world.now_us))
        world.now_us += waits_us[-1]
        world.do()
        assert world.job.attempt == attempt + 1
    if max_losses:
        assert (waits_us, world.job.losses) == ([0], max_losses)
        assert world.job.history[-1][1] == "held: its hosts were lost 2 times in a row"
    else:
        assert waits_us == [0, LOSS_BACKOFF_US, 4 * LOSS_BACKOFF_US]


def test_a_lost_host_on_which_all_tasks_have_ended_is_not_waited_for() -> None:
    world = World(ntasks=2)
    rank = next(t.rank for t in world.job.tasks if t.host == "h1")
    world.do(ev.TaskExited(1, 1, "h1", rank, 0, 0, None, START_US + S), at_s=2)
    world.do(ev.HostSilent("h1", "switched off"), at_s=3)
    world.do(at_s=3 + DOWN_US / S)
    assert world.cycle.state.hosts["h1"].state is HostState.DOWN
    assert (world.job.state, world.job.reason) == (JobState.RUNNING, None)
    world.do(ev.TaskExited(1, 1, "h2", 1 - rank, 0, 0, None, START_US + 40 * S), at_s=40)
    assert (world.job.state, world.job.reason) == (JobState.COMPLETED, None)


def test_a_host_that_says_it_fenced_a_job_without_a_lease_is_not_believed() -> None:
    world = World(fence_us=None)
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 15, None, START_US + S, why="fence"), at_s=2)
    assert world.job.state is JobState.FAILED
    assert not any("fenced" in what for _, what in world.job.history)


@pytest.mark.parametrize("by_s", [3_600, -3_600])
def test_a_clock_that_is_set_ends_no_lease_and_no_patience(by_s: int) -> None:
    world = World()
    world.do(ev.HostSilent("h1", "cut"), at_s=0)
    world.now_us += by_s * S + 5 * S
    world.do(ev.ClockStepped(by_s * S))
    assert world.cycle.state.hosts["h1"].state is HostState.UNKNOWN
    assert world.cycle.next_due_us() == world.now_us + 15 * S
    world.now_us += 15 * S
    world.do()
    assert world.cycle.state.hosts["h1"].state is HostState.DOWN
    assert world.cycle.next_due_us() == world.now_us + OVER_US - DOWN_US
    world.now_us += OVER_US - DOWN_US
    world.do()
    assert world.job.attempt == 2


@pytest.mark.parametrize("by_s", [3_600, -3_600])
def test_a_clock_that_is_set_changes_no_running_time_and_no_back_off(by_s: int) -> None:
    world = World()
    world.now_us += 10 * S + by_s * S
    world.do(ev.ClockStepped(by_s * S))
    assert world.now_us - (world.job.started_us or 0) == 10 * S
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, None, world.now_us))
    assert (world.job.ended_us or 0) - (world.job.started_us or 0) == 10 * S

    world.do(ev.JobSubmitted(2, builders.spec(begin_us=world.now_us + 100 * S)))
    state = world.cycle.state
    state.jobs[2] = replace(state.jobs[2], not_before_us=world.now_us + 200 * S)
    begin_us = state.jobs[2].spec.begin_us
    world.now_us += by_s * S
    world.do(ev.ClockStepped(by_s * S))
    assert state.jobs[2].not_before_us == world.now_us + 200 * S
    assert state.jobs[2].spec.begin_us == begin_us
    if by_s > 0:
        assert world.cycle.next_due_us() == world.now_us + 200 * S
