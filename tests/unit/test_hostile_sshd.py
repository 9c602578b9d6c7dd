"""The sshd of a host that belongs to an attacker keeps nobody of the daemon waiting."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from rm.adapters.hosts import ssh
from rm.adapters.hosts.channel import AgentChannel
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import Unreachable
from rm.protocol.hosts import Ping
from rm.protocol.line import PROTOCOL
from rm.protocol.probes import ProbeHttp
from tests.fakes import PATIENCE_S

HELLO = {"event": "hello", "version": "1", "protocol": PROTOCOL}
WINDOW_BYTES = 1_000


class Sshd(paramiko.ServerInterface):
    """Takes in no more than `WINDOW_BYTES` of a channel. `answers`: is a request for a program answered?"""

    def __init__(self, answers: bool) -> None:
        self.answers, self.over = answers, threading.Event()
        near, far = socket.socketpair()
        self._transport = paramiko.Transport(far)
        self._transport.default_window_size = WINDOW_BYTES
        self._transport.add_server_key(paramiko.ECDSAKey.generate())
        self._transport.start_server(threading.Event(), self)
        self.client = paramiko.Transport(near)
        self.client.start_client(timeout=PATIENCE_S)
        self.client.auth_none("root")
        self.connection: Any = SimpleNamespace(
            client=SimpleNamespace(get_transport=lambda: self.client), close=self.client.close, host="h1"
        )

    def close(self) -> None:
        self.over.set()
        self.client.close()
        self._transport.close()

    def check_auth_none(self, username: str) -> int:
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self.answers:
            threading.Thread(target=channel.sendall, args=(json.dumps(HELLO).encode() + b"\n",)).start()
        else:
            self.over.wait(PATIENCE_S)
        return self.answers


@pytest.fixture(params=[True])
def sshd(request: pytest.FixtureRequest) -> Iterator[Sshd]:
    made = Sshd(request.param)
    yield made
    made.close()


def done_in_time(work: Callable[[], Any]) -> Any:
    """What it returns or raises; fails if it is kept waiting."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(PATIENCE_S)


def test_who_asks_a_host_that_takes_nothing_in_is_not_kept_waiting(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the leader waits for that host for good, and with it everybody."""
    monkeypatch.setattr(ssh, "connect", lambda host, settings: sshd.connection)
    channel = AgentChannel(Host("h1", "", "192.0.2.1"), SshSettings(known_hosts=Path("none")))
    channel.open()
    long = ProbeHttp(url="x" * WINDOW_BYTES, timeout_us=1)
    asked = [done_in_time(lambda: channel.call(long, 0.0)) for _ in range(3)]
    asked.append(done_in_time(lambda: channel.call(Ping(), 0.0)))
    done_in_time(lambda: channel.expire(time.monotonic()))
    for answer in asked:
        with pytest.raises(Unreachable):
            answer.result(0)
    last = done_in_time(lambda: channel.call(Ping(), 60.0))
    done_in_time(channel.close)
    with pytest.raises(Unreachable):
        last.result(0)


@pytest.mark.parametrize("sshd", [False], indirect=True)
def test_a_host_that_does_not_say_whether_it_starts_a_program_is_not_waited_for_for_ever(sshd: Sshd) -> None:
    sshd.client.channel_timeout = 0.1
    with pytest.raises(Unreachable, match="cannot be started"):
        done_in_time(lambda: ssh.open_channel(sshd.connection, "agent"))
    with pytest.raises(Unreachable, match="was lost while"):
        done_in_time(lambda: ssh.put(sshd.connection, b"x", "/tmp/x", 0o600, timeout_s=0.1))
