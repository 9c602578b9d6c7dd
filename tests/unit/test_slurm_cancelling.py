"""`scancel` on rm's client: what scripts for Slurm read and write."""

from __future__ import annotations

import dataclasses
import io
import sys
from typing import Any

import pytest

from rm.core.model.job import JobState
from rm.errors import IllegalTransition, Refusal
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

pytestmark = pytest.mark.usefixtures("jobs_of_slurm", "a_minute_later")


def test_the_end_of_options_is_two_dashes(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scancel", "--", "2") == (0, "", "")
    assert daemon.service.table[2].state is JobState.CANCELLED


def cancelled(daemon: Daemon) -> list[int]:
    return [what[1] for what in daemon.service.log if what[0] == "cancel"]


def test_jobs_are_cancelled_without_a_word(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scancel", "1", "3_[2-4]") == (0, "", "")
    assert cancelled(daemon) == [1, 3]
    assert slurm("scancel", "5", "99") == (0, "", "")  # over, or never there: as in Slurm
    told = slurm("scancel", "-v", "99")
    assert told.code == 0
    assert told.err.startswith(
        "scancel: Terminating job 99\n"
        "scancel: error: Kill job error on job id 99: Invalid job id specified. There is no job 99."
    )


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["-n", "narrow"], [2]),
        (["--me"], [1, 2, 3, 4]),
        (["-u", "root", "-p", "fast"], [3, 4]),
        (["-u", "0", "-t", "R"], [1, 4]),
        (["-t", "PENDING", "3"], [3]),
        (["-t", "RUNNING", "3"], [4]),
        (["-t", "RUNNING", "3_1", "3_2"], [4]),
        (["-w", "h1"], [1]),
        (["-p", "slow"], []),
        (["-n", "bad"], []),
        # a script's variable that is empty names no job
        *[([f"-{letter}", ""], []) for letter in "nApqwR"],
        (["--me", "--name="], []),
        (["-n", "", "1"], []),
    ],
    ids=str,
)
def test_matching_jobs_are_cancelled(words: list[str], ids: list[int], slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scancel", *words) == (0, "", "")
    assert cancelled(daemon) == ids


def noted(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What is cancelled: jobs with the indices of elements."""
    asked: list[tuple[int, str]] = []
    cancel = daemon.service.changes.cancel

    async def note(
        job_id: int, by: str, signal: int | None, array_tasks: str = "", signal_to: str = ""
    ) -> Any:
        asked.append((job_id, array_tasks))
        return await cancel(job_id, by, signal, array_tasks, signal_to)

    monkeypatch.setattr(daemon.service, "cancel", note)
    return asked


def test_only_those_elements_are_cancelled_that_fit(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = noted(daemon, monkeypatch)
    assert slurm("scancel", "-t", "PD", "3_[0-3]").code == 0
    assert asked == [(3, "0,2-3")]


def test_of_an_array_that_fits_only_the_waiting_elements_are_cancelled(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = noted(daemon, monkeypatch)
    assert slurm("scancel", "-t", "PD", "-n", "many").code == 0
    assert asked == [(3, "0,2-5")]


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        (["-s", "USR1", "--me"], [(1, ""), (2, ""), (4, "")]),
        (["-t", "RUNNING", "-u", "root"], [(1, ""), (4, "")]),
        (["-t", "RUNNING", "3"], [(4, "")]),
        (["-s", "USR1", "--me", "3"], [(3, "")]),
        (["-s", "USR1", "--me", "3_1"], [(4, "")]),
        (["-w", "h1", "3"], []),
    ],
    ids=str,
)
def test_of_an_array_without_waiting_elements_each_element_is_reached_once(
    words: list[str], targets: list[tuple[int, str]], slurm: Slurm, daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked, service = noted(daemon, monkeypatch), daemon.service
    array = dataclasses.replace(service.table[3].array, waiting="", held="", completed="0,2-5")
    service.put(3, array=array, state=JobState.RUNNING)
    assert slurm("scancel", *words).code == 0
    assert asked == targets


def test_of_elements_that_are_over_nothing_is_said(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def over(*_: Any) -> Any:
        raise IllegalTransition("Job 3_[2-4] has ended already.", refusal=Refusal.ENDED)

    monkeypatch.setattr(daemon.service, "cancel", over)
    assert slurm("scancel", "3_[2-4]") == (0, "", "")


def test_who_names_another_state_cancels_no_elements_that_wait(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, service = noted(daemon, monkeypatch), daemon.service
    service.put(3, array=dataclasses.replace(service.table[3].array, waiting="0,2-4", dropped="5"))
    assert slurm("scancel", "-t", "CANCELLED", "--me").code == 0
    assert asked == []


def test_a_signal_is_sent(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scancel", "1", "--signal", "USR1") == (0, "", "")
    assert slurm("scancel", "-s", "10", "-f", "1") == (0, "", "")
    assert slurm("scancel", "-b", "-s", "CONT", "1") == (0, "", "")
    sent = [what[3:] for what in daemon.service.log if what[0] == "cancel"]
    assert sent == [(10, "steps"), (10, "all"), (18, "script")]
    over = slurm("scancel", "-s", "USR1", "5")
    assert (over.code, over.err) == (
        1,
        "scancel: error: Kill job error on job id 5: Job/step already completing or completed."
        " Job 5 has already ended.\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "No job identification provided"),
        (["abc"], "Invalid job id abc"),
        (["abc.def"], "Invalid job id abc.def\n"),
        (["1.batch"], "Invalid job id 1.batch: a step has a number. `scancel --batch --signal=TERM 1`"),
        (["1."], "Invalid job id 1.: a step has a number."),
        (["1.\u0663"], "Invalid job id 1.\u0663: a step has a number."),
        (["1.0.0"], "Invalid job id 1.0.0: a step has a number."),
        (["3_[1-3].0"], "Invalid job id 3_[1-3].0: a step is of one element. Name each, as in 3_1.0."),
        (["--me", "1.0"], "Steps are named by themselves"),
        (["--batch", "1.0"], "--batch and --full are for jobs"),
        (["--full", "-s", "USR1", "1.0"], "--batch and --full are for jobs"),
        (["-u", "nobody-of-this-name"], "Invalid user name: nobody-of-this-name"),
        (["-u", "4000000000"], "Invalid user name: 4000000000"),
        (["-t", "LOST", "1"], "Invalid job state specified: LOST."),
        (["-s", "LOUD", "1"], "There is no signal 'LOUD'."),
        (["--wckey=k", "1"], "--wckey is not supported."),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error_of_scancel(
    words: list[str], sentence: str, slurm: Slurm, daemon: Daemon
) -> None:
    done = slurm("scancel", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"scancel: error: {sentence}")
    assert not cancelled(daemon)


def test_cancelling_asks_for_each_job_and_reads_y_and_n(
    slurm: Slurm, rmx: Rmx, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmx("submit", "--job-name=kept", "--reservation=night", "--wrap=true")
    monkeypatch.setattr(sys, "stdin", io.StringIO("maybe\ny\nn\n"))
    done = slurm("scancel", "-i", "1", "2", "6")
    asks = [f"Cancel job_id={job} name={name} partition=(null) [y/n]? " for job, name in (
        ("1", "averylongname"), ("1", "averylongname"), ("2", "narrow"), ("6", "kept"))]  # fmt: skip
    assert (done.code, done.out, done.err) == (0, "".join(asks), "")
    assert cancelled(daemon) == [1]
    assert slurm("scancel", "-R", "day") == (0, "", "")
    assert slurm("scancel", "--reservation=night") == (0, "", "")
    assert slurm("scancel", "-t", "COMPLETED") == (0, "", "")
    assert cancelled(daemon) == [1, 6]


def test_cancelling_asks_for_each_step(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int | None]] = []
    monkeypatch.setattr(
        "rm.client.step_signals.signal_step",
        lambda _client, job, step, signal, _note: asked.append((str(job), step, signal)),
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\ny\n"))
    done = slurm("scancel", "-i", "1.0", "2.1")
    asks = "Cancel step_id=1.0 name=averylongname partition=(null) [y/n]? "
    asks += "Cancel step_id=2.1 name=narrow partition=(null) [y/n]? "
    assert (done.code, done.out, done.err) == (0, asks, "")
    assert asked == [("2", 1, None)]


def test_cancelling_says_what_it_does_where_that_is_asked_for(slurm: Slurm, daemon: Daemon) -> None:
    """As qtoolkit and AiiDA read it."""
    assert slurm("scancel", "-v", "1") == (0, "", "scancel: Terminating job 1\n")
    again = slurm("scancel", "-v", "1")
    assert (again.code, again.out) == (0, "")
    first, second = again.err.splitlines()
    assert first == "scancel: Terminating job 1"
    words = "Job/step already completing or completed"
    assert second.startswith(f"scancel: error: Kill job error on job id 1: {words}. Job 1 has already ended")
    assert slurm("scancel", "-v", "-s", "USR1", "4") == (0, "", "scancel: Signal 10 to job 4\n")


def test_jobs_to_cancel_may_stand_in_a_list(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scancel", "1,2").code == 0
    assert {daemon.service.table[job].state for job in (1, 2)} <= {JobState.CANCELLED, JobState.COMPLETING}
    assert slurm("scancel", "1,x") == (1, "", "scancel: error: Invalid job id x\n")
