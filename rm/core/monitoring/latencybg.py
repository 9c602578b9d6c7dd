"""Continuous one-way latency (perfSONAR's latencybg): the streams of each host, and what their windows say.

Of a window only the sender knows how many packets it sent, and only the receiver how many arrived: its two
halves meet here. The agents count them by `agents/rm_latencybg_window.py`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rm.core.model.host import Host
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.pairing import Pair
from rm.protocol.latencybg import Latencybg, ReceivedWindow, SentWindow, Stream
from rm.units import MINUTE_US, SECOND_US

LATE_US = 4 * SECOND_US  # after the end of a window its receiver has told of it, or has heard nothing
WAIT_US = 15 * MINUTE_US  # for the other half of a window
HALF = 32  # what a half that waits weighs, in buckets of a histogram
WAITING_MOST = HALF << 13  # of a host: 8,192 halves without histograms, fewer with them
PINGED_US = 500  # bounds the error of clocks' differences that the agents' channels give


@dataclass(frozen=True, slots=True)
class Direction:
    """A stream: `source` sends, `destination` counts."""

    mesh: Mesh
    source: Host
    destination: Host

    @property
    def id(self) -> int:
        """The same for every leader, so that streams go on when another one takes over."""
        mesh = self.mesh
        return _id(mesh.name, self.source.name, self.destination.name, mesh.packets, mesh.spacing_us)


@lru_cache(maxsize=1 << 16)
def _id(*words: str | int) -> int:
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % ((1 << 53) - 2) + 1


class Door(NamedTuple):
    """Where a host's process listens, and what the packets of each stream must carry there. No user of a host
    can read it, so that no job sends packets that count."""

    port: int
    secrets: Mapping[int, str]


def streams_of(
    host: Host, pairs: Iterable[tuple[Mesh, Pair]], doors: Mapping[str, Door], archived: frozenset[str]
) -> list[Stream]:
    """The streams that the host is to have. It sends nothing before the other host listens: what would be
    sent until then would be taken for lost. `archived`: the meshes of which histograms are wanted."""
    found = []
    for mesh, pair in pairs:
        if host not in pair:
            continue
        peer = pair[1] if pair[0] is host else pair[0]
        out, into = Direction(mesh, host, peer).id, Direction(mesh, peer, host).id
        door = doors.get(peer.name)
        secret = door.secrets.get(out, "") if door is not None else ""
        found.append(
            Stream(
                out=out,
                into=into,
                address=peer.address,
                port=door.port if door is not None and secret else 0,
                secret=secret,
                count=mesh.packets,
                interval_us=mesh.spacing_us,
                histogram=mesh.name in archived,
            )
        )
    return found


class Given(NamedTuple):
    """The secret that the sender of a stream sends with, and since when, by our clock."""

    secret: str
    since_us: int


def told_by(
    host: str, answer: Latencybg, directions: Mapping[int, Direction], given: Mapping[int, Given], now_us: int
) -> Latencybg:
    """The answer with what is the host's to tell: what it sent of the streams from it, and what arrived of
    those to it. So no host tells of the links of others, and none of a stream that is not among
    `directions`. It listens to a stream only since the sender has the secret that is `given`: a process that
    has begun anew reads nothing of what comes with an older one."""
    secrets = dict(answer.secrets)

    def has_secret(stream: int) -> bool:
        return stream in given and given[stream].secret == secrets.get(stream)

    def is_from(stream: int) -> bool:
        direction = directions.get(stream)
        return direction is not None and direction.source.name == host

    def is_to(stream: int) -> bool:
        direction = directions.get(stream)
        return direction is not None and direction.destination.name == host

    return Latencybg(
        life=answer.life,
        port=answer.port,
        now_us=answer.now_us,
        last=answer.last,
        more=answer.more,
        sent=[window for window in answer.sent if is_from(window.stream)],
        received=[window for window in answer.received if is_to(window.stream)],
        listening=[
            (stream, min(for_us, max(0, now_us - given[stream].since_us)), life)
            for stream, for_us, life in answer.listening
            if is_to(stream) and has_secret(stream)
        ],
        secrets=[one for one in answer.secrets if is_to(one[0])],
    )


class Window(NamedTuple):
    """A window of a stream; `received` None: nothing of this life of its sender has arrived, and the receiver
    listened. `at_us` is its begin by our clock."""

    sent: SentWindow
    received: ReceivedWindow | None
    at_us: int


class Key(NamedTuple):
    stream: int
    life: int
    window: int


@dataclass(slots=True)
class _Told:
    """One host: how far its answers were read, which halves of each answer may still wait, in the order in
    which it told of them, and what these weigh at most."""

    life: int = 0
    after: int = 0
    done: int = 0
    open: deque[tuple[int, list[Key]]] = field(default_factory=deque)
    weight: int = 0


class Halves:
    """What hosts have told. Pure: instants are arguments, by our clock."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Told] = {}
        self._sent: dict[Key, tuple[SentWindow, int, int]] = {}  # with its begin, and when it was told
        self._received: dict[Key, tuple[ReceivedWindow, int]] = {}

    def asked(self, host: str) -> tuple[int, int, int]:
        """(life, after, done) for the next request to the host."""
        told = self._hosts.setdefault(host, _Told())
        return told.life, told.after, told.done

    def take(self, host: str, answer: Latencybg, now_us: int) -> list[Window]:
        """The windows that this answer completes."""
        told = self._hosts.setdefault(host, _Told())
        if answer.life != told.life:
            # nothing of the new life is done before what waits of the old one; it counts as before
            waiting = deque((0, keys) for _, keys in told.open)
            self._hosts[host] = told = _Told(answer.life, open=waiting, weight=told.weight)
        keys, complete = list[Key](), list[Window]()
        for sent in answer.sent:
            key = Key(sent.stream, sent.life, sent.window)
            at_us = now_us - max(
                0, answer.now_us - sent.begun_us
            )  # the sender's clock may have been set back
            other = self._received.pop(key, None)
            if other is not None:
                complete.append(Window(sent, other[0], at_us))
            else:
                self._sent[key] = sent, at_us, now_us
                keys.append(key)
        for received in answer.received:
            key = Key(received.stream, received.life, received.window)
            half = self._sent.pop(key, None)
            if half is not None:
                complete.append(Window(half[0], received, half[1]))
            else:
                self._received[key] = received, now_us
                keys.append(key)
        complete += self._silent(answer, now_us)
        told.after = max(told.after, answer.last)
        told.open.append((told.after, keys))
        told.weight += sum(map(self._weight, keys))
        self._bound(told)
        self._settle(now_us)
        return sorted(complete, key=lambda window: (window.sent.stream, window.at_us))

    def _weight(self, key: Key) -> int:
        """0: it does not wait any more."""
        half = self._received.get(key)
        return HALF + len(half[0].histogram) if half is not None else HALF if key in self._sent else 0

    def _bound(self, told: _Told) -> None:
        """Give up the oldest halves of a host that has told of more than may wait."""
        if told.weight <= WAITING_MOST:
            return
        told.open = deque((last, [key for key in keys if self._weight(key)]) for last, keys in told.open)
        waiting = [(key, self._weight(key)) for _, keys in told.open for key in keys]
        told.weight = sum(weight for _, weight in waiting)
        for key, weight in waiting:
            if told.weight <= WAITING_MOST:
                break
            told.weight -= weight
            self._sent.pop(key, None)
            self._received.pop(key, None)

    def _silent(self, answer: Latencybg, now_us: int) -> list[Window]:
        """Those of which the receiver has heard nothing, though it listened all the time."""
        since = {stream: (now_us - since_us, life) for stream, since_us, life in answer.listening}
        found = []
        for key, (sent, at_us, told_us) in list(self._sent.items()):
            if key.stream in since:
                since_us, life = since[key.stream]
                if life != key.life and since_us <= at_us and now_us >= told_us + LATE_US:
                    found.append(Window(sent, None, at_us))
                    del self._sent[key]
        return found

    def _settle(self, now_us: int) -> None:
        """What has waited for too long is given up; answers of which nothing waits need not come again."""
        for key in [k for k, half in self._sent.items() if now_us - half[2] > WAIT_US]:
            del self._sent[key]
        for key in [k for k, half in self._received.items() if now_us - half[1] > WAIT_US]:
            del self._received[key]
        for told in self._hosts.values():
            while told.open:
                last, keys = told.open[0]
                if any(key in self._sent or key in self._received for key in keys):
                    break
                told.done = last
                told.open.popleft()

    def forget(self, hosts: Iterable[str]) -> None:
        """Hosts that are no more."""
        for host in hosts:
            self._hosts.pop(host, None)


