"""Sessions of jobs: what is kept for who comes again, and the frames of both ends."""

from __future__ import annotations

import itertools
import os
import random
import socket
import sys
import threading
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.arrays import JobId
from rm.client import attending
from rm.client.step_signals import signal_step
from rm.client.websocket import BINARY, PING, TEXT, WebSocket
from rm.errors import Conflict, RmError, Unreachable
from rm.protocol import sessions
from tests.cluster import until
from tests.fakes import PATIENCE_S

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))

import rm_session
import rm_session_kept
import rm_sockets


def test_both_ends_speak_the_same_frames() -> None:
    names = ("HAVE", "INPUT", "END_OF_INPUT", "WINDOW", "SIGNAL", "TAKEN", "BYE", "AWAY", "OUTPUT", "ERRORS")
    for name in (*names, "ENDED", "FRAME_BYTES", "WINDOW_BYTES"):
        assert getattr(sessions, name) == getattr(rm_session, name)
    assert sessions.HEAD.format == rm_session.HEAD.format


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    chance = random.Random(7)
    sent = [(b"O", n, chance.randbytes(chance.randrange(300))) for n in range(200)]
    data = b"".join(sessions.frame(*one) for one in sent)
    box, found = bytearray(), []
    while data:
        size = chance.randrange(1, 100)
        box += data[:size]
        data = data[size:]
        found += list(sessions.frames(box))
    assert found == sent
    with pytest.raises(ValueError, match="too long"):
        list(sessions.frames(bytearray(sessions.HEAD.pack(b"O", 0, sessions.FRAME_BYTES + 1))))


def test_who_comes_again_gets_what_was_not_acknowledged() -> None:
    chance = random.Random(11)
    kept, written, got = rm_session_kept.Kept(), b"", b""
    for _ in range(2000):
        if chance.random() < 0.6:
            data = chance.randbytes(chance.randrange(1, 50))
            kept.add(b"O", data)
            written += data
        else:  # attended again: some of what comes is lost on the way
            for _, offset, data in list(kept.after(len(got))):
                assert offset == len(got)
                got += data
                if chance.random() < 0.2:
                    break
            kept.take(len(got))
        assert kept.size() == len(written) - kept.acked
        assert written.startswith(got)
    kept.drop_oldest(64)
    assert kept.size() <= 64
    assert b"".join(data for _, _, data in kept.after(0)) == written[kept.acked :]


def test_output_in_single_bytes_takes_no_more_memory_than_its_bytes() -> None:
    """A program's dots, half a million of them, took more than a session may have, which ended it."""
    kept = rm_session_kept.Kept()
    for number in range(20_000):
        kept.add(b"X" if number == 10_000 else b"O", b".")
    assert len(kept.pieces) <= 3 + 20_000 // rm_session_kept.PIECE_BYTES
    assert sum(len(data) for _, _, data in kept.after(7)) == 19_993
    assert [offset for kind, offset, _ in kept.after(0) if kind == b"X"] == [10_000]


def test_a_websocket_joins_what_comes_in_parts_and_answers_pings() -> None:
    near, far = socket.socketpair()
    with near, far:
        made = WebSocket(near)
        far.sendall(bytes([0x80 | PING, 2]) + b"hi" + bytes([0x80 | BINARY, 126]))
        assert made.heard() == []
        assert far.recv(100) == bytes([0x8A, 0x82, 0, 0, 0, 0]) + b"hi"
        far.sendall((300).to_bytes(2, "big") + bytes(300) + bytes([0x80 | BINARY, 1]) + b"x")
        assert made.heard() == [bytes(300), b"x"]
        made.send(bytes(70_000))
        assert far.recv(10) == bytes([0x82, 0xFF]) + (70_000).to_bytes(8, "big")
        far.sendall(b"\x88\x00")
        with pytest.raises(ConnectionError):
            made.heard()


