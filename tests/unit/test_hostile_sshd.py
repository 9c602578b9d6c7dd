"""The sshd of a host that belongs to an attacker keeps nobody of the daemon waiting."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from rm.adapters.hosts import ssh
from rm.adapters.hosts.bounded_transport import GREETING_BYTES, PACKET_BYTES, BoundedTransport, too_much
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
FLOOD_BYTES = 4 << 20


class Sshd(paramiko.ServerInterface):
    """Takes in no more than `WINDOW_BYTES` of a channel. `answers`: is a request for a program answered?"""

    def __init__(self, answers: bool) -> None:
        self.answers, self.over, self.flooded = answers, threading.Event(), threading.Event()
        self.honest, self.begins = False, threading.Event()
        near, far = socket.socketpair()
        self._transport = paramiko.Transport(far)
        self._transport.default_window_size = WINDOW_BYTES
        self._transport.add_server_key(paramiko.ECDSAKey.generate())
        self._transport.start_server(threading.Event(), self)
        self.client = BoundedTransport(near)
        self.client.start_client(timeout=PATIENCE_S)
        self.client.auth_none("root")
        self.connection: Any = SimpleNamespace(
            client=SimpleNamespace(get_transport=lambda: self.client), close=self.client.close, host="h1"
        )

    def close(self) -> None:
        self.over.set()
        self.client.close()
        self._transport.close()

    def floods(self, channel: paramiko.Channel, write: Callable[[bytes], object]) -> None:
        """Until the other side ends the connection, or has taken all of `FLOOD_BYTES`."""
        self.begins.wait(PATIENCE_S)
        for _ in range(FLOOD_BYTES >> 15):
            if not self.honest:
                channel.out_window_size = 1 << 30  # whatever the other side lets it send
            try:
                write(bytes(1 << 15))
            except (OSError, EOFError):
                break
        self.flooded.set()

    def check_auth_none(self, username: str) -> int:
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if command in (b"floods", b"floods errors"):
            write = channel.sendall if command == b"floods" else channel.sendall_stderr
            threading.Thread(target=self.floods, args=(channel, write), daemon=True).start()
        elif self.answers:
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


@pytest.mark.parametrize("command", ["floods", "floods errors"])
def test_a_host_that_sends_more_than_it_may_fills_no_memory(sshd: Sshd, command: str) -> None:
    channel = ssh.open_channel(sshd.connection, command, 1 << 16)
    sshd.begins.set()
    assert sshd.flooded.wait(PATIENCE_S)
    sshd.client.join(PATIENCE_S)
    assert not sshd.client.is_active()
    assert too_much(channel.get_transport()) == "it sends more than the window of a channel lets it"
    assert len(channel.in_buffer) + len(channel.in_stderr_buffer) <= (1 << 16) + (1 << 15)


def test_the_end_of_a_host_that_sent_more_than_it_may_has_that_reason(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "connect", lambda host, settings: sshd.connection)
    settings = SshSettings(known_hosts=Path("none"))
    channel = AgentChannel(Host("h1", "", "192.0.2.1"), settings)
    channel.open()
    other = ssh.open_channel(sshd.connection, "floods", 1 << 16)
    sshd.begins.set()
    with pytest.raises(Unreachable, match=r"h1 was ended: it sends more than the window"):
        done_in_time(lambda: list(channel.notifications()))
    other.close()


def test_a_host_that_keeps_to_its_window_may_send_as_much_as_it_likes(sshd: Sshd) -> None:
    sshd.honest = True
    channel = ssh.open_channel(sshd.connection, "floods", 1 << 16)
    sshd.begins.set()
    got = 0
    while got < FLOOD_BYTES:
        got += len(done_in_time(lambda: channel.recv(1 << 15)))
    assert sshd.client.is_active()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"x" * 128, "its greeting does not end"),
        (b"x" * 126 + b"\r\n", "its greeting does not end|Indecipherable"),
        (b"SSH-2.0-x\r\n" + ((1 << 31) + 4).to_bytes(4, "big") + bytes(128), "longer than"),
    ],
)
def test_a_peer_that_is_not_logged_in_to_yet_fills_no_memory(said: bytes, why: str) -> None:
    near, far = socket.socketpair()
    sent = 0

    def speak() -> None:
        nonlocal sent
        with suppress(OSError):
            while sent < FLOOD_BYTES:
                sent += far.send(said)

    speaking = threading.Thread(target=speak, daemon=True)
    speaking.start()
    client = BoundedTransport(near)
    with pytest.raises(paramiko.SSHException, match=why):
        client.start_client(timeout=PATIENCE_S)
    client.close()
    near.close()
    far.close()
    speaking.join(PATIENCE_S)
    buffers_of_the_kernel = 1 << 20
    assert sent < GREETING_BYTES + PACKET_BYTES + buffers_of_the_kernel
