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
    """A capacity and the streams that use it, in the order of their arrival.

    `tight` says that the caps of its streams together exceed the capacity; only such links limit
    anybody, the others are not looked at.
    """

    __slots__ = ("capacity", "open", "pull", "room", "streams", "tight", "whole")

    def __init__(self, capacity: float, tight: bool = True) -> None:
        self.capacity = capacity
        self.tight = tight
        self.streams: dict[Any, None] = {}  # of Stream, or of what a network derives from it
        self.room = capacity  # the rest are notes of one call of `fill`
        self.pull = self.whole = 0.0
        self.open = 0


class Stream:
    """Something with one rate: a flow, a subflow, or all flows of a collective in step.

    `path` pairs each link with its load at rate 1; it names a link once. `cap` is finite: the
    path's own limit where the sender has none. `share` is the rate that `fill` found.
    """

    __slots__ = ("cap", "ceiling", "held", "path", "priority", "share", "weight")

    def __init__(
        self, path: tuple[tuple[Link, float], ...], cap: float, priority: int = 0, weight: float = 1.0
    ) -> None:
        self.path = path
        self.priority = priority
        self.weight = weight
        self.held = False
        self.share = 0.0
        self.limit(cap)

    def limit(self, cap: float) -> None:
        self.cap = cap
        self.ceiling = cap / self.weight


_by_ceiling = attrgetter("ceiling")
_by_priority = attrgetter("priority")


def fill(streams: Sequence[Stream]) -> None:
    """Set the `share` of each stream; with a stream come all others on its tight links.

    Time: rounds x tight links + the sum of the paths' lengths, with at most one round for each
    distinct fair rate and each distinct cap.
    """
    if not streams:
        return
    first = streams[0].priority
    mixed = False
    for stream in streams:
        stream.held = False
        if stream.priority != first:
            mixed = True
        for link, _ in stream.path:
            link.room = link.capacity
    if not mixed:
        _fill_class(sorted(streams, key=_by_ceiling))
        return
    for _, same in groupby(sorted(streams, key=_by_priority), _by_priority):
        used = _fill_class(sorted(same, key=_by_ceiling))
        for link in used:
            if link.room < FULL * link.capacity:
                link.room = 0.0


def _fill_class(streams: list[Stream]) -> list[Link]:
    """Fill the links' `room` with streams of one priority, ordered by ceiling. Returns the tight links."""
    links: list[Link] = []
    for stream in streams:
        weight = stream.weight
        for link, load in stream.path:
            if link.tight:
                if link.open:
                    link.pull += weight * load
                else:
                    link.pull = weight * load
                    links.append(link)
                link.open += 1
    used = links
    for link in links:
        link.whole = link.pull
    priority = streams[0].priority
    first, count = 0, len(streams)
    while True:
        level = inf  # the rate per weight at which the next link is full
        for link in links:
            at = link.room / link.pull
            if at < level:
                level = at
        capped = False
        while first < count:
            stream = streams[first]
            if not stream.held:
                if stream.ceiling > level:
                    break
                _hold(stream, stream.cap)
                capped = True
            first += 1
        if first == count:
            return used
        if not capped:
            bound = level * (1 + EQUAL)
            for link in [link for link in links if link.room <= bound * link.pull]:
                for stream in link.streams:
                    if not stream.held and stream.priority == priority:
                        _hold(stream, level * stream.weight)
        links = [link for link in links if link.open]


def _hold(stream: Stream, rate: float) -> None:
    """The stream grows no further: take its rate from its links."""
    stream.held = True
    stream.share = rate
    weight = stream.weight
    for link, load in stream.path:
        if link.open:
            link.open -= 1
            room = link.room - rate * load
            link.room = room if room > 0.0 else 0.0
            link.pull -= weight * load
            if link.open and link.pull < 1e-6 * link.whole:  # mostly rounding: count again
                link.pull = link.whole = _pull(link, stream.priority)


def _pull(link: Link, priority: int) -> float:
    """The weights that still grow on a link, with their loads, counted from scratch."""
    pull = 0.0
    for stream in link.streams:
        if not stream.held and stream.priority == priority:
            pull += stream.weight * dict(stream.path)[link]
    return pull


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
        for link, _ in path:
            link.streams[stream] = None
    fill(streams)
    return [stream.share for stream in streams]
