"""What a host says without an end costs the daemon little memory and few lines of its log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from rm.adapters.hosts import ssh
from rm.adapters.hosts.channel import AgentChannel
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.hosts.stderr import LINE_BYTES as LOGGED_BYTES
from rm.adapters.hosts.stderr import LINES, StandardError
from rm.core.model.host import Host
from rm.protocol.line import LINE_BYTES, PROTOCOL, Misfit

HELLO = {"event": "hello", "version": "1", "protocol": PROTOCOL}
READ_BYTES = 1 << 18


class Endless:
    """A channel on which `first` comes, and then a line that does not end."""

    closed = False

    def __init__(self, first: bytes) -> None:
        self._parts: Iterator[bytes] = chain([first] if first else [], repeat(b"x" * READ_BYTES))
        self.taken_bytes = 0

    def recv(self, most: int) -> bytes:
        part = next(self._parts)
        assert len(part) <= most
        self.taken_bytes += len(part)
        return part

    def recv_stderr_ready(self) -> bool:
        return False

    def settimeout(self, seconds: float | None) -> None:
        pass


def channel_over(stream: Endless, monkeypatch: pytest.MonkeyPatch) -> AgentChannel:
    monkeypatch.setattr(ssh, "connect", lambda host, settings: object())
    monkeypatch.setattr(ssh, "open_channel", lambda connection, command: stream)
    return AgentChannel(Host(name="h1", zone="", address="192.0.2.1"), SshSettings(known_hosts=Path("none")))


@pytest.mark.parametrize("greeted", [False, True])
def test_a_line_without_an_end_ends_the_conversation(greeted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Endless(json.dumps(HELLO).encode() + b"\n" if greeted else b"")
    channel = channel_over(stream, monkeypatch)

    def converse() -> None:
        channel.open()
        assert greeted
        list(channel.notifications())

    with pytest.raises(Misfit, match="longer than"):
        converse()
    assert stream.taken_bytes <= LINE_BYTES + 2 * READ_BYTES


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def records(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rm.agent"]


def test_a_flood_of_errors_is_a_few_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    errors = StandardError("h1", clock)
    for _ in range(1000):
        errors.take(b"all is lost\n" * 100)
    assert records(caplog) == ["h1: all is lost"] * LINES
    clock.now_s += 1
    errors.take(b"again\n" * 100)
    left_out = 1000 * 100 - LINES
    assert records(caplog)[LINES:] == [f"h1: ({left_out} lines are left out here)", "h1: again"]
    clock.now_s += 2
    errors.take(b"on\n" * 100)
    assert records(caplog)[LINES + 2 :] == ["h1: (99 lines are left out here)", "h1: on", "h1: on"]


def test_a_record_is_one_printable_line_whatever_the_host_writes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    errors = StandardError("h1", Clock())
    data = [b"\x1b[2Jgone\rERROR rm: forged\n", "u\u2028v\n".encode(), b"\xff\xfe\n", b"y" * 10**6]
    for part in data:
        errors.take(part)
    errors.end()
    found = records(caplog)
    assert len(found) == 4
    assert all(text.isprintable() and text.startswith("h1: ") for text in found)
    assert len(found[-1]) <= LOGGED_BYTES + len("h1: ")
