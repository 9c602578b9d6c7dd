"""From a transfer to streams on wires: what each of its flows would take, and of which links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf

from rm.errors import UsageError
from rm.sim.network.fabric import Path
from rm.sim.network.port import Flow
from rm.sim.network.sharing import Link, Stream, fill

ROUNDING = 1e-9  # relative: demand above a capacity by less is rounding and no overload
PER_US = 1e-6  # bit/s to bit/us: rates are kept in bit per microsecond


class Wire(Link):
    """A link with what it has seen.

    `caps` and `asked` sum what its streams would take of it: each stream up to its cap, and each
    transfer by itself. Sizes are bits, times microseconds.
    """

    __slots__ = ("asked", "busy_us", "caps", "carried", "excess", "mark", "name", "overloaded_us", "since")

    def __init__(self, name: str, capacity: float) -> None:
        super().__init__(capacity, tight=False)
        self.name = name
        self.mark = 0
        self.caps = self.asked = 0.0
        self.since = 0.0
        self.carried = self.excess = 0.0
        self.busy_us = self.overloaded_us = 0.0

    def watch(self, now_us: float) -> None:
        """Count the time since the last change, before the next one."""
        passed = now_us - self.since
        if passed > 0.0:
            self.since = now_us
            if self.streams:
                self.busy_us += passed
                above = self.asked - self.capacity
                if above > ROUNDING * self.capacity:
                    self.overloaded_us += passed
                    self.excess += above * passed


@dataclass(slots=True)
class Plan:
    """A stream before it is under way.

    `size` is in bits at load 1, `bits` those of all its flows, `cap` and `asked` (its rate were its
    transfer alone) in bit/us; `limit` is what the path would bear. A cap for whole flows is `ratio`
    times that here.
    """

    wires: tuple[tuple[Wire, float], ...]
    size: float
    bits: float
    cap: float
    priority: int = 0
    weight: float = 1.0
    ratio: float = 1.0
    limit: float = field(init=False)
    asked: float = field(init=False)

    def __post_init__(self) -> None:
        self.limit = min((wire.capacity / load for wire, load in self.wires), default=inf)
        self.asked = self.cap = min(self.cap, self.limit)


NOTHING = Plan((), 0.0, 0.0, 1.0)  # the stream of a transfer that has nothing to carry: it ends at once


def plan(
    subflows: Iterable[tuple[Flow, float, Path]], wire: Callable[[int], Wire], lockstep: bool
) -> tuple[Plan, ...]:
    """The streams of one transfer; with `lockstep` one for all flows of a priority and weight.

    Raises:
        UsageError: a weight or cap that makes no sense.
    """
    parts = [(f, share, path) for f, share, path in subflows if f.size_bits > 0 and share > 0]
    for flow, _, _ in parts:
        if not (flow.weight > 0 and flow.cap_bps >= 0):
            raise UsageError(
                f"A flow from {flow.source} to {flow.destination} has the weight {flow.weight:g} and the "
                f"cap {flow.cap_bps:g} bit/s.",
                "A weight is above 0, a cap not below.",
            )
    parts = [(f, share, path) for f, share, path in parts if path or f.cap_bps < inf]
    plans = list(_in_step(parts, wire) if lockstep else _apart(parts, wire)) or [NOTHING]
    _set_asked(plans)
    return tuple(plans)


def _apart(parts: list[tuple[Flow, float, Path]], wire: Callable[[int], Wire]) -> Iterable[Plan]:
    for flow, share, path in parts:
        wires = tuple((wire(index), 1.0) for index in path)
        size, cap = flow.size_bits * share, flow.cap_bps * PER_US * share
        yield Plan(wires, size, size, cap, flow.priority, flow.weight * share, share)


def _in_step(parts: list[tuple[Flow, float, Path]], wire: Callable[[int], Wire]) -> Iterable[Plan]:
    """The stream's rate is that of its largest flow; the others keep their proportion to it."""
    groups: dict[tuple[int, float], list[tuple[Flow, float, Path]]] = {}
    for part in parts:
        groups.setdefault((part[0].priority, part[0].weight), []).append(part)
    for (priority, weight), group in groups.items():
        size = max(flow.size_bits for flow, _, _ in group)
        bits = fsum(flow.size_bits * share for flow, share, _ in group)
        loads: dict[int, float] = {}
        for flow, share, path in group:
            for index in path:
                loads[index] = loads.get(index, 0.0) + share * flow.size_bits / size
        cap = min(flow.cap_bps * PER_US * size / flow.size_bits for flow, _, _ in group)
        wires = tuple((wire(index), load) for index, load in loads.items())
        yield Plan(wires, size, bits, cap, priority, weight)


def _set_asked(plans: Sequence[Plan]) -> None:
    """Find each stream's rate were the transfer alone; its cap, unless they limit one another."""
    links: dict[Wire, Link] = {}
    caps: dict[Wire, float] = {}
    for one in plans:
        for wire, load in one.wires:
            links.setdefault(wire, Link(wire.capacity))
            caps[wire] = caps.get(wire, 0.0) + one.cap * load
    if all(total <= wire.capacity * (1 + ROUNDING) for wire, total in caps.items()):
        return
    streams = []
    for one in plans:
        path = tuple((links[wire], load) for wire, load in one.wires)
        streams.append(Stream(path, one.cap, one.priority, one.weight))
        for link, load in path:
            link.streams[streams[-1]] = load * one.weight
    fill(streams, list(links.values()))
    for one, stream in zip(plans, streams, strict=True):
        one.asked = stream.share
