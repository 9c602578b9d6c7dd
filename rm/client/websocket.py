"""A WebSocket (RFC 6455) over a connection that a door of the client has made: SSH's, TLS's, or the daemon's
socket. Clients of libraries make connections of their own, which know neither our doors nor our leaders.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from rm.errors import RmError

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
LAST, MASKED = 0x80, 0x80
NO_MASK = bytes(4)  # a mask protects proxies against pages of browsers: one of zeros changes nothing
MOST_BYTES = 1 << 20
LAST_S = 2.0  # for the last words


def greeting() -> tuple[str, dict[str, str]]:
    """The key, and the headers that ask for a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    return key, {**headers, "Sec-WebSocket-Key": key}


def must_be_accepted(key: str, told: str, stranger: Callable[[], RmError]) -> None:
    wanted = base64.b64encode(hashlib.sha1((key + GUID).encode(), usedforsecurity=False).digest()).decode()
    if told != wanted:
        raise stranger()


class WebSocket:
    """For one thread. Every failure is an OSError."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(None)
        self._inbox = bytearray()

    def fileno(self) -> int:
        return self._sock.fileno()

    def pending(self) -> bool:
        """Has something come that poll(2) does not know of?"""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def send(self, data: bytes, kind: int = BINARY) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", LAST | kind, MASKED | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", LAST | kind, MASKED | 126, size)
        else:
            head = struct.pack("!BBQ", LAST | kind, MASKED | 127, size)
        self._sock.sendall(head + NO_MASK + data)

    def heard(self) -> list[bytes]:
        """The messages that are complete once what has come was read; waits for something to come.

        Raises:
            ConnectionError: the other side has closed it.
        """
        data = self._sock.recv(1 << 17)
        if not data:
            raise ConnectionError("the connection was closed")
        self._inbox += data
        found: list[bytes] = []
        while (message := self._message()) is not None:
            kind, body = message
            if kind == CLOSE:
                if found:
                    self._inbox[:0] = b"\x88\x00"  # after what came before it
                    break
                raise ConnectionError("the daemon has ended the session's connection")
            if kind == PING:
                self.send(body, PONG)
            elif kind in (TEXT, BINARY, 0):
                found.append(body)
        return found

    def close(self) -> None:
        """What was sent arrives: a connection that is closed with something unread is reset, and loses it."""
        with suppress(OSError):
            self._sock.settimeout(LAST_S)
            self._sock.shutdown(socket.SHUT_WR)
            until = time.monotonic() + LAST_S
            while time.monotonic() < until and self._sock.recv(1 << 16):
                pass
        self._sock.close()

    def _message(self) -> tuple[int, bytes] | None:
        """Messages of rm are bytes of a stream: the parts of one need not be put together."""
        box = self._inbox
        if len(box) < 2:
            return None
        size, start = box[1] & 0x7F, 2
        if size >= 126:
            form = "!H" if size == 126 else "!Q"
            start += struct.calcsize(form)
            if len(box) < start:
                return None
            (size,) = struct.unpack_from(form, box, 2)
        if size > MOST_BYTES:
            raise ConnectionError("the daemon sends a message that is too long")
        if len(box) < start + size:
            return None
        kind, body = box[0] & 0x0F, bytes(box[start : start + size])
        del box[: start + size]
        return kind, body
