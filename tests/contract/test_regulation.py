"""Daemon and simulator tell hosts the same for the same plans, reports and measured profiles."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.job import JobState
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment, LinkAlignment, Schedule
from rm.daemon.regulation.inspection import profile_of
from rm.policies.regulate.controller import ControllerOptions, Inspect, Report
from rm.policies.regulate.desired import Learn
from rm.policies.regulate.iterating import Iterating
from rm.protocol.attempts import Grid
from rm.protocol.network import Profiled
from rm.sim.regulation import Regulation
from tests import builders
from tests.examples import examples
from tests.regulating import TRAFFIC, House, schedule

JOBS = (1, 2, 3)
CHANGED = builders.profile(80, (0, 40, 1_000))


@dataclass(frozen=True)
class Plan:
    """A new alignment: each job's fields in it, and which of them share a component."""

    fields: tuple[tuple[int, dict[str, Any]], ...]
    split: bool = False

    def alignment(self) -> Alignment:
        """The first of a component is its reference; `split` leaves the last job on its own."""
        jobs = [job for job, _ in self.fields]
        groups = [jobs[:-1], jobs[-1:]] if self.split else [jobs]
        schedules: list[Schedule] = []
        for job, fields in self.fields:
            group = next(g for g in groups if job in g)
            if job == group[0]:
                fields = {"period_us": fields["period_us"], "reference": True, "high": True}
            schedules.append(replace(schedule(job, **fields), component=group[0]))
        links = tuple(LinkAlignment("a", 100.0, 100_000, tuple(g)) for g in groups if g)
        return Alignment(100.0, links, tuple(schedules))


@dataclass(frozen=True)
class Iterate:
    """A job reports iterations, one after the other."""

    job: int
    times: int
    duration_us: int
    comm_us: int | None = None


@dataclass(frozen=True)
class Restart:
    """A job's attempt ends, and the next one begins."""

    job: int


@dataclass(frozen=True)
class Inspected:
    """The inspection that is under way ends."""

    outcome: Literal["same", "changed", "unclear"]


Step = Plan | Iterate | Restart | Inspected


