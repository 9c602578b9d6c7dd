"""A pass that looks only at what may have changed decides like one that looks at every pending job."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.demand import Demand
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.host import Host, HostState, Zone
from rm.core.model.job import JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free
from rm.core.registry import load
from rm.core.scheduling import engine
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.plan import Plan
from rm.policies.placement.steps import blockers
from rm.policies.placement.steps.filters import refusal
from rm.protocol.codes import Code
from tests.builders import asked, host, job, profile, snapshot, spec
from tests.examples import seeds, try_each
from tests.turns import Calls

SECOND_US = 1_000_000
SHAPES = [
    spec("one"),
    spec("wide", ntasks=6, cpus_per_task=2),
    spec("high", ntasks=2, priority=100),
    spec("gpus", ntasks=4, gpus_per_task=1),
    spec("whole", exclusive=True),
    spec("memory", mem_gib=20),
    spec("talks", ntasks=4, hosts_min=2, gpus_per_task=1, traffic=profile(200, (0, 120, 900))),
    spec("held", hold=True),
    spec("later", begin_us=40 * SECOND_US),
    spec("shared", ntasks=2, gpus_per_task=1, gpu_mem_bytes=6 << 30),
    spec("short", ntasks=3, cpus_per_task=2, expected_us=3 * SECOND_US),
    spec("long", ntasks=3, cpus_per_task=2, expected_us=30 * SECOND_US),
    spec("limited", ntasks=2, gpus_per_task=1, time_limit_us=8 * SECOND_US),
]


def cycle(placement: str, queue: str, **tuning: int) -> Cycle:
    state = ClusterState()
    for i in range(4):
        made = host(f"h{i}", f"z{i % 2}", gpus=2 if i < 3 else 0)
        state.hosts[made.name] = made
        state.zones[made.zone] = Zone(made.zone)
        state.recount(made.name)
    policies = Policies(load("queue", queue), load("placement", placement), load("comm", "metronome"))
    return Cycle(state, policies, tuning=Tuning(**tuning))


def happenings(state: ClusterState, chance: random.Random, now_us: int) -> list[ev.Event]:
    """Some submissions, ends, releases and cancellations, drawn from the state."""
    events: list[ev.Event] = [
        ev.JobSubmitted(state.next_job + i, chance.choice(SHAPES)) for i in range(chance.randrange(4))
    ]
    for job_id in sorted(state.placed):
        job = state.jobs[job_id]
        if chance.random() < 0.3:
            events += [
                ev.TaskExited(job.id, job.attempt, t.host, t.rank, 0, 0, now_us, now_us) for t in job.tasks
            ]
    for job_id in state.pending:
        if state.jobs[job_id].held and chance.random() < 0.2:
            events.append(ev.ReleaseRequested(job_id, "alice"))
        elif chance.random() < 0.05:
            events.append(ev.CancelRequested(job_id, "alice"))
    return events


POLICIES = [
    ("first-fit", "priority"),
    ("zone", "priority"),
    ("metronome", "priority"),
    ("lwf", "srsf"),
    ("first-fit", "backfill"),
    ("consolidate", "backfill"),
    ("zone", "backfill"),
]


@pytest.mark.parametrize(("placement", "queue"), POLICIES)
@pytest.mark.parametrize("seed", seeds(4))
def test_incremental_passes_decide_like_full_ones(placement: str, queue: str, seed: int) -> None:
    one, full = cycle(placement, queue), cycle(placement, queue)
    chance = random.Random(seed)
    placed = waited = 0
    for now_us in range(SECOND_US, 80 * SECOND_US, SECOND_US):
        events = happenings(one.state, chance, now_us)
        mine = one.step(events, now_us)
        full.state.capacity_version += 1
        theirs = full.step(events, now_us)
        assert mine.recorded == theirs.recorded
        placed += sum(isinstance(e, ev.JobPlaced) for e in mine.recorded)
        for job_id in one.state.pending:
            mine_why, their_why = (c.reason_of(c.state.jobs[job_id]) for c in (one, full))
            assert mine_why is not None
            assert their_why is not None
            # what was placed behind it in the pass that refused it may have taken its room meanwhile
            told = mine_why.code, their_why.code
            assert told[0] is told[1] or told == (ReasonCode.PRIORITY, ReasonCode.RESOURCES)
            waited += 1
    assert placed > 50
    assert waited > 50


@pytest.mark.parametrize(("placement", "queue"), POLICIES)
@pytest.mark.parametrize("bound", ["placements", "refusals"])
@pytest.mark.parametrize("seed", seeds(4))
def test_passes_of_few_placements_or_refusals_decide_together_like_one_of_any_number(
    placement: str, queue: str, seed: int, bound: str
) -> None:
    few, any_number = cycle(placement, queue, **{bound: 1}), cycle(placement, queue)
    if queue == "backfill":  # of several reservations each pass moves some to earlier times, so passes count
        for one in (few, any_number):
            one.policies = replace(one.policies, queue=load("queue", queue, {"depth": 1}))
    chance = random.Random(seed)
    cut = 0
    for now_us in range(SECOND_US, 80 * SECOND_US, SECOND_US):
        events = happenings(few.state, chance, now_us)
        outcomes = [few.step(events, now_us)]
        while few.next_due_us() == 0:
            outcomes.append(few.step([], now_us))
        cut += len(outcomes) > 1
        whole = any_number.step(events, now_us)
        *mine, theirs = [
            [e for e in one.recorded if isinstance(e, ev.JobPlaced)] for one in (*outcomes, whole)
        ]
        assert bound == "refusals" or max(map(len, mine)) <= 1
        assert [placed for one in mine for placed in one] == theirs
        assert few.state.placed.keys() == any_number.state.placed.keys()
        for job_id in few.state.pending:
            my_why, their_why = (c.reason_of(c.state.jobs[job_id]) for c in (few, any_number))
            assert my_why is not None
            assert their_why is not None
            # behind a reservation a job waits for room, too: both are true
            assert my_why.code is their_why.code or queue == "backfill"
    assert cut > 5


def test_headline_is_the_first_of_the_gathered_reasons() -> None:
    try_each(seeds(200), has_the_first_of_its_reasons, lambda seed: f"seed {seed}")


def has_the_first_of_its_reasons(seed: int) -> None:
    chance = random.Random(seed)
    hosts = [
        host(f"h{i}", gpus=chance.choice((0, 4)), cpus=chance.choice((4, 8)), mem_gib=chance.choice((8, 32)))
        for i in range(6)
    ]
    if chance.random() < 0.3:
        hosts[chance.randrange(6)] = replace(hosts[0], name="away", state=HostState.DOWN)
    free = {
        h.name: Free(
            chance.randrange(h.cpus + 1), chance.randrange(h.mem_bytes + 1), tuple(range(chance.randrange(3)))
        )
        for h in hosts
    }
    if chance.random() < 0.3:
        free[hosts[1].name] = Free(hosts[1].cpus, hosts[1].mem_bytes, tuple(range(len(hosts[1].gpus))))
    one = job(
        cpus_per_task=chance.choice((1, 9)),
        gpus_per_task=chance.choice((0, 5)),
        exclusive=chance.choice((False, True)),
        **chance.choice(({"mem_gib": 0}, {"mem_gib": 40}, {"mem_all": True})),
        gpu_type=chance.choice(("", "", "a100", "b")),
    )
    snap = snapshot(*hosts, free=free)
    reasons = load("placement", "zone").candidates(asked(one), snap, explain=True).reasons
    if not reasons or not reasons[0].message.startswith("no host can take"):
        return  # there is room
    assert reasons[0].message == f"no host can take a task; {reasons[1].message}"
    assert reasons[0].numbers == reasons[1].numbers


@pytest.mark.parametrize("seed", seeds(30))
def test_the_headline_of_a_shape_that_no_host_admits_is_the_first_whatever_was_asked_before(
    seed: int,
) -> None:
    """With one policy for all, as a daemon has it: hosts go and come back between."""
    chance, policy = random.Random(seed), load("placement", "zone")
    names = [f"h{i}" for i in range(4)]
    for _ in range(20):
        hosts = [
            replace(host(n, gpus=2), state=chance.choice((HostState.DOWN, HostState.UNKNOWN, HostState.UP)))
            for n in names
        ]
        for cpus in (1, 3, 9):
            one = job(
                cpus_per_task=cpus,
                partition=chance.choice(("", "gpu")),
                hosts_excluded=tuple(chance.sample(names, 2)),
                gpu_type=chance.choice(("", "h100")),
            )
            reasons = policy.candidates(asked(one), snapshot(*hosts), explain=True).reasons
            if reasons and reasons[0].message.startswith("no host can take a task; "):
                assert reasons[0].message == f"no host can take a task; {reasons[1].message}"
                assert reasons[0].numbers == reasons[1].numbers


def test_why_no_host_is_there_is_not_asked_of_each_for_each_size_of_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody submits thousands of jobs, each of another size, while hosts are away: each took 2 ms."""
    refused: list[str] = []

    def counted(one: Host, *more: Any) -> Reason | None:
        refused.append(one.name)
        return refusal(one, *more)

    monkeypatch.setattr(blockers, "refusal", counted)
    snap = snapshot(*(replace(host(f"h{i}"), state=HostState.DOWN) for i in range(100)))
    policy = load("placement", "metronome")
    for mem_gib in range(1, 101):
        for partition in ("", "gpu"):
            why = policy.candidates(asked(job(mem_gib=mem_gib, partition=partition)), snap).reasons[0]
            assert "100 of 100 hosts, for one h0: is DOWN" in why.message
    assert len(refused) == 200


