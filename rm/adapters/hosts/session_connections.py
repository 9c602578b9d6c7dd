"""Further SSH connections to a host, for sessions of jobs.

An sshd takes `MaxSessions` channels on a connection (10 unless sshd_config says otherwise), of which the
agent's is one. Sessions use that connection while there is room, and then connections of their own, opened
when they are needed and closed when nobody has used them for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import LimitReached, Unreachable

MOST = 32  # further connections to one host
UNUSED_S = 30.0
TURN_S = (
    30.0  # that a session waits for its turn to open a channel: a host answers each slowly, or not at all
)

Open = Callable[[str, int], Any]
"""Opens a channel that runs a command, with so large a window. Raises ssh.NoRoom."""


@dataclass(slots=True)
class _Connection:
    connection: Any  # a fabric.Connection
    channels: list[Any] = field(default_factory=list)
    opening: bool = True
    used_s: float = 0.0  # when a channel was last seen open, monotonic

    def alive(self) -> bool:
        transport = self.connection.client.get_transport()
        return transport is not None and bool(transport.is_active())

    def open(self, command: str, window_bytes: int) -> Any:
        """By one thread at a time."""
        from rm.adapters.hosts import ssh  # here: a daemon starts without it

        self.opening = True  # nobody closes it meanwhile
        try:
            channel = ssh.open_channel(self.connection, command, window_bytes)
            self.channels = [*(one for one in self.channels if not one.closed), channel]
        finally:
            self.used_s = time.monotonic()
            self.opening = False
        return channel

    def is_unused(self, now_s: float) -> bool:
        if self.opening or not all(channel.closed for channel in self.channels):
            self.used_s = now_s
            return False
        return now_s - self.used_s >= UNUSED_S


class SessionConnections:
    """Of one host; for any thread."""

    def __init__(self, host: Host, settings: SshSettings) -> None:
        self._host, self._settings = host, settings
        self._turn = threading.Lock()  # one session after the other: of two that find no room one connects
        self._lock = threading.Lock()  # of the fields below; held for no longer than they are looked at
        self._further: list[_Connection] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._further)

    def open(self, agents: Open, command: str, window_bytes: int) -> Any:
        """A channel that runs `command`: `agents` opens one on the connection of the host's agent.

        Raises:
            LimitReached: all connections are full.
            Unreachable: the host does not answer, or not in time.
        """
        if not self._turn.acquire(timeout=TURN_S):
            raise Unreachable(
                f"Host {self._host.name} opens no session: others have waited for theirs for {TURN_S:g} s.",
                "Look at the host's load.",
            )
        try:
            return self._opened(agents, command, window_bytes)
        finally:
            self._turn.release()

    def _opened(self, agents: Open, command: str, window_bytes: int) -> Any:
        from rm.adapters.hosts import ssh

        with self._lock:
            further = [one for one in self._further if one.alive()]
        # those opened last most likely have room
        for opens in (*(one.open for one in reversed(further)), agents):
            with suppress(ssh.NoRoom):
                return opens(command, window_bytes)
        if len(further) >= MOST:
            raise LimitReached(
                f"Host {self._host.name} takes no more sessions: {MOST + 1} SSH connections to it are full.",
                "End a session, or set MaxSessions in its sshd_config higher.",
            )
        added = _Connection(ssh.connect(self._host, self._settings))
        try:
            channel = added.open(command, window_bytes)
        except BaseException:
            added.connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._further.append(added)
                return channel
        added.connection.close()
        raise Unreachable(f"The channel to {self._host.name} is closed.")

    def tidy(self) -> None:
        """Close connections that are lost, or that nobody has used for `UNUSED_S`."""
        if not self._further:
            return
        now = time.monotonic()
        with self._lock:
            unused = [one for one in self._further if not one.alive() or one.is_unused(now)]
            self._further = [one for one in self._further if one not in unused]
        self._close(unused)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            further, self._further = self._further, []
        self._close(further)

    def _close(self, connections: list[_Connection]) -> None:
        """In a thread of its own: a silent host keeps whoever closes a connection to it waiting."""
        if not connections:
            return

        def close() -> None:
            for one in connections:
                with suppress(Exception):  # paramiko raises all sorts of things on a dead transport
                    one.connection.close()

        threading.Thread(target=close, name=f"close-{self._host.name}", daemon=True).start()
