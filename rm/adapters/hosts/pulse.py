"""A pulse for connections: a peer that is silent although it was asked is found, and cut off.

Paramiko's own keepalive wants no reply, and TCP is acknowledged by the kernel even of a frozen host; only
what the peer's program sends counts as life.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rm.adapters.hosts.silence import Silence

PULSES_PER_DEADLINE = 6
QUIET_S = 1.0
_DISCARDS, _DELIVERS = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # struct linger


class WatchedSocket:
    """A socket that remembers when it was last heard from, and lets no writer wait for ever.

    Times are monotonic seconds. `dead_after_s` bounds the silence after a question. What has arrived and is
    not read yet was said in time.

    What the peer has not got yet is delivered after `close` alone. After `cut`, and when this process is
    killed, it is discarded: else the kernel goes on sending it, and a launch reaches a host that was cut off
    when its job has been cancelled meanwhile.
    """

    def __init__(self, raw: socket.socket, dead_after_s: float) -> None:
        self._raw = raw
        self.dead_after_s = dead_after_s
        self.heard_at = time.monotonic()
        self.asked_at = 0.0
        self._silence = Silence(self.interval_s)
        self._cut = False
        self._linger(_DISCARDS)

    def settimeout(self, seconds: float | None) -> None:
        """Paramiko would wake up ten times a second, for each host, to look whether it was closed: what
        comes, and an end, wake it anyway."""
        self._raw.settimeout(seconds if seconds is None else max(seconds, QUIET_S))

    def recv(self, size: int) -> bytes:
        data = self._raw.recv(size)
        self.heard_at = time.monotonic()
        return data

    def send(self, data: bytes) -> int:
        try:
            return self._raw.send(data)
        except TimeoutError:
            if time.monotonic() - self.heard_at > self.dead_after_s and not self._unread():
                self.cut()
                raise ConnectionError("the peer takes no more data") from None
            raise

    @property
    def interval_s(self) -> float:
        return self.dead_after_s / PULSES_PER_DEADLINE

    def silent(self, now: float) -> bool:
        """Asked, not answered, and the time is over (less two pulses, which may just have begun).

        To be called again and again.
        """
        lasts_s = self._silence.look(now, self.asked_at > self.heard_at)
        return lasts_s > self.dead_after_s - 2 * self.interval_s and not self._unread()

    def _unread(self) -> bool:
        """Has something arrived that nobody has read?"""
        return self._ready(select.POLLIN)

    def takes_more(self) -> bool:
        """Can something short be written without waiting for the peer?"""
        return self._ready(select.POLLOUT)

    def _ready(self, what: int) -> bool:
        with suppress(OSError, ValueError):  # closed meanwhile
            look = select.poll()
            look.register(self._raw.fileno(), what)
            return bool(look.poll(0))
        return False

    def cut(self) -> None:
        """End the connection here; the peer need not be there for it. It is still to be closed."""
        self._cut = True
        with suppress(OSError):
            self._raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if not self._cut:
            self._linger(_DELIVERS)
            with suppress(OSError):  # who waits for data in another thread would keep it open until then
                self._raw.shutdown(socket.SHUT_RDWR)
        self._raw.close()

    def _linger(self, how: bytes) -> None:
        with suppress(OSError):  # closed before
            self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class Pulse:
    """One thread for all connections.

    A connection is judged by a question that was sent on it, so that a pulse which was held up on one
    connection blames no other. While a connection takes nothing in, the question waits, and it counts as
    silent: its peer reads nothing.
    """

    def __init__(self) -> None:
        self._watched: dict[WatchedSocket, tuple[Callable[[], None], Callable[[], bool]]] = {}
        self._unsent: set[WatchedSocket] = set()  # whose question waits; in the thread of `_beat`
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, sock: WatchedSocket, ask: Callable[[], None], active: Callable[[], bool]) -> None:
        """Call `ask` again and again, which makes the peer send something, and waits for nobody, until not
        `active()`."""
        with self._lock:
            self._watched[sock] = (ask, active)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="ssh-pulse", daemon=True)
                self._thread.start()
        self._some.set()

    def _beat(self) -> None:
        while True:
            self._some.wait()
            with self._lock:
                watched = list(self._watched.items())
                if not watched:
                    self._some.clear()
                    continue
            for sock, (ask, active) in watched:
                now = time.monotonic()
                if not active():
                    self._unsent.discard(sock)
                    with self._lock:
                        self._watched.pop(sock, None)
                    continue
                if sock.silent(now):
                    sock.cut()
                elif sock.heard_at >= sock.asked_at and now - sock.asked_at >= sock.interval_s:
                    sock.asked_at = now
                    self._unsent.add(sock)
                # else it would wait here for this peer, and ask no other
                if sock in self._unsent and sock.takes_more():
                    self._unsent.discard(sock)
                    ask()
            time.sleep(min(sock.interval_s for sock, _ in watched) / 2)


pulse = Pulse()
