"""Which process is at the other end of a Unix socket, by the kernel's word."""

from __future__ import annotations

import socket
import struct
from typing import Any

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)


def peer_ids(sock: Any) -> tuple[int, int]:
    """(pid, uid) of who had connected, or listened, when the connection came about (SO_PEERCRED)."""
    pid, uid, _ = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid
