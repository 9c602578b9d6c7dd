"""What each user has of the daemon at the moment, and how much more that may become.

A user who asks for more than a share is slowed down first, so that programs need not know of this; only
when the wait would be long is a request refused, with the time after which it may be repeated.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rm.config import LimitsConfig
from rm.errors import LimitReached

# Whose connection it is: the uid of a Unix socket's peer, the address of a TCP one's or, within this machine,
# `local_user`, or the name of the user on whose behalf the page asks.
Key = int | str

LOCAL_USER = "uid "
RESERVED = 256  # descriptors for the hosts' channels, the database and files
FEW = 4  # connections that a user may have where others took all but …
SPARE = 64  # … these
BODY_UNIT_BYTES = 32 << 10  # of a body or an answer, which cost as much as a request
PATIENCE_S = 5.0  # that a request waits for its turn
DEBT_S = 60.0
ARRIVALS = 2.0  # connections that a user may make in the time of one request


@dataclass(slots=True)
class Share:
    """`tokens` of requests are left as of `at_s`, and `arrivals` of connections; requests may be owed."""

    tokens: float
    arrivals: float
    at_s: float
    connections: int = 0
    followers: int = 0
    bytes: int = 0


class Shares:
    """For the event loop's thread alone. `descriptors` is how many the process may have open. Strangers, of
    whom an address is all that is known, have half of the room: one may have many addresses. Who is not
    `privileged` makes connections at a bounded rate, each user and each address."""

    def __init__(
        self,
        limits: LimitsConfig,
        descriptors: int,
        clock: Callable[[], float] = time.monotonic,
        privileged: frozenset[int] = frozenset(),
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._privileged = privileged
        self._room = max(SPARE, descriptors - RESERVED - SPARE)
        self._most = max(FEW, min(limits.connections, self._room // 2))
        self._burst = self._most + ARRIVALS * limits.request_burst
        self._shares: dict[Key, Share] = {}
        self.connections = 0
        self._strangers = 0  # of these

    def arrive(self, key: Key) -> bool:
        """May one more connection of this user be served? It counts until `leave`."""
        share, there, room = self._share(key), self.connections, self._room
        if isinstance(key, str):
            there, room = self._strangers, self._room // 2
        if key not in self._privileged:
            self._refill(share)
            if share.arrivals < 1:
                return False
            share.arrivals -= 1
        few = share.connections < FEW and there < room + SPARE
        if share.connections >= self._most or (there >= room and not few):
            return False
        share.connections += 1
        self._count(key, 1)
        return True

    def leave(self, key: Key) -> None:
        share = self._share(key)
        share.connections -= 1
        self._count(key, -1)
        if self._is_new(share):
            del self._shares[key]

    def forget(self) -> None:
        """Of who has nothing, and could do all that a newcomer may, nothing is kept: addresses are many."""
        for key in [key for key, share in self._shares.items() if self._is_new(share)]:
            del self._shares[key]

    def __len__(self) -> int:
        return len(self._shares)

    def _is_new(self, share: Share) -> bool:
        if share.connections or share.followers or share.bytes:
            return False
        self._refill(share)
        return share.tokens >= self._limits.request_burst and share.arrivals >= self._burst

    def _count(self, key: Key, change: int) -> None:
        self.connections += change
        self._strangers += change * isinstance(key, str)

    def take(self, key: Key) -> float:
        """For how many seconds a request must wait for its turn.

        Raises:
            LimitReached: the wait would be long.
        """
        share = self._share(key)
        self._refill(share)
        rate = self._limits.requests_per_s
        wait_s = max(0.0, (1 - share.tokens) / rate)
        if wait_s > PATIENCE_S:
            raise LimitReached(
                f"You have asked for more than {rate:g} requests a second.",
                "Ask less often (limits.requests_per_s); long answers count for several requests.",
                wait_s,
            )
        share.tokens -= 1
        return wait_s

    def charge(self, key: Key, size_bytes: int) -> None:
        """A body or an answer counts for as many requests as it has units."""
        share = self._share(key)
        owed = -DEBT_S * self._limits.requests_per_s
        share.tokens = max(owed, share.tokens - size_bytes // BODY_UNIT_BYTES)

    @contextmanager
    def carrying(self, key: Key, size_bytes: int) -> Iterator[None]:
        """So much of a body or an answer is in memory."""
        share, most = self._share(key), self._limits.bytes_under_way
        if share.bytes and share.bytes + size_bytes > most:
            raise LimitReached(
                f"Your requests and their answers have more than {most} bytes under way.",
                "Let some of them end first (limits.bytes_under_way).",
                1.0,
            )
        share.bytes += size_bytes
        try:
            yield
        finally:
            share.bytes -= size_bytes

    @contextmanager
    def following(self, key: Key) -> Iterator[None]:
        """A log is being read."""
        share, most = self._share(key), self._limits.followers
        if share.followers >= most:
            raise LimitReached(
                f"You are reading {most} logs already.", "Let some of them end first (limits.followers).", 5.0
            )
        share.followers += 1
        try:
            yield
        finally:
            share.followers -= 1

    def _share(self, key: Key) -> Share:
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = Share(float(self._limits.request_burst), self._burst, self._clock())
        return share

    def _refill(self, share: Share) -> None:
        now_s = self._clock()
        more = (now_s - share.at_s) * self._limits.requests_per_s
        share.tokens = min(float(self._limits.request_burst), share.tokens + more)
        share.arrivals = min(self._burst, share.arrivals + ARRIVALS * more)
        share.at_s = now_s


def source_of(address: str) -> str:
    """Who counts as one stranger: an address, or an IPv6 network of one host (/64), which has more addresses
    than anybody could count. What is no address is given back as it is."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else address


def local_user(uid: int) -> str:
    """A user of this machine who comes by TCP."""
    return f"{LOCAL_USER}{uid}"


def retry_after_s(error: LimitReached) -> int:
    """Whole seconds, as the header Retry-After has them."""
    return max(1, math.ceil(error.retry_after_s))
