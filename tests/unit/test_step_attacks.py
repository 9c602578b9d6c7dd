"""The step daemon is root's and hears the job's user: nothing that he says costs others anything."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent_process import WAIT_S, Agent, agents, until
from tests.steps_request import rm_steps  # noqa: F401  the agents' modules are found from here on
from tests.unit.test_agent_batch import launch

import rm_session  # type: ignore[import-not-found]  # isort: skip
import rm_step_frames  # type: ignore[import-not-found]  # isort: skip
import rm_step_peer  # type: ignore[import-not-found]  # isort: skip
import rm_stepd  # type: ignore[import-not-found]  # isort: skip
import rm_stream_hub  # type: ignore[import-not-found]  # isort: skip

STEP = {
    "ntasks": 1, "hosts": 1, "ntasks_per_node": 0, "cpus_per_task": 0, "gpus_per_task": 0,
    "gpus_per_host": None, "nodelist": [], "exclude": [], "overlap": True, "exact": False,
    "overcommit": False, "distribution": "block", "gpu_bind": "",
}  # fmt: skip


class Door:
    """The job's socket for steps, as a program of its user sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()  # a step ends with its connection

    def close(self) -> None:
        self._open.close()

    def connect(self, *said: object) -> socket.socket:
        sock = self.beside(rm_step_peer.SOCKET)
        for words in said:
            sock.sendall((words if isinstance(words, bytes) else json.dumps(words).encode()) + b"\n")
        return sock

    def beside(self, name: str) -> socket.socket:
        """A connection to another socket of the job."""
        sock = self._open.enter_context(socket.socket(socket.AF_UNIX))
        sock.connect(str(self.path.with_name(name)))
        sock.settimeout(WAIT_S)
        return sock

    def answer(self, sock: socket.socket) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(sock.makefile("rb").readline() or b"{}")
        return answer

    def step(self) -> tuple[socket.socket, int]:
        sock = self.connect({"op": "create", "step": STEP, "immediate": True})
        return sock, int(self.answer(sock)["step"])

    def run(self, argv: list[str]) -> socket.socket:
        """A task of a step; the socket to its part."""
        return self.begin(self.step()[1], argv)

    def begin(self, number: int, argv: list[str], tasks: int = 1, **more: Any) -> socket.socket:
        """The tasks of this step."""
        sock = self.connect({"op": "carry", "step": number, "place": 0})
        step_env = {"SLURM_STEP_ID": str(number)}
        asked = {"argv": argv, "env": {"PATH": os.defpath}, "umask": 0o22, "chdir": "/", "step_env": step_env,
                 "node": 0, "ranks": list(range(tasks)), "gpus": [[]] * tasks, **more}  # fmt: skip
        sock.sendall(rm_step_frames.frame(b"R", 0, json.dumps(asked).encode()))
        return sock


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with agents() as start:
        yield start()


@pytest.fixture(scope="module")
def path(agent: Agent) -> Path:
    assert launch(agent, "exec sleep 1000")["ok"]
    (path,) = agent.state.glob("**/" + rm_step_peer.SOCKET)
    return path


@pytest.fixture
def door(path: Path) -> Iterator[Door]:
    with closing(Door(path)) as door:
        yield door


