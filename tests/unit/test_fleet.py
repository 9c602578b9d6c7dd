"""The fleet beside a thread that closes it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.hosts import retries, ssh
from rm.adapters.hosts.channel import AgentChannel
from rm.adapters.hosts.fleet import Fleet
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import HostKeyError, Unreachable
from rm.protocol.codes import NotConnected
from rm.protocol.hosts import Ping
from rm.protocol.line import PROTOCOL
from tests.fakes import PATIENCE_S


def test_a_closed_fleet_takes_no_more_hosts(tmp_path: Path) -> None:
    fleet = Fleet(SshSettings(tmp_path / "known_hosts"))
    fleet.start(on_event=lambda *_: None, on_state=lambda *_: None)
    fleet.close()
    fleet.add(Host("late", "z", "127.0.0.1", 1))
    with pytest.raises(NotConnected, match="is not known to the daemon"):
        fleet.call("late", Ping()).result(0)
    fleet.close()  # again: nothing is left to be closed


def test_a_key_that_was_accepted_past_the_daemon_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `rmx host accept-key --inventory`, which writes the file of the daemon on its machine."""
    monkeypatch.setattr(retries, "KEY_S", 10 * PATIENCE_S)
    refused, again = threading.Event(), threading.Event()

    def connect(host: Host, settings: SshSettings, *_: object) -> None:
        if settings.known_hosts.exists():
            again.set()
            raise Unreachable("That is all that is asked for here.")
        refused.set()
        raise HostKeyError("The key of h1 is not known.")

    monkeypatch.setattr(ssh, "connect", connect)
    fleet = Fleet(SshSettings(tmp_path / "known_hosts"))
    fleet.start(on_event=lambda *_: None, on_state=lambda *_: None)
    try:
        fleet.add(Host("h1", "z", "127.0.0.1", 1))
        assert refused.wait(PATIENCE_S)
        (tmp_path / "known_hosts").write_text("h1 ssh-ed25519 AAAA\n")
        assert again.wait(PATIENCE_S)
    finally:
        fleet.close()


class Ending:
    """An SSH channel to an agent that says hello and ends; who waits for its exit status gets it."""

    eof_received = True
    closed = False

    def __init__(self, code: int, words: bytes = b"") -> None:
        self._code = code
        self._words = words
        self._said = [json.dumps({"event": "hello", "version": "1", "protocol": PROTOCOL}).encode() + b"\n"]
        self._heard_of_the_end = False
        self.status_event = self

    def wait(self, timeout: float) -> None:
        self._heard_of_the_end = True

    def settimeout(self, seconds: float | None) -> None:
        """Nothing here waits."""

    def recv(self, size: int) -> bytes:
        return self._said.pop() if self._said else b""

    def recv_stderr_ready(self) -> bool:
        return bool(self._words)

    def recv_stderr(self, size: int) -> bytes:
        words, self._words = self._words, b""
        return words

    def exit_status_ready(self) -> bool:
        return self._heard_of_the_end and self._code >= 0

    def recv_exit_status(self) -> int:
        return self._code


@pytest.mark.parametrize(("code", "said"), [(0, "ended"), (3, "ended"), (-1, "was ended by a signal")])
def test_an_agent_that_ends_is_no_lost_host_though_its_exit_status_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    monkeypatch.setattr(ssh, "connect", lambda *_: None)
    monkeypatch.setattr(ssh, "open_channel", lambda *_: Ending(code))
    channel: Any = AgentChannel(Host("h1", "z", "127.0.0.1"), SshSettings(tmp_path / "known_hosts"))
    channel.open()
    with pytest.raises(Unreachable, match=f"^The agent on h1 {said}\\.$"):
        list(channel.notifications())


def test_the_last_sentence_of_an_agent_has_one_full_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "connect", lambda *_: None)
    monkeypatch.setattr(ssh, "open_channel", lambda *_: Ending(1, b"The folder /x was deleted.\n"))
    channel: Any = AgentChannel(Host("h1", "z", "127.0.0.1"), SshSettings(tmp_path / "known_hosts"))
    channel.open()
    with pytest.raises(Unreachable, match=r"^The agent on h1 ended: The folder /x was deleted\.$"):
        list(channel.notifications())
