"""The contention model of Ada-SRSF: an all-reduce of M bytes takes a + k b M + (k-1) eta M.

k of a transfer is the largest number of transfers on any of its own hosts (Ada-SRSF, eq. 5: b is
the time per byte, eta what sharing costs beyond it). Whenever a transfer begins or ends, k is
counted anew, and the bytes that are left drain at 1 / (k b + (k-1) eta). The latency a is spent
first, for any k: nothing drains in the first a of a transfer, which counts as contention for
the others from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import inf

from rm.errors import UsageError
from rm.sim.network.port import LinkUsage, Transfer

SAME_TIME = 1e-12  # relative: ends closer than this fall together, their difference is rounding


class Port:
    """One host: who sends over it, and what it has seen. `count` is how many `sending` are."""

    __slots__ = (
        "busy_from", "busy_us", "carried", "count", "excess_us", "name", "overloaded_us", "sending", "since",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.sending: dict[Sending, None] = {}
        self.count = 0
        self.carried = 0.0
        self.busy_from = 0.0  # while somebody sends
        self.since = 0.0  # the last change while several send
        self.busy_us = self.overloaded_us = self.excess_us = 0.0

    def watch(self, now_us: float) -> None:
        """Count the time that several sent, before their number changes."""
        above = self.count - 1
        if above:
            passed = now_us - self.since
            self.overloaded_us += passed
            self.excess_us += passed * above
        self.since = now_us


class Sending:
    """A transfer under way: `left` bytes at time `since`, which lies ahead during the latency."""

    __slots__ = ("end", "id", "k", "left", "paused_us", "ports", "since", "size", "us_per_byte")

    def __init__(self, transfer: Transfer, ports: tuple[Port, ...], since: float) -> None:
        self.id = transfer.id
        self.size = self.left = transfer.size_bytes
        self.ports = ports
        self.since = since
        self.k = 0
        self.us_per_byte = 0.0
        self.end = inf
        self.paused_us: float | None = None  # latency still to be spent when suspended


class Penalty:
    """Transfers as numbers of bytes between hosts; `Transfer.flows` are not looked at.

    A transfer on one host ends at once: its hosts need no network. The capacity of a host is 1/b,
    and each transfer demands all of it.

    A variant that treats transfers in its own way derives from this class and changes `left` of what
    `_at` gives; `_drain` then finds the new end.

    Args:
        a_us: latency of an all-reduce.
        b_us_per_byte: time per byte without contention.
        eta_us_per_byte: what each further transfer costs each byte in addition.
    """

    def __init__(self, a_us: float, b_us_per_byte: float, eta_us_per_byte: float) -> None:
        if not (a_us >= 0 and b_us_per_byte > 0 and eta_us_per_byte >= 0):
            raise UsageError(
                f"a = {a_us:g} us, b = {b_us_per_byte:g} and eta = {eta_us_per_byte:g} us/byte do not "
                "describe a network.",
                "b is above 0, a and eta not below.",
            )
        self.a_us, self.b_us_per_byte, self.eta_us_per_byte = a_us, b_us_per_byte, eta_us_per_byte
        self._us_per_byte = [0.0]  # by k, as far as it was needed
        self._now = 0.0
        self._ports: dict[str, Port] = {}
        self._known: dict[tuple[str, ...], tuple[Port, ...]] = {}
        self._sending: dict[int, Sending] = {}
        self._ended: list[int] = []  # not reported yet
        self._heap: list[tuple[float, int, Sending]] = []  # ends; an entry that is not its end is void

    def begin(self, transfer: Transfer, now_us: float) -> None:
        if transfer.id in self._sending:
            raise ValueError(f"transfer {transfer.id} has begun already")
        if now_us != self._now:
            self._run_to(now_us)
        ports = self._known.get(transfer.hosts)
        if ports is None:
            ports = self._ports_of(transfer.hosts)
        if len(ports) < 2:
            sending = Sending(transfer, (), now_us)
            sending.left = 0.0
        else:
            sending = Sending(transfer, ports, now_us + self.a_us)
        self._sending[transfer.id] = sending
        self._attach(sending)

    def next_us(self) -> float | None:
        if self._ended:
            return self._now
        heap = self._heap
        while heap:
            end, _, sending = heap[0]
            if sending.end == end:
                return end
            heappop(heap)
        return None

    def advance(self, now_us: float) -> list[int]:
        self._run_to(now_us)
        ended, self._ended = self._ended, []
        return ended

    def left_bytes(self, transfer: int, now_us: float) -> float:
        sending = self._at(transfer, now_us)
        if sending is None:
            return 0.0
        drained = 0.0
        if sending.paused_us is None and now_us > sending.since:
            drained = (now_us - sending.since) / sending.us_per_byte
        return max(0.0, sending.left - drained)

    def suspend(self, transfer: int, now_us: float) -> None:
        sending = self._at(transfer, now_us)
        if sending is not None and sending.paused_us is None:
            self._drain(sending, now_us, sending.k)
            self._detach(sending)
            sending.paused_us = max(0.0, sending.since - now_us)
            sending.end = inf

    def resume(self, transfer: int, now_us: float) -> None:
        sending = self._at(transfer, now_us)
        if sending is not None and sending.paused_us is not None:
            sending.since = now_us + sending.paused_us
            sending.paused_us = None
            self._attach(sending)

    def recap(self, transfer: int, cap_bps: float, now_us: float) -> None:
        """Raises UsageError: the model knows no rates but its own."""
        raise UsageError(
            "The contention penalty model cannot limit the rate of a transfer.",
            "Use the fluid network for shaped traffic.",
        )

    def usage(self) -> Mapping[str, LinkUsage]:
        """By host. Above the capacity is the demand of all transfers but one."""
        capacity = 8 / self.b_us_per_byte
        carried = dict.fromkeys(self._ports, 0.0)
        for sending in self._sending.values():
            for port in sending.ports:
                carried[port.name] += sending.size - self.left_bytes(sending.id, self._now)
        found = {}
        for name, port in self._ports.items():
            busy_us = port.busy_us
            if port.count:
                port.watch(self._now)
                busy_us += self._now - port.busy_from
            bits = 8 * (port.carried + carried[name])
            found[name] = LinkUsage(bits, busy_us, port.overloaded_us, port.excess_us * capacity)
        return found

    def _ports_of(self, hosts: tuple[str, ...]) -> tuple[Port, ...]:
        """The ports of distinct hosts, remembered."""
        ports = tuple(self._ports.setdefault(host, Port(host)) for host in dict.fromkeys(hosts))
        self._known[hosts] = ports
        return ports

    def _at(self, transfer: int, now_us: float) -> Sending | None:
        """The transfer at this time; None if it has ended by then and was not reported."""
        if now_us != self._now:
            self._run_to(now_us)
        sending = self._sending.get(transfer)
        if sending is None and transfer not in self._ended:
            raise ValueError(f"no transfer {transfer} is under way")
        return sending

    def _run_to(self, now: float) -> None:
        """Let all end that ends by now, each at its own time."""
        if now < self._now:
            raise ValueError(f"time goes back from {self._now} to {now} us")
        heap = self._heap
        last = now * (1 + SAME_TIME)
        while heap and heap[0][0] <= last:
            end, number, sending = heappop(heap)
            if sending.end != end:
                continue
            if end > self._now:
                self._now = end if end < now else now
            sending.left = 0.0
            sending.end = inf
            del self._sending[number]
            for port in sending.ports:
                port.carried += sending.size
            self._detach(sending)
            self._ended.append(number)
        self._now = now

    def _attach(self, sending: Sending) -> None:
        """Count it on its hosts, and all others there anew."""
        now = self._now
        k = 1
        for port in sending.ports:
            here = port.sending
            if not here:
                port.busy_from = now
                port.count = 1
            else:
                port.watch(now)
                count = port.count = port.count + 1
                if count > k:
                    k = count
                for other in here:
                    if other.k < count:
                        self._drain(other, now, count)
            here[sending] = None
        self._drain(sending, now, k)
        heap = self._heap
        if len(heap) > 64 + 4 * len(self._sending):
            heap[:] = [entry for entry in heap if entry[2].end == entry[0]]
            heapify(heap)

    def _detach(self, sending: Sending) -> None:
        """Take it off its hosts; who met the most transfers there may meet fewer now."""
        now = self._now
        fewer = []
        for port in sending.ports:
            here = port.sending
            del here[sending]
            count = port.count
            if count == 1:
                port.busy_us += now - port.busy_from
            else:
                port.watch(now)
                for other in here:
                    if other.k == count:
                        fewer.append(other)
            port.count = count - 1
        for other in fewer:
            k = max([port.count for port in other.ports])
            if k != other.k:
                self._drain(other, now, k)

    def _drain(self, sending: Sending, now: float, k: int) -> None:
        """Bring `left` up to now, and let the rest drain under k-way contention."""
        passed = now - sending.since
        if passed > 0.0:
            sending.since = now
            left = sending.left - passed / sending.us_per_byte
            sending.left = left if left > 0.0 else 0.0
        sending.k = k
        pace = self._us_per_byte
        if k >= len(pace):
            pace.extend(self._pace(ways) for ways in range(len(pace), k + 1))
        sending.us_per_byte = pace[k]
        sending.end = end = sending.since + sending.left * pace[k]
        heappush(self._heap, (end, sending.id, sending))

    def _pace(self, k: int) -> float:
        return k * self.b_us_per_byte + (k - 1) * self.eta_us_per_byte
