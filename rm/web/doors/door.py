"""Where connections come in: who they are, how many a user may have, and how long they may say nothing.

asyncio's own loop of accept(2) takes as many connections at once as are waiting, and where descriptors have
run out it writes a traceback for each of them, again and again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, cast

from aiohttp import web

from rm.web.answers import refuse
from rm.web.callers.identity import peer_uid
from rm.web.callers.shares import Key, Shares, local_user, source_of
from rm.web.doors.local_peers import user_of
from rm.web.doors.malformed import malformed, server_log

BACKLOG = 1024  # connections that the kernel keeps for us
AT_ONCE = 32  # taken before others are served
TURNED_AWAY = 256  # meanwhile: each costs a hundredth of one that is taken
SWEEP_S = 1.0
FORGET_S = 10.0
PAUSE_S = 0.2  # when nothing can be accepted
TELL_EVERY_S = 60.0
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
PEER: web.RequestKey[str] = web.RequestKey("peer", str)  # who is at the other end: a key of Shares
log = logging.getLogger("rm.web")


class Guests:
    """The connections that are there, by their transports."""

    def __init__(self, shares: Shares, header_s: float, idle_s: float) -> None:
        self.shares = shares
        self.header_s = header_s
        self.idle_s = idle_s
        self._there: dict[asyncio.BaseTransport, Guest] = {}
        self._forgot_s = 0.0

    def enter(self, transport: asyncio.BaseTransport, guest: Guest) -> None:
        self._there[transport] = guest

    def leave(self, transport: asyncio.BaseTransport) -> None:
        self._there.pop(transport, None)

    def of(self, request: web.Request) -> Guest | None:
        return self._there.get(request.transport) if request.transport is not None else None

    def sweep(self, now_s: float) -> None:
        """Close the connections whose time is over."""
        if now_s - self._forgot_s >= FORGET_S:
            self._forgot_s = now_s
            self.shares.forget()
        for transport, guest in list(self._there.items()):
            if guest.until_s <= now_s:
                cast(asyncio.Transport, transport).abort()


class Guest(asyncio.Protocol):
    """One connection, before the handler of its requests; `until_s` is when its silence is over."""

    __slots__ = ("_guests", "_handler", "_serving", "_transport", "key", "until_s")

    def __init__(self, guests: Guests, handler: Any, key: Key) -> None:
        self.key = key
        self.until_s = 0.0
        self._guests = guests
        self._handler = handler
        self._serving = False
        self._transport: asyncio.BaseTransport | None = None

    def begin(self) -> None:
        """A request has been read up to its body."""
        self._serving, self.until_s = True, float("inf")

    def end(self) -> None:
        """It is answered: aiohttp closes idle connections by itself, and this one if it does not."""
        self._serving = False
        self.until_s = time.monotonic() + self._guests.idle_s + self._guests.header_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.until_s = time.monotonic() + self._guests.header_s
        self._guests.enter(transport, self)
        self._handler.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._guests.leave(self._transport)
        self.uncount()
        self._handler.connection_lost(error)

    def uncount(self) -> None:
        self._guests.shares.leave(self.key)

    def data_received(self, data: bytes) -> None:
        if not self._serving:
            self.until_s = min(self.until_s, time.monotonic() + self._guests.header_s)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return cast(bool | None, self._handler.eof_received())

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()


class Door(web.BaseSite):
    """Accepts the connections of one listening socket, Unix or TCP."""

    def __init__(
        self,
        runner: web.BaseRunner,
        listener: socket.socket,
        guests: Guests,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context)
        self._listener = listener
        self._guests = guests
        self._ssl = ssl_context
        self._handlers = cast(Callable[[], Any], runner.server)
        self._loop = asyncio.get_running_loop()
        self._spare = -1
        self._arriving: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._shed, self._told_s = 0, -TELL_EVERY_S
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return str(self._listener.getsockname())

    async def start(self) -> None:
        """If it fails, the port is free again: who tries once more would find it taken by this process."""
        server_log.addFilter(malformed)  # once, however many doors there are
        try:
            await super().start()
        except BaseException:
            self._listener.close()
            raise
        try:
            self._listener.setblocking(False)
            self._listener.listen(BACKLOG)
            self._keep_spare()
            self._open()
            self._sweep()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        for timer in (self._later, self._sweeper):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for task in self._arriving:
            task.cancel()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        await super().stop()

    def _open(self) -> None:
        self._later = None
        self._loop.add_reader(self._listener, self._accept)

    def _sweep(self) -> None:
        self._guests.sweep(time.monotonic())
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _accept(self) -> None:
        taken = 0
        for _ in range(TURNED_AWAY):
            if taken == AT_ONCE:
                return
            try:
                peer, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._exhausted(error)
                return
            peer.setblocking(False)
            try:
                key = peer_uid(peer) if peer.family == socket.AF_UNIX else _stranger(peer, str(address[0]))
            except OSError:
                peer.close()
                continue
            if not self._guests.shares.arrive(key):
                turn_away(peer, "You have reached your limit of connections to the daemon.")
                continue
            taken += 1
            guest = Guest(self._guests, self._handlers(), key)
            task = self._loop.create_task(self._welcome(peer, guest))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _welcome(self, peer: socket.socket, guest: Guest) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: guest, peer, ssl=self._ssl,
                ssl_handshake_timeout=self._guests.header_s if self._ssl is not None else None,
                ssl_shutdown_timeout=self._guests.header_s if self._ssl is not None else None,
            )  # fmt: skip
        except (OSError, ssl.SSLError, asyncio.CancelledError):  # gone, or no TLS
            if guest.until_s == 0.0:  # it was never connected: nobody else ends it
                self._guests.shares.leave(guest.key)
                peer.close()

    def _exhausted(self, error: OSError) -> None:
        """No descriptor is left: new connections are refused instead of being left to wait."""
        self._shed += 1
        now_s = time.monotonic()
        if now_s - self._told_s >= TELL_EVERY_S:
            log.error("connections cannot be accepted: %s (%d times)", error.strerror, self._shed)
            self._shed, self._told_s = 0, now_s
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
            with suppress(OSError):
                turn_away(self._listener.accept()[0], "The daemon has no file descriptors left.")
            self._keep_spare()
        self._loop.remove_reader(self._listener)
        self._later = self._loop.call_later(PAUSE_S, self._open)

    def _keep_spare(self) -> None:
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _stranger(peer: socket.socket, address: str) -> Key:
    """Users of this machine share its addresses, and each counts alone. The key is never a uid: a socket of
    the file system proves that, and it may have rights. A tunnel counts as the account whose program holds
    it."""
    uid = user_of(peer)
    return source_of(address) if uid is None else local_user(uid)


def turn_away(peer: socket.socket, why: str) -> None:
    """Refuse without having heard the request."""
    with peer, suppress(OSError):
        peer.setblocking(False)
        peer.send(_refusal(why))
        peer.recv(1 << 16)  # what is left unread would reset the connection under the answer


@cache
def _refusal(why: str) -> bytes:
    body = refuse(429, "LimitReached", why, "Close some, or try again later.").body
    assert isinstance(body, bytes)
    head = (
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
