"""Slices in the core: how long they are, what they hold, and what becomes of elements that wait in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.arrays import each
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Launch, Stop
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.slices import SLICE_MAX, slice_length
from rm.daemon.execution.environment import job_environment
from tests import builders
from tests.examples import examples
from tests.invariants import validate_state

S = 1_000_000
SINGLE_US = 10_000  # so long runs the first element here
ARRAY = 1


def cycle_of(cpus: int = 1, queue: str = "fifo", **tuning: int) -> Cycle:
    policies = Policies(load("queue", queue), load("placement", "first-fit"), load("comm", "none"))
    made = Cycle(ClusterState(), policies, Rules(), Tuning(**{"slice_us": S, "slice_shares": 0, **tuning}))
    made.step([ev.HostAdded(builders.host("h1", cpus=cpus, state=HostState.UP))], S)
    return made


def submitted(array: str = "0-9", cycle: Cycle | None = None, **spec: Any) -> Cycle:
    """An array of which the first element has run, and as many as fit were placed after it."""
    cycle = cycle or cycle_of()
    cycle.step([ev.JobSubmitted(ARRAY, builders.spec(array=array, **spec))], 2 * S)
    first = next(job for job in cycle.state.jobs.values() if job.occupies)
    end(cycle, first, 2 * S + SINGLE_US, started_us=2 * S)
    return cycle


def end(cycle: Cycle, job: Job, at_us: int, started_us: int | None = None, **how: Any) -> Outcome:
    exit_of = ev.TaskExited(job.id, job.attempt, "h1", 0, how.get("code", 0), how.get("signal", 0),
                            started_us, at_us, False, how.get("why", ""))  # fmt: skip
    out = cycle.step([exit_of], at_us)
    validate_state(cycle.state)
    return out


def placed(cycle: Cycle) -> list[Job]:
    return [job for job in cycle.state.jobs.values() if job.occupies]


def array(cycle: Cycle) -> Any:
    return cycle.state.jobs[ARRAY].array


def test_elements_go_together_once_one_has_ended_and_hold_one_slot() -> None:
    cycle = cycle_of()
    cycle.step([ev.JobSubmitted(ARRAY, builders.spec(array="0-9"))], 2 * S)
    assert len(placed(cycle)) == 1, "nobody knows how long they run"
    out = end(cycle, placed(cycle)[0], 2 * S + SINGLE_US, started_us=2 * S)
    slice_of = placed(cycle)[0].id
    assert [job.slice_of for job in placed(cycle)] == [slice_of] * 9
    assert [job.array_task for job in placed(cycle)] == list(range(1, 10))
    launches = [i.action for i in out.intents if isinstance(i.action, Launch)]
    assert [launch.slice_of for launch in launches] == [slice_of] * 9
    assert cycle.state.free["h1"].cpus == 0
    for job in placed(cycle)[:-1]:
        end(cycle, job, 3 * S, started_us=3 * S - SINGLE_US)
        assert cycle.state.free["h1"].cpus == 0
    end(cycle, placed(cycle)[0], 3 * S, started_us=3 * S - SINGLE_US)
    assert cycle.state.free["h1"].cpus == 1
    assert cycle.state.jobs[ARRAY].state is JobState.COMPLETED
    assert not cycle.state.slices


def test_a_state_that_was_written_down_counts_slices_once() -> None:
    state = submitted().state
    again = restore_state(dump_state(state, 3 * S), 3 * S)
    validate_state(again)
    assert (again.free, again.slices) == (state.free, state.slices)


def test_a_reservation_counts_what_a_slice_holds_once() -> None:
    cycle = submitted(cycle=cycle_of(cpus=2, queue="backfill"), cpus_per_task=1, time_limit_us=5 * S)
    cycle.step([ev.JobSubmitted(50, builders.spec(cpus_per_task=2, time_limit_us=S))], 3 * S)
    validate_state(cycle.state)
    assert list(cycle.state.planned) == [50]


@given(
    left=st.integers(1, 100_000),
    turn_us=st.integers(1, 10 * S),
    bound_us=st.integers(0, 10 * S),
    shares=st.integers(0, 4),
    cpus=st.integers(1, 64),
)
def test_a_slice_is_no_longer_than_its_bound_and_its_share(
    left: int, turn_us: int, bound_us: int, shares: int, cpus: int
) -> None:
    cycle = submitted(f"0-{left}", cycle_of(cpus=cpus, slice_us=0))
    state, record = cycle.state, cycle.state.jobs[ARRAY]
    record = replace(record, array=replace(record.array, turn_us=turn_us))  # type: ignore[type-var]
    length = slice_length(record, record, left, state.snapshot(3 * S), bound_us, shares)
    assert 1 <= length <= max(1, min(left, SLICE_MAX))
    assert length == 1 or length * turn_us <= bound_us
    assert length == 1 or not shares or (length - 1) * shares * cpus < left
    one_less = slice_length(record, record, left, state.snapshot(3 * S), bound_us // 2, shares)
    assert one_less <= length


@pytest.mark.parametrize(
    "spec",
    [
        {"ntasks": 2}, {"requeue": False}, {"exclusive": True}, {"fence_us": 10 * S},
        {"dependency": "singleton"},
    ],
    ids=str,
)  # fmt: skip
def test_elements_that_need_more_than_a_slot_go_singly(spec: dict[str, Any]) -> None:
    cycle = submitted(cycle=cycle_of(cpus=2), **spec)
    assert placed(cycle)
    assert not any(job.slice_of for job in placed(cycle))


def at_once(cycle: Cycle) -> int:
    return len({job.slice_of or job.id for job in placed(cycle)})


def test_elements_of_a_limited_array_go_together_in_as_many_slices_as_its_limit_allows() -> None:
    cycle = submitted("0-29%2", cycle_of(cpus=8, slice_shares=1))
    assert (at_once(cycle), len(placed(cycle))) == (2, 15), "one runs singly, since nothing was known"
    reason = cycle.reason_of(cycle.state.jobs[ARRAY])
    assert reason is not None
    assert reason.code is ReasonCode.ARRAY_LIMIT
    assert reason.message.startswith("2 elements of job array 1 run")
    for job in placed(cycle):
        if job.array_task == 1:
            end(cycle, job, 3 * S, started_us=2 * S + SINGLE_US)
    assert at_once(cycle) == 2


def test_hosts_give_back_what_has_not_begun_when_the_limit_is_lowered() -> None:
    cycle = submitted("0-40%3", cycle_of(cpus=8, slice_shares=1))
    for job in [job for job in placed(cycle) if not job.slice_of]:
        end(cycle, job, 3 * S, started_us=3 * S - SINGLE_US)
    assert (at_once(cycle), any(not job.slice_of for job in placed(cycle))) == (3, False)
    firsts = [job for job in placed(cycle) if job.slice_of == job.id]
    cycle.step([ev.TasksStarted(job.id, 1, "h1", 3 * S, (0,)) for job in firsts], 3 * S)
    waiting = [job for job in placed(cycle) if job.waits_in_slice]
    out = cycle.step([ev.ArrayLimitSet(ARRAY, "alice", 3)], 3 * S)
    assert not out.intents, "as many run as may"
    out = cycle.step([ev.ArrayLimitSet(ARRAY, "alice", 1)], 3 * S)
    assert {(i.action.job, i.action.why) for i in out.intents} == {(job.id, "hold") for job in waiting}
    for job in waiting:
        end(cycle, job, 3 * S, signal=15, why="unstarted")
    assert {job.id for job in placed(cycle)} == {job.id for job in firsts}
    for job in firsts[:2]:
        end(cycle, job, 4 * S, started_us=3 * S)
        assert at_once(cycle) == 3 - 1 - firsts.index(job)
    end(cycle, firsts[2], 4 * S, started_us=3 * S)
    assert at_once(cycle) == 1
    assert not any(cycle.state.jobs[job.id].held for job in waiting)


@given(
    limit=st.integers(1, 5),
    cpus=st.integers(1, 8),
    shares=st.integers(0, 2),
    acts=st.lists(
        st.tuples(st.sampled_from(["end", "back", "lose", "limit"]), st.integers(0, 63)), max_size=25
    ),
)
@settings(max_examples=examples(60))
def test_never_more_than_the_limit_run_at_once(
    limit: int, cpus: int, shares: int, acts: list[tuple[str, int]]
) -> None:
    """Whatever ends, is given back or lost, and however the limit changes: of each slice one runs."""
    cycle, now_us = submitted(f"0-30%{limit}", cycle_of(cpus=cpus, slice_shares=shares)), 3 * S
    for act, number in acts:
        now_us += S
        before = at_once(cycle)
        if act == "limit":
            limit = number % 6
            cycle.step([ev.ArrayLimitSet(ARRAY, "alice", limit)], now_us)
        elif placed(cycle):
            job = placed(cycle)[number % len(placed(cycle))]
            if act == "back" and job.waits_in_slice:
                end(cycle, job, now_us, signal=15, why="unstarted")
            elif act == "lose":
                cycle.step([ev.TasksLost(job.id, job.attempt, "h1", (0,), "killed")], now_us)
            else:
                end(cycle, job, now_us, started_us=now_us - SINGLE_US)
        assert at_once(cycle) <= max(limit or cpus, before)


def test_long_elements_go_singly() -> None:
    cycle = cycle_of()
    cycle.step([ev.JobSubmitted(ARRAY, builders.spec(array="0-9"))], 2 * S)
    end(cycle, placed(cycle)[0], 4 * S, started_us=2 * S)
    assert [job.slice_of for job in placed(cycle)] == [0]


def test_what_is_given_back_waits_as_before_and_has_not_been_restarted() -> None:
    cycle = submitted()
    waiting = placed(cycle)[3]
    out = end(cycle, waiting, 3 * S, signal=15, why="unstarted")
    job = cycle.state.jobs[waiting.id]
    assert (job.state, job.unstarted, job.requeues, job.losses) == (JobState.PENDING, 1, 0, 0)
    assert [type(i.action) for i in out.intents] == [Discard], "it has no log"
    for other in placed(cycle):
        end(cycle, other, 4 * S, started_us=4 * S - SINGLE_US)
    again = cycle.state.jobs[waiting.id]
    assert (again.state, again.attempt, again.slice_of, again.restarts) == (JobState.CONFIGURING, 2, 0, 0)
    assert "SLURM_RESTART_COUNT" not in job_environment(again, cycle.state.hosts, "")


def test_cancel_and_hold_reach_elements_that_wait_on_their_host() -> None:
    cycle = submitted()
    first, *rest = placed(cycle)
    cycle.step([ev.TasksStarted(first.id, 1, "h1", 3 * S, (0,))], 3 * S)
    out = cycle.step(
        [ev.HoldRequested(ARRAY, "alice", "1-4"), ev.CancelRequested(ARRAY, "alice", "5-6")], 3 * S
    )
    stops = [(i.action.job, i.action.why) for i in out.intents if isinstance(i.action, Stop)]
    by_task = {job.array_task: job for job in rest}
    assert stops == [(by_task[t].id, "hold") for t in (2, 3, 4)] + [(by_task[t].id, "cancel") for t in (5, 6)]
    end(cycle, by_task[2], 3 * S, signal=15, why="unstarted")
    held = cycle.state.jobs[by_task[2].id]
    assert (held.state, held.held) == (JobState.PENDING, True)
    end(cycle, by_task[3], 4 * S, started_us=3 * S)  # it had begun
    assert cycle.state.jobs[by_task[3].id].state is JobState.COMPLETED
    cycle.step([ev.TasksStarted(by_task[4].id, 1, "h1", 4 * S, (0,))], 4 * S)
    assert not cycle.state.jobs[by_task[4].id].held
    for task in (5, 6):
        end(cycle, by_task[task], 4 * S, signal=15, why="cancel")
    assert list(each(array(cycle).has("cancelled"))) == [5, 6]
    refused = cycle.step([ev.HoldRequested(first.id, "alice")], 5 * S).refused
    assert "only pending jobs can" in str(refused[0])


def test_a_release_takes_back_a_hold_that_its_host_has_not_carried_out() -> None:
    cycle = submitted()
    job = placed(cycle)[2]
    for asked in (ev.HoldRequested(ARRAY, "a", "3"), ev.ReleaseRequested(ARRAY, "a", "3")):
        assert not cycle.step([asked], 3 * S).refused
    end(cycle, job, 3 * S, signal=15, why="unstarted")
    assert (cycle.state.jobs[job.id].state, cycle.state.jobs[job.id].held) == (JobState.PENDING, False)


def test_a_lost_host_brings_all_of_a_slice_back_to_the_queue() -> None:
    cycle = submitted()
    lost = [ev.TasksLost(job.id, job.attempt, "h1", (0,), "killed") for job in placed(cycle)]
    cycle.step(lost, 3 * S)
    validate_state(cycle.state)
    assert array(cycle).has("requeued").bit_count() + array(cycle).has("running").bit_count() == 9
    assert not any(job.slice_of for job in placed(cycle)), "those that come again go singly"


def test_what_printed_nothing_has_no_logs_to_collect() -> None:
    cycle = submitted()
    quiet, loud = placed(cycle)[:2]
    exits = [
        ev.TaskExited(job.id, 1, "h1", 0, 0, 0, 3 * S, 3 * S, silent=job is quiet) for job in (quiet, loud)
    ]
    actions = [i.action for i in cycle.step(exits, 3 * S).intents]
    assert [(type(a), a.job) for a in actions] == [(Discard, quiet.id), (Collect, loud.id)]
