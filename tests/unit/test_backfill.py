"""EASY backfilling: who may start before the first job that does not fit, and when that one starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Zone
from rm.core.model.job import Job, JobState
from rm.core.model.progress import Progress
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.explaining import explain
from rm.policies.queue.backfill import BackfillOptions, BackfillPolicy
from tests.builders import host, job, snapshot, spec
from tests.examples import seeds

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US


class World:
    """Hosts of one CPU each under a cycle; jobs end when they are told to."""

    def __init__(
        self,
        hosts: int = 4,
        queue: str = "backfill",
        placement: str = "first-fit",
        depth: int = 1,
        **more: Any,
    ) -> None:
        state = ClusterState()
        for i in range(hosts):
            made = host(f"h{i}", **{"cpus": 1} | more)
            state.hosts[made.name] = made
            state.recount(made.name)
        state.zones["z1"] = Zone("z1")
        self.cycle = Cycle(
            state,
            Policies(
                load("queue", queue, {"depth": depth} if queue == "backfill" else {}),
                load("placement", placement),
                load("comm", "none"),
            ),
        )
        self.now_us = 0
        self.started: dict[int, int] = {}

    def step(self, *events: ev.Event) -> list[int]:
        """The jobs that start now."""
        out = self.cycle.step(events, self.now_us)
        assert not out.refused
        placed = [e.job for e in out.recorded if isinstance(e, ev.JobPlaced)]
        for number in placed:  # they run at once
            one = self.job(number)
            for name in one.placement.hosts:
                self.cycle.step([ev.TasksPrepared(number, one.attempt, name)], self.now_us)
            for name in one.placement.hosts:
                ranks = tuple(t.rank for t in one.tasks if t.host == name)
                self.cycle.step([ev.TasksStarted(number, one.attempt, name, self.now_us, ranks)], self.now_us)
            self.started[number] = self.now_us
        return placed

    def submit(self, tasks: int, seconds: float | None = None, **more: Any) -> list[int]:
        expected = None if seconds is None else round(seconds * SECOND_US)
        return self.step(
            ev.JobSubmitted(self.cycle.state.next_job, spec(ntasks=tasks, expected_us=expected, **more))
        )

    def end(self, *jobs: int) -> list[int]:
        return self.step(
            *(
                ev.TaskExited(j, self.job(j).attempt, t.host, t.rank, 0, 0, 0, self.now_us)
                for j in jobs
                for t in self.job(j).tasks
            )
        )

    def wait(self, seconds: float) -> list[int]:
        self.now_us += round(seconds * SECOND_US)
        return self.step()

    def job(self, number: int) -> Job:
        return self.cycle.state.jobs[number]

    def why(self, number: int) -> Reason:
        reason = self.cycle.reason_of(self.job(number))
        assert reason is not None
        return reason


def two_of_four_busy(**more: Any) -> World:
    """Job 1 has two of four hosts for 100 s; job 2 wants three."""
    world = World(**more)
    assert world.submit(2, 100) == [1]
    assert world.submit(3, 100) == []
    return world


def test_without_reservations_a_large_job_is_overtaken_and_with_them_it_is_not():
    careless = two_of_four_busy(queue="priority")
    assert careless.submit(2, 1_000) == [3]
    careful = two_of_four_busy()
    assert careful.submit(2, 1_000) == []
    assert careful.end(1) == [2]


def test_a_job_that_ends_in_time_may_go_first():
    world = two_of_four_busy()
    assert world.submit(2, 100) == [3]
    late = two_of_four_busy()
    late.wait(1)
    assert late.submit(2, 100) == []
    assert late.submit(2, 99) == [4]


def test_a_job_that_leaves_enough_may_go_first_however_long_it_takes():
    world = two_of_four_busy()
    assert world.submit(1) == [3]  # 4 hosts less 1 are the 3 that job 2 needs
    assert world.submit(1) == []
    assert world.why(4).code is ReasonCode.PRIORITY
    assert world.end(1) == [2]


def test_what_is_taken_until_after_the_start_adds_up():
    world = World(8)
    assert world.submit(4, 100) == [1]
    assert world.submit(6, 100) == []
    assert [world.submit(1, 500) for _ in range(3)] == [[3], [4], []]  # 8 - 6 = 2 may stay
    assert world.submit(2, 50) == [6]
    assert world.end(1, 6) == [2]


def test_the_reasons_name_the_job_ahead_and_its_time():
    world = two_of_four_busy()
    world.submit(2, 1_000)
    behind = world.why(3)
    assert behind.code is ReasonCode.PRIORITY
    assert behind.message.startswith(
        "waits behind the reservation of job 2, which starts at 1970-01-01 00:01:40 UTC"
    )
    assert dict(behind.numbers) == {"reserved_job": 2, "reserved_start_us": 100 * SECOND_US}
    ahead = world.why(2)
    assert ahead.code is ReasonCode.RESOURCES
    assert "its reservation begins at 1970-01-01 00:01:40 UTC" in ahead.message


def test_why_and_test_only_reckon_with_the_reservation():
    world = two_of_four_busy()
    world.submit(2, 1_000)
    cycle, state = world.cycle, world.cycle.state

    def asked(one: Job) -> tuple[bool, list[Reason]]:
        decision, reasons, _ = explain(one, state.snapshot(0), cycle.policies, cycle.tuning)
        return decision is not None, reasons

    assert asked(world.job(3)) == (False, [world.why(3)])
    fits, reasons = asked(world.job(2))
    assert (fits, reasons[0]) == (False, world.why(2))
    assert asked(job(99, ntasks=2, expected_us=SECOND_US)) == (True, [])
    assert asked(job(99, ntasks=2)) == (False, [world.why(3)])
    assert asked(job(99, ntasks=2, priority=1)) == (True, [])  # it would stand ahead
    assert state.reasons[2] == world.why(2)


def test_a_job_of_higher_priority_takes_the_reservation_over():
    world = two_of_four_busy()
    assert world.submit(4, 10, priority=5) == []
    assert world.why(3).numbers[-1] == ("reserved_start_us", 100 * SECOND_US)
    assert world.submit(1) == []  # beside job 2 it would have been let pass
    assert "job 3" in world.why(4).message
    assert world.end(1) == [3]


class ByOrder(BackfillPolicy):
    """In an order that changes by itself, as that of fair share does."""

    def __init__(self, first: list[int]) -> None:
        super().__init__(BackfillOptions(depth=3))
        self.first = first

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> list[Job]:
        return sorted(pending, key=lambda one: (one.id not in self.first, one.id))


def by_order(*running_s: float) -> tuple[World, ByOrder]:
    """One host each has a job for these seconds."""
    world, queue = World(len(running_s)), ByOrder([])
    world.cycle.policies = replace(world.cycle.policies, queue=queue)
    for seconds in running_s:
        world.submit(1, seconds)
    return world, queue


def plan_s(world: World) -> dict[int, float]:
    return {one.job: (one.at_us or 0) / SECOND_US for one in world.cycle.state.planned.values()}


def test_a_reserved_job_goes_before_those_that_it_has_come_to_stand_before() -> None:
    """Or the reservations would keep the order of the moment at which they were made."""
    world, queue = by_order(50, 100, 100, 100)
    before = len(world.started)
    large, larger = before + 1, before + 2
    assert world.submit(3, 100) == world.submit(4, 10) == []
    assert plan_s(world) == {large: 100, larger: 200}
    queue.first.append(larger)
    world.now_us = 50 * SECOND_US
    assert world.end(1) == []
    assert plan_s(world) == {larger: 100, large: 110}
    queue.first.clear()
    world.now_us = 60 * SECOND_US
    assert world.end(2) == []
    assert plan_s(world) == {large: 100, larger: 200}, "and back"


def test_a_reserved_job_starts_before_those_that_it_has_come_to_stand_before() -> None:
    world, queue = by_order(50, 100)
    both, one = 3, 4
    assert world.submit(2, 100) == world.submit(1, 500) == []
    assert plan_s(world) == {both: 100, one: 200}
    queue.first.append(one)
    world.now_us = 50 * SECOND_US
    assert world.end(1) == [one], "it had to leave the host to the other's reservation"
    assert plan_s(world) == {both: 550}


@pytest.mark.parametrize("gone", [ev.CancelRequested(2, "alice"), ev.HoldRequested(2, "alice")])
def test_when_the_reserved_job_goes_those_behind_it_start(gone: ev.Event):
    world = two_of_four_busy()
    assert world.submit(2, 1_000) == []
    assert world.step(gone) == [3]
    assert world.cycle.next_due_us() is None or not world.cycle.state.pending


def test_a_reservation_that_is_not_met_is_made_anew():
    """Job 1 takes longer than expected: who was refused for a second too much need not wait for it."""
    world = two_of_four_busy()
    assert world.submit(2, 110) == []
    assert world.cycle.next_due_us() == 100 * SECOND_US
    assert world.wait(99) == []
    assert world.submit(1, 30, hosts_excluded=("h2",)) == [4]  # leaves enough
    assert world.wait(1) == []  # job 1 is overdue: another minute is too short for job 3
    assert world.cycle.next_due_us() == 160 * SECOND_US
    assert world.wait(60) == []
    assert world.cycle.next_due_us() == 220 * SECOND_US
    world.wait(60)
    assert world.cycle.next_due_us() == 340 * SECOND_US  # it is two minutes late: two more are expected
    assert world.end(4) == [3]
    assert world.end(1, 3) == [2]


def test_reports_of_progress_move_the_reservation():
    world = two_of_four_busy()
    progress = Progress(1, world.job(1).attempt, 0, 500 * SECOND_US)
    world.step(ev.JobsProgressed((progress,)))
    assert world.submit(2, 450) == [3]


def test_without_limits_nothing_ever_ends():
    """As in Slurm: then only those pass who leave the reserved job what it needs."""
    world = World()
    assert world.submit(2) == [1]
    assert world.submit(3) == []
    assert world.why(2).message.endswith("its reservation begins when jobs without a time limit have ended")
    assert world.submit(2) == []
    assert world.submit(1, 10_000) == [4]  # it will have ended by then
    assert world.submit(1) == [5]  # 3 are left
    assert world.submit(1) == []
    assert world.cycle.next_due_us() is None
    assert world.end(1, 4) == [2]


def test_jobs_without_limits_that_come_at_once_reserve_as_those_that_come_one_by_one():
    world = World(hosts=3, depth=4)
    assert world.submit(1, 100, hosts_only=("h0",)) == [1]
    asked = ((1, ("h0",)), (1, ("h1",)), (2, ("h1", "h2")), (1, ("h2",)))
    come = (ev.JobSubmitted(2 + n, spec(ntasks=t, hosts_only=on)) for n, (t, on) in enumerate(asked))
    assert world.step(*come) == [3]
    assert list(world.cycle.state.planned) == [2, 4]
    assert world.why(5).code is ReasonCode.PRIORITY
    assert world.end(3) == [4]


def test_a_time_limit_bounds_what_is_expected_and_serves_where_nothing_is():
    world = World()
    assert world.submit(2, 1_000, time_limit_us=100 * SECOND_US) == [1]
    assert world.submit(3, 50) == []
    assert world.why(2).numbers[-1] == ("reserved_start_us", 100 * SECOND_US)
    assert world.submit(2, None, time_limit_us=101 * SECOND_US) == []
    assert world.submit(2, None, time_limit_us=100 * SECOND_US) == [4]


def test_a_job_that_no_state_of_the_hosts_can_take_reserves_nothing():
    world = World()
    world.step(ev.HostDrained("h0", "root", "disk"))
    assert world.submit(2, 100) == [1]
    assert world.submit(4, 100) == []
    assert world.submit(1, 10_000) == [3]
    assert world.why(2).code is ReasonCode.RESOURCES
    assert "expected" not in world.why(2).message
    assert world.step(ev.HostResumed("h0", "root")) == []
    assert world.why(2).message.endswith("its reservation begins at 1970-01-01 02:46:40 UTC")


def test_gpus_are_reserved_by_index_and_by_memory():
    world = World(1, cpus=8, gpus=2)
    gib = 1 << 30
    assert world.submit(1, 100, gpus_per_task=1) == [1]
    assert world.submit(2, 100, gpus_per_task=1, gpu_mem_bytes=10 * gib) == []
    assert world.submit(1, 500, gpus_per_task=1, gpu_mem_bytes=7 * gib) == []
    assert world.submit(1, 500, gpus_per_task=1, gpu_mem_bytes=6 * gib) == [4]
    assert world.submit(1, 500, gpus_per_task=1) == []
    assert world.submit(1, 500) == [6]  # needs none
    assert world.end(1) == [2]


@pytest.mark.parametrize(
    ("fields", "state", "started_us", "now_us", "ends_us"),
    [
        ({"expected_us": 50}, JobState.PENDING, None, 7, 57),
        ({"expected_us": 50}, JobState.RUNNING, 10, 30, 60),
        ({"expected_us": 50, "time_limit_us": 40}, JobState.RUNNING, 10, 30, 50),
        ({"expected_us": 10}, JobState.RUNNING, 0, 30, 30 + MINUTE_US),
        ({"expected_us": MINUTE_US}, JobState.RUNNING, 0, 3 * MINUTE_US, 5 * MINUTE_US),
        ({"expected_us": 10, "time_limit_us": 25}, JobState.RUNNING, 0, 30, 30),
        ({"time_limit_us": 25}, JobState.RUNNING, 0, 10, 25),
        ({}, JobState.RUNNING, 0, 10, None),
        ({}, JobState.COMPLETING, 0, 10, 10),
    ],
)
def test_when_a_job_is_expected_to_end(fields, state, started_us, now_us, ends_us):
    one = replace(job(1, state=state, **fields), started_us=started_us)
    assert load("queue", "backfill").end_us(one, snapshot(now_us=now_us)) == ends_us


@pytest.mark.parametrize(
    ("placement", "hosts", "depth"),
    [
        ("first-fit", 6, 1),
        ("lwf", 6, 1),
        ("least-loaded", 6, 1),
        ("first-fit", 6, 4),
        ("zone", 6, 4),
        ("lwf", 6, 8),
        ("metronome", 6, 8),
        ("first-fit", 1, 2),
        ("first-fit", 1, 5),
        ("first-fit", 1, 8),
    ],
)
@pytest.mark.parametrize("seed", seeds(6))
def test_nobody_starts_later_than_was_promised(placement: str, hosts: int, depth: int, seed: int):
    """Jobs run exactly as long as expected and have one priority: then no reserved job is ever delayed."""
    chance = random.Random(seed)
    world = World(hosts, placement=placement, depth=depth, cpus=12 // hosts, gpus=12 // hosts)
    state = world.cycle.state
    promised: dict[int, int] = {}
    ends: dict[int, int] = {}
    overtaken = 0
    for turn in range(160):
        world.now_us += SECOND_US
        over = [j for j, at in ends.items() if at <= world.now_us]
        for number in over:
            del ends[number]
        before = set(state.pending)
        started = world.end(*over)
        if turn < 120 and chance.random() < 0.6:
            more = chance.choice(({}, {"gpus_per_task": 1}, {"gpus_per_task": 1, "gpu_mem_bytes": 6 << 30}))
            more = more if hosts > 1 else {}
            started += world.submit(chance.choice((1, 2, 3, 8, 10)), chance.randint(1, 25), **more)
        for number in started:
            ends[number] = world.now_us + (world.job(number).spec.expected_us or 0)
            assert world.now_us <= promised.get(number, world.now_us)
            overtaken += bool(before) and number > min(before - set(started), default=number)
        assert len(state.planned) <= depth
        for held in state.planned.values():
            if held.at_us is not None:
                assert held.at_us > world.now_us
                promised[held.job] = min(held.at_us, promised.get(held.job, held.at_us))
    assert len(promised) > 5
    assert overtaken > 5
