"""Who calls: by the kernel's word (SO_PEERCRED) or by a token, never by the caller's word alone."""

from __future__ import annotations

import os
import pwd
import socket
import time
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from aiohttp import web

from rm.api.people import ACTING_FOR, FROM, VIA
from rm.core.people.rights import Role, Scope, least
from rm.core.people.token import Token
from rm.errors import Forbidden, Unauthenticated
from rm.paths import OVERFLOW_UID
from rm.socket_peer import peer_ids
from rm.web.callers.accounts import Accounts

JOB = "job"  # `Caller.via` of a program of a job
UID_MAP = "/proc/self/uid_map"
NAME_S = 1.0
NAMES_MAX = 4096
_names: dict[int, tuple[str, float]] = {}  # of a uid, and how long it counts (monotonic)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request is from. `uid` -1: an anonymous caller. `via` is the door (unix, https, job) or the
    program that asks for them (page); `origin` the process, address or job behind it. With a token, `token`
    is its id, and `role` no higher than its scope. A handler has it as `request[CALLER]`."""

    uid: int
    user: str
    role: Role = Role.USER
    via: str = "unix"
    origin: str = ""
    token: str = ""
    scope: Scope = Scope.ADMIN
    pid: int = 0

    @property
    def admin(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def operates(self) -> bool:
        return self.role >= Role.OPERATOR

    @property
    def local(self) -> bool:
        """Did the kernel itself name this account: no token, and no program in between?"""
        return self.via == "unix" and not self.token

    @property
    def owns_machine(self) -> bool:
        """Is it root, or the daemon's own user, at this machine itself?"""
        return self.local and uid_is_trusted(self.uid)

    @property
    def of_job(self) -> bool:
        """Is it a program of a job that asks?"""
        return self.via == JOB

    def must_own(self, user: str, what: str, least: Role = Role.OPERATOR) -> None:
        """That `what` is the caller's, or the caller's role is `least` or above."""
        self.must_be_somebody()
        if not self.role >= least and self.user != user:
            raise Forbidden(
                f"{what} belongs to {user}, and you are {self.user}.", "Ask its owner or an administrator."
            )

    def must_be_somebody(self) -> None:
        if not self.user:
            raise Forbidden("An anonymous caller may only look.", "Log in, or ask as a user.")

    def must_administer(self, what: str) -> None:
        self.must_be_somebody()
        if not self.admin:
            raise Forbidden(
                f"Only an administrator may {what}, and {self.user} is none.",
                "Administrators are root, the user who runs the daemon and those that rm.toml names (roles, "
                "daemon.admins).",
            )


def peer_uid(peer: Any) -> int:
    """The user at the other end of a Unix socket, when it was connected."""
    return peer_ids(peer)[1]


CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


class Doorkeeper:
    """What the doors need to know of people: `accounts` of this machine, and who has `tokens`, where anybody
    has."""

    def __init__(self, accounts: Accounts, keeper: KeepsTokens) -> None:
        self.accounts = accounts
        self._keeper = keeper

    async def of_job(self, job: OfJob) -> Caller:
        """The job's user, with no more rights than user and scope have now.

        Raises:
            Forbidden: this machine has no such account.
        """
        account = await self.accounts.account(job.user)
        if account.uid is None:
            raise Forbidden(
                f"There is no account '{job.user:.100}' on the daemon's machine.", "Create the user first."
            )
        role = least(await self.accounts.role_of(job.user), job.scope.most)
        return Caller(account.uid, job.user, role, JOB, job.origin, scope=job.scope)

    async def by_token(self, text: str, via: str, origin: str) -> Caller:
        """The owner of a token, with no more rights than owner and scope have now.

        Raises:
            Unauthenticated: the token does not count.
        """
        tokens = self._keeper.tokens
        token = tokens.find(text) if tokens is not None else None
        if tokens is None or token is None:
            raise Unauthenticated(
                "This token is not valid: it is unknown, revoked or expired.",
                "Make another on the control machine: rmx token create.",
            )
        account = await self.accounts.account(token.user)
        if account.uid != token.uid:
            raise Unauthenticated(
                f"This token is not valid: its owner {token.user} has no account any more, or another one.",
            )
        tokens.use(token.id, origin)
        own = uid_is_trusted(token.uid)
        role = Role.ADMIN if own else await self.accounts.role_of(token.user)
        return Caller(
            token.uid, token.user, least(role, token.scope.most), via, origin, token.id, token.scope
        )


@dataclass(frozen=True, slots=True)
class OfJob:
    """A connection that the daemon made for a program of a job: whatever it says is its `user`'s, with no
    more rights than `scope`."""

    user: str
    scope: Scope
    origin: str


_of_jobs: WeakKeyDictionary[Any, OfJob] = WeakKeyDictionary()  # by transport


def belongs_to(transport: Any, job: OfJob) -> None:
    """From now on what comes through the connection is the job's."""
    _of_jobs[transport] = job


