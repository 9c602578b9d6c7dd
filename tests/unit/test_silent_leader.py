"""A daemon that says nothing: the client asks who leads by now, and what the daemon waits for."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from rm.api.job_rows import JobRow
from rm.arrays import parse_id
from rm.cli.jobs import quick_queue, quick_submit
from rm.cli.slurm.changing import Changing
from rm.cli.slurm.queue import squeue
from rm.client import one_request
from rm.client.connection import Connection
from rm.client.submission import submit
from rm.client.ways import silence
from rm.config import Config, DaemonConfig
from rm.core.store import Lease
from rm.errors import Unreachable
from tests.command_line import caller
from tests.fake_service import serving
from tests.fakes import PATIENCE_S
from tests.standing_by import standing_by

SPEC = {"name": "train", "script": "#!/bin/sh\ntrue\n", "user": "ann", "chdir": "/"}
WAITS = "The daemon has waited 5 s for its database. It is locked."


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.05)
    monkeypatch.setattr(silence, "WITHIN_S", PATIENCE_S)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands still is not waited for; who does not answer in time is asked again."""
    monkeypatch.setattr(silence, "WITHIN_S", 0.2)


@contextmanager
def listening(path: Path, each: Callable[[socket.socket, bytes], None]) -> Iterator[None]:
    """Something that takes connections, and does `each` with them and what they ask first."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    peers: list[socket.socket] = []

    def serve() -> None:
        while True:
            peer, _ = listener.accept()
            peers.append(peer)
            asked = peer.recv(65536)
            if asked.startswith(b"END"):
                return
            with suppress(OSError):  # the peer has gone
                each(peer, asked)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
            last.sendall(b"END")
        thread.join(PATIENCE_S)
        for one in (listener, *peers):
            one.close()


def at_socket(path: Path, holder: list[Path]) -> AbstractContextManager[None]:
    """A standby, which says that the daemon at `holder[0]` leads."""
    config = Config(daemon=DaemonConfig(socket=str(path)))
    return standing_by(config, lambda: Lease(f"{socket.gethostname()}:{holder[0]}:a1b2"))


@pytest.fixture
def replaced(tmp_path: Path, briefly: None) -> Iterator[Connection]:
    """To a standby. The leader that it names stands still as soon as it is asked, and then another leads."""
    standby, still, heir = (tmp_path / name for name in ("standby", "still", "heir"))
    holder = [still]

    def stand_still(peer: socket.socket, asked: bytes) -> None:
        holder[0] = heir

    with listening(still, stand_still), serving(heir), at_socket(standby, holder):
        client = Connection(str(standby), timeout_s=PATIENCE_S)
        yield client
        client.close()


def test_a_read_goes_on_at_the_next_leader(replaced: Connection) -> None:
    assert replaced.get("status")["daemon"]["epoch"] == 3
    assert replaced.answers_at.path.endswith("heir")


def test_a_stream_begins_at_the_next_leader(replaced: Connection) -> None:
    assert b'"epoch"' in b"".join(replaced.stream("status", _within_s=None))


def test_a_submission_goes_on_there_with_its_key(replaced: Connection) -> None:
    assert submit(replaced, SPEC) == 1
    assert replaced.asked_again


def test_a_change_without_a_key_is_not_repeated_and_its_user_hears_what_is_unknown(
    replaced: Connection,
) -> None:
    with pytest.raises(Unreachable, match=r"another leads by now, at .*heir\. Whether it was done"):
        replaced.post("jobs", body={"spec": SPEC})
    assert replaced.get("jobs")["jobs"] == []  # asked of the next leader


def test_the_daemon_that_was_asked_first_may_lead_by_now(tmp_path: Path, briefly: None) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    client = Connection(str(first), timeout_s=PATIENCE_S)
    with serving(other), at_socket(first, [other]):
        client.get("status")
    with listening(other, lambda peer, asked: None), serving(first):
        assert client.get("status")["daemon"]["epoch"] == 3
        assert client.answers_at.path == str(first)
        client.close()


def test_a_leader_that_is_slow_is_waited_for(tmp_path: Path, briefly: None) -> None:
    standby, slow = tmp_path / "standby", tmp_path / "slow"
    asked_about = threading.Event()

    def answer_late(peer: socket.socket, asked: bytes) -> None:
        def late() -> None:
            asked_about.wait(PATIENCE_S)
            with suppress(OSError):  # who only asked who leads has gone meanwhile
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        threading.Thread(target=late).start()

    def leader() -> Lease:
        times.append(1)
        if len(times) > 2:  # the first is the client's request
            asked_about.set()
        return Lease(f"{socket.gethostname()}:{slow}:a1b2")

    times: list[int] = []
    config = Config(daemon=DaemonConfig(socket=str(standby)))
    with listening(slow, answer_late), standing_by(config, leader):
        client = Connection(str(standby), timeout_s=PATIENCE_S)
        assert client.get("hosts") == {}
        client.close()


@contextmanager
def waiting(path: Path, change: bytes = b"POST") -> Iterator[None]:
    """A daemon that does a change when it has been asked, beside it, how it is."""
    held: list[socket.socket] = []

    def each(peer: socket.socket, asked: bytes) -> None:
        if asked.startswith(change):
            held.append(peer)
            return
        for one, answer in ((peer, {"waiting": WAITS}), *((late, {"job": 7}) for late in held)):
            body = json.dumps({"version": 1, **answer}).encode()
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with listening(path, each):
        yield


def test_who_changes_something_hears_that_the_daemon_waits_for_its_database(tmp_path: Path) -> None:
    told: list[str] = []
    with waiting(tmp_path / "rm.sock"):
        client = Connection(str(tmp_path / "rm.sock"), timeout_s=PATIENCE_S, on_wait=told.append)
        assert submit(client, SPEC) == 7
        client.close()
    assert told == [WAITS]


@pytest.mark.parametrize("quickly", [True, False])
def test_rmx_submit_says_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quickly: bool
) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", str(tmp_path / "rm.sock"))
    monkeypatch.setattr(one_request, "QUIET_S", 0.05)
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    with waiting(tmp_path / "rm.sock"):
        if quickly:
            assert quick_submit.attempt([str(script)]) == 0
            said = capfd.readouterr()
        else:
            said = caller(capfd)("submit", str(script))
    assert said.out == "Submitted batch job 7\n"
    assert said.err == f"rmx: {WAITS}\n"


def test_scancel_says_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", str(tmp_path / "rm.sock"))
    monkeypatch.setattr(one_request, "QUIET_S", 0.05)
    with waiting(tmp_path / "rm.sock", b"DELETE"):
        Changing().cancel(parse_id("7"))
    assert capfd.readouterr().err == f"rmx: {WAITS}\n"


@contextmanager
def silent_at_first(path: Path) -> Iterator[list[bytes]]:
    """A daemon that answers from its second request on, with no jobs; what it was asked."""
    asked: list[bytes] = []

    def each(peer: socket.socket, what: bytes) -> None:
        asked.append(what.split(b"?")[0])
        if len(asked) > 1:
            page = {"version": 1, "columns": JobRow._fields, "rows": [], "more": False}
            body = json.dumps(page).encode()
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with listening(path, each):
        yield asked


def test_quick_reads_do_not_wait_for_a_silent_daemon_but_ask_as_other_commands_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", str(tmp_path / "rm.sock"))
    monkeypatch.setattr(one_request, "QUIET_S", 0.05)
    with silent_at_first(tmp_path / "rm.sock") as asked:
        assert quick_queue.attempt([]) is None
    assert (asked, capfd.readouterr().out) == ([b"GET /v1/jobs/rows"], "")
    (tmp_path / "rm.sock").unlink()
    with silent_at_first(tmp_path / "rm.sock") as asked:
        assert squeue.run(["--noheader"]) == 0
    assert (asked, capfd.readouterr().out) == ([b"GET /v1/jobs/rows"] * 2, "")


def test_a_submission_to_a_silent_daemon_goes_on_as_other_commands_do(
    tmp_path: Path, briefly: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", str(tmp_path / "rm.sock"))
    monkeypatch.setattr(one_request, "QUIET_S", 0.05)
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    silent: list[bytes] = []  # the submission, and twice how the daemon is

    def each(peer: socket.socket, what: bytes) -> None:
        silent.append(what)
        if len(silent) > 3:
            peer.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"job":7}')

    with listening(tmp_path / "rm.sock", each):
        assert quick_submit.attempt([str(script)]) == 0
    assert capfd.readouterr().out == "Submitted batch job 7\n"
    keys = [line for what in silent for line in what.split(b"\r\n") if line.startswith(b"Idempotency-Key")]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_who_reads_of_a_daemon_that_stands_still_hears_so(tmp_path: Path, briefly: None) -> None:
    told: list[str] = []
    with listening(tmp_path / "rm.sock", lambda peer, asked: None):
        client = Connection(str(tmp_path / "rm.sock"), timeout_s=0.6, on_wait=told.append)
        with pytest.raises(Unreachable, match="did not answer within"):
            client.get("hosts")
        client.close()
    assert told == [f"{tmp_path / 'rm.sock'} does not answer. It is waited for."]


def test_who_cancels_very_many_jobs_waits_longer_than_who_reads(tmp_path: Path) -> None:
    """They are cancelled in parts, each with a commit of its own."""
    with waiting(tmp_path / "rm.sock", b"DELETE"):
        client = Connection(str(tmp_path / "rm.sock"), timeout_s=0.01)
        assert client.delete("jobs", user="ann")["job"] == 7
        client.close()
