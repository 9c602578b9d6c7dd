"""`rmx queue` as people shape it, and the words of other tools."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from rm.cli.jobs.queue_columns import COLUMNS, slurm_format
from rm.cli.main import VERBS
from rm.cli.main import rmx as program
from rm.cli.other_words import CALLED, hint
from rm.cli.output import printable
from rm.client import Client
from rm.core.model.asked.array import Array
from rm.core.model.job import JobState
from rm.core.model.reasons import Reason, ReasonCode
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.submitting import submitted


@pytest.fixture(autouse=True)
def jobs(daemon: Daemon) -> None:
    """1 runs on h1 with 2 GPUs; 2 and 3 wait, 3 in a partition."""
    submitted(daemon, "--job-name=wide", "--gpus-per-task=1", "-n", "2", "--time=90")
    submitted(daemon, "--job-name=narrow")
    submitted(daemon, "--job-name=last", "--partition=fast", "--gpus-per-node=3")
    daemon.service.run(1)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_columns_are_chosen_by_name(rmx: Rmx) -> None:
    assert rows(rmx("queue", "-o", "jobid,gpus,TIMELIMIT,name").out) == [
        ["JOBID", "GPUS", "TIME_LIMIT", "NAME"],
        ["1", "2", "1:30:00", "wide"],
        ["2", "0", "UNLIMITED", "narrow"],
        ["3", "3", "UNLIMITED", "last"],
    ]
    assert rmx("queue", "-l").out.split()[:6] == [
        "JOBID",
        "PARTITION",
        "NAME",
        "USER",
        "STATE",
        "SUBMIT_TIME",
    ]
    wrong = rmx("queue", "-o", "jobid,colour")
    assert wrong.code == 2
    assert (
        "'colour' is not a column of the queue. Choose from jobid, arrayjobid, arraytaskid, partition, name"
        in wrong.err
    )


def test_columns_are_chosen_by_the_letters_of_slurm(rmx: Rmx) -> None:
    out = rmx("queue", "--format=%.5i|%3j|%t 100%%").out
    assert out.splitlines() == [
        "JOBID|NAM|ST 100%",
        "    1|wid|R 100%",
        "    2|nar|PD 100%",
        "    3|las|PD 100%",
    ]
    assert rmx("queue", "--noheader", "-o", "%i").out == "1\n2\n3\n"
    assert rmx("queue", "--noheader", "-o", "%.0i %0t").out == "1 R\n2 PD\n3 PD\n"  # as squeue: no width
    assert "'%X' is not a column" in rmx("queue", "-o", "%i %X").err
    assert "a % that names no column" in rmx("queue", "-o", "%i %-j").err
    times = rmx("queue", "--noheader", "-t", "PD", "-n", "last", "-o", "%V %S").out
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d N/A\n", times)


def test_an_array_is_a_line_for_what_waits_what_is_held_and_what_was_cancelled(
    rmx: Rmx, daemon: Daemon
) -> None:
    def shown(*words: str) -> list[str]:
        return [" ".join(row) for row in rows(rmx("queue", "-n", "many", "--noheader", *form, *words).out)]

    form = ("-o", "jobid,state,reason")
    rmx("submit", "--job-name=many", "--array=0-9%2", "--wrap=true")
    cancelled = Reason(ReasonCode.CANCELLED, "cancelled by alice")
    array = Array(waiting="3-6", held="5-6", running="1-2", completed="0", dropped="7-9", limit=2)
    daemon.service.put(4, array=array, reason=cancelled)
    dropped = "4_[7-9] CANCELLED Cancelled"
    assert shown() == ["4_[3-4%2] PENDING None", "4_[5-6%2] PENDING JobHeldUser", dropped]
    assert shown("--state=CA") == shown("-t", "cancelled,F") == [dropped]
    assert len(shown("-t", "PD")) == 2
    assert [job["id"] for job in rmx("queue", "-n", "many", "--json").json["jobs"]] == [4]
    held = dataclasses.replace(array, held="3-6", admin_held="3-6", dropped="", failed="7-9")
    daemon.service.put(4, array=held)
    daemon.service.newest[4] = Reason(ReasonCode.HELD_ADMIN, "")
    assert shown() == ["4_[3-6%2] PENDING JobHeldAdmin"]
    daemon.service.put(4, array=dataclasses.replace(held, held="3", admin_held="3"))
    assert shown()[1] == "4_[3%2] PENDING JobHeldAdmin"
    daemon.service.put(4, array=Array(running="0-6", dropped="7-9"), state=JobState.RUNNING, reason=cancelled)
    assert shown() == [dropped], "it is in another state than those that run"
    daemon.service.put(4, array=Array(failed="0-6", dropped="7-9"), state=JobState.FAILED, ended_us=9_000_000)
    assert shown() == [dropped]


def test_no_word_is_broken_on_a_narrow_terminal(rmx: Rmx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = rmx("queue").out
    assert all(word in text for word in ("PARTITION", "HOSTS(REASON)", "narrow", "h1"))


@pytest.mark.usefixtures("a_minute_later")
def test_every_column_shows_every_job(rmx: Rmx, daemon: Daemon) -> None:
    assert len({column.letter for column in COLUMNS.values()}) == len(COLUMNS)
    with Client(daemon.socket) as client:
        found = client.rows()
    for column in COLUMNS.values():
        texts = [printable(column.text(job)) for job in found]
        assert list(slurm_format(f"%{column.letter}").lines(found)) == texts
        assert rmx("queue", "-S", column.name, "-o", column.name).code == 0


def test_jobs_are_sorted(rmx: Rmx) -> None:
    def sorted_by(words: str) -> str:
        return rmx("queue", "--noheader", "-S", words, "-o", "%i").out.replace("\n", "")

    assert sorted_by("name") == "321"
    assert sorted_by("-gpus") == "312"
    assert sorted_by("t,-i") == "321"
    assert sorted_by("timelimit,-i") == "132"
    assert "'shoe' is not a column" in rmx("queue", "-S", "shoe").err


def test_jobs_are_selected_by_several_words(rmx: Rmx) -> None:
    def selected(*words: str) -> list[int]:
        return [job["id"] for job in rmx("queue", "--json", *words).json["jobs"]]

    assert selected("-n", "wide,last") == [1, 3]
    assert selected("-p", "fast,slow") == [3]
    assert selected("-u", "root,nobody", "--limit=2") == [2, 3]
    assert selected("-u", "nobody,daemon") == []
    assert selected("-w", "h[1-2]") == [1]
    assert selected("-w", "h2") == []


@pytest.mark.parametrize("page", [1, 2, 500])
def test_a_long_queue_is_asked_for_in_pages(rmx: Rmx, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.client.client.JOBS_PAGE", page)
    assert [job["id"] for job in rmx("queue", "--json").json["jobs"]] == [1, 2, 3]
    assert [job["id"] for job in rmx("queue", "--json", "--limit=2").json["jobs"]] == [2, 3]
    assert [job["id"] for job in rmx("queue", "--json", "--limit=9", "-t", "PD").json["jobs"]] == [2, 3]


@pytest.mark.parametrize("word", [word for words in CALLED.values() for word in words])
def test_a_word_of_another_tool_is_answered_with_ours(word: str) -> None:
    assert word not in VERBS
    verb = re.fullmatch(r"Here it is: rmx (\S+).*", hint(word, VERBS))
    assert verb is not None
    assert verb[1] in VERBS


@pytest.mark.parametrize(
    ("said", "verb"),
    [
        ("account create x", "account add"), ("qos delete x", "qos remove"),
        ("partition list", "partition show"),
        ("reservation add x", "reservation create"), ("reservation update x", "reservation set"),
        ("host cordon x", "host drain"), ("host ls", "hosts"), ("token delete x", "token revoke"),
        ("monitor show", "monitor list"),
    ],
)  # fmt: skip
def test_a_word_of_another_tool_in_a_group_is_answered_with_ours(rmx: Rmx, said: str, verb: str) -> None:
    told = rmx(*said.split())
    assert told.code == 2
    assert told.err.rstrip().endswith(f"Here it is: rmx {verb}")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_h_is_help_everywhere(rmx: Rmx, verb: str) -> None:
    short = rmx(verb, "-h")
    assert short.code == 0
    assert short.out.startswith(f"Usage: rmx {verb}")
    assert "-h, --help" in short.out
    assert short.out == rmx(verb, "--help").out


def completions(*words: str) -> list[str]:
    shell = ShellComplete(program, {}, "rmx", "_RMX_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_jobs_hosts_and_partitions_complete(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completions("cancel", "") == ["1", "2", "3"]
    assert completions("cancel", "2,3") == ["2,3"]
    assert completions("logs", "3") == ["3"]
    assert completions("host", "drain", "h1", "") == ["h1", "h2"]
    assert completions("queue", "-w", "h2") == ["h2"]
    assert completions("submit", "-w", "h1,h") == ["h1,h1", "h1,h2"]
    assert completions("alloc", "--exclude", "h2") == ["h2"]
    assert completions("queue", "-p", "") == []
    monkeypatch.setenv("RM_DAEMON__SOCKET", "/nowhere.sock")
    assert completions("show", "") == []


def test_no_name_that_completion_shows_commands_the_terminal(rmx: Rmx) -> None:
    rmx("submit", "--job-name=\x1b]0;title\x07\u202ename", "--wrap=true")
    shell = ShellComplete(program, {}, "rmx", "_RMX_COMPLETE")
    (found,) = [item for item in shell.get_completions(["cancel"], "4") if item.value == "4"]
    assert found.help == "?]0;title??name, PENDING"


def test_the_document_has_each_column_with_its_letter() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs/cli.md").read_text().split())
    for column in COLUMNS.values():
        assert f"{column.name} `%{column.letter}`" in text
