"""Further SSH connections for sessions, to an sshd that takes ten channels on each."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.adapters.hosts import session_connections, ssh
from rm.adapters.hosts.session_connections import SessionConnections
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import LimitReached, Unreachable
from tests.cluster import until

SLOTS = 10  # MaxSessions of OpenSSH


class Channel:
    closed = False

    def close(self) -> None:
        self.closed = True


class Connection:
    """With so many channels open already."""

    def __init__(self, taken: int = 0) -> None:
        self.active = True
        self.channels: list[Channel] = [Channel() for _ in range(taken)]
        self.client = SimpleNamespace(get_transport=lambda: self)

    def is_active(self) -> bool:
        return self.active

    def take(self, command: str, window_bytes: int) -> Channel:
        if not self.active:
            raise Unreachable("The connection is lost.")
        if sum(not channel.closed for channel in self.channels) >= SLOTS:
            raise ssh.NoRoom("Connect failed")
        self.channels.append(Channel())
        return self.channels[-1]

    def close(self) -> None:
        self.active = False


class Sshd:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agents = Connection(taken=1)
        self.further: list[Connection] = []
        monkeypatch.setattr(ssh, "connect", self.connect)
        monkeypatch.setattr(ssh, "open_channel", lambda to, command, window: to.take(command, window))
        self.sessions = SessionConnections(Host("h1", "z", "192.0.2.1"), SshSettings(Path("none")))

    def connect(self, *_: Any) -> Connection:
        self.further.append(Connection())
        return self.further[-1]

    def open(self) -> Channel:
        channel: Channel = self.sessions.open(self.agents.take, "attend", 1 << 20)
        return channel

    def open_further(self) -> int:
        return sum(one.active for one in self.further)


@pytest.fixture
def sshd(monkeypatch: pytest.MonkeyPatch) -> Sshd:
    return Sshd(monkeypatch)


def test_the_first_sessions_cost_no_connection(sshd: Sshd) -> None:
    for _ in range(SLOTS - 1):
        sshd.open()
    assert not sshd.further


def test_many_at_once_share_as_few_connections_as_hold_them(sshd: Sshd) -> None:
    with ThreadPoolExecutor(39) as pool:
        channels = list(pool.map(lambda _: sshd.open(), range(39)))
    assert len(set(channels)) == 39
    assert len(sshd.further) == 3


def test_unused_connections_are_closed_and_used_ones_are_not(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = [sshd.open() for _ in range(SLOTS - 1 + 2 * SLOTS)]
    for channel in channels[:-1]:
        channel.close()
    sshd.sessions.tidy()
    assert sshd.open_further() == 2  # somebody may come back
    monkeypatch.setattr(session_connections, "UNUSED_S", 0.0)
    sshd.sessions.tidy()
    until(lambda: sshd.open_further() == 1, "the unused connection was closed")
    assert sshd.further[1].active
    channels[-1].close()
    sshd.sessions.tidy()
    until(lambda: sshd.open_further() == 0, "both were closed")


def test_a_connection_that_was_lost_is_not_tried(sshd: Sshd) -> None:
    for _ in range(SLOTS):
        sshd.open()
    sshd.further[0].close()
    sshd.open()
    assert [one.active for one in sshd.further] == [False, True]
    sshd.sessions.tidy()
    assert len(sshd.sessions) == 1


def test_there_is_an_end_with_a_sentence(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_connections, "MOST", 1)
    for _ in range(SLOTS - 1 + SLOTS):
        sshd.open()
    with pytest.raises(LimitReached, match="Host h1 takes no more sessions: 2 SSH connections") as refused:
        sshd.open()
    assert "MaxSessions" in refused.value.hint
    sshd.further[0].channels[0].close()
    sshd.open()


def test_who_waits_for_a_host_that_hangs_waits_no_longer_than_told(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, began = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        began.set()
        hangs.wait()

    monkeypatch.setattr(session_connections, "TURN_S", 0.1)
    first = threading.Thread(target=sshd.sessions.open, args=(hang, "attend", 1))
    first.start()
    began.wait()
    with pytest.raises(Unreachable, match="h1 opens no session"):
        sshd.open()
    hangs.set()
    first.join()


def test_a_connection_that_comes_when_the_host_was_removed_is_closed(sshd: Sshd) -> None:
    for _ in range(SLOTS - 1):
        sshd.open()
    sshd.sessions.close()
    with pytest.raises(Unreachable, match="closed"):
        sshd.open()
    assert not sshd.open_further()
