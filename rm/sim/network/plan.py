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

    The two directions of a cable may be paired, one of them the `spare`: it is tight only while
    `uneven` counts streams that load the two differently. As long as all load both alike, what
    would hold somebody back on the one does so on the other, and one is enough to look at.
    """

    __slots__ = (
        "asked", "bound", "busy_us", "caps", "carried", "excess", "full", "mark", "name", "other",
        "overloaded_us", "since", "spare", "uneven",
    )  # fmt: skip

    def __init__(self, name: str, capacity: float) -> None:
        super().__init__(capacity, tight=False)
        self.name = name
        self.full = capacity  # for one transfer by itself
        self.set_capacity(capacity)
        self.other: Wire | None = None
        self.spare = False
        self.uneven = 0
        self.mark = 0
        self.caps = self.asked = 0.0
        self.since = 0.0
        self.carried = self.excess = 0.0
        self.busy_us = self.overloaded_us = 0.0

    def set_capacity(self, capacity: float) -> None:
        """For as long as the same streams are on it."""
        self.capacity = capacity
        self.bound = capacity * (1 + ROUNDING)

    def watch(self, now_us: float) -> None:
        """Count the time since the last change, before the next one."""
        passed = now_us - self.since
        if passed > 0.0:
            self.since = now_us
            if self.streams:
                self.busy_us += passed
                if self.asked > self.bound:
                    self.overloaded_us += passed
                    self.excess += (self.asked - self.capacity) * passed


def pair(wire: Wire, spare: Wire) -> None:
    """Two directions of one capacity that mostly carry the same: the spare is looked at when they do not."""
    wire.other, spare.other, spare.spare = spare, wire, True


@dataclass(slots=True, eq=False)
class Plan:
    """A stream before it is under way.

    `size` is in bits at load 1, `bits` those of all its flows, `cap` (never above what the path can
    bear) and `asked` (its rate were its transfer alone) in bit/us.
    """

    wires: tuple[tuple[Wire, float], ...]
    size: float
    bits: float
    cap: float
    priority: int = 0
    weight: float = 1.0
    asked: float = field(init=False)
    uneven: tuple[Wire, ...] = field(init=False)  # the spares that it loads otherwise than their others

    def __post_init__(self) -> None:
        self.cap = self.asked = min([self.cap, *(wire.full / load for wire, load in self.wires)])
        loads = dict(self.wires)
        pairs = {wire if wire.spare else wire.other: wire.other if wire.spare else wire for wire in loads}
        self.uneven = tuple(
            spare
            for spare, other in pairs.items()
            if spare is not None and other is not None and loads.get(spare) != loads.get(other)
        )


NOTHING = Plan((), 0.0, 0.0, 1.0)  # the stream of a transfer that has nothing to carry: it ends at once


def plan(
    subflows: Iterable[tuple[Flow, float, Path]],
    wire: Callable[[int], Wire],
    lockstep: bool,
    cap_bps: float | None = None,
) -> tuple[Plan, ...]:
    """The streams of one transfer; with `lockstep` one for all flows of a priority and weight.

    With `cap_bps` each flow has that cap, and the streams are otherwise the same in the same order.

    Raises:
        UsageError: a weight or cap that makes no sense.
    """
    parts = [(f, share, path) for f, share, path in subflows if f.size_bits > 0 and share > 0]
    parts = [(f, share, path) for f, share, path in parts if path or f.cap_bps < inf]
    capped = []
    for flow, share, path in parts:
        cap = flow.cap_bps if cap_bps is None else cap_bps
        if not (flow.weight > 0 and cap >= 0):
            raise UsageError(
                f"A flow from {flow.source} to {flow.destination} has the weight {flow.weight:g} and the "
                f"cap {cap:g} bit/s.",
                "A weight is above 0, a cap not below.",
            )
        capped.append(_Part(flow, cap * PER_US, share, path))
    plans = list(_in_step(capped, wire) if lockstep else _apart(capped, wire)) or [NOTHING]
    _set_asked(plans)
    return tuple(plans)


@dataclass(frozen=True, slots=True)
class _Part:
    """A subflow; `cap` is the whole flow's, in bit/us."""

    flow: Flow
    cap: float
    share: float
    path: Path


def _apart(parts: list[_Part], wire: Callable[[int], Wire]) -> Iterable[Plan]:
    for part in parts:
        flow, share = part.flow, part.share
        wires = tuple((wire(index), 1.0) for index in part.path)
        size = flow.size_bits * share
        yield Plan(wires, size, size, part.cap * share, flow.priority, flow.weight * share)


def _in_step(parts: list[_Part], wire: Callable[[int], Wire]) -> Iterable[Plan]:
    """The stream's rate is its largest flow's; the others keep their proportion to it."""
    groups: dict[tuple[int, float], list[_Part]] = {}
    for part in parts:
        groups.setdefault((part.flow.priority, part.flow.weight), []).append(part)
    for (priority, weight), group in groups.items():
        size = max(part.flow.size_bits for part in group)
        bits = fsum(part.flow.size_bits * part.share for part in group)
        loads: dict[int, float] = {}
        for part in group:
            for index in part.path:
                loads[index] = loads.get(index, 0.0) + part.share * part.flow.size_bits / size
        cap = min(part.cap * size / part.flow.size_bits for part in group)
        wires = tuple((wire(index), load) for index, load in loads.items())
        yield Plan(wires, size, bits, cap, priority, weight)


def _set_asked(plans: Sequence[Plan]) -> None:
    """Find each stream's rate were the transfer alone; its cap, unless they limit one another."""
    links: dict[Wire, Link] = {}
    caps: dict[Wire, float] = {}
    for one in plans:
        for wire, load in one.wires:
            links.setdefault(wire, Link(wire.full))
            caps[wire] = caps.get(wire, 0.0) + one.cap * load
    if all(total <= wire.full * (1 + ROUNDING) for wire, total in caps.items()):
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