class BothWorlds:
    """A daemon's regulator and a simulator's regulation that hear the same."""

    def __init__(self) -> None:
        self.live = House(epoch=0)
        self.simulated = Regulation(self._inspections, self._learnt, ControllerOptions())
        self.to_inspect: list[tuple[int, int]] = []  # job, attempt; the first is being profiled
        self.meanwhile_us: list[int] = []  # durations of its iterations since
        self.learnt: list[Learn] = []
        self.alignment = NOTHING_TO_ALIGN
        self.ends: dict[tuple[int, int], int] = {}
        for job in JOBS:
            self.live.run(job)

    def _inspections(self, command: Inspect) -> None:
        named = [(job, self.attempt(job)) for job in command.jobs]
        self.to_inspect += [name for name in named if name not in self.to_inspect]

    def _learnt(self, news: Learn) -> None:
        self.learnt.append(news)

    def play(self, step: Step) -> None:
        match step:
            case Plan():
                self.see(step.alignment())
            case Iterate():
                self.iterate(step)
            case Restart():
                self.restart(step.job)
            case Inspected():
                self.inspected(step.outcome)
        assert self.documents_of_daemon() == self.documents_of_simulator()

    def attempt(self, job: int) -> int:
        return self.live.state.jobs[job].attempt

    def see(self, alignment: Alignment) -> None:
        self.alignment = alignment
        running = {j: self._iterating(j) for j in JOBS if self.live.state.jobs[j].state is JobState.RUNNING}
        self.live.see(alignment)
        self.simulated.aligned(alignment, running)

    def _iterating(self, job: int) -> Iterating:
        traffic = self.traffic(job)
        attempt = self.attempt(job)
        return Iterating(attempt, traffic.period_us - traffic.comm_us, self.ends.get((job, attempt)))

    def traffic(self, job: int) -> TrafficProfile:
        traffic = self.live.state.jobs[job].traffic
        assert traffic is not None
        return traffic

    def iterate(self, step: Iterate) -> None:
        attempt = self.attempt(step.job)
        for n in range(step.times):
            begin_us = self.ends.get((step.job, attempt), 1_000 * step.job)
            self.ends[(step.job, attempt)] = begin_us + step.duration_us
            self.live.report(step.job, [0, n, begin_us, step.duration_us, 0, step.comm_us], attempt=attempt)
            if self.to_inspect[:1] == [(step.job, attempt)]:
                self.meanwhile_us.append(step.duration_us)
            self.simulated.report(attempt, Report(step.job, begin_us, step.duration_us, 0, step.comm_us))
        self.live.settle()

    def restart(self, job: int) -> None:
        attempt = self.attempt(job)
        self.live.do(ev.RequeueRequested(job, "alice"))
        for rank, host in enumerate(("a", "b")):
            self.live.do(ev.TaskExited(job, attempt, host, rank, 0, 15, None, self.live.clock.us))
        self.see(self.alignment)
        self.live.do(ev.JobPlaced(job, builders.placement("a", "b")))
        self.live.start(job)
        self.see(self.alignment)

    def inspected(self, outcome: str) -> None:
        if not self.to_inspect:
            assert self.live.hosts.untaken("profile") == []
            return
        call = self.live.hosts.take("profile")
        job, attempt = self.to_inspect.pop(0)
        assert (call.args["job"], call.args["attempt"]) == (job, attempt)
        measured = _measured({"same": TRAFFIC, "changed": CHANGED, "unclear": None}[outcome])
        new = profile_of(msgspec.convert(measured, Profiled), self.meanwhile_us)
        self.meanwhile_us = []
        call.answer(**measured)
        self.live.settle()
        self.simulated.profiled(job, attempt, self.traffic(job), new)
        news = [ev.ProfileMeasured(n.job, n.attempt, n.profile, cooperative=True) for n in self.learnt]
        assert self.live.posted.items == news
        self.live.do(*news)
        self.live.posted.items.clear()
        self.learnt.clear()
        if news:
            self.see(self.alignment)

    def documents_of_daemon(self) -> dict[int, dict[str, Any]]:
        """What host a was told last of each present attempt."""
        found: dict[int, dict[str, Any]] = {}
        calls = [c for c in self.live.hosts.made if c.op == "schedule" and c.host == "a"]
        for call in calls:
            job = call.args["job"]
            if call.args["attempt"] != self.attempt(job):
                continue
            if call.args["schedule"] is None:
                found.pop(job, None)
            else:
                found[job] = msgspec.structs.asdict(msgspec.convert(call.args["schedule"], Grid))
        return found

    def documents_of_simulator(self) -> dict[int, dict[str, Any]]:
        documents = {j: self.simulated.schedule(j, self.attempt(j)) for j in JOBS}
        return {job: dict(document) for job, document in documents.items() if document is not None}


def _measured(profile: TrafficProfile | None) -> dict[str, Any]:
    if profile is None:
        return {"phases": [], "confidence": 0}
    phases = [[p.offset_us, p.duration_us, p.rate_bps] for p in profile.phases]
    return {"period_us": profile.period_us, "phases": phases, "confidence": 1.0}


def play(steps: list[Step]) -> BothWorlds:
    worlds = BothWorlds()
    try:
        for step in steps:
            worlds.play(step)
    finally:
        worlds.live.regulator.stop()
    return worlds


