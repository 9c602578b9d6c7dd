"""Which user of this machine owns the other end of a TCP connection, as the kernel's sock_diag(7) says.

Users of one machine share its addresses. A tunnel of ssh is the account's that logged in.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ESTABLISHED = 1  # of tcp(7); a socket that its process has closed has no owner any more
ANY_STATE = 0xFFFFFFFF
NO_COOKIE = b"\xff" * 8
HEAD = struct.Struct("=IHHII")  # struct nlmsghdr
ASKED = struct.Struct("=BBBxI")  # struct inet_diag_req_v2, before the id
ID = struct.Struct("!HH16s16s4s8s")  # struct inet_diag_sockid
TOLD = struct.Struct(f"=BBBB{ID.size}s3I I I")  # struct inet_diag_msg
LARGEST_BYTES = 4096


def user_of(connection: socket.socket) -> int | None:
    """The user whose socket is the other end; None where it is not of this machine, or cannot be told."""
    family = connection.family
    try:
        (near, near_port), (far, far_port) = connection.getsockname()[:2], connection.getpeername()[:2]
        ends = [socket.inet_pton(family, text.partition("%")[0]) for text in (far, near)]
        id = ID.pack(far_port, near_port, *ends, bytes(4), NO_COOKIE)
        told = _asked(ASKED.pack(family, socket.IPPROTO_TCP, 0, ANY_STATE) + id)
    except (OSError, ValueError):  # it has gone, or the kernel has no sock_diag
        return None
    with suppress(struct.error):
        _, kind, *_ = HEAD.unpack_from(told)
        _, state, _, _, found, *_, uid, _ = TOLD.unpack_from(told, HEAD.size)
        same = ID.unpack(found)[:4] == ID.unpack(id)[:4]  # else it only listens at that port
        if kind == SOCK_DIAG_BY_FAMILY and state == ESTABLISHED and same:
            return int(uid)
    return None


def _asked(question: bytes) -> bytes:
    """The answer, which is there as soon as the question is sent."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.setblocking(False)
        head = HEAD.pack(HEAD.size + len(question), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
        kernel.send(head + question)
        return kernel.recv(LARGEST_BYTES)
