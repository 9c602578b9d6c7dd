"""What the simulated world asks of a network, and what it hands over.

Times are float microseconds of the world's virtual clock and never decrease from call to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol

from rm.core.model.quickly_made import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of one connection.

    The sender never exceeds `cap_bps` (a phase of partial bandwidth, a throttle). `priority` is
    strict, the lowest number is served first; inside a priority rates are max-min fair by `weight`.
    `route` pins subflows to spines: ((spine, share of the flow), ...) with shares that add up to 1;
    without it ECMP chooses.
    """

    source: str
    destination: str
    size_bits: float
    cap_bps: float = inf
    priority: int = 0
    weight: float = 1.0
    route: tuple[tuple[int, float], ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class Transfer:
    """One communication phase of a job: it ends when all its flows have ended.

    `id` is unique among the transfers of one run. `size_bytes` is the message as the job sees it
    (the M of an all-reduce); the penalty model takes its time from it and from `hosts`, the
    others take theirs from `flows`.
    """

    id: int
    job: int
    hosts: tuple[str, ...]
    flows: tuple[Flow, ...] = ()
    size_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkUsage:
    """What one link (one direction of it, where the topology is full duplex) has seen so far.

    A transfer demands of a link what it would send there by itself; while the demands of all
    transfers exceed the capacity the link is overloaded, and `excess_bits` is the demand above
    the capacity integrated over time: a congestion count that stands for ECN marks.
    """

    carried_bits: float
    busy_us: float
    overloaded_us: float
    excess_bits: float


class Network(Protocol):
    """A network that carries transfers. All orders are deterministic."""

    def begin(self, transfer: Transfer, now_us: float) -> None:
        """Start a transfer. It ends at an `advance`, never inside this call, however small it is."""
        ...

    def next_us(self) -> float | None:
        """When to call `advance` next: a transfer ends or rates change. None: nothing will happen."""
        ...

    def advance(self, now_us: float) -> list[int]:
        """The transfers that have ended by now and were not reported before, by end and then by id."""
        ...

    def left_bytes(self, transfer: int, now_us: float) -> float:
        """How much of a running transfer's `size_bytes` is still to be carried; it changes nothing."""
        ...

    def suspend(self, transfer: int, now_us: float) -> None:
        """Stop its senders; what was carried stays carried. A second time changes nothing."""
        ...

    def resume(self, transfer: int, now_us: float) -> None:
        """Let a suspended transfer go on."""
        ...

    def recap(self, transfer: int, cap_bps: float, now_us: float) -> None:
        """Change the cap of each of its flows, from now on."""
        ...

    def usage(self) -> Mapping[str, LinkUsage]:
        """Each link's use up to the latest time seen, by the link's name."""
        ...
