"""A policy that always raises: jobs still run or wait with the reason, and the defect is told once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobState
from rm.core.model.network.alignment import NOTHING_TO_ALIGN
from rm.core.model.reasons import ReasonCode
from rm.core.ports import Candidate, Proposal, reserves
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.explaining import never_fits
from rm.core.scheduling.guarded import Faults, guarded
from tests import builders

GOOD: dict[str, Any] = {"queue": "fifo", "placement": "first-fit", "comm": "none"}


class Broken:
    """Every question to it raises; `late`: not at once, but when its answer is read."""

    name = "broken"

    def __init__(self, late: bool = False) -> None:
        self.late = late

    def order(self, *args: Any) -> Any:
        raise ZeroDivisionError("of mine")

    align = order

    def candidates(self, *args: Any) -> Proposal:
        return Proposal(self._lazily() if self.late else self.order())

    def _lazily(self) -> Iterator[Candidate]:
        yield self.order()


class BrokenReserving(Broken):
    end_us = Broken.order


def cycle(told: list[str], **broken: Any) -> tuple[Cycle, Faults]:
    faults = Faults(lambda sentence, error: told.append(sentence))
    chosen = {kind: broken.get(kind) or load(kind, name) for kind, name in GOOD.items()}
    policies = Policies(*guarded(chosen["queue"], chosen["placement"], chosen["comm"], faults))
    made = Cycle(ClusterState(), policies, Rules(grace_us=5, down_after_us=20))
    made.step([ev.HostAdded(builders.host("h1", cpus=2)), ev.HostUp("h1", "boot", "1")], 100)
    return made, faults


@pytest.mark.parametrize("broken", [{"queue": Broken()}, {"queue": BrokenReserving()}])
def test_without_an_order_jobs_run_all_the_same(broken: dict[str, Any]) -> None:
    told: list[str] = []
    one, faults = cycle(told, **broken)
    for job in (1, 2, 3):
        one.step([ev.JobSubmitted(job, builders.spec())], 100 + job)
    states = [one.state.jobs[job].state for job in (1, 2, 3)]
    assert states == [JobState.CONFIGURING, JobState.CONFIGURING, JobState.PENDING]
    assert told == list(faults.sentences.values())  # once, not at every turn
    assert "'broken' failed by a defect of its own (ZeroDivisionError: of mine)" in told[0]


def test_without_an_alignment_no_traffic_is_managed() -> None:
    told: list[str] = []
    one, _ = cycle(told, comm=Broken())
    for _ in range(2):
        assert one.policies.comm.align([], one.state.snapshot(100)) is NOTHING_TO_ALIGN
    assert told == [
        "The communication policy 'broken' failed by a defect of its own (ZeroDivisionError: of mine); "
        "no job's traffic is managed."
    ]


@pytest.mark.parametrize("late", [False, True])
def test_without_a_placement_jobs_wait_with_the_reason(late: bool) -> None:
    told: list[str] = []
    one, _ = cycle(told, placement=Broken(late))
    one.step([ev.JobSubmitted(1, builders.spec())], 101)
    assert one.state.jobs[1].state is JobState.PENDING
    reason = one.reason_of(one.state.jobs[1])
    assert reason is not None
    assert reason.code is ReasonCode.POLICY
    assert "The placement policy 'broken' failed" in reason.message
    assert len(told) == 1
    assert never_fits(one.state.jobs[1], one.state.snapshot(102), one.policies) == []  # nobody knows


def test_what_only_some_policies_have_is_theirs() -> None:
    faults = Faults()
    for queue, comm in (("fifo", "none"), ("backfill", "metronome")):
        plain = load("queue", queue), load("placement", "first-fit"), load("comm", comm)
        made = guarded(*plain, faults)
        assert [one.name for one in made] == [one.name for one in plain]
        assert reserves(made[0]) == reserves(plain[0])
        assert getattr(made[2], "rescheduling", None) == getattr(plain[2], "rescheduling", None)


class Blind:
    """Places as first-fit does, and raises when asked what was around: at once, or when the words are."""

    name = "blind"

    def __init__(self, late: bool) -> None:
        self.late, self.base = late, load("placement", "first-fit")

    def candidates(self, *args: Any) -> Proposal:
        found = self.base.candidates(*args)
        found.observe = lambda candidate: self._raise if self.late else self._raise()
        return found

    def _raise(self) -> Any:
        raise ZeroDivisionError("of mine")


@pytest.mark.parametrize("late", [False, True])
def test_a_placement_that_cannot_be_explained_is_taken_all_the_same(late: bool) -> None:
    told: list[str] = []
    made, _ = cycle(told, placement=Blind(late))
    out = made.step([ev.JobSubmitted(1, builders.spec())], 200)
    assert made.state.jobs[1].state is JobState.CONFIGURING
    choice = out.taken[1].choice()
    assert ([v.host for v in choice.verdicts], choice.refused_hosts) == (["h1"], None)
    assert told == [
        "The placement policy 'blind' failed by a defect of its own (ZeroDivisionError: of mine); "
        "`rmx why` lacks the verdicts of hosts."
    ]
