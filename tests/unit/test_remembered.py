"""What hosts remember of what they discarded, against a database that was restored from a backup."""

from __future__ import annotations

from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Launch
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.reconcile import Reported, reconcile, worth_repeating
from rm.core.jobs.remembered import NOTES_MAX, with_memory
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobState
from rm.core.model.replacing import replace
from rm.core.scheduling.held import why_held
from tests.unit.test_reconcile import GANG, RANK_0_ENDED, STARTED, UP, cluster, told

NOTHING = Reported(())
OVER: dict[str, Any] = {"started_us": 150, "ended_us": 180}


def restored(*events: ev.Event) -> ClusterState:
    """As `cluster`, in a database that was restored."""
    state = cluster(*events)
    state.jobs[1] = replace(state.jobs[1], unsure=True)
    return state


def after(state: ClusterState, *remembered: Any, host: str = "h1", says: Reported = NOTHING) -> Job:
    """The job after the hello of a host that reports and remembers this."""
    tasks, notes = with_memory(state, says, remembered)
    for event in (*reconcile(state, host, tasks, (), (), 200), *notes):
        apply(state, event, 200, Rules(), Changes())
    return state.jobs[1]


def test_an_end_that_is_remembered_is_the_jobs_end() -> None:
    state = restored(*STARTED)
    assert after(state, told(0, "exited", **OVER), told(1, "exited", **OVER)).state is JobState.RUNNING
    job = after(state, told(2, "exited", **OVER), host="h2")
    assert (job.state, job.exit_code, job.ended_us) == (JobState.COMPLETED, 0, 180)


@pytest.mark.parametrize(("why", "ending"), [("timeout", "TIMEOUT"), ("cancel", "CANCELLED"), ("", "FAILED")])
def test_so_are_its_failures(why: str, ending: str) -> None:
    killed = {**OVER, "signal": 9, "why": why}
    job = after(
        restored(*STARTED), told(0, "exited", **killed), told(1, "exited", **{**killed, "why": "abort"})
    )
    assert job.ending == ending


def test_one_that_was_given_up_is_lost_and_its_job_held() -> None:
    state = restored(*STARTED)
    given_up = {**OVER, "signal": 15, "why": "abort"}
    after(state, told(0, "exited", **given_up), told(1, "exited", **given_up))
    job = after(state, told(2, "exited", **given_up), host="h2")
    assert (job.state, job.held, job.unsure) == (JobState.PENDING, True, True)
    assert "given up after the backup was made" in " ".join(what for _, what in job.history)


def test_a_part_of_a_script_that_runs_once_ends_with_it_however_it_was_ended() -> None:
    state = restored(*STARTED)
    job = state.jobs[1]
    state.jobs[1] = replace(job, spec=replace(job.spec, launch="batch"))
    stopped = {**OVER, "signal": 15, "why": "abort"}
    after(state, told(2, "exited", **stopped), host="h2")
    assert after(state, told(0, "exited", **OVER), told(1, "exited", **stopped)).state is JobState.COMPLETED


def test_a_job_whose_end_nobody_remembers_is_held_until_it_is_released() -> None:
    state = restored(*STARTED)
    after(state)
    job = after(state, host="h2")
    assert (job.state, job.held) == (JobState.PENDING, True)
    assert "it may have run since the backup" in why_held(job).message
    apply(state, ev.ReleaseRequested(1, "ann"), 100, Rules(), Changes())
    apply(state, ev.JobPlaced(1, GANG), 100, Rules(), Changes())
    job = after(state)
    assert (job.attempt, job.state, job.unsure, job.held) == (
        2,
        JobState.PENDING,
        False,
        False,
    )  # as any other


def test_one_that_still_runs_is_sure_from_then_on() -> None:
    state = restored(*STARTED, RANK_0_ENDED)
    job = after(state, says=Reported([told(1, started_us=100)]))
    assert (job.unsure, job.state, job.tasks[1].started_us) == (False, JobState.RUNNING, 100)


def test_what_was_launched_before_the_restore_is_not_launched_again_unless_its_host_has_it() -> None:
    state, launch = restored(), Launch(1, 1, "h1", GANG.on("h1"), hold=True)
    assert not worth_repeating(state, UP, NOTHING, launch)
    assert worth_repeating(state, UP, Reported([told(0, "launching")]), launch)


def test_later_attempts_are_told_in_the_jobs_history() -> None:
    state = ClusterState()
    for event in (ev.JobSubmitted(1, replace(cluster().jobs[1].spec, hold=True)),):
        apply(state, event, 200, Rules(), Changes())
    state.jobs[1] = replace(state.jobs[1], unsure=True)
    job = after(state, told(0, "exited", attempt=1, code=3), told(1, "lost", attempt=1))
    assert (job.state, job.held) == (JobState.PENDING, True)
    assert job.history[-1][1] == "since the backup attempt 1 of it has run: exited with code 3, lost"


def test_what_is_remembered_of_sure_jobs_changes_nothing() -> None:
    state = cluster(*STARTED)
    told_again = told(0, "exited", **OVER)
    assert with_memory(state, NOTHING, [told_again]) == (NOTHING, [])


def test_what_a_host_remembers_is_told_once_however_often_it_says_hello() -> None:
    state = ClusterState()
    apply(state, ev.JobSubmitted(1, replace(cluster().jobs[1].spec, hold=True)), 100, Rules(), Changes())
    state.jobs[1] = replace(state.jobs[1], unsure=True)
    for _ in range(3):
        job = after(state, told(0, "exited", attempt=1, code=3))
    assert [what for _, what in job.history].count(job.history[-1][1]) == 1
    many = [told(0, "lost", attempt=number) for number in range(1, NOTES_MAX + 9)]
    assert len(with_memory(state, NOTHING, many)[1]) == NOTES_MAX