class Found(NamedTuple):
    """What a window says: values by metric, the packets that its loss is a share of, and all of it as
    `rm.core.monitoring.outcome` has it."""

    values: dict[str, float]
    packets: int
    told: dict[str, Any]


def found_of(window: Window, pinged_us: int | None) -> Found:
    """`pinged_us`: the receiver's clock minus the sender's as the agents' channels give it, None: they do
    not. It counts where the packets themselves do not show it better.

    A delay below zero by no more than the clocks' error is none. One further below shows that a clock was
    set: nothing is said of delays then.
    """
    sent, received = window.sent.sent, window.received
    arrived = min(sent, received.received) if received is not None else 0
    lost = sent - arrived
    values: dict[str, float] = {"loss_pct": 100.0 * lost / sent}
    told: dict[str, Any] = {
        "sent": sent,
        "lost": lost,
        "duplicated": received.duplicates if received is not None else 0,
        "reordered": received.reordered if received is not None else 0,
        "clock_error_us": None,
        "histogram": (),
    }
    if received is None or received.delay_us is None:
        return Found(values, sent, told)
    if received.jitter_us is not None:
        values["jitter_us"] = received.jitter_us
    offset_us, error_us = received.offset_us, received.clock_error_us
    if pinged_us is not None and (error_us is None or error_us > PINGED_US):
        offset_us, error_us = pinged_us, PINGED_US
    if error_us is None:
        return Found(values, sent, told)
    more_us = received.offset_us - offset_us
    median_us, p95_us = (us + more_us for us in (received.delay_us.median, received.delay_us.p95))
    told["clock_error_us"] = error_us
    told["histogram"] = tuple((delay_us + more_us, packets) for delay_us, packets in received.histogram)
    if median_us >= -error_us:
        values |= {
            "delay_us": max(median_us, 0),
            "delay_p95_us": max(p95_us, 0),
            "clock_error_us": error_us,
            "clock_offset_us": max(0, abs(offset_us) - error_us),
        }
    return Found(values, sent, told)