def _job_of(request: web.Request) -> OfJob | None:
    transport = request.transport  # None: who asked has gone
    return None if transport is None else _of_jobs.get(transport)


class TokenFinder(Protocol):
    def find(self, text: str) -> Token | None:
        """The token whose text this is, if it lives."""
        ...

    def use(self, id: str, origin: str) -> None: ...


class KeepsTokens(Protocol):
    @property
    def tokens(self) -> TokenFinder | None: ...


def uid_is_trusted(uid: int) -> bool:
    """Root, and the user who runs the daemon: they can do anything to it anyway."""
    return uid in (0, os.geteuid())


async def caller_of(request: web.Request, keeper: Doorkeeper) -> Caller:
    """The owner of the request's token, the peer of its Unix socket, or the user that this peer acts for.

    Anyone may act for an anonymous caller, who may only look. For others only root and the daemon's own
    user may act, as the page does: of their rights nothing passes to these. What bears a token has its
    rights, through whichever door it comes. What a program of a job asks is its user's.

    Raises:
        Unauthenticated: there is no token where one is needed, or it does not count.
        Forbidden: the caller is unknown in the daemon's user namespace, or the uid has no name on this
            machine.
    """
    if (job := _job_of(request)) is not None:
        return await keeper.of_job(job)
    text = bearer_of(request)
    if not is_local(request):
        if text is None:
            raise Unauthenticated(
                "This door needs a token: send it as `Authorization: Bearer TOKEN`.",
                "Make one on the control machine: rmx token create.",
            )
        return await keeper.by_token(text, "https", origin_of(request))
    pid, uid = peer_of(request)
    trusted = uid_is_trusted(uid)
    via = request.headers.get(VIA, "unix") if trusted else "unix"
    origin = _local_origin(request, pid, uid)
    if text is not None:
        return await keeper.by_token(text, via, origin)
    if uid == OVERFLOW_UID and not _knows_everyone():
        raise Forbidden(
            "The caller cannot be identified: the daemon runs in a user namespace without the caller's id.",
            "Such a daemon serves the user who started it; for others let root run it.",
        )
    named = request.headers.get(ACTING_FOR)
    if named == "":
        return Caller(-1, "", Role.NOBODY, via, origin, scope=Scope.READ)
    user = _name_of(uid)
    if named is None:
        role = Role.ADMIN if trusted else await keeper.accounts.role_of(user)
        return Caller(uid, user, role, via, origin, pid=pid)
    if not trusted:
        raise Forbidden(
            f"Only root and the daemon's own user may act for others, and {user} is neither.",
            "Ask as yourself.",
        )
    account = await keeper.accounts.account(named)
    if account.uid is None:
        raise Forbidden(f"There is no account '{named:.100}' on this machine.", "Create the user first.")
    via = via if via != "unix" else "program"
    return Caller(account.uid, named, await keeper.accounts.role_of(named), via, origin)


_doors: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # by transport


def door_of(request: web.Request, caller: Caller) -> str:
    """`via`; ssh where the process at the other end of the socket is an sshd's."""
    if caller.via != "unix" or not caller.pid:
        return caller.via
    found = _doors.get(request.transport)
    if found is None:
        try:
            with open(f"/proc/{caller.pid}/comm", "rb") as file:  # a user writes any bytes into it
                found = "ssh" if file.read().startswith(b"sshd") else "unix"
        except OSError:  # it has gone
            found = "unix"
        _doors[request.transport] = found
    return found


def bearer_of(request: web.Request) -> str | None:
    """The token's text; None where none is sent."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if kind.lower() == "bearer" else None


def is_local(request: web.Request) -> bool:
    """Does the request come through the Unix socket?"""
    return _peer(request) is not None


def peer_of(request: web.Request) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket, when it was connected."""
    peer = _peer(request)
    assert peer is not None
    return peer


_peers: WeakKeyDictionary[Any, tuple[int, int] | None] = WeakKeyDictionary()  # by transport; None: by TCP


def _peer(request: web.Request) -> tuple[int, int] | None:
    """As the kernel noted them at connect(2): they stay the same for the life of the connection."""
    transport = request.transport
    if transport is None:
        return None
    try:
        return _peers[transport]
    except KeyError:
        peer, found = transport.get_extra_info("socket"), None
        if transport not in _of_jobs and peer is not None and peer.family == socket.AF_UNIX:
            found = peer_ids(peer)
        _peers[transport] = found
        return found


def origin_of(request: web.Request) -> str:
    """The address, the process, or the job; a trusted program may name the address that it serves."""
    if (job := _job_of(request)) is not None:
        return job.origin
    if not is_local(request):
        return request.remote or "unknown"
    return _local_origin(request, *peer_of(request))


def _local_origin(request: web.Request, pid: int, uid: int) -> str:
    named = request.headers.get(FROM) if uid_is_trusted(uid) else None
    return named or f"uid {uid} pid {pid}"


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