def test_what_hosts_lack_is_not_asked_of_each_for_each_size_of_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same while hosts are in use, by jobs of all kinds."""
    asked_of: list[str] = []

    def counted(one: Host, *more: Any) -> Reason | None:
        asked_of.append(one.name)
        return refusal(one, *more)

    monkeypatch.setattr(blockers, "refusal", counted)
    hosts = [host(f"h{i}", gpus=2, cpus=8) for i in range(100)]
    snap = snapshot(*hosts, free={h.name: Free(4, h.mem_bytes // 2, (0,)) for h in hosts})
    policy = load("placement", "metronome")
    for cpus in range(1, 9):
        for more in ({"exclusive": True}, {"mem_all": True}, {"gpus_per_task": 2, "gpu_type": "a100"}):
            why = policy.candidates(asked(job(cpus_per_task=cpus, **more)), snap).reasons[0]
            assert "100 of 100 hosts lack resources" in why.message
    assert len(asked_of) == 24


def test_what_is_refused_again_and_again_keeps_a_pass_of_few_refusals_from_nobody() -> None:
    """Hosts come free in each turn: those in front are tried again, and who fits stands behind them."""
    few = cycle("first-fit", "priority", refusals=2)
    taken = [spec(f"takes {name}", exclusive=True, hosts_only=(name,)) for name in ("h0", "h1", "h2", "h3")]
    few.step([ev.JobSubmitted(1 + n, one) for n, one in enumerate(taken)], SECOND_US)
    gangs = [spec(f"gang {n}", ntasks=4, hosts_min=4, cpus_per_task=1 + n, priority=5) for n in range(4)]
    few.step([ev.JobSubmitted(10 + n, one) for n, one in enumerate(gangs)], SECOND_US)
    small = 20
    few.step([ev.JobSubmitted(small, spec("small", hosts_only=("h1",)))], SECOND_US)
    number = 30
    for turn in range(2, 12):
        ended = [few.state.jobs[job] for job in few.state.placed if few.state.jobs[job].tasks[0].host == "h0"]
        ended += [few.state.jobs[2]] if turn == 2 else []
        events: list[ev.Event] = [
            ev.TaskExited(job.id, job.attempt, t.host, t.rank, 0, 0, 1, 1) for job in ended for t in job.tasks
        ]
        number += 1
        few.step([*events, ev.JobSubmitted(number, replace(taken[0], priority=100))], turn * SECOND_US)
        if small in few.state.placed:
            return
    pytest.fail("it never started")


def test_behind_a_reservation_a_pass_of_few_refusals_tries_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of many kinds fit, but would delay the one that has a reservation: each is tried around it. What
    comes free while passes come to all of them is theirs in the end, too."""
    few = cycle("first-fit", "backfill", refusals=20)
    tries = Calls(monkeypatch, engine, "place")
    now_us = 0

    def step(*events: ev.Event) -> int:
        """How often the busiest turn tried a job, of those until nothing is left to do."""

        def turn(number: int) -> int | None:
            nonlocal now_us
            now_us += 1_000
            few.step(events if number == 0 else [], now_us)
            return few.next_due_us()

        return tries.busiest(turn, 100)

    hour_us = 3_600 * SECOND_US
    runs = [spec(name, exclusive=True, hosts_only=(name,), time_limit_us=hour_us) for name in ("h0", "h1")]
    step(*(ev.JobSubmitted(1 + n, one) for n, one in enumerate(runs)))
    step(ev.JobSubmitted(3, spec("wide", ntasks=4, hosts_min=4, exclusive=True, time_limit_us=hour_us)))
    kinds = [spec("long", mem_bytes_per_task=1 + n, time_limit_us=9 * hour_us) for n in range(100)]
    assert step(*(ev.JobSubmitted(10 + n, one) for n, one in enumerate(kinds))) < 60
    assert step(ev.JobSubmitted(4, spec("other", priority=9, time_limit_us=hour_us // 2))) < 60
    codes = {few.reason_of(few.state.jobs[10 + n]).code for n in range(100)}  # type: ignore[union-attr]
    assert codes == {ReasonCode.PRIORITY}
    few.step([ev.JobSubmitted(5, spec("behind"))], now_us + 500)
    assert few.next_due_us() == 0, "it is still coming to all of them"
    step(ev.CancelRequested(3, "alice"))
    room = sum(few.state.hosts[name].cpus for name in ("h2", "h3")) - 1
    assert len(few.state.placed) == 3 + room


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("placement", ["first-fit", "zone"])
@pytest.mark.parametrize("seed", seeds(3))
def test_what_happens_between_passes_of_few_refusals_keeps_nobody_waiting(
    placement: str, depth: int, seed: int
) -> None:
    """Hosts come free and change while passes come to all jobs. In the end the leader has nothing to do, and
    nobody waits who could start; several that have reservations move with each pass that comes to all."""
    few = cycle(placement, "backfill", refusals=6)
    few.policies = replace(few.policies, queue=load("queue", "backfill", {"depth": depth}))
    chance = random.Random(seed)
    between = started = 0
    for now_us in range(SECOND_US, 60 * SECOND_US, SECOND_US):
        few.step(happenings(few.state, chance, now_us), now_us)
        for turn in range(1, 4):
            between += few.next_due_us() == 0
            few.step(happenings(few.state, chance, now_us + turn), now_us + turn)
        if chance.random() < 0.2:
            name = chance.choice(("h0", "h1"))
            there = not few.state.hosts[name].drained_by
            few.step(
                [ev.HostDrained(name, "root", "tried") if there else ev.HostResumed(name, "root")], now_us + 4
            )
        for turn in range(5, 400):
            if few.next_due_us() != 0:
                break
            few.step([], now_us + turn)
        else:
            pytest.fail("it never comes to an end")
        started += len(few.state.placed)
        if depth > 1:
            continue
        few.tuning, tuning = Tuning(), few.tuning
        few.state.capacity_version += 1
        again = few.step([], now_us + 400)
        few.tuning = tuning
        assert not [e for e in again.recorded if isinstance(e, ev.JobPlaced)]
    assert between > 5
    assert started > 50


def test_what_never_fits_is_asked_few_times_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a policy that reserves, when each job could start is asked whenever hosts change."""
    few = cycle("first-fit", "backfill", refusals=20)
    few.step([ev.HostDrained("h0", "root", "away")], 1)
    plans = Calls(monkeypatch, Plan, "earliest")
    jobs = [ev.JobSubmitted(1 + n, spec(mem_bytes_per_task=1 + n, hosts_only=("h0",))) for n in range(100)]
    few.step(jobs, 2)
    turns, most = 1, plans.count
    few.step([ev.HostDrained("h1", "root", "away")], 3)  # all are tried again
    while few.next_due_us() == 0 and turns < 300:
        plans.count = 0
        few.step([], 3 + turns)
        turns, most = turns + 1, max(most, plans.count)
    assert most < 20
    assert turns < 300


@pytest.mark.parametrize("queue", ["priority", "fifo"])
@pytest.mark.parametrize("seed", seeds(4))
def test_many_that_ask_for_the_same_are_decided_as_if_each_were_tried(queue: str, seed: int) -> None:
    """A pass tries the first of them, and the rest when those have had their turn."""
    few = cycle("first-fit", queue, placements=2, refusals=2)
    any_number = cycle("first-fit", queue)
    chance = random.Random(seed)
    alike = [spec("one", cpus_per_task=2), spec("two", ntasks=2, cpus_per_task=3), spec("nice", nice=3)]
    alike += [spec("much", mem_gib=10 + i, priority=i) for i in range(3)]
    behind = placed = 0
    for now_us in range(SECOND_US, 40 * SECOND_US, SECOND_US):
        state, events = few.state, list[ev.Event]()
        for i in range(chance.choice((0, 0, 40))):
            events.append(ev.JobSubmitted(state.next_job + i, chance.choice(alike)))
        for job_id in sorted(state.placed):
            job = state.jobs[job_id]
            if chance.random() < 0.2:
                events.append(ev.LaunchFailed(job_id, job.attempt, job.tasks[0].host, Code.NO_LOG, ""))
            elif chance.random() < 0.8:
                events += [
                    ev.TaskExited(job.id, job.attempt, t.host, t.rank, 0, 0, now_us, now_us)
                    for t in job.tasks
                ]
        for job_id in chance.sample(sorted(state.pending), min(4, len(state.pending))):
            events.append(
                chance.choice(
                    (
                        ev.JobUpdated(job_id, "alice", JobUpdate(nice=chance.randrange(-5, 5))),
                        ev.JobUpdated(job_id, "alice", JobUpdate(mem_bytes_per_task=chance.randrange(2))),
                        ev.HoldRequested(job_id, "alice"),
                        ev.CancelRequested(job_id, "alice"),
                    )
                )
            )
        events += [ev.ReleaseRequested(j, "alice") for j in state.pending if state.jobs[j].held]
        cancelled = [j.id for j in state.jobs.values() if j.state is JobState.CANCELLED]
        events += [ev.RequeueRequested(j, "alice") for j in chance.sample(cancelled, min(2, len(cancelled)))]
        if chance.random() < 0.2:
            name = chance.choice(sorted(state.hosts))
            drained = state.hosts[name].drained_by
            events.append(ev.HostResumed(name, "root") if drained else ev.HostDrained(name, "", "root"))
        outcomes = [few.step(events, now_us)]
        while few.next_due_us() == 0:
            behind += bool(few.blocked.rest)
            outcomes.append(few.step([], now_us))
        whole = any_number.step(events, now_us)
        *mine, theirs = [
            [e for e in one.recorded if isinstance(e, ev.JobPlaced)] for one in (*outcomes, whole)
        ]
        assert [one for placed_now in mine for one in placed_now] == theirs
        placed += len(theirs)
        for job_id in few.state.pending:
            my_why, their_why = (c.reason_of(c.state.jobs[job_id]) for c in (few, any_number))
            assert my_why is not None
            assert their_why is not None
            assert my_why.code is their_why.code
        for kind, waits in [*few.blocked.waiting.items(), *few.blocked.rest.behind.items()]:
            assert {few.state.jobs[j].demand for j in waits if j in few.state.pending} <= {kind}
    assert behind > 0
    assert placed > 20


def test_a_pass_looks_at_few_however_many_ask_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one = cycle("first-fit", "priority", placements=2)
    one.step([ev.JobSubmitted(n, spec("whole", exclusive=True)) for n in range(1, 1_001)], 1)
    while one.next_due_us() == 0:
        one.step([], 2)
    looked: list[int] = []
    decide = engine.decide

    def counted(pending: Any, *rest: Any, **named: Any) -> Any:
        jobs = list(pending)
        looked.append(len(jobs))
        return decide(jobs, *rest, **named)

    monkeypatch.setattr("rm.core.scheduling.cycle.decide", counted)
    for now_us in (3, 4):
        ended = [one.state.jobs[n] for n in sorted(one.state.placed)]
        one.step(
            [ev.TaskExited(job.id, 1, t.host, 0, 0, 0, now_us, now_us) for job in ended for t in job.tasks],
            now_us,
        )
        while one.next_due_us() == 0:
            one.step([], now_us)
    assert len(one.state.pending) <= 1_000 - 3 * len(one.state.placed)
    assert max(looked) <= 4


def test_a_pass_compares_few_demands_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried is gone through once for all that have some behind their first, not once for each."""
    one = cycle("first-fit", "priority", placements=2, refusals=50)
    state = one.state
    one.step([ev.JobSubmitted(n, spec("whole", exclusive=True)) for n in range(1, 5)], 1)
    while one.next_due_us() == 0:
        one.step([], 2)
    kinds = [spec(mem_bytes_per_task=1 + i) for i in range(1_000)]
    one.step([ev.JobSubmitted(state.next_job + i, asks) for i, asks in enumerate(kinds * 5)], 3)
    while one.next_due_us() == 0:
        one.step([], 4)
    compared, snapshots = (Calls(monkeypatch, *of) for of in ((Demand, "__eq__"), (ClusterState, "snapshot")))
    events: list[ev.Event] = [ev.HostDrained("h0", "", "root")]
    turns = most = 0
    while turns == 0 or one.next_due_us() == 0:
        compared.count = 0
        one.step(events, 5)
        assert bool(one.blocked.rest) is (one.next_due_us() == 0)
        events, turns, most = [], turns + 1, max(most, compared.count)
    assert turns > 10
    assert most < 10 * len(state.pending)
    assert snapshots.count < 10 * turns


def test_a_requeued_job_waits_with_those_that_ask_for_the_same_now() -> None:
    """It avoids other hosts than when it waited last."""
    one, whole = cycle("first-fit", "priority"), spec("whole", exclusive=True)
    one.step([ev.JobSubmitted(1, spec("last", exclusive=True, nice=9))], 1)
    one.step([ev.JobSubmitted(n, whole) for n in range(2, 7)], 2)
    last = one.state.jobs[1]
    one.step([ev.LaunchFailed(1, last.attempt, last.tasks[0].host, Code.NO_LOG, "")], 3)
    avoiding = one.state.jobs[1]
    assert one.blocked.waiting[avoiding.demand] == {1: None}
    one.step([ev.CancelRequested(1, "alice")], 4)
    one.step([ev.RequeueRequested(1, "alice")], 5)
    assert one.state.jobs[1].avoid == ()
    assert avoiding.avoid != ()
    assert avoiding.demand not in one.blocked.waiting
    assert 1 in one.blocked.waiting[one.state.jobs[1].demand]


def test_the_order_of_what_waits_no_more_is_forgotten() -> None:
    one = cycle("first-fit", "priority", placements=2)
    state = one.state
    one.step([ev.JobSubmitted(n, spec("whole", exclusive=True)) for n in range(1, 5)], 1)
    for kind in range(40):
        jobs = range(state.next_job, state.next_job + 100)
        one.step([ev.JobSubmitted(n, spec(mem_bytes_per_task=1 + kind)) for n in jobs], 2)
        one.step([ev.HostDrained("h0", "", "root") if kind % 2 else ev.HostResumed("h0", "root")], 3)
        while one.next_due_us() == 0:
            one.step([], 4)
        one.step([ev.CancelRequested(n, "alice") for n in jobs], 5)
    assert sum(map(len, one.blocked.rest._known.values())) < 2_000


def test_of_what_nobody_asks_for_any_more_no_order_is_kept() -> None:
    one = cycle("first-fit", "priority", placements=2)
    one.step([ev.JobSubmitted(n, spec("whole", exclusive=True)) for n in range(1, 5)], 1)
    one.step([ev.JobSubmitted(n, spec(mem_bytes_per_task=1)) for n in range(5, 15)], 2)
    while one.next_due_us() == 0:
        one.step([], 3)
    one.step([ev.HostDrained("h0", "", "root")], 4)
    asked = one.state.jobs[5].demand
    assert asked in one.blocked.rest._known
    one.step([ev.JobUpdated(n, "alice", JobUpdate(mem_bytes_per_task=2)) for n in range(5, 15)], 5)
    assert asked not in one.blocked.rest._known
