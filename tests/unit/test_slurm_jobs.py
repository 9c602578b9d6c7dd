"""`squeue` on rm's client: what scripts for Slurm read and write."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rm.cli.slurm.jobs import moment
from rm.cli.slurm.queue.squeue_columns import COLUMNS
from rm.core.model.asked.array import Array
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.reasons import Reason, ReasonCode
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

pytestmark = pytest.mark.usefixtures("jobs_of_slurm", "a_minute_later")


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
    assert slurm("squeue", "-h", "-j", "3", "-o", "%i").out == "3_1\n", "the array is PENDING for another one"
    daemon.service.finish(3, 1)
    assert slurm("squeue", "-h", "-j", "3", "-o", "%i").out == "3_1\n"
    assert slurm("squeue", "-h", "-j", "3", "-t", "CA", "-o", "%i %T %S").out == "3_[0,5] CANCELLED N/A\n"
    assert slurm("squeue", "-h", "-j", "3", "-t", "CA", "-o", "%i %y").out == "3_[0,5] 0\n"
    told = slurm("sacct", "-n", "-X", "-P", "-j", "3", "-S", "1970-01-01", "-o", "JobID,State,ExitCode,Start")
    assert told.out.splitlines()[-1] == "3_[0,5]|CANCELLED|0:0|Unknown"
    assert " JobState=CANCELLED " in slurm("scontrol", "-o", "show", "job", "3").out


def test_what_is_held_or_was_cancelled_of_an_array_has_a_line_of_its_own(
    slurm: Slurm, daemon: Daemon
) -> None:
    daemon.service.put(3, array=Array(waiting="2-4", held="3-4", running="1", dropped="0,5"))
    form = ("-h", "-j", "3", "-t", "all", "-o", "%i %T %r")
    waits, held, gone = "3_[2] PENDING None", "3_[3-4] PENDING JobHeldUser", "3_[0,5] CANCELLED None"
    assert set(slurm("squeue", *form).out.splitlines()) == {waits, held, gone, "3_1 RUNNING None"}
    assert slurm("squeue", "-h", "-j", "3", "-t", "PD", "-o", "%i %y").out.split("\n")[:2] == [
        "3_[2] 0",
        "3_[3-4] 0",
    ]
    told = json.loads(slurm("squeue", "--json", "-j", "3", "-t", "all").out)["jobs"]
    assert [(one["array_task_string"], one["job_state"]) for one in told if one["array_task_string"]] == [
        ("2", "PENDING"),
        ("3-4", "PENDING"),
        ("0,5", "CANCELLED"),
    ]
    assert slurm("scancel", "-v", "-t", "PD", "-n", "many").err == "scancel: Terminating job 3_[2-4]\n"


def test_who_cancels_all_asks_nothing_of_elements_that_were_cancelled(slurm: Slurm, daemon: Daemon) -> None:
    """The array is PENDING for an element that has a job of its own and waits again."""
    daemon.service.put(3, array=Array(dropped="0,2-5"))
    assert slurm("scancel", "-v", "-n", "many") == (0, "", "scancel: Terminating job 4\n")


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


def test_an_empty_name_lists_nothing(slurm: Slurm) -> None:
    """As in Slurm: who waits until `squeue -h -n "$NAME"` is empty does not wait for all jobs."""
    for letter in "AnpqtuwLR":
        assert slurm("squeue", "-h", f"-{letter}", "") == (0, "", ""), letter
        assert slurm("squeue", "-h", "-s", f"-{letter}", "") == (0, "", ""), letter
    assert slurm("squeue", "-h", "--states=,").out == ""
    assert slurm("squeue", "-h", "-u", "root,").out
    assert slurm("sinfo", "-h", "-p", "").out == ""
    assert all(line.split()[3] == "0" for line in slurm("sinfo", "-h", "-t", "").out.splitlines())
    for words in (("scancel", "-t", ""), ("scancel", "-u", ""), ("sacct", "-u", "")):
        done = slurm(*words)
        assert (done.code, done.out) == (1, ""), words
        assert "Invalid" in done.err


@pytest.mark.parametrize(
    "words", [("squeue", "-l", "-o", "%i"), ("squeue", "-s", "-l", "-o", "%i"), ("sinfo", "-o", "%n", "-l")]
)
def test_own_columns_are_not_mixed_with_those_of_the_long_list(words: tuple[str, ...], slurm: Slurm) -> None:
    done = slurm(*words)
    assert (done.code, done.out) == (1, "")
    assert (
        "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry." in done.err
    )
    both = slurm("squeue", "-o", "%i", "-O", "jobid")
    assert (both.code, both.out) == (1, "")


def test_the_usual_order_of_jobs_is_the_same_whatever_is_shown_of_them(slurm: Slurm, rmx: Rmx) -> None:
    rmx("submit", "--priority=9", "--nice=4", "--wrap=true")
    usual = slurm("squeue", "-h", "-t", "PD", "-o", "%i").out.split()
    assert usual.index("6") < usual.index("2"), "the nice value does not count"
    for letter in "Qp":
        shown = slurm("squeue", "-h", "-t", "PD", "-o", f"%i %{letter}").out.splitlines()
        assert [line.split()[0] for line in shown] == usual
    asked = slurm("squeue", "-h", "-t", "PD", "-o", "%i", "--sort", "P,t,-p").out.split()
    assert asked.index("2") < asked.index("6")


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
