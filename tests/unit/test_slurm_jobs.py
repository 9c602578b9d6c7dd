"""`squeue` and `scancel` on rm's client: what scripts for Slurm read and write."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rm.api.reasons import Priority, PriorityWeights
from rm.cli.slurm.jobs import moment
from rm.cli.slurm.queue.squeue_columns import COLUMNS
from rm.client import Client
from rm.core.model.asked.array import Array
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.job import JobState
from rm.core.model.reasons import Reason, ReasonCode
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

pytestmark = pytest.mark.usefixtures("a_minute_later")


@pytest.fixture(autouse=True)
def jobs(daemon: Daemon, rmx: Rmx) -> None:
    """1 runs on h1; 2 waits; 3 is an array in a partition, of which 3_1 runs as 4; 5 has failed."""
    rmx("submit", "--job-name=averylongname", "-n2", "--time=90", "--wrap=true")
    rmx("submit", "--job-name=narrow", "-N3", "--mem=100", "--priority=7", "--wrap=true")
    rmx("submit", "--job-name=many", "--partition=fast", "--array=0-5%2", "--wrap=true")
    rmx("submit", "--job-name=many", "--partition=fast", "--wrap=true")
    rmx("submit", "--job-name=bad", "--wrap=true")
    service = daemon.service
    service.run(1)
    service.put(3, array=Array(waiting="0,2-5", running="1", limit=2))
    service.run(4, "h2")
    service.put(4, array_job=3, array_task=1)
    service.finish(5, 3)


def test_the_usual_list_is_slurms(slurm: Slurm) -> None:
    assert slurm("squeue").out.splitlines() == [
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
        "                 2    (null)   narrow     root PD       0:00      3 (None)",
        "                 1    (null) averylon     root  R       1:00      1 h1",
        "     3_[0,2-5%2]      fast     many     root PD       0:00      1 (None)".rjust(74),
        "               3_1      fast     many     root  R       1:00      1 h2",
    ]


def test_the_long_list_has_states_and_limits(slurm: Slurm) -> None:
    date, header, *lines = slurm("squeue", "-l").out.splitlines()
    assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}", date)
    assert header == (
        "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)"
    )
    assert lines[1] == (
        "                 1    (null) averylon     root  RUNNING       1:00   1:30:00      1 h1"
    )


def test_formats_cut_align_and_keep_other_text(slurm: Slurm) -> None:
    assert slurm("squeue", "-h", "-j1", "-o", "%i %-t").err.startswith(
        "squeue: error: '%i %-t' has a % that names no column."
    )
    assert slurm("squeue", "-h", "-j1", "-o", "a%%%.5i|%3j|%t %L").out == "a%    1|ave|R 1:29:00\n"
    assert slurm("squeue", "-j1", "--Format", "JobID:5,Name:.8,state").out == (
        "JOBID    NAMESTATE               \n1    averylonRUNNING             \n"
    )
    wrong = slurm("squeue", "-o", "%i %i%")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith("squeue: error: '%i %i%' has a % that names no column.")
    assert "Invalid field requested: 'Colour'" in slurm("squeue", "-O", "Colour").err


def test_text_between_columns_stands_as_it_is(slurm: Slurm, rmx: Rmx) -> None:
    assert slurm("squeue", "-h", "-j1", "-o", "\x1e%i\x1f%t\t%%").out == "\x1e1\x1fR\t%\n"
    assert rmx("submit", "--comment", "tab\there", "--wrap=true").code == 0
    assert slurm("squeue", "-h", "-j6", "-o", "%i\t%k").out == "6\ttab?here\n"
    words = ("-n", "-X", "-P", "-j6", "-S", "1970-01-01", "-o", "JobID,Comment", "--delimiter=\t")
    assert slurm("sacct", *words).out == "6\ttab?here\n"


def test_an_array_is_one_line_or_one_for_each_element(slurm: Slurm) -> None:
    def ids(*words: str) -> list[str]:
        return slurm("squeue", "-h", "-o", "%i", *words).out.split()

    assert ids("-j", "3") == ids("--jobs=3") == ids("-n", "many") == ["3_[0,2-5%2]", "3_1"]
    assert ids("-r", "-j", "3") == ["3_0", "3_2", "3_3", "3_4", "3_5", "3_1"]
    assert ids("-j", "3_1") == ["3_1"]
    assert ids("-j3_[1,4]") == ["3_4", "3_1"]
    assert ids("-j", "3_4,3_2") == ["3_[2,4]"]
    assert ids("-r", "-j3_[2,4]") == ["3_2", "3_4"]
    assert ids("-j", "3_[0,2-5]") == ["3_[0,2-5%2]"]
    assert slurm("squeue", "-h", "-j3_4", "-O", "ArrayTaskID:|,NumCPUs:|,Feature:|").out == "4|1|(null)|\n"
    assert ids("--jobs=") == ids("-j", "") == []
    assert ids("-j") == ids("--jobs") == ids()  # as `-j` before another option
    assert slurm("squeue", "-h", "-j3", "-o", "%A %F %K").out == "3 3 0,2-5%2\n4 3 1\n"
    assert slurm("squeue", "-h", "-r", "-j3_1,3_2", "-o", "%K %E").out.splitlines()[0] == "2 (null)"


def test_the_rest_of_an_array_that_waits_no_more_was_cancelled(slurm: Slurm, daemon: Daemon) -> None:
    array = Array(dropped="0,5", completed="1-3", failed="4")
    daemon.service.put(3, array=array, started_us=6_000_000)
    daemon.service.finish(3, 1)
    assert slurm("squeue", "-h", "-j", "3", "-o", "%i").out == "3_1\n"
    assert slurm("squeue", "-h", "-j", "3", "-t", "CA", "-o", "%i %T %S").out == "3_[0,5] CANCELLED N/A\n"
    assert slurm("squeue", "-h", "-j", "3", "-t", "CA", "-o", "%i %y").out == "3_[0,5] 0\n"
    told = slurm("sacct", "-n", "-X", "-P", "-j", "3", "-S", "1970-01-01", "-o", "JobID,State,ExitCode,Start")
    assert told.out.splitlines()[-1] == "3_[0,5]|CANCELLED|0:0|Unknown"
    assert " JobState=CANCELLED " in slurm("scontrol", "-o", "show", "job", "3").out


def test_jobs_are_selected(slurm: Slurm) -> None:
    def ids(*words: str) -> str:
        return " ".join(slurm("squeue", "-h", "-S", "i", "-o", "%A", *words).out.split())

    assert ids("-t", "PD") == ids("--states=pending") == "2 3"
    assert ids("-t", "all") == "1 2 4 3 5"
    assert ids("-t", "F,TO") == "5"
    assert ids("-t", "BOOT_FAIL") == ""
    assert ids("-p", "fast,slow") == ids("--part", "fast") == "4 3"
    assert ids("-w", "h1") == "1"
    assert ids("-u", "root,daemon") == "1 2 4 3"
    assert ids("-u", "daemon") == ""
    assert ids("-n", "bad,narrow") == "2"
    assert ids("--me") == "1 2 4 3"
    assert ids("-j", "5") == ""  # it is known, and has ended
    assert ids("-j", "1,99") == "1"


def test_jobs_are_sorted(slurm: Slurm) -> None:
    def sorted_by(by: str) -> str:
        return slurm("squeue", "-h", "-t", "all", "-o", "%A", "-S", by).out.replace("\n", "")

    assert sorted_by("-i") == "53421"
    assert slurm("squeue", "-S", "+?").err.startswith("squeue: error: Invalid sort specification: +?.")
    assert sorted_by("-Q,i") == "21435"
    assert sorted_by("j,-A") == "15432"
    assert sorted_by("y,i") == "12435"  # nice, which needs more than a row has; the rest of an array is last


def test_variables_say_what_options_say(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%A %T")
    monkeypatch.setenv("SQUEUE_STATES", "FAILED")
    assert slurm("squeue", "-h").out == "5 FAILED\n"
    assert slurm("squeue", "-h", "-t", "PD", "-o", "%A").out == "2\n3\n"
    monkeypatch.setenv("SQUEUE_FORMAT2", "Name")
    assert slurm("squeue", "-h").out == "5 FAILED\n"
    monkeypatch.delenv("SQUEUE_FORMAT")
    assert slurm("squeue", "-h", "-o", "%A").out == "5\n"
    assert slurm("squeue", "-h").out.split() == ["bad"]
    monkeypatch.setenv("SQUEUE_LICENSES", "solver")
    assert slurm("squeue", "-h").out == ""


@pytest.mark.parametrize(
    ("variable", "form", "words"),
    [
        ("SQUEUE_FORMAT", "%j", ["squeue", "--long"]),
        ("SQUEUE_FORMAT2", "Name", ["squeue", "--long"]),
        ("SQUEUE_FORMAT", "%j", ["squeue", "--start"]),
        ("SQUEUE_FORMAT", "%j", ["squeue", "--steps"]),
        ("SINFO_FORMAT", "%D", ["sinfo", "--Node"]),
        ("SINFO_FORMAT", "%D", ["sinfo", "--summarize"]),
        ("SINFO_FORMAT", "%D", ["sinfo", "--list-reasons"]),
        ("SACCT_FORMAT", "jobid", ["sacct", "--brief"]),
        ("SACCT_FORMAT", "jobid", ["sacct", "--long"]),
    ],
)
def test_a_list_with_columns_of_its_own_has_them_whatever_format_the_user_likes(
    variable: str, form: str, words: list[str], slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = slurm(*words).out
    monkeypatch.setenv(variable, form)
    assert slurm(*words).out == usual


def test_every_letter_shows_every_job(slurm: Slurm) -> None:
    for letter, column in COLUMNS.items():
        lines = slurm("squeue", "-t", "all", "-o", f"<%{letter}>").out.splitlines()
        assert lines[0] == f"<{column.header}>"
        assert len(lines) == 6, letter
    assert slurm("squeue", "-h", "-j2", "-o", "%D %m %N|%R|%S|%e|%l|%y|%h|%W").out == (
        "3 100M |(None)|N/A|N/A|UNLIMITED|0|OK|(null)\n"
    )
    assert slurm("squeue", "-h", "-j5", "-t", "all", "-o", "%R").out == "(None)\n"


def test_pending_jobs_are_listed_with_their_start(slurm: Slurm) -> None:
    header, *lines = slurm("squeue", "--start").out.splitlines()
    assert header.split() == [
        "JOBID", "PARTITION", "NAME", "USER", "ST", "START_TIME", "NODES", "SCHEDNODES", "NODELIST(REASON)",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines] == ["2", "3_[0,2-5%2]"]


def test_pending_jobs_are_in_the_order_of_their_start_whatever_is_shown(slurm: Slurm, daemon: Daemon) -> None:
    daemon.service.put(2, held=True)  # nobody knows when it starts
    listed = [line.split()[0] for line in slurm("squeue", "--start", "-h").out.splitlines()]
    assert slurm("squeue", "--start", "-h", "-o", "%i").out.split() == listed


def test_a_held_job_has_no_priority_and_comes_last_of_those_that_wait(slurm: Slurm, daemon: Daemon) -> None:
    shown = ("squeue", "-h", "-t", "PD", "-S", "t,-Q", "-o")
    assert slurm(*shown, "%i").out.split() == ["2", "3_[0,2-5%2]"]
    spec = dataclasses.replace(daemon.service.table[2].spec, priority=7)
    daemon.service.put(2, held=True, reason=Reason(ReasonCode.HELD_USER, "held"), spec=spec)
    assert slurm(*shown, "%i").out.split() == ["3_[0,2-5%2]", "2"]
    assert slurm("squeue", "-h", "-j2", "-o", "%Q %p").out == "0 0.00000000000000\n"
    assert " Priority=0 " in slurm("scontrol", "-o", "show", "job", "2").out
    assert slurm(*shown, "%i", "--array-unique").out.split() == ["3_[0,2-5%2]", "2"]


def test_json_has_slurms_fields(slurm: Slurm) -> None:
    told = json.loads(slurm("squeue", "--json").out)
    assert told["errors"] == []
    found: dict[int, Any] = {job["job_id"]: job for job in told["jobs"]}
    assert sorted(found) == [1, 2, 3, 4]
    assert (found[1]["job_state"], found[1]["nodes"], found[1]["time_limit"]) == ("RUNNING", "h1", 90)
    assert (found[4]["array_job_id"], found[4]["array_task_id"]) == (3, 1)
    assert (found[3]["array_job_id"], found[3]["array_task_string"]) == (3, "0,2-5%2")


def test_states_in_which_no_job_of_rm_is_are_none(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("squeue", "-h", "-t", "BF,DL,RQ,RH,RS,REVOKED,SE,SO,ST,SIGNALING") == (0, "", "")
    assert set(slurm("squeue", "-h", "-t", "R,RQ", "-o", "%T").out.split()) == {"RUNNING"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-j", "99"], "slurm_load_jobs error: Invalid job id specified."),
        (["-j", "x"], "'x' is not a job id."),
        (["-t", "FOO"], "Invalid job state specified: FOO. Valid job states include: PENDING,"),
        (["--bla"], "unrecognized option '--bla'."),
        (["-Z"], "invalid option -- 'Z'."),
        (["-o"], "option '--format' requires an argument."),
        (["--no"], "option '--no' is ambiguous: --nodelist, --noheader, --noconvert."),
        (["--me=1"], "option '--me' doesn't allow an argument."),
        (["-o", "%99999999999i"], "The format has a column of the width 99999999999."),
        (["-M", "other"], "No cluster 'other' known by database. The cluster of this daemon is 'rm'."),
        (["-w", "h1,nohost"], "Invalid node name nohost"),
        (["word"], "Unrecognized option: word."),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error_of_squeue(words: list[str], sentence: str, slurm: Slurm) -> None:
    done = slurm("squeue", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"squeue: error: {sentence}")


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


def test_the_usual_order_of_jobs_is_the_same_whatever_is_shown_of_them(slurm: Slurm, rmx: Rmx) -> None:
    rmx("submit", "--priority=9", "--nice=4", "--wrap=true")
    usual = slurm("squeue", "-h", "-t", "PD", "-o", "%i").out.split()
    assert usual.index("6") < usual.index("2"), "the nice value does not count"
    for letter in "Qp":
        shown = slurm("squeue", "-h", "-t", "PD", "-o", f"%i %{letter}").out.splitlines()
        assert [line.split()[0] for line in shown] == usual
    asked = slurm("squeue", "-h", "-t", "PD", "-o", "%i", "--sort", "P,t,-p").out.split()
    assert asked.index("2") < asked.index("6")


def test_priorities_are_listed_with_their_parts(slurm: Slurm, rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--priority=9", "--nice=4", "--partition=fast,slow", "--wrap=true")
    rmx("submit", "--priority=9", "--hold", "--wrap=true")
    assert slurm("sprio").out.splitlines()[0].split() == ["JOBID", "PARTITION", "PRIORITY", "SITE"]
    assert [line.split() for line in slurm("sprio", "-h").out.splitlines()] == [
        ["2", "(null)", "7", "7"],
        ["3_[0,2-5%2]", "fast", "0", "0"],
        ["6", "fast", "5", "9"],
        ["6", "slow", "5", "9"],
    ], "by id, without those that are held"
    rmx("cancel", "7")
    assert slurm("sprio", "-h", "-o", "%i %Y", "-p", "slow").out == "6 5\n"
    assert slurm("sprio", "-h", "-o", "%i", "-j", "3_2,2", "-u", "root").out.split() == ["2", "3_[0,2-5%2]"]
    assert slurm("sprio", "-u", "root").out.splitlines()[0].split()[2] == "USER"
    assert "%s, which is not supported" in slurm("sprio", "-o", "%s").err
    daemon.service.queue_policy = "multifactor"
    told = [line.split() for line in slurm("sprio", "-j", "6").out.splitlines()]
    assert told == [
        ["JOBID", "PARTITION", "PRIORITY", "SITE", "AGE", "FAIRSHARE", "JOBSIZE", "PARTITION"],
        ["6", "fast", "5007", "9", "2", "5000", "0", "0"],
        ["6", "slow", "5107", "9", "2", "5000", "0", "100"],
    ], "a line for each partition"
    assert slurm("sprio", "-h", "-o", "%r %Y", "-p", "slow").out == "slow 5107\n"
    assert (
        "  Priority 5107 = site 9 + age 1.5 + fair share 5000 + size 0.25 + QOS 0 + partition 100 - nice 4.\n"
        in rmx("why", "6").out
    )
    highest = dict(line.split() for line in slurm("sprio", "-h", "-o", "%i %Y", "-S", "Y").out.splitlines())
    by_sprio = "".join(
        f"{job} {most}\n" for job, most in sorted(highest.items(), key=lambda one: -int(one[1]))
    )
    assert slurm("squeue", "-h", "-o", "%i %Q", "--sort", "-Q,i", "-t", "PD").out == by_sprio
    assert slurm("squeue", "-h", "-o", "%p", "-j", "6").out == f"{5107 / (1 << 32):.14f}\n"
    assert "Priority=5107 Nice=4 " in slurm("scontrol", "show", "job", "6").out
    assert json.loads(slurm("squeue", "--json", "-j", "6").out)["jobs"][0]["priority"] == 5107
    daemon.service.queue_policy = "srsf"
    refused = slurm("sprio")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("sprio: error: sprio does not know what priorities")


def test_weights_and_parts_of_priorities_stand_where_slurm_has_them(
    slurm: Slurm, rmx: Rmx, daemon: Daemon
) -> None:
    assert slurm("sprio", "-w").out.splitlines() == [
        "          JOBID PARTITION   PRIORITY       SITE",
        "        Weights                               1",
    ]
    daemon.service.queue_policy = "multifactor"
    parts = "       SITE        AGE"
    after = "  FAIRSHARE    JOBSIZE  PARTITION"
    assert slurm("sprio", "-w").out.splitlines() == [
        f"          JOBID PARTITION   PRIORITY{parts}{after}",
        "        Weights                               1       1000      10000          0      10000",
    ]
    # the lines of Slurm 22.05, but for the numbers
    assert slurm("sprio", "-l", "-j", "2").out.splitlines() == [
        f"          JOBID PARTITION     USER   PRIORITY{parts}      ASSOC{after}        QOS        NICE"
        "                 TRES",
        "              2 (null)        root       5009          7          2          0       5000          0"
        "          0          0           0                     ",
    ]
    assert slurm("sprio", "-w", "-l", "-h").out == (
        "        Weights                                        1       1000          0      10000          0"
        "      10000          0                           (null)\n"
    )
    assert slurm("sprio", "-n", "-j", "2").out.splitlines() == [
        "          JOBID PARTITION PRIORITY   AGE        FAIRSHARE  JOBSIZE    PARTITION ",
        "              2 (null)    0.00000117 0.0015000  0.5000000  0.5000000  0.0000000 ",
    ]
    assert slurm("sprio", "-n", "-l", "-j", "2").out.splitlines() == [
        "          JOBID PARTITION     USER PRIORITY   AGE        ASSOC      FAIRSHARE  JOBSIZE    PARTITION "
        " QOS        TRES                ",
        "              2 (null)        root 0.00000117 0.0015000  0.0000000  0.5000000  0.5000000  0.0000000 "
        " 0.0000000                      ",
    ]
    assert slurm("sprio", "-n", "-w", "-h").out == (
        "        Weights                      1000       10000      0          10000     \n"
    )
    by_priority = slurm("sprio", "-h", "-o", "%i", "-S", "-Y,i").out.split()
    assert by_priority == ["2", "3_[0,2-5%2]"]
    assert slurm("sprio", "-h", "-o", "%i", "-S", "Y").out.split() == by_priority[::-1]
    assert "Invalid sort specification: Z." in slurm("sprio", "-S", "Z").err
    assert slurm("sprio", "-j", "77").out == "Unable to find jobs matching user/id(s) specified\n"


def test_priorities_are_sorted_as_numbers(
    slurm: Slurm, rmx: Rmx, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for priority, nice in ((999, 1000), (1000, 999), (-5, 5)):
        rmx("submit", f"--priority={priority}", f"--nice={nice}", "--wrap=true")

    def ids(by: str) -> list[str]:
        return slurm("sprio", "-h", "-o", "%i", "-j", "6,7,8", "-S", by).out.split()

    assert (ids("S"), ids("-S")) == (["8", "6", "7"], ["7", "6", "8"])
    assert (ids("N"), ids("-N")) == (["8", "7", "6"], ["6", "7", "8"])
    daemon.service.queue_policy = "multifactor"
    made = [
        Priority(
            job=job, sum=value, site=0, age=value, fair_share=value, size=value, nice=0, qos=value,
            partition=value,
        )
        for job, value in ((6, 999.0), (7, 1000.0), (8, 99_999.0))
    ]  # fmt: skip
    weights = PriorityWeights(age=1e3, fair_share=1e3, size=1e3, qos=1e3, partition=1e3)
    monkeypatch.setattr(Client, "priorities", lambda _: made)
    monkeypatch.setattr(Client, "priority_weights", lambda _: weights)
    for letter in "AFJQPafjqpYy":
        assert (ids(letter), ids(f"-{letter}")) == (["6", "7", "8"], ["8", "7", "6"]), letter


def test_a_job_is_listed_in_each_partition_that_it_may_run_in(slurm: Slurm, rmx: Rmx) -> None:
    rmx("submit", "--partition=gpu,big", "--wrap=true")
    for one in ("gpu", "big", "other,big"):
        assert slurm("squeue", "-h", "-o", "%i %P", "-p", one).out == "6 gpu,big\n"
        assert slurm("sacct", "-n", "-X", "-o", "jobid", "-r", one).out.split() == ["6"]
        assert rmx("queue", "--noheader", "-o", "jobid", "-p", one).out.split() == ["6"]
    assert slurm("squeue", "-h", "-p", "gp").out == ""


def test_every_letter_at_once(slurm: Slurm) -> None:
    header, line = slurm("squeue", "-j1", "-o", "%all").out.splitlines()
    assert len(header.split("|")) == len(line.split("|")) == len(COLUMNS)
    assert header.startswith("ACCOUNT|TRES_PER_NODE|MIN_CPUS|")
    assert header.endswith("|SCHEDNODES|WORK_DIR")


def test_names_that_have_no_letter(slurm: Slurm) -> None:
    asked = "jobid:4 ,numtasks:5,tres-alloc:30,exit_code:3,restartcnt:3,stdin,"
    assert slurm("squeue", "-h", "-j2", "-O", asked).out == (
        f"2    {'3':5}{'cpu=3,mem=300M,node=3,billing=':30}0  0  {'/dev/null':20}\n"
    )


def test_an_exit_status_and_memory_of_a_processor_stand_as_in_slurm(slurm: Slurm, rmx: Rmx) -> None:
    assert slurm("squeue", "-h", "-tall", "-j5", "-O", "exit_code:|").out == "768|\n"
    rmx("submit", "-n2", "-c4", "--mem-per-cpu=20M", "--wrap=true")
    assert slurm("squeue", "-h", "-j6", "-o", "%m").out == "20M\n"


def test_starts_are_told_of_the_states_that_are_asked_for(slurm: Slurm) -> None:
    assert slurm("squeue", "--start", "-h", "-t", "R", "-o", "%A").out == "1\n4\n"


def test_each_name_that_slurm_has_is_known(slurm: Slurm) -> None:
    """Those of squeue(1) of Slurm 22.05, --Format, as its squeue takes them."""
    names = (
        "accruetime admin_comment allocnodes allocsid account arrayjobid arraytaskid associd batchflag "
        "batchhost boardspernode burstbuffer burstbufferstate clusterfeature contiguous comment "
        "command container corespec cores cpus-per-task cpus-per-tres deadline delayboot dependency "
        "derivedec eligibletime endtime exit_code feature groupid groupname hetjobid hetjoboffset "
        "hetjobidset jobarrayid jobid lastschedeval licenses maxcpus maxnodes mcslabel mem-per-tres "
        "mincpus minmemory mintime mintmpdisk name network nice nodelist ntpercore ntpernode ntpersocket "
        "ntperboard numcpus numnodes numtasks origin originraw oversubscribe partition pendingtime "
        "preempttime prefer priority prioritylong profile qos reason reasonlist reboot reqnodes "
        "reqswitch requeue reservation resizetime restartcnt sct schednodes selectjobinfo siblingsactive "
        "siblingsactiveraw siblingsviable siblingsviableraw sockets sperboard starttime state "
        "statecompact stderr stdin stdout submittime system_comment threads timeleft timelimit timeused "
        "tres-alloc tres-bind tres-freq tres-per-job tres-per-node tres-per-socket tres-per-task userid "
        "username wait4switch wckey workdir "
    )
    done = slurm("squeue", "-j2", "-O", ",".join(f"{name}:|" for name in names.split()))
    header, line = (text.split("|") for text in done.out.splitlines())
    assert len(header) == len(line) == len(names.split()) + 1
    shown = dict(zip(names.split(), zip(header, line, strict=True), strict=False))
    assert shown["tres-per-job"] == ("TRES_PER_JOB", "N/A")
    assert shown["cpus-per-task"] == ("CPUS_PER_TASK", "1")
    assert shown["maxnodes"] == ("MAX_NODES", "3")
    assert shown["mcslabel"] == ("MCSLABEL", "(null)")


def test_users_by_id_and_one_who_does_not_exist(slurm: Slurm) -> None:
    assert slurm("squeue", "-h", "-u", "0", "-j1", "-o", "%i") == (0, "1\n", "")
    none = slurm("squeue", "-h", "-u", "nobodythere", "-o", "%i")
    assert none == (0, "", "squeue: error: Invalid user: nobodythere\n")


def test_a_list_is_repeated_until_it_fails(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def sleep(seconds: int) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("rm.submission.place.here.pause", sleep)
    done = slurm("squeue", "-h", "-j1", "-o", "%i", "-i", "5")
    assert re.fullmatch(r"(\w{3} \w{3} .*\n1\n\n){2}", done.out)
    assert waits == [5, 5]
    assert "--iterate=0 is not a number of seconds" in slurm("sinfo", "-i", "0").err


def test_jobs_to_cancel_may_stand_in_a_list(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scancel", "1,2").code == 0
    assert {daemon.service.table[job].state for job in (1, 2)} <= {JobState.CANCELLED, JobState.COMPLETING}
    assert slurm("scancel", "1,x") == (1, "", "scancel: error: Invalid job id x\n")


def test_times_are_written_as_the_environment_asks(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(form: str) -> str:
        monkeypatch.setenv("SLURM_TIME_FORMAT", form)
        return slurm("squeue", "-h", "-j1", "-o", "%S").out.strip()

    assert started("standard") == "1970-01-01T00:00:05"
    assert started("%s|%H") == "5|00"
    assert started("relative") == "1 Jan 1970"
    now_s = time.mktime((2026, 3, 5, 23, 59, 59, 0, 0, -1))
    monkeypatch.setattr(
        "rm.cli.slurm.jobs.time",
        SimpleNamespace(localtime=lambda s=now_s: time.localtime(s), strftime=time.strftime),
    )
    assert moment(int(now_s) * 1_000_000) == "23:59:59"
    assert moment(int(now_s - 86_400) * 1_000_000) == "Ystday 23:59"
    assert moment(int(now_s + 1) * 1_000_000) == "Tomorr 00:00"
    assert moment(None, "Unknown") == "Unknown"


def test_conditions_that_are_not_fulfilled_are_listed(slurm: Slurm, daemon: Daemon) -> None:
    conditions = (Dependency("afterok", 1), Dependency("after", 1, 120_000_000), Dependency("singleton"))
    daemon.service.put(2, dependencies=conditions)
    shown = "afterok:1(unfulfilled),after:1+2(unfulfilled),singleton(unfulfilled)"
    assert slurm("squeue", "-h", "-j2", "-o", "%E").out == f"{shown}\n"
    assert f" Dependency={shown} " in slurm("scontrol", "-o", "show", "job", "2").out
    assert " EligibleTime=Unknown " in slurm("scontrol", "-o", "show", "job", "2").out
    fulfilled = dataclasses.replace(conditions[0], standing=Standing.FULFILLED)
    daemon.service.put(2, dependencies=(fulfilled, *conditions[1:]))
    assert slurm("squeue", "-h", "-j2", "-o", "%E").out == f"{shown.partition(',')[2]}\n"


def test_a_condition_on_a_whole_array_is_listed_as_slurm_does(slurm: Slurm, daemon: Daemon) -> None:
    of_array = (Dependency("afterany", 1, array=True), Dependency("after", 1, 60_000_000, array=True))
    some = (
        Dependency("afterok", 1, tasks="2", array=True),
        Dependency("afterok", 1, tasks="3-4", array=True),
    )
    daemon.service.put(2, dependencies=(*of_array, *some))
    conditions = ("afterany:1_*", "after:1_*+1", "afterok:1_2", "afterok:1_[3-4]")
    shown = ",".join(f"{one}(unfulfilled)" for one in conditions)
    assert slurm("squeue", "-h", "-j2", "-o", "%E").out == f"{shown}\n"
