"""A connection that ends before the answer: what only reads is asked once more, what changes is not."""

from __future__ import annotations

import errno
import json
import socket
import threading
from pathlib import Path

import pytest

from rm.client.connection import LONG_BYTES, Connection
from rm.errors import Unreachable
from tests.fakes import PATIENCE_S

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"version":1}'


def test_a_read_is_repeated_and_a_change_is_not(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "rm.sock"))
    listener.listen()
    asked: list[bytes] = []

    def serve() -> None:
        for answer in (b"", ANSWER, b""):
            peer, _ = listener.accept()
            asked.append(peer.recv(65536).split()[0])
            peer.sendall(answer)
            peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client = Connection(str(tmp_path / "rm.sock"))
    assert client.get("status") == {"version": 1}
    client.close()
    with pytest.raises(Unreachable, match="closed the connection"):
        client.post("jobs")
    thread.join(PATIENCE_S)
    assert asked == [b"GET", b"GET", b"POST"]
    listener.close()


@pytest.mark.parametrize("filling", ["x", "ü"])
def test_a_long_answer_is_read_like_a_short_one(tmp_path: Path, filling: str) -> None:
    told = {"version": 1, "jobs": [{"id": 2**53, "name": filling * LONG_BYTES, "share": 0.5, "end": None}]}
    bodies = [json.dumps(told).encode(), json.dumps([filling * LONG_BYTES]).encode(), b"{" * LONG_BYTES]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "rm.sock"))
    listener.listen()

    def serve() -> None:
        for body in bodies:
            peer, _ = listener.accept()
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client = Connection(str(tmp_path / "rm.sock"))
    assert client.get("jobs") == told
    for _ in bodies[1:]:
        client.close()
        with pytest.raises(Unreachable, match="does not speak"):
            client.get("jobs")
    client.close()
    thread.join(PATIENCE_S)
    listener.close()


def test_where_very_many_connect_the_client_waits_for_its_turn(tmp_path: Path) -> None:
    path = str(tmp_path / "rm.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    many = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    for one in many:
        one.setblocking(False)
    found = [one.connect_ex(path) for one in many]
    assert found[-1] == errno.EAGAIN
    impatient = Connection(path, timeout_s=0.01)
    with pytest.raises(Unreachable, match=r"took no connection within 0\.01 s"):
        impatient.get("status")

    def serve() -> None:
        while True:
            peer, _ = listener.accept()
            with peer:
                if peer.recv(65536):
                    peer.sendall(ANSWER)
                    return

    for one in many:
        one.close()
    threading.Timer(0.1, serve).start()
    client = Connection(path)
    assert client.get("status") == {"version": 1}
    client.close()
    listener.close()


def test_a_standby_whose_turn_has_come_is_waited_for_though_its_door_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rm.sock"
    (tmp_path / "rm.sock.lock").touch()
    standby = b'{"version":1,"error":{"kind":"Standby","message":"This daemon waits.","hint":""}}'
    waits = b"HTTP/1.1 503 Waits\r\nContent-Length: %d\r\n\r\n%s" % (len(standby), standby)

    def answers(answer: bytes) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return listener

    listeners = [answers(waits)]
    told: list[str] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:  # the standby has answered, and begins to lead
            listeners[0].close()
            path.unlink()
        elif len(pauses) == 2:  # nobody was there
            listeners.append(answers(ANSWER))

    pauses: list[float] = []
    monkeypatch.setattr("rm.client.connection.time.sleep", pause)
    client = Connection(str(path), on_wait=told.append)
    assert client.get("status") == {"version": 1}
    client.close()
    assert len(told) == 1
    assert len(pauses) == 2
    for listener in listeners:
        listener.close()


def answered_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaders: bytes) -> int:
    """How often a signal is asked for, of a standby and then of a leader with this answer."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "rm.sock"))
    listener.listen()
    standby = b'{"version":1,"error":{"kind":"Standby","message":"This daemon waits.","hint":""}}'
    waits = b"HTTP/1.1 503 Waits\r\nContent-Length: %d\r\n\r\n%s" % (len(standby), standby)
    asked: list[bytes] = []

    def serve() -> None:
        for answer in (waits, leaders, leaders, leaders):
            try:
                peer, _ = listener.accept()
            except OSError:  # nobody asks any more
                return
            with peer:
                asked.append(peer.recv(65536).split()[0])
                peer.sendall(answer)

    server = threading.Thread(target=serve)
    server.start()
    monkeypatch.setattr("rm.client.connection.time.sleep", lambda seconds: None)
    client = Connection(str(tmp_path / "rm.sock"))
    with pytest.raises(Unreachable, match="closed the connection"):
        client.delete("jobs", 1, signal=10)
    client.close()
    listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in `accept`; closing alone does not
    server.join()
    listener.close()
    return len(asked)


def test_a_signal_that_may_have_been_heard_is_sent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby that was asked first has done nothing; who leads then may have sent it on."""
    assert answered_by(tmp_path, monkeypatch, b"") == 2


def test_a_signal_whose_answer_is_cut_off_is_sent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answered_by(tmp_path, monkeypatch, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{") == 2
