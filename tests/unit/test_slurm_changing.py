"""What Slurm's commands change: quickly of a daemon of this machine, with the same effects and errors as by a
Client."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rm.arrays import JobId
from rm.cli.slurm.changing import Changing
from rm.client import Client
from rm.core.model.asked.array import Array
from rm.errors import RmError, Unreachable
from tests.fake_service import Daemon
from tests.submitting import submitted

HEAVY = {"aiohttp", "msgspec", "asyncio", "json", "click", "http.client", "rm.client.client", "rm.api.jobs"}


@pytest.fixture(autouse=True)
def jobs(daemon: Daemon) -> None:
    """1 waits, 2 runs, 3 has ended, 4 is an array that waits."""
    for number in range(3):
        submitted(daemon, f"--job-name=job{number}")
    submitted(daemon, "--array=0-5%2")
    daemon.service.run(2)
    daemon.service.run(3)
    daemon.service.finish(3, 3)
    daemon.service.put(4, array=Array(waiting="0-5", limit=2))


def told(asks: Callable[[], object]) -> tuple[type[RmError], str, str, object]:
    with pytest.raises(RmError) as raised:
        asks()
    error = raised.value
    return type(error), error.what, error.hint, error.refusal


def test_what_is_asked_for_is_done_without_a_client(daemon: Daemon) -> None:
    service = daemon.service
    with Changing() as quick:
        quick.hold(JobId(1))
        assert service.table[1].held
        quick.release(JobId(1))
        assert not service.table[1].held
        quick.update(JobId(1), {"comment": "ü\n\x1b", "time_limit_us": None})
        assert service.table[1].spec.comment == "ü\n\x1b"
        quick.limit_array(JobId(4), 5)
        assert service.table[4].array is not None
        assert service.table[4].array.limit == 5
        quick.cancel(JobId(2), signal=10, signal_to="all")
        quick.cancel(JobId(1))
        assert service.table[1].state.name == "CANCELLED"
        assert quick._client is None


def test_refusals_are_those_of_a_client(daemon: Daemon) -> None:
    with Changing() as quick, Client() as client:
        assert told(lambda: quick.cancel(JobId(99))) == told(lambda: client.cancel(99))
        assert told(lambda: quick.hold(JobId(99))) == told(lambda: client.hold(99))
        wrong = {"name": ""}
        assert "The field 'name' of the request is wrong" in told(lambda: quick.update(JobId(1), wrong))[1]
        assert quick._client is None


@contextmanager
def listening(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """A daemon that says this to each request, which are noted."""
    heard: list[bytes] = []
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    door.listen()

    def answers() -> None:
        while True:
            try:
                caller, _ = door.accept()
            except OSError:
                return
            heard.append(caller.recv(65536))
            if not heard[-1]:
                return
            caller.sendall(answer)
            caller.close()

    thread = threading.Thread(target=answers)
    thread.start()
    try:
        yield heard
    finally:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        thread.join()
        door.close()


def test_what_was_heard_and_not_answered_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    monkeypatch.setenv("RM_DAEMON__SOCKET", str(path))
    with listening(path, b"") as heard:
        with Changing() as quick, pytest.raises(Unreachable) as raised:
            quick.requeue(JobId(1))
        assert raised.value.hint == "Look whether it happened before repeating it."
        assert len(heard) == 1


def test_what_a_standby_does_not_do_a_client_asks_for(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Changing() as quick:
        monkeypatch.setattr(quick, "_path", "/nowhere")
        quick.hold(JobId(1))
        quick.hold(JobId(4, "2-3"))
        assert daemon.service.table[1].held
        with listening(
            Path(daemon.socket).with_name("standby"), b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"
        ) as heard:
            monkeypatch.setattr(quick, "_path", str(Path(daemon.socket).with_name("standby")))
            quick.release(JobId(1))
            assert len(heard) == 1
        assert not daemon.service.table[1].held


@pytest.mark.parametrize(
    "words",
    [["scontrol", "hold", "1"], ["scancel", "1"], ["scancel", "3"], ["scontrol", "requeue", "2"]],
    ids=" ".join,
)
def test_nothing_heavy_is_loaded(
    words: list[str], daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rm.toml").write_text(f'[daemon]\nsocket = "{daemon.socket}"\n')
    monkeypatch.setenv("RM_CONFIG", str(tmp_path / "rm.toml"))
    monkeypatch.delenv("RM_DAEMON__SOCKET", raising=False)
    code = (
        f"import sys; sys.argv = {words}; from rm.cli.slurm.program import command_line\n"
        f"code = command_line({words[0]!r}); print(code, sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 []", "")