def test_what_came_with_the_greeting_is_taken_at_once(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A program that ended before somebody attended it was waited for until the connection seemed dead."""
    monkeypatch.setattr(attending, "ALIVE_S", 20.0)
    near, far = socket.socketpair()
    words = [
        sessions.frame(sessions.HAVE, 0),
        sessions.frame(sessions.OUTPUT, 0, b"done\n"),
        sessions.frame(sessions.ENDED, 5, b"3 0"),
    ]
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, b"".join(words))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    ways = [WebSocket(near)]
    connection = SimpleNamespace(upgraded=lambda *path: ways.pop())  # there is no second one
    session = attending.Session(lambda: connection, 7, "", "abcdefgh", None, lambda note: None)  # type: ignore[arg-type,return-value]
    late = threading.Timer(PATIENCE_S, far.close)
    late.start()
    ended = session.attend(attending.Streams(-1, 1, 2))
    late.cancel()
    assert ended is not None
    assert ended.exit_code == 3
    assert capfdbinary.readouterr().out == b"done\n"


@pytest.mark.parametrize("way", [os.pipe, os.openpty])
@pytest.mark.parametrize("blocking", [True, False])
def test_who_is_signalled_leaves_though_nobody_reads_what_the_program_says(
    blocking: bool, way: Callable[[], tuple[int, int]]
) -> None:
    near, far = socket.socketpair()
    piece = b"yes\n" * (sessions.FRAME_BYTES // 4)  # of which a terminal makes more

    def flood() -> None:
        far.sendall(bytes([0x80 | TEXT, 12]) + b'{"ok": true}')
        said = sessions.frame(sessions.HAVE, 0)
        with suppress(OSError):
            for offset in itertools.count(0, len(piece)):
                far.sendall(bytes([0x80 | BINARY, 127]) + len(said).to_bytes(8, "big") + said)
                said = sessions.frame(sessions.OUTPUT, offset, piece)

    connection = SimpleNamespace(upgraded=lambda *path: WebSocket(near))
    session = attending.Session(lambda: connection, 7, "", "abcdefgh", None, lambda note: None)  # type: ignore[arg-type,return-value]
    (unread, out), (wake, wakes) = way(), os.pipe()
    os.set_blocking(out, blocking)
    host = threading.Thread(target=flood)
    signalled = threading.Thread(target=lambda: (is_full(out), os.write(wakes, b".")))
    with near, far:
        host.start()
        signalled.start()
        assert session.attend(attending.Streams(-1, out, 2, wake, lambda _: False)) is None
        session.close()
    host.join()
    signalled.join()
    for fd in (unread, out, wake, wakes):
        os.close(fd)


def test_what_a_program_says_to_a_closed_descriptor_is_passed_over() -> None:
    """It was taken for a lost connection, and the session attended again for ever."""
    near, far = socket.socketpair()
    closed = os.dup(1)
    os.close(closed)
    words = [
        sessions.frame(sessions.HAVE, 0),
        sessions.frame(sessions.OUTPUT, 0, b"done\n"),
        sessions.frame(sessions.ENDED, 5, b"3 0"),
    ]
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, b"".join(words))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    ways = [WebSocket(near)]
    connection = SimpleNamespace(upgraded=lambda *path: ways.pop())  # there is no second one
    session = attending.Session(lambda: connection, 7, "", "abcdefgh", None, lambda note: None)  # type: ignore[arg-type,return-value]
    far.shutdown(socket.SHUT_WR)
    with far:
        assert session.attend(attending.Streams(-1, closed, closed)) == (3, 0)


def test_what_a_program_says_to_the_master_of_a_pseudo_terminal_comes_out_there() -> None:
    """All of it went to a new one, which nobody has open."""
    near, far = socket.socketpair()
    master, slave = os.openpty()
    tty.setraw(slave)
    words = [
        sessions.frame(sessions.HAVE, 0),
        sessions.frame(sessions.OUTPUT, 0, b"done\n"),
        sessions.frame(sessions.ENDED, 5, b"3 0"),
    ]
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, b"".join(words))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    connection = SimpleNamespace(upgraded=lambda *path: WebSocket(near))
    session = attending.Session(lambda: connection, 7, "", "abcdefgh", None, lambda note: None)  # type: ignore[arg-type,return-value]
    far.shutdown(socket.SHUT_WR)
    with far, open(master, "wb", 0), open(slave, "rb", 0) as terminal:
        assert session.attend(attending.Streams(-1, master, 2)) == (3, 0)
        os.set_blocking(slave, False)
        assert terminal.read(100) == b"done\n"


def is_full(out: int) -> None:
    """Also for a terminal: poll may say that one has room which takes nothing. It is asked often, since it
    takes nothing of others either at a moment when somebody writes."""
    probe = os.open(f"/proc/self/fd/{out}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)

    def refuses() -> bool:
        try:
            return not os.write(probe, b".")
        except BlockingIOError:
            return True

    until(lambda: all(refuses() for _ in range(100)), "nothing more fits into it")
    os.close(probe)


@pytest.mark.parametrize(
    "said",
    [
        sessions.frame(sessions.HAVE, 2**64 - 1),
        sessions.frame(b"?", 0),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.TAKEN, 2**40),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.OUTPUT, 2**64 - 1, b"x"),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.ENDED, 2**64 - 1, b"0 0"),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.ENDED, 0, b"0 much"),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.ENDED, 0, b"0 999"),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.ENDED, 0, b"0 " + b"9" * 60),
        sessions.frame(sessions.HAVE, 0) + sessions.frame(sessions.ENDED, 0, b"999 -1"),
        sessions.frame(sessions.HAVE, 0) + sessions.HEAD.pack(sessions.OUTPUT, 0, 1 << 31),
    ],
)
def test_a_host_that_speaks_nonsense_keeps_nobody_busy(said: bytes) -> None:
    """It was attended again and again without a pause, or input was sent to it for ever, or there was a
    traceback."""
    near, far = socket.socketpair()
    reads, writes = os.pipe()
    os.write(writes, b"typed")
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, said)):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    ways = [WebSocket(near)]
    connection = SimpleNamespace(upgraded=lambda *path: ways.pop())  # there is no second one
    session = attending.Session(lambda: connection, 7, "", "abcdefgh", None, lambda note: None)  # type: ignore[arg-type,return-value]
    far.shutdown(socket.SHUT_WR)  # else who closes waits for the other
    with far, open(reads), open(writes, "wb"), pytest.raises(RmError, match="what no session says"):
        session.attend(attending.Streams(reads, -1, -1))
    session.close()


@pytest.mark.parametrize("said", [b"", b'{"ok": true}'])
def test_who_waits_for_a_host_that_does_not_begin_the_session_may_leave(said: bytes) -> None:
    """Neither Ctrl-C nor SIGTERM ended `rmx shell` then."""
    near, far = socket.socketpair()
    far.settimeout(PATIENCE_S)
    if said:
        far.sendall(bytes([0x80 | TEXT, len(said)]) + said)
    ways = [WebSocket(near)]
    way: Any = SimpleNamespace(upgraded=lambda *path: ways.pop())
    session = attending.Session(lambda: way, 42, "", "s", {}, print)
    wakes, wake = os.pipe()
    os.write(wake, b".")

    def leave(session: attending.Session) -> bool:
        session.hang_up()
        far.shutdown(socket.SHUT_WR)  # else who closes waits for the other
        return False

    late = threading.Timer(PATIENCE_S, far.close)
    late.start()
    assert session.attend(attending.Streams(-1, -1, -1, wakes, leave)) is None
    late.cancel()
    heard = bytearray()
    while data := far.recv(4096):
        heard += data
    assert heard.endswith(sessions.frame(sessions.BYE, 0))  # it may have begun
    far.close()
    os.close(wake)
    os.close(wakes)


def test_a_host_that_does_not_begin_the_session_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon's pings kept the wait alive."""
    monkeypatch.setattr(attending, "ALIVE_S", 0.05)
    monkeypatch.setattr("rm.client.websocket.LAST_S", 0.05)
    near, far = socket.socketpair()
    far.sendall(bytes([0x80 | TEXT, 12]) + b'{"ok": true}')
    ways = [WebSocket(near)]
    way: Any = SimpleNamespace(upgraded=lambda *path: ways.pop())
    session = attending.Session(lambda: way, 42, "", "s", {}, print)
    late = threading.Timer(PATIENCE_S, far.close)
    late.start()
    with far, pytest.raises(Unreachable, match="does not begin the session"):
        session.attend(attending.Streams(-1, -1, -1))
    late.cancel()


def client_of(near: socket.socket) -> Any:
    """A client whose daemon is at the other end; there is no second connection."""
    ways = [WebSocket(near)]
    way = SimpleNamespace(upgraded=lambda *path: ways.pop())
    return SimpleNamespace(connection=SimpleNamespace(beside=lambda: way))


def test_a_host_that_says_much_holds_no_signal_up() -> None:
    """What it said was kept in a pipe, which nobody read before the end."""
    near, far = socket.socketpair()
    size, count = 30_000, 10
    frames = [sessions.frame(sessions.OUTPUT, n * size, b"x" * size) for n in range(count)]
    why = b"\nsattach: error: No srun runs step 7.\n"
    frames += [
        sessions.frame(sessions.ERRORS, count * size, why),
        sessions.frame(sessions.ENDED, count * size + len(why), b"1 0"),
    ]

    def speak() -> None:
        for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, sessions.frame(sessions.HAVE, 0))):
            far.sendall(bytes([0x80 | kind, len(body)]) + body)
        for body in frames:
            far.sendall(bytes([0x80 | BINARY, 126]) + len(body).to_bytes(2, "big") + body)
        far.shutdown(socket.SHUT_WR)

    beside = threading.Thread(target=speak)
    beside.start()
    with far, pytest.raises(Conflict, match=r"\ANo srun runs step 7\."):
        signal_step(client_of(near), JobId(42), 7, None, print)
    beside.join()


