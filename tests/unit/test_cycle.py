"""The cycle: what the clock brings, and which recomputation still counts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.reconcile import Reported, ReportedTask, reconcile
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState, Task
from rm.core.model.network.alignment import Alignment, LinkAlignment
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Free, PlacedJob, Snapshot
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, in_order
from rm.core.scheduling.engine import Policies
from rm.units import SECOND_US
from tests import builders

TRAFFIC = builders.profile(100, (0, 40, 500))
ONLINE = Alignment(80.0, (LinkAlignment("h1", 80.0, 100_000, (1, 2)),), recompute=True)
OFFLINE = Alignment(90.0)


class TwoStage:
    """Aligns at once so far, and offline better."""

    name = "two-stage"

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        self.asked.append(tuple(p.job for p in placed))
        return OFFLINE if offline else ONLINE


def cycle(*hosts: str) -> Cycle:
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), TwoStage())
    made = Cycle(ClusterState(), policies, Rules(grace_us=5, down_after_us=20))
    made.step([ev.HostAdded(builders.host(n, cpus=2)) for n in hosts], 100)
    made.step([ev.HostUp(n, "boot", "1") for n in hosts], 100)
    return made


def test_a_begin_time_is_kept_to_the_microsecond() -> None:
    one = cycle("h1")
    one.step([ev.JobSubmitted(1, builders.spec(begin_us=500))], 100)
    assert one.next_due_us() == 500
    reason = one.reason_of(one.state.jobs[1])
    assert reason is not None
    assert reason.code is ReasonCode.BEGIN_TIME
    one.step([], 499)
    assert one.state.jobs[1].state is JobState.PENDING
    one.step([], 500)
    assert one.state.jobs[1].state is JobState.CONFIGURING
    assert one.next_due_us() is None


def given_up() -> Cycle:
    """Job 1 has both GPUs of h1, which was given up and has come back, and still runs attempt 1."""
    one = cycle()
    one.step([ev.HostAdded(builders.host("h1", cpus=8, gpus=2))], 100)
    one.step([ev.JobSubmitted(1, builders.spec(ntasks=2, gpus_per_task=1))], 100)
    one.step([ev.TasksStarted(1, 1, "h1", 100, (0, 1))], 100)
    one.step([ev.HostDown("h1", "silent")], 200)
    assert one.state.jobs[1].state is JobState.PENDING
    return one


def still_runs(one: Cycle, rank: int, **more: Any) -> ReportedTask:
    return ReportedTask(1, 1, rank, "running", cpus=1, **more)


def comes_back(one: Cycle, *tasks: ReportedTask) -> None:
    one.step([ev.HostUp("h1", "boot", "1"), *reconcile(one.state, "h1", Reported(tasks), (), (), 300)], 300)


def test_what_a_host_still_runs_holds_its_gpus_until_it_ends() -> None:
    one = given_up()
    comes_back(one, still_runs(one, 0, gpus=("GPU-h1-0",)), still_runs(one, 1, gpus=("1",)))
    assert one.state.free["h1"] == Free(6, 32 << 30, (), (), (1,))
    reason = one.reason_of(one.state.jobs[1])
    assert "held until they end (job 1)" in str(reason)
    one.step([ev.JobSubmitted(2, builders.spec())], 300)  # without GPUs there is room
    assert one.state.jobs[2].state is JobState.CONFIGURING
    one.step([ev.StrayEnded(1, 1, "h1", 0)], 400)
    assert one.state.jobs[1].state is JobState.PENDING
    one.step([ev.StrayEnded(1, 1, "h1", 1)], 400)
    assert one.state.jobs[1].state is JobState.CONFIGURING
    assert one.state.free["h1"].strays == ()


@pytest.mark.parametrize("gpus", [None, ("GPU-of-another-life",)])
def test_of_a_stray_whose_gpus_are_not_known_all_are_held(gpus: tuple[str, ...] | None) -> None:
    one = given_up()
    comes_back(one, still_runs(one, 0, gpus=gpus))
    assert one.state.free["h1"].gpus == ()
    assert one.state.free["h1"].cpus == (0 if gpus is None else 7)
    comes_back(one)  # it has ended while nobody listened
    assert one.state.jobs[1].state is JobState.CONFIGURING


def test_the_queue_is_in_the_order_of_the_turns() -> None:
    one = cycle()
    one.policies = replace(one.policies, queue=load("queue", "priority"))
    specs = [builders.spec(priority=p) for p in (1, 9, 5)]
    specs += [builders.spec(priority=99, begin_us=500), builders.spec(priority=99, hold=True)]
    one.step([ev.JobSubmitted(n, spec) for n, spec in enumerate(specs, 1)], 100)
    for now_us, order in ((499, [2, 3, 1, 4, 5]), (500, [4, 2, 3, 1, 5])):
        pending = [one.state.jobs[j] for j in one.state.pending]
        found = in_order(pending, one.policies.queue, one.state.snapshot(now_us))
        assert [job.id for job in found] == order


def test_a_held_job_with_a_begin_time_begins_when_both_allow() -> None:
    one = cycle("h1")
    one.step([ev.JobSubmitted(1, builders.spec(begin_us=500, hold=True))], 100)
    one.step([], 600)
    assert one.state.jobs[1].state is JobState.PENDING
    one.step([ev.ReleaseRequested(1, "alice")], 601)
    assert one.state.jobs[1].state is JobState.CONFIGURING


def test_a_cancelled_job_does_not_begin() -> None:
    one = cycle("h1")
    one.step([ev.JobSubmitted(1, builders.spec(begin_us=500))], 100)
    one.step([ev.CancelRequested(1, "alice")], 200)
    one.step([], 500)
    assert one.state.jobs[1].state is JobState.CANCELLED
    assert one.next_due_us() is None


def test_a_host_that_stays_silent_is_given_up_in_time() -> None:
    one = cycle("h1", "h2")
    one.step([ev.JobSubmitted(1, builders.spec()), ev.HostSilent("h1", "cut")], 200)
    assert one.state.jobs[1].placement is not None
    assert one.state.jobs[1].placement.hosts == ("h2",)
    assert one.next_due_us() == 220
    assert one.step([], 219).recorded == []
    assert one.step([], 220).recorded == [ev.HostDown("h1", "cut")]
    assert one.state.hosts["h1"].state is HostState.DOWN
    assert one.next_due_us() is None


def test_a_host_that_answers_at_the_last_moment_keeps_its_jobs() -> None:
    one = cycle("h1")
    one.step([ev.JobSubmitted(1, builders.spec())], 100)
    one.step([ev.HostSilent("h1", "cut")], 200)
    out = one.step([ev.HostUp("h1", "boot", "1")], 300)
    assert ev.HostDown("h1", "cut") not in out.recorded
    assert one.state.jobs[1].state is JobState.CONFIGURING
    assert one.next_due_us() is None


def test_a_refused_event_does_not_touch_the_others() -> None:
    one = cycle("h1")
    events = [ev.CancelRequested(9, "bob"), ev.JobSubmitted(1, builders.spec())]
    out = one.step(events, 100)
    assert list(out.refused) == [0]
    assert [type(e) for e in out.recorded] == [ev.JobSubmitted, ev.JobPlaced]
    assert [i.action.kind for i in out.intents] == ["launch"]


def talking(*ids: int) -> list[ev.Event]:
    return [
        ev.JobSubmitted(n, builders.spec(ntasks=2, tasks_per_host=1, hosts_min=2, traffic=TRAFFIC))
        for n in ids
    ]


def test_an_offline_recomputation_counts_only_for_the_set_it_was_made_for() -> None:
    one = cycle("h1", "h2")
    first = one.step(talking(1), 100).recompute
    assert one.state.alignment == ONLINE
    assert first is not None
    second = one.step(talking(2), 101).recompute
    assert second is not None
    assert second.placed_version != first.placed_version
    late, now = first.run(), second.run()
    assert not one.step([late], 102).realigned
    assert one.state.alignment == ONLINE
    assert one.step([now], 103).realigned
    assert one.state.alignment == OFFLINE
    assert not one.step([ev.Tick()], 104).realigned
    assert one.state.alignment == OFFLINE


def test_a_plan_is_made_again_only_when_what_is_aligned_has_changed() -> None:
    one = cycle("h1", "h2")
    comm = one.policies.comm
    assert isinstance(comm, TwoStage)
    one.step(talking(1), 100)
    asked = len(comm.asked)
    one.step([ev.TasksPrepared(1, 1, h) for h in ("h1", "h2")], 101)
    one.step([ev.TasksStarted(1, 1, h, 101, (i,)) for i, h in enumerate(("h1", "h2"))], 102)
    assert len(comm.asked) == asked
    one.step([ev.ProfileMeasured(1, 1, builders.profile(90, (0, 40, 500)), True)], 103)
    assert len(comm.asked) == asked + 1


def test_a_contended_job_is_tried_again_when_a_profile_changes() -> None:
    one = cycle("h1", "h2")
    one.tuning = type(one.tuning)(min_score=85.0)
    one.step(talking(1), 100)
    one.step([ev.TasksPrepared(1, 1, h) for h in ("h1", "h2")], 101)
    one.step([ev.TasksStarted(1, 1, h, 101, (i,)) for i, h in enumerate(("h1", "h2"))], 102)
    one.step(talking(2), 103)
    reason = one.reason_of(one.state.jobs[2])
    assert reason is not None
    assert reason.code is ReasonCode.CONTENTION
    one.tuning = type(one.tuning)(min_score=70.0)  # as if the new profile scored better
    one.step([ev.Tick()], 104)
    assert one.state.jobs[2].state is JobState.PENDING
    one.step([ev.ProfileMeasured(1, 1, builders.profile(90, (0, 4, 500)), True)], 105)
    assert one.state.jobs[2].state is JobState.CONFIGURING


def test_a_patient_job_is_looked_at_again_when_the_other_one_has_not_ended_in_time() -> None:
    one = cycle("h1", "h2")
    one.tuning = type(one.tuning)(patience=1.0)
    (first,) = talking(1)
    assert isinstance(first, ev.JobSubmitted)
    one.step([replace(first, spec=replace(first.spec, expected_us=10 * SECOND_US))], 100)
    one.step([ev.TasksPrepared(1, 1, h) for h in ("h1", "h2")], 101)
    one.step([ev.TasksStarted(1, 1, h, 101, (i,)) for i, h in enumerate(("h1", "h2"))], 102)
    (second,) = talking(2)
    assert isinstance(second, ev.JobSubmitted)
    one.step([replace(second, spec=replace(second.spec, expected_us=200 * SECOND_US))], 103)
    assert one.state.jobs[2].state is JobState.PENDING
    due_us = one.next_due_us()
    assert due_us is not None
    assert 10 * SECOND_US < due_us < 11 * SECOND_US, "when the first is expected to have ended"
    one.step([], due_us - 1)
    assert one.state.jobs[2].state is JobState.PENDING
    one.step([], due_us)  # now nobody knows for how long, but at least for a minute
    assert one.state.jobs[2].state is JobState.CONFIGURING


def test_a_new_daemon_places_nothing_on_a_host_that_has_not_answered_it() -> None:
    known = [builders.host("h1", boot_id="boot"), builders.host("h2", boot_id="boot")]
    waiting = Job(1, builders.spec(), 50)
    running = replace(Job(2, builders.spec(), 50, JobState.RUNNING), attempt=1, tasks=(Task(0, "h2"),))
    state = rebuild([waiting, running], known, [], {}, 3, 1, 100)
    one = Cycle(state, cycle("h1").policies, Rules(grace_us=5, down_after_us=20))
    one.step([], 100)
    assert state.jobs[1].state is JobState.PENDING
    assert list(state.placed) == [2]
    one.step([ev.HostUp("h1", "boot", "1")], 101)
    assert state.jobs[1].state is JobState.CONFIGURING
    assert one.step([], 120).recorded[0] == ev.HostDown("h2", known_reason(state, "h2"))
    assert state.jobs[2].state is not JobState.RUNNING


def known_reason(state: ClusterState, host: str) -> str:
    assert "has not answered" in state.hosts[host].reason
    return state.hosts[host].reason