def frames_of(sock: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """What a session says: (kind, body)."""
    buffer = bytearray()
    while data := sock.recv(1 << 16):
        buffer += data
        for kind, _, body in rm_session.frames(buffer):
            yield kind, body


def stat_of(process: int) -> list[str]:
    """Its state, the number of its parent, and so on, as proc_pid_stat(5) has them."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def knocks(path: Path) -> bool:
    """Is there a connection to the socket that has not been accepted? A state of 02 in the kernel's list."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return any(line[5] == "02" and line[-1] == str(path) for line in lines)


def output(sock: socket.socket) -> str:
    said, buffer = b"", bytearray()
    while True:
        data = sock.recv(1 << 16)
        if not data:
            return said.decode()
        buffer += data
        said += b"".join(body for kind, _, body in rm_step_frames.frames(buffer) if kind == b"O")


@pytest.mark.parametrize(
    "bomb", [b"[" * 60_000, b'{"op":"carry","step":Infinity,"place":0}', b"{}", b'{"op":"nothing"}']
)
def test_what_is_no_request_is_answered_and_ends_only_its_connection(door: Door, bomb: bytes) -> None:
    sock = door.connect(bomb)
    said = sock.makefile("rb").read()
    assert b"cannot be understood" in said
    door.step()


def test_a_program_that_says_more_than_it_may_costs_no_memory(door: Door) -> None:
    """Each of its lines was answered, and who does not read the answers had them kept."""
    sock = door.connect(b"x")
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        sock.sendall(b"x\n" * 500_000)
    chatty, _ = door.step()
    chatty.sendall(b"x\n" * 100_000)
    door.step()


def test_a_host_starts_no_more_parts_than_it_can_bear(door: Door) -> None:
    held, number = door.step()
    with held:
        asked = {"op": "carry", "step": number, "place": 0}
        parts = [door.connect(asked) for _ in range(rm_stepd.PARTS + 1)]
        assert "no more can" in door.answer(parts[-1])["error"]
        for part in parts:
            part.close()

    def starts() -> bool:
        with door.run(["true"]) as sock:
            return b"D" in sock.recv(1 << 10)

    until(starts, "parts that have ended make room")


def test_more_connections_than_it_may_have_wait(door: Door) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        many = [door.connect() for _ in range(rm_stepd.CONNECTIONS + 1)]
        for sock in many:
            sock.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    door.step()


def test_input_that_tasks_take_is_told_only_to_who_listens(door: Door) -> None:
    """What is told for each piece of input was kept for a program that reads nothing of it."""
    sock = door.run(["sh", "-c", "cat >/dev/null"])
    sock.settimeout(2.0)
    pieces = rm_step_frames.frame(b"I", rm_step_frames.ALL, b"x") * 10_000
    with pytest.raises(TimeoutError):
        sock.sendall(pieces * 400)
    sock.close()
    door.step()


def test_a_frame_of_input_has_a_bound(door: Door) -> None:
    sock = door.run(["sleep", "1000"])
    sock.sendall(rm_step_frames.frame(b"I", 0, b"x" * 200_000))
    assert output(sock) == ""  # the step has ended


def test_a_session_that_cannot_begin_costs_no_step(door: Door) -> None:
    """The error of its socket ended the step daemon, and with it the steps of the job."""
    sock, _ = door.step()
    refused = door.connect({"op": "session", "session": "a" * 200, "begin": {}})
    assert "No session can begin" in door.answer(refused)["error"]
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.recv(1)  # the step goes on
    door.step()


def test_who_attends_is_told_once_what_is_kept(door: Door) -> None:
    """Each word on what has come was answered with all that is kept: root's memory grew with it."""
    begin = {"argv": ["sh", "-c", "printf %300000s; sleep 1000"]}
    assert door.answer(door.connect({"op": "session", "session": "attacked", "begin": begin}))["ok"]
    have = rm_session.frame(rm_session.HAVE, 0)

    with door.beside("session.attacked") as sock:
        sock.sendall(have * 2)
        while sock.recv(1 << 16):
            pass
    with door.beside("session.attacked") as sock:
        sock.sendall(have)
        assert sock.recv(1) == rm_session.HAVE


def test_how_a_session_ended_is_recorded_though_the_step_daemon_is_busy(door: Door, path: Path) -> None:
    """It learnt that the session's process was gone before it read what that had told: cancelled."""
    begin = {"argv": ["sh", "-c", "echo $PPID; read word; exit 4"], "step": "late"}
    assert door.answer(door.connect({"op": "session", "session": "late", "begin": begin}))["ok"]
    with door.beside("session.late") as sock:
        sock.sendall(rm_session.frame(rm_session.HAVE, 0))
        session = int(next(body for kind, body in frames_of(sock) if kind == rm_session.OUTPUT))
        daemon = int(stat_of(session)[1])
        os.kill(daemon, signal.SIGSTOP)
        try:
            sock.sendall(rm_session.frame(rm_session.INPUT, 0, b"\n"))
            until(lambda: knocks(path), "the session tells how it ended")
            sock.settimeout(0.2)
            with contextlib.suppress(TimeoutError):  # it waits, and tells nobody else
                assert any(kind == rm_session.ENDED for kind, _ in frames_of(sock))
                sock.sendall(rm_session.frame(rm_session.TAKEN, 1 << 20))
                until(lambda: stat_of(session)[0] == "Z", "it is gone")
        finally:
            os.kill(daemon, signal.SIGCONT)

    def record() -> dict[str, Any] | None:
        lines = path.with_name("steps.recorded").read_text().splitlines()
        found = [one for one in map(json.loads, lines) if one["name"] == "late" and "ended_us" in one]
        return found[-1] if found else None

    ended = until(record, "its end is recorded")
    assert (ended["code"], ended["signal"], ended["why"]) == (4, 0, "")


def test_who_attends_and_reads_nothing_is_not_heard() -> None:
    """Each byte of input is acknowledged, and acknowledgements that nobody takes cost memory."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        session = rm_session.Session(listener, {}, None, {}, None, None, None, None, None)
        session.status = 0  # its program has ended
        session.peer, far = socket.socketpair()
        session.peer.setblocking(False)
        wake, wake_in = os.pipe()

        def turn() -> None:
            os.write(wake_in, b"x")
            session._turn(wake)

        turn()
        far.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while session.peer.send(bytes(1 << 16)):
                pass  # until there is no room in between
        session.outbox += bytes(rm_session.UNSENT_BYTES)
        far.sendall(rm_session.frame(rm_session.HAVE, 0))
        turn()
        assert not session.met
        assert len(session.outbox) == rm_session.UNSENT_BYTES
        assert far.recv(1 << 20)
        turn()
        assert 0 < len(session.outbox) < rm_session.UNSENT_BYTES
        turn()
        assert session.met
        for end in (session.peer, far):
            end.close()
        for fd in (wake, wake_in):
            os.close(fd)


def test_tasks_are_born_with_the_hosts_own_limits(door: Door) -> None:
    said = output(door.run(["sh", "-c", "cat /proc/self/oom_score_adj; ulimit -d"])).split()
    assert said[0] == Path("/proc/self/oom_score_adj").read_text().strip()
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    assert said[1] == ("unlimited" if limit == resource.RLIM_INFINITY else str(limit // 1024))


def test_the_agent_never_waits_for_a_queue_that_a_user_fills(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / rm_step_peer.SOCKET))
    listener.listen(0)
    waits = socket.socket(socket.AF_UNIX)
    waits.connect(str(tmp_path / rm_step_peer.SOCKET))
    folder = SimpleNamespace(job=1, attempt=1, at=lambda name: str(tmp_path / name))
    hub = rm_stream_hub.StreamHub(selectors.DefaultSelector(), print, lambda: False)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(hub.connect(folder)), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    waits.close()
    listener.close()
    assert found == [None]


def test_who_enters_a_step_before_its_task_runs_waits_for_it(door: Door) -> None:
    """A step begins on its hosts one after the other: it is known before it runs on each of them."""
    _, number = door.step()
    begin = {"argv": ["sh", "-c", "echo in $SLURM_STEP_ID"], "in_step": number}
    early = door.connect({"op": "session", "session": "early", "begin": begin})
    early.settimeout(0.5)
    with pytest.raises(TimeoutError):
        early.recv(1)
    early.settimeout(WAIT_S)
    with door.begin(number, ["sleep", "1000"]):
        assert door.answer(early)["ok"]
        with door.beside("session.early") as sock:
            sock.sendall(rm_session.frame(rm_session.HAVE, 0))
            said, buffer = b"", bytearray()
            while b"D" not in said:
                buffer += sock.recv(1 << 16)
                said += b"".join(kind + body for kind, _, body in rm_session.frames(buffer))
    assert b"Oin %d\n" % number in said
    never = door.connect({"op": "session", "session": "never", "begin": {"argv": [], "in_step": number + 9}})
    assert "does not run on this host" in door.answer(never)["error"]


@pytest.mark.parametrize(("more", "heard"), [({}, []), ({"hears_left": True}, [b"O"])])
def test_an_older_srun_hears_nothing_of_a_task_that_has_ended(
    door: Door, more: dict[str, bool], heard: list[bytes]
) -> None:
    """It took a part that says such a thing for a liar, and ended the step."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.chmod(folder, 0o777)  # the job's user opens what is in it
        go, said = (Path(folder) / name for name in ("go", "said"))
        for fifo in (go, said):
            os.mkfifo(fifo)
            fifo.chmod(0o666)
        starts = stack.enter_context(open(go, "r+b", buffering=0))
        left = f"(read x < {go}; echo left; echo > {said}) &"
        program = f"if [ $SLURM_PROCID = 0 ]; then {left} else read x < {said}; fi"
        sock = door.begin(door.step()[1], ["/bin/sh", "-c", program], 2, **more)
        told, buffer = [], bytearray()
        while data := sock.recv(1 << 16):
            buffer += data
            for kind, rank, _ in rm_step_frames.frames(buffer):
                told.append((kind, rank))
                if (kind, rank) == (b"D", 0):
                    starts.write(b"go\n")
    assert told == [(b"D", 0), *((kind, 0) for kind in heard), (b"D", 1)]