def test_a_host_that_never_ends_holds_no_signal_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One may be frozen: a job that is suspended."""
    monkeypatch.setattr("rm.client.step_signals.WAIT_S", 0.01)
    near, far = socket.socketpair()
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, sessions.frame(sessions.HAVE, 0))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    with far, pytest.raises(Conflict, match=r"The host of step 42\.7 does not answer\."):
        signal_step(client_of(near), JobId(42), 7, None, print)


def test_a_signal_waits_a_minute_for_a_daemon_that_goes_away_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock goes on by ten seconds with each look."""
    looks = itertools.count(0, 10)
    monkeypatch.setattr(
        "rm.client.attending.time", SimpleNamespace(monotonic=lambda: next(looks), sleep=lambda _: None)
    )
    monkeypatch.setattr("rm.client.step_signals.TELL_S", PATIENCE_S)
    near, far = socket.socketpair()
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, sessions.frame(sessions.HAVE, 0))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    far.shutdown(socket.SHUT_WR)
    ways, told = [WebSocket(near)], list[str]()

    def upgraded(*path: object) -> WebSocket:
        if not ways:
            raise Unreachable("The daemon does not answer.")
        return ways.pop()

    way = SimpleNamespace(upgraded=upgraded)
    client: Any = SimpleNamespace(connection=SimpleNamespace(beside=lambda: way))
    with far, pytest.raises(Unreachable, match=r"It was tried for 60 s\."):
        signal_step(client, JobId(42), 7, None, told.append)
    assert told == ["The daemon does not answer. Trying again for 60 s."]


