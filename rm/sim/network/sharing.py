"""Weighted max-min fair rates with caps and strict priorities, by progressive filling.

All streams of one priority grow together, each in proportion to its weight, until a link is full or a
cap is reached; those who are held there stay, the others grow on (Bertsekas and Gallager, Data
Networks, Sec. 6.5.2). What a priority leaves over is shared by the next one in the same way, so
that a stream never notices those of higher number.

Rates and capacities have one unit, whichever it is. A stream may load a link with a multiple of its
rate: several flows in step are one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any

EQUAL = 1e-12  # relative: links whose fair rates differ by less fill up together
FULL = 1e-9  # relative: what a priority leaves of a link below this is rounding and not capacity


class Link:
    """A capacity and the streams that use it, in the order of their arrival, each with its pull: its
    load here at fair rate 1, which is its weight times its load at rate 1.

    `tight` says that the caps of its streams together exceed the capacity; only such links limit
    anybody, the others are not looked at.
    """

    __slots__ = ("capacity", "open", "pull", "room", "streams", "tight", "whole")

    def __init__(self, capacity: float, tight: bool = True) -> None:
        self.capacity = capacity
        self.tight = tight
        self.streams: dict[Any, float] = {}  # of Stream, or of what a network derives from it
        self.room = capacity  # the rest are notes of one call of `fill`
        self.pull = self.whole = 0.0
        self.open = 0


class Stream:
    """Something with one rate: a flow, a subflow, or all flows of a collective in step.

    `path` pairs each link with its load at rate 1; it names a link once. `cap` is finite: the
    path's own limit where the sender has none. `fill` finds `share`, the rate, and `level`, the rate
    per weight, and the link `at` which the stream is held back, None for one that has its cap.
    """

    __slots__ = ("at", "cap", "ceiling", "held", "level", "path", "priority", "share", "weight")

    def __init__(
        self, path: tuple[tuple[Link, float], ...], cap: float, priority: int = 0, weight: float = 1.0
    ) -> None:
        self.path = path
        self.cap = cap
        self.ceiling = cap / weight
        self.priority = priority
        self.weight = weight
        self.held = False
        self.share = self.level = 0.0
        self.at: Any = None

    def unlimited(self) -> None:
        """No link holds it back."""
        self.held = True
        self.share, self.level, self.at = self.cap, self.ceiling, None


_by_ceiling = attrgetter("ceiling")
_by_priority = attrgetter("priority")


def fill(streams: Sequence[Stream], links: Sequence[Link], others: bool = False) -> None:
    """Find the rate of each stream.

    `links` are the tight links of these streams. There may be `others` on them: these have `held`
    set, as each call leaves it, and keep their rates. Time: rounds x links + the sum of the paths'
    lengths, with at most one round for each distinct fair rate and each distinct cap.
    """
    if not streams:
        return
    first = streams[0].priority
    mixed = False
    for stream in streams:
        stream.held = False
        if stream.priority != first:
            mixed = True
    for link in links:
        if others:
            room, pull, growing = link.capacity, 0.0, 0
            for stream, its in link.streams.items():
                if stream.held:
                    room -= its * stream.level
                else:
                    pull += its
                    growing += 1
            link.room = room if room > 0.0 else 0.0
            link.pull = link.whole = pull
            link.open = growing
        else:
            link.room = link.capacity
            link.pull = link.whole = sum(link.streams.values())
            link.open = len(link.streams)
    if not mixed:
        _fill_class(sorted(streams, key=_by_ceiling), [link for link in links if link.open], last=True)
        return
    for priority, same in groupby(sorted(streams, key=_by_priority), _by_priority):
        used = []
        for link in links:
            if link.room < FULL * link.capacity:
                link.room = 0.0
            pulls = [its for s, its in link.streams.items() if not s.held and s.priority == priority]
            link.pull = link.whole = sum(pulls)
            link.open = len(pulls)
            if pulls:
                used.append(link)
        _fill_class(sorted(same, key=_by_ceiling), used, last=False)


def _fill_class(streams: list[Stream], links: Sequence[Link], last: bool) -> None:
    """Share the links' `room` among streams of one priority, ordered by ceiling; of the `last` one
    nobody asks what it leaves over."""
    priority = streams[0].priority
    first, growing = 0, len(streams)
    while True:
        level = min([link.room / link.pull for link in links], default=inf)  # the next link is full here
        held = []
        while first < len(streams):
            stream = streams[first]
            if not stream.held:
                if stream.ceiling > level:
                    break
                stream.unlimited()
                held.append(stream)
            first += 1
        if not held:
            bound = level * (1 + EQUAL)
            for link in links:
                if link.room <= bound * link.pull:
                    for stream in link.streams:
                        if not stream.held and stream.priority == priority:
                            stream.held = True
                            stream.share = level * stream.weight
                            stream.level = level
                            stream.at = link
                            held.append(stream)
        growing -= len(held)
        if last and not growing:
            return
        for stream in held:
            rate, weight = stream.share, stream.weight
            for link, load in stream.path:
                if link.tight:
                    link.open -= 1
                    link.room -= rate * load
                    link.pull -= weight * load
        if not growing:
            return
        links = [link for link in links if link.open]
        for link in links:
            if link.room < 0.0:
                link.room = 0.0
            if link.pull < 1e-6 * link.whole:  # mostly rounding: count again
                growing_here = (p for s, p in link.streams.items() if not s.held and s.priority == priority)
                link.pull = link.whole = sum(growing_here)


@dataclass(frozen=True, slots=True)
class Demand:
    """One flow as `max_min` sees it: links by index, and what it may take of them."""

    links: tuple[int, ...]
    cap: float = inf
    priority: int = 0
    weight: float = 1.0


def max_min(capacity: Sequence[float], demands: Sequence[Demand]) -> list[float]:
    """The rates of flows over links with these capacities, in the order of the demands.

    A flow without links has its cap.
    """
    links = [Link(c) for c in capacity]
    streams = []
    for demand in demands:
        cap = min((capacity[link] for link in demand.links), default=inf)
        path = tuple((links[link], 1.0) for link in demand.links)
        stream = Stream(path, min(cap, demand.cap), demand.priority, demand.weight)
        streams.append(stream)
        for link, load in path:
            link.streams[stream] = load * stream.weight
    fill(streams, links)
    return [stream.share for stream in streams]
