"""SSH with a peer that may belong to an attacker: what is kept of it in memory has bounds.

Paramiko tells the peer how much it may send (RFC 4254, 5.2) and keeps whatever comes: a peer that sends more,
names a packet of gigabytes, or greets without an end of a line fills this process's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import paramiko
from paramiko import common
from paramiko.packet import Packetizer

PACKET_BYTES = 256 << 10  # as OpenSSH takes; RFC 4253, 6.1 asks for 35,000
GREETING_BYTES = 64 << 10  # all lines before the peer's version, and that


_CHANNEL: Any = paramiko.Channel


class TooMuch(paramiko.SSHException):
    """What the peer sent that it may not."""


class _Packets(Packetizer):
    _greeting_bytes = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > PACKET_BYTES:
            raise TooMuch(f"it sends a packet longer than {PACKET_BYTES} bytes")
        return super().read_all(n, check_rekey)

    def _read_timeout(self, timeout: float) -> bytes:  # what `readline` asks for a greeting
        data: bytes = super()._read_timeout(timeout)  # type: ignore[misc]
        self._greeting_bytes += len(data)
        if self._greeting_bytes > GREETING_BYTES:
            raise TooMuch("its greeting does not end")
        return data


def _within_window(feed: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def bounded(channel: Any, message: Any) -> None:
        feed(channel, message)
        kept = len(channel.in_buffer) + len(channel.in_stderr_buffer)
        if kept > channel.in_window_size:
            raise TooMuch("it sends more than the window of a channel lets it")

    return bounded


class BoundedTransport(paramiko.Transport):
    """Ends the connection to a peer that sends more than it may."""

    _channel_handler_table: ClassVar[dict[int, Any]] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        common.MSG_CHANNEL_DATA: _within_window(_CHANNEL._feed),
        common.MSG_CHANNEL_EXTENDED_DATA: _within_window(_CHANNEL._feed_extended),
    }

    def __init__(self, sock: Any, disabled_algorithms: Any = None) -> None:
        super().__init__(sock, disabled_algorithms=disabled_algorithms, packetizer_class=_Packets)


def too_much(transport: object) -> str:
    """Why the connection was ended here; empty: it was not, or for another reason."""
    why = getattr(transport, "saved_exception", None)
    return str(why) if isinstance(why, TooMuch) else ""
