"""Programs of a job that wait for the daemon: whom its end goes to, and how often the agent hears of them."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_step_asks
from rm_step_asks import MOST, REPEAT_S, SAY_S, Asks
from rm_step_attached import line
from rm_step_peer import Peer


class Daemon(Asks):
    """What a step daemon gives to its part."""

    def __init__(self) -> None:
        Asks.__init__(self)
        self.peers: dict[int, Peer] = {}
        self.said: list[int] = []

    def say(self, event: dict[str, Any]) -> None:
        assert event["event"] == "asks"
        self.said.append(event["waiting"])

    def connect(self) -> tuple[Peer, socket.socket]:
        here, there = socket.socketpair()
        there.settimeout(30)
        peer = Peer(here)
        self.peers[here.fileno()] = peer
        return peer, there

    def ask(self) -> socket.socket:
        peer, there = self.connect()
        self._queue(peer)
        return there

    def answer(self) -> socket.socket:
        peer, there = self.connect()
        self._answer(peer)
        return there

    def _tell(self, peer: Peer, message: dict[str, Any]) -> None:
        try:
            peer.sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        self.peers.pop(peer.sock.fileno(), None)
        peer.sock.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(rm_step_asks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def got(asker: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    passed: list[socket.socket] = []
    return json.loads(line(asker, bytearray(), passed)), passed


def test_who_waits_longest_has_the_daemons_end() -> None:
    daemon = Daemon()
    first, second = daemon.ask(), daemon.ask()
    for asker, words in ((first, b"one"), (second, b"two")):
        end = daemon.answer()
        assert end.recv(64) == b'{"ok": true}\n'
        told, (passed,) = got(asker)
        assert told == {"answered": True}
        passed.sendall(words)
        assert end.recv(64) == words
    assert json.loads(daemon.answer().recv(128)) == {"error": "No program of the job asks."}


def test_who_has_gone_is_passed_over_and_so_is_an_end_that_has_gone() -> None:
    daemon = Daemon()
    for peer in list(daemon.peers.values()):
        daemon._drop(peer)
    daemon.ask()
    (gone,) = daemon.peers.values()
    daemon._drop(gone)
    waits = daemon.ask()
    peer, end = daemon.connect()
    end.close()
    daemon._answer(peer)  # nobody is there: who waits goes on waiting
    assert len(daemon.asking) == 1
    assert daemon.answer().recv(64) == b'{"ok": true}\n'
    assert got(waits)[0] == {"answered": True}


def test_no_more_wait_than_may() -> None:
    daemon = Daemon()
    askers = [daemon.ask() for _ in range(MOST + 1)]
    assert "no more can" in json.loads(askers[-1].recv(256))["error"]
    assert len(daemon.asking) == MOST


def test_it_is_said_at_once_seldom_and_again(clock: list[float]) -> None:
    daemon = Daemon()
    for _ in range(40):  # in 80 ms
        daemon.ask()
        daemon._say_asking()
        clock[0] += 0.002
    assert len(daemon.said) <= 0.080 / SAY_S + 1
    assert daemon.said[0] == 1
    daemon.said.clear()
    for _ in range(1000):
        clock[0] += daemon._at_most(None) or 0.0
        daemon._say_asking()
        if len(daemon.said) == 3:
            break
    assert daemon.said == [40, 40, 40]
    assert clock[0] >= 100.0 + 2 * REPEAT_S
    for peer in list(daemon.peers.values()):
        daemon._drop(peer)
    clock[0] += REPEAT_S
    daemon._say_asking()
    assert daemon.said == [40, 40, 40]
    assert daemon._at_most(7.0) == 7.0