def test_a_signal_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.client.step_signals.TELL_S", 0.01)
    monkeypatch.setattr("rm.client.step_signals.WAIT_S", 60.0)
    near, far = socket.socketpair()
    told = list[str]()

    def tell(text: str) -> None:
        told.append(text)
        far.sendall(bytes([0x80 | BINARY, len(end)]) + end)

    end = sessions.frame(sessions.ENDED, 0, b"0 0")
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, sessions.frame(sessions.HAVE, 0))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    with far:
        signal_step(client_of(near), JobId(42), 7, None, tell)
    assert told == ["Step 42.7 has not answered yet: its host or the daemon is silent."]


def test_a_terminal_that_is_closed_does_not_end_the_input_of_who_comes_next() -> None:
    near, far = socket.socketpair()
    far.settimeout(PATIENCE_S)
    for kind, body in ((TEXT, b'{"ok": true}'), (BINARY, sessions.frame(sessions.HAVE, 0))):
        far.sendall(bytes([0x80 | kind, len(body)]) + body)
    ways = [WebSocket(near)]
    way: Any = SimpleNamespace(upgraded=lambda *path: ways.pop())
    session = attending.Session(lambda: way, 42, "", "s", {}, print)
    master, slave = os.openpty()
    wakes, wake = os.pipe()
    os.write(master, b"last words\n")
    leaving = attending.Streams(slave, -1, -1, wakes, lambda _: False)

    def close() -> None:
        said = bytearray()
        while b"last words" not in said:
            said += far.recv(4096)
        os.close(master)
        threading.Timer(0.2, os.write, (wake, b".")).start()  # time for an end that must not come

    closing = threading.Thread(target=close)
    closing.start()
    with far:
        assert session.attend(leaving) is None
        closing.join()
        assert not session._end_sent
    session.close()
    for fd in (slave, wakes, wake):
        os.close(fd)


def test_a_task_is_fed_as_far_as_it_reads() -> None:
    its, ours = os.pipe()
    os.set_blocking(ours, False)
    waiting = bytearray(b"x" * (2 << 20))  # more than a pipe holds
    taken, reads = rm_sockets.feed(ours, waiting, 1 << 15)
    assert (taken > 0, taken + len(waiting), reads) == (True, 2 << 20, True)
    assert rm_sockets.feed(ours, waiting, 1 << 15) == (0, True)
    os.close(its)
    left = len(waiting)
    assert (rm_sockets.feed(ours, waiting, 1 << 15), len(waiting)) == ((left, False), 0)
    os.close(ours)
