"""The commands that scripts call in loops: without click they do what they do with it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from rm.api.job_rows import JobRow
from rm.cli import start
from rm.cli.ending import INTERRUPTED
from rm.cli.jobs import quick_queue, quick_submit
from rm.client import connection, kept_ssh, listing
from rm.client.address import find_daemon
from rm.errors import ImpossibleRequest
from tests.command_line import HEAVY, Rmx
from tests.fake_service import Daemon
from tests.submitting import submitted

Attempt = Callable[..., "Done"]


class Done(NamedTuple):
    code: int | None
    out: str
    err: str


@pytest.fixture
def quick(capfd: pytest.CaptureFixture[str]) -> Attempt:
    attempts = {"submit": quick_submit.attempt, "queue": quick_queue.attempt}

    def attempt(verb: str, *words: str) -> Done:
        capfd.readouterr()
        code = attempts[verb](words)
        return Done(code, *capfd.readouterr())

    return attempt


SIMPLE = (
    ("train.sh",),
    ("train.sh", "--lr", "0.1", "-x"),
    ("-n", "4", "--gpus-per-task=1", "-t1:00:00", "train.sh"),
    ("--job-name", "a b", "-H", "--no-requeue", "train.sh", "one"),
    ("--exclusive", "--comment=é", "--output=%j.out", "train.sh"),
    ("--requeue", "--no-requeue", "--requeue", "-Hn2", "./train.sh"),
    ("--dependency=afterany:1?afterok:2", "--mem=16G", "-c4", "--begin=now+1hour", "train.sh"),
)


@pytest.mark.parametrize("words", SIMPLE, ids=" ".join)
def test_the_job_is_the_same(words: tuple[str, ...], daemon: Daemon, rmx: Rmx, quick: Attempt) -> None:
    done, usual = quick("submit", *words), rmx("submit", *words)
    assert (done.code, done.err) == (usual.code, usual.err)
    assert (done.out, usual.out) == ("Submitted batch job 1\n", "Submitted batch job 2\n")
    ours, theirs = daemon.service.table[1].spec, daemon.service.table[2].spec
    assert ours == replace(theirs, begin_us=ours.begin_us)
    assert (ours.begin_us is None) == (theirs.begin_us is None)


def test_the_id_alone_is_printed_when_it_is_asked_for(daemon: Daemon, quick: Attempt) -> None:
    assert quick("submit", "--parsable", "train.sh").out == "1\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-",),
        ("--help",),
        ("--colour=red", "train.sh"),
        ("--ntasks=many", "train.sh"),
        ("--ntasks", "4"),
        ("--parsable=yes", "train.sh"),
        ("nothing.sh",),
        ("--wait", "train.sh"),
        ("--test-only", "train.sh"),
        ("--wrap=true",),
        ("--", "train.sh"),
    ],
    ids=" ".join,
)
def test_what_is_wrong_or_not_simple_is_left_to_click(
    words: tuple[str, ...], daemon: Daemon, quick: Attempt
) -> None:
    assert quick("submit", *words) == (None, "", "")
    assert not daemon.service.table


def test_a_refusal_of_the_daemon_is_told_and_comes_once(
    daemon: Daemon, rmx: Rmx, quick: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(connection, "Connection", None)  # it would ask again
        refused = quick("submit", "-n", "101", "train.sh")
    assert (refused.code, refused.err.count("The cluster has 2 hosts.")) == (ImpossibleRequest.exit_code, 1)
    done, usual = (submit("submit", "-n", "101", "train.sh") for submit in (quick, rmx))
    assert done.err.splitlines()[-1] == usual.err.splitlines()[-1]
    assert done.code == usual.code
    assert done.code


def test_a_lost_answer_is_asked_for_again_with_the_same_key(
    daemon: Daemon, quick: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    sent = quick_submit.answered

    def lost(
        door: object,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
        refuse: object,
        **_: object,
    ) -> None:
        asked.append(headers["Idempotency-Key"])
        assert sent(door, method, target, headers, body)

    monkeypatch.setattr(quick_submit, "answered", lost)
    assert quick("submit", "train.sh").out == "Submitted batch job 2\n"  # the fake service knows no keys
    assert daemon.service.keys == asked * 2


def test_without_a_daemon_the_sentence_is_clicks(
    quick: Attempt, rmx: Rmx, monkeypatch: pytest.MonkeyPatch, daemon: Daemon
) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", "/nowhere/rm.sock")
    assert quick("queue") == (None, "", "")
    done, usual = quick("submit", "train.sh"), rmx("submit", "train.sh")
    assert done == tuple(usual)
    assert "No daemon listens on /nowhere/rm.sock" in done.err


QUEUES = (
    (),
    ("--noheader",),
    ("-l",),
    ("-o", "%.5i|%3j|%t 100%%"),
    ("--format=jobid,name,mem,submit",),
    ("-S", "-jobid"),
    ("-t", "PD", "--sort=name"),
    ("-u", "root,nobody"),
    ("--user=nobody",),
    ("-n", "wide,last", "-p", "fast"),
    ("-w", "h[1-2]"),
    ("--me",),
)


@pytest.fixture
def jobs(daemon: Daemon) -> None:
    """1 runs on h1; 2 and 3 wait, 3 in a partition."""
    submitted(daemon, "--job-name=wide", "--gpus-per-task=1", "-n", "2", "--time=90")
    submitted(daemon, "--job-name=narrow\x1b", "--mem=16G")
    submitted(daemon, "--job-name=last", "--partition=fast", "--gpus-per-node=3")
    daemon.service.run(1)


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("words", QUEUES, ids=" ".join)
def test_the_queue_is_the_same(
    words: tuple[str, ...], rmx: Rmx, quick: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.cli.shown.time.time_ns", lambda: 100_000_000_000)  # elapsed times
    usual = rmx("queue", *words)
    assert quick("queue", *words) == tuple(usual)
    assert usual.code == 0


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("page", [1, 2])
def test_a_long_queue_is_asked_for_in_pages(
    page: int, rmx: Rmx, quick: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.cli.shown.time.time_ns", lambda: 100_000_000_000)  # elapsed times
    usual = rmx("queue").out
    monkeypatch.setattr("rm.web.routes.jobs.JOBS_MOST", page)
    assert quick("queue").out == usual


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    "words",
    [("--json",), ("--help",), ("-o",), ("-o", "colour"), ("-t", "FOO"), ("-n", "a&b"), ("x",)],
    ids=" ".join,
)
def test_other_queues_are_left_to_click(words: tuple[str, ...], quick: Attempt) -> None:
    assert quick("queue", *words) == (None, "", "")


@pytest.mark.parametrize("words", [("submit", "train.sh"), ("queue",)], ids=" ".join)
def test_nothing_heavy_is_loaded(
    words: tuple[str, ...], daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rm.toml").write_text(f'[daemon]\nsocket = "{daemon.socket}"\n')
    monkeypatch.setenv("RM_CONFIG", str(tmp_path / "rm.toml"))
    monkeypatch.delenv("RM_DAEMON__SOCKET", raising=False)
    code = (
        f"import sys; sys.argv[1:] = {list(words)}; from rm.cli.start import command_line\n"
        f"code = command_line(); print(code, sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_script_from_a_pipe_is_read_once(daemon: Daemon, rmx: Rmx, quick: Attempt) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"#!/bin/sh\nhostname\n")
    os.close(writing)
    words = ("submit", "--hold", f"/dev/fd/{reading}")
    assert quick(*words) == (None, "", "")
    assert rmx(*words).out == "Submitted batch job 1\n"
    os.close(reading)
    assert daemon.service.table[1].spec.script == "#!/bin/sh\nhostname\n"


PROGRAM = [sys.executable, "-c", "import sys; from rm.cli.start import main; sys.exit(main())"]


def in_shell(line: str, **environment: str) -> Done:
    """A line of bash in which `$RMX` is rmx, a process of its own."""
    rmx = " ".join(shlex.quote(word) for word in PROGRAM)
    done = subprocess.run(
        ["bash", "-c", line.replace("$RMX", rmx)], capture_output=True, env=os.environ | environment
    )
    return Done(done.returncode, done.stdout.decode("latin-1"), done.stderr.decode())


@pytest.mark.parametrize("verb", ["queue", "queue --limit=9", "submit plain.sh", "submit --json plain.sh"])
def test_a_closed_or_full_output_is_no_defect(verb: str, daemon: Daemon) -> None:
    Path("plain.sh").write_text("#!/bin/sh\nhostname\n")
    assert in_shell(f"$RMX {verb} >&-") == (0, "", "")
    for unbuffered in ("", "1"):
        full = in_shell(f"$RMX {verb} >/dev/full", PYTHONUNBUFFERED=unbuffered)
        assert full == (1, "", "rmx: The output cannot be written: No space left on device.\n")


def test_messages_for_a_closed_standard_error_are_no_data(daemon: Daemon) -> None:
    assert in_shell("$RMX submit --parsable train.sh 2>&-") == (0, "1\n", "")
    assert in_shell("$RMX submit --parsable train.sh 2>&- >&- <&-") == (0, "", "")


@pytest.mark.parametrize(("verb", "code"), [("show 99", 4), ("nosuch", 2), ("submit nosuch.sh", 2)])
def test_a_full_standard_error_changes_no_exit_code(verb: str, code: int, daemon: Daemon) -> None:
    assert in_shell(f"$RMX {verb}").code == code
    assert in_shell(f"$RMX {verb} 2>/dev/full") == (code, "", "")


def test_a_closed_standard_input_is_an_empty_script(daemon: Daemon) -> None:
    done = in_shell("$RMX submit <&-")
    assert (done.code, done.err) == (2, "rmx: The script on standard input is empty.\n")


@pytest.mark.parametrize(
    ("encoding", "name"), [("ascii", "Ã¤â\x86\x92"), ("latin-1", "ä?"), ("UTF-8", "Ã¤â\x86\x92")]
)
@pytest.mark.parametrize("verb", ["queue", "queue --limit=9"])
def test_a_name_is_shown_whatever_the_encoding(
    verb: str, encoding: str, name: str, daemon: Daemon, rmx: Rmx
) -> None:
    rmx("submit", "--job-name=ä→", "train.sh")
    shown = in_shell(f"$RMX {verb} --noheader --format=name", PYTHONIOENCODING=encoding)
    assert shown == (0, f"{name}\n", "")


def test_an_interrupt_ends_it_with_a_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(words: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["rmx", "queue"])
    monkeypatch.setattr(quick_queue, "attempt", interrupted)
    assert start.main() == INTERRUPTED
    assert capfd.readouterr().err == "rmx: Interrupted.\n"


@pytest.mark.parametrize(
    "rows", [7, None, [7], [[]], [[7]], ["id 7"], ["id 0"], ["id -1"], ['id "x"'], ["id null"]]
)
def test_rows_that_are_none_of_rms_or_never_end_are_left_to_the_usual_way(
    rows: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(rows, list) and isinstance(rows[0], str):
        rows = [[json.loads(rows[0].removeprefix("id ")), *[None] * (len(JobRow._fields) - 1)]]
    page = json.dumps({"columns": JobRow._fields, "rows": rows, "more": True}).encode()
    monkeypatch.setattr(listing, "read", lambda *_: page)
    assert listing.rows_at_once("/nowhere", {}) is None


def test_a_connection_that_ssh_keeps_leads_to_the_daemon_as_its_socket_does(
    request: pytest.FixtureRequest,
    daemon: Daemon,
    rmx: Rmx,
    quick: Attempt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ssh forwards to is played by a link to the daemon's socket."""
    socket = os.environ["RM_DAEMON__SOCKET"]
    monkeypatch.delenv("RM_DAEMON__SOCKET")
    runtime = tempfile.TemporaryDirectory()  # whose path is short enough for a socket's
    request.addfinalizer(runtime.cleanup)
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime.name)
    monkeypatch.setenv("RM_DAEMON", f"ssh://bob@control{socket}")
    assert quick("queue") == (None, "", "")  # ssh is not there yet
    local = kept_ssh.local_of(find_daemon(None, None))
    os.makedirs(os.path.dirname(local), mode=0o700)
    os.symlink(socket, local)
    done, usual = quick("submit", "train.sh"), rmx("submit", "train.sh")
    assert done.err == usual.err.replace("logs 2", "logs 1")
    assert "The daemon is on another machine" in done.err
    assert (done.out, usual.out) == ("Submitted batch job 1\n", "Submitted batch job 2\n")
    assert quick("queue", "--noheader", "-o", "%i").out == "1\n2\n"
    os.chmod(os.path.dirname(local), 0o770)  # who may write there could pose as the daemon
    assert quick("queue") == (None, "", "")
    os.chmod(os.path.dirname(local), 0o700)
    os.unlink(local)
    os.symlink(f"{runtime.name}/gone", local)  # ssh has ended
    assert quick("queue") == (None, "", "")


def test_what_was_printed_is_there_when_a_command_ends_at_once() -> None:
    code = (
        "import sys; from rm.cli.ending import leave; print('out'); print('err', file=sys.stderr); leave(3)"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