FIELDS = st.fixed_dictionaries(
    {
        "shift_us": st.sampled_from((0, 30_000, 50_000)),
        "period_us": st.sampled_from((80_000, 100_000)),
        "gate": st.booleans(),
        "inject_us": st.sampled_from((0, 3_000)),
        "adjust": st.sampled_from((0.0, 0.05)),
        "regulated": st.booleans(),
        "cushion_us": st.sampled_from((0, 10_000)),
    }
)
PLANS = st.builds(
    Plan, st.lists(st.sampled_from(JOBS), unique=True).flatmap(
        lambda jobs: st.tuples(*(st.tuples(st.just(j), FIELDS) for j in sorted(jobs)))
    ), st.booleans(),
)  # fmt: skip
STEPS = st.one_of(
    PLANS,
    st.builds(
        Iterate,
        st.sampled_from(JOBS),
        st.integers(1, 12),
        st.sampled_from((80_000, 100_000, 130_000)),
        st.sampled_from((None, 40_000, 70_000)),
    ),
    st.builds(Restart, st.sampled_from(JOBS)),
    st.builds(Inspected, st.sampled_from(("same", "changed", "unclear"))),
)


def fields(**given: Any) -> dict[str, Any]:
    return {"shift_us": 50_000, "period_us": 100_000, **given}


GATED = Plan(((1, fields()), (2, fields(gate=True))))
LOOSE = Plan(((1, fields()), (2, fields(gate=False))))


@settings(max_examples=examples(60))
@given(st.lists(STEPS, max_size=14))
def test_any_story_leaves_the_hosts_of_both_worlds_with_the_same_schedules(steps: list[Step]) -> None:
    play(steps)


def test_a_gated_job_keeps_its_slots_until_the_reference_of_the_new_plan_is_heard() -> None:
    later = Plan(((1, fields()), (2, fields(gate=True, shift_us=30_000))))
    steps: list[Step] = [GATED, Iterate(1, 1, 100_000), Restart(1), later]
    kept = play(steps).documents_of_daemon()[2]
    assert (kept["gate"], kept["shift_us"]) == (True, 50_000)
    moved = play([*steps, Iterate(1, 1, 100_000)]).documents_of_daemon()[2]
    assert (moved["gate"], moved["shift_us"]) == (True, 30_000)


@pytest.mark.parametrize("now", [{"period_us": 80_000, "gate": True}, {"gate": False}])
def test_a_slot_of_another_period_or_that_is_needed_no_more_holds_nobody(now: dict[str, Any]) -> None:
    steps: list[Step] = [GATED, Iterate(1, 1, 100_000), Restart(1)]
    free = play([*steps, Plan(((1, fields()), (2, fields(**now))))]).documents_of_daemon()[2]
    assert (free["gate"], free["inject_us"], free["adjust_us"], free["period_us"]) == (False, 0, 0, 0)


def test_a_pause_that_was_not_made_yet_ends_with_the_plan_that_asked_for_it() -> None:
    steps: list[Step] = [Iterate(1, 1, 100_000), Iterate(2, 1, 130_000), LOOSE]
    paused = play(steps).documents_of_daemon()[2]
    assert (paused["pause_seq"], paused["pause_length_us"]) == (1, 19_000)
    there = Plan(((1, fields()), (2, fields(shift_us=31_000))))  # where it is already
    left = play([*steps, there]).documents_of_daemon()[2]
    assert (left["pause_seq"], left["pause_length_us"], left["period_us"]) == (1, 0, 0)


SLOW: list[Step] = [LOOSE, Iterate(1, 1, 100_000), Iterate(2, 6, 130_000, comm_us=40_000)]


@pytest.mark.parametrize("outcome", ["same", "unclear", "changed"])
def test_jobs_that_were_inspected_are_brought_to_their_slots_anew(outcome: Any) -> None:
    before = play(SLOW)
    assert before.to_inspect == [(2, 1)]
    assert before.documents_of_daemon() == {}
    after = play([*SLOW, Inspected(outcome)])
    assert after.to_inspect == []
    assert after.simulated.pauses == after.live.regulator.of(2)["pauses"] == 1
    assert after.traffic(2) == (CHANGED if outcome == "changed" else TRAFFIC)
