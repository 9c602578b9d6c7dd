"""Who calls, and what they may do: the kernel's word (SO_PEERCRED), never the caller's."""

from __future__ import annotations

import os
import pwd
import socket
import struct
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

from rm.api.people import ACTING_FOR
from rm.errors import Forbidden
from rm.paths import OVERFLOW_UID

UID_MAP = "/proc/self/uid_map"
NAME_S = 1.0
NAMES_MAX = 4096
_names: dict[int, tuple[str, float]] = {}  # of a uid, and how long it counts (monotonic)
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)


@dataclass(frozen=True, slots=True)
class Caller:
    uid: int
    user: str
    admin: bool

    @property
    def role(self) -> Literal["nobody", "user", "admin"]:
        return "admin" if self.admin else "user" if self.user else "nobody"

    def must_own(self, user: str, what: str) -> None:
        self.must_be_somebody()
        if not self.admin and self.user != user:
            raise Forbidden(
                f"{what} belongs to {user}, and you are {self.user}.", "Ask its owner or an administrator."
            )

    def must_be_somebody(self) -> None:
        if not self.user:
            raise Forbidden("Nobody in particular may only look.", "Log in, or ask as a user.")

    def must_administer(self, what: str) -> None:
        self.must_be_somebody()
        if not self.admin:
            raise Forbidden(
                f"Only an administrator may {what}, and {self.user} is none.",
                "Administrators are root, the user who runs the daemon and daemon.admins in rm.toml.",
            )


def peer_uid(peer: Any) -> int:
    """The user at the other end of a Unix socket, when it was connected."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


NOBODY = Caller(-1, "", False)


def caller_of(request: web.Request, admins: Collection[str]) -> Caller:
    """The peer of the request's Unix socket, or whom it acts for.

    Anybody may act for nobody in particular, who may only look. For others only root and the daemon's own
    user may act, as the page does: of their rights nothing passes to these.

    Raises:
        Forbidden: the connection is no Unix socket, the caller is unknown in the daemon's user namespace,
            or the uid has no name on this machine.
    """
    peer = request.transport.get_extra_info("socket") if request.transport is not None else None
    if peer is None or peer.family != socket.AF_UNIX:
        raise Forbidden("The caller of this connection is not known.", "Connect through the Unix socket.")
    uid = peer_uid(peer)
    if uid == OVERFLOW_UID and not _knows_everyone():
        raise Forbidden(
            "Who calls cannot be told: the daemon runs in a user namespace that does not know the caller.",
            "Such a daemon serves the user who started it; for others let root run it.",
        )
    user = _name_of(uid)
    trusted = uid in (0, os.geteuid())
    named = request.headers.get(ACTING_FOR)
    if named is None:
        return Caller(uid, user, trusted or user in admins)
    if not named:
        return NOBODY
    if not trusted:
        raise Forbidden(
            f"Only root and the daemon's own user may act for others, and {user} is neither.",
            "Ask as yourself.",
        )
    return Caller(_uid_of(named), named, named in admins)


def _knows_everyone() -> bool:
    """Whether every user id of the machine has a number here, so that 65534 is really nobody."""
    with open(UID_MAP) as file:
        ranges = [line.split() for line in file]
    return any(
        (inside, outside) == ("0", "0") and int(count) > OVERFLOW_UID for inside, outside, count in ranges
    )


def _name_of(uid: int) -> str:
    """Asked for again after a moment: the name of a uid may go to somebody else."""
    now_s = time.monotonic()
    name, until_s = _names.get(uid, ("", 0.0))
    if now_s < until_s:
        return name
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        raise Forbidden(f"The user id {uid} has no name on this machine.", "Create the user first.") from None
    if len(_names) >= NAMES_MAX:
        _names.clear()
    _names[uid] = (name, now_s + NAME_S)
    return name


def _uid_of(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Forbidden(
            f"There is no account '{name:.100}' on this machine.", "Create the user first."
        ) from None
