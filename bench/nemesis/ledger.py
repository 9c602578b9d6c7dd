"""What the clients were told: plain data, from which the oracle judges."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class Order:
    """One acknowledged job, or an `element` of an acknowledged array. Times are seconds since the epoch;
    0 = it never happened. `ends` is the exit code that its tasks give. `after`: the condition of its
    dependency, and the refs of the jobs that it waits for."""

    id: int
    name: str
    ranks: int
    ends: int
    acked: float
    held: bool = False
    release_sent: float = 0.0  # before it nothing may start
    cancel_sent: float = 0.0
    cancel_acked: float = 0.0
    requeues: list[float] = field(default_factory=list)  # when it was asked for
    element: int | None = None
    after: tuple[str, tuple[str, ...]] | None = None

    @property
    def ref(self) -> str:
        """As tasks call it in their notes."""
        return str(self.id) if self.element is None else f"{self.id}_{self.element}"

    @property
    def chosen(self) -> str:
        """Of the query of a request about it."""
        return "" if self.element is None else f"array_tasks={self.element}"


class Ledger:
    """Of all clients; every method from any thread."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}  # by ref
        self.again: list[str] = []  # refs that two submissions were given
        self.unanswered = 0  # submissions that nobody answered until the end
        self.acks: list[tuple[float, float, str]] = []  # (sent, acknowledged, by which socket)
        self._door = threading.Lock()

    def add(self, orders: list[Order], sent: float, socket: str) -> None:
        with self._door:
            for order in orders:
                if order.ref in self.orders:
                    self.again.append(order.ref)
                self.orders[order.ref] = order
            if orders:
                self.acks.append((sent, orders[0].acked, socket))
