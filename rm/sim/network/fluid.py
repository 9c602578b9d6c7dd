"""A network of fluid flows: rates are max-min fair, and change only when a flow begins or ends.

What begins or ends on a link can only change the rates of streams that are connected to it over
tight links (links on which somebody may be held back); only these are computed anew, once for all
that happened at one time. Nothing is stepped: a stream's end is known from its rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from heapq import heapify, heappop, heappush
from math import fsum, inf

from rm.errors import UsageError
from rm.sim.network.fabric import Topology
from rm.sim.network.plan import PER_US, Plan, Wire, pair, plan
from rm.sim.network.port import Flow, LinkUsage, Transfer
from rm.sim.network.rates import Rates
from rm.sim.network.running import Current, Running
from rm.sim.network.unfairness import FAIR, Unfairness, Weights

SAME_TIME = 1e-12  # relative: ends closer than this fall together, their difference is rounding
SAME_RATE = 1e-12  # relative: a rate that changes by less has not changed
REMEMBERED = 8_192  # plans kept for the next iteration of their jobs


class Fluid:
    """The flows of `Transfer.flows` over a topology.

    With `lockstep` all flows of a transfer (of one priority and weight) progress in proportion to
    their sizes and end together, as the steps of a ring do that wait for one another; otherwise
    each flow takes what it can get and the last one ends the transfer.

    Sharing is fair, unless `unfair` says by how much of its weight a transfer counts that begins beside
    others, and what a link loses of its capacity while several jobs send over it at one priority;
    `python -m bench fidelity` measures that. A link between leaf and spine loses `shared_loss` besides:
    CASSINI's Fig. 2(b) has 2 x 22 of 50 Gbit/s.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        lockstep: bool = False,
        unfair: Unfairness = FAIR,
        shared_loss: float = 0.0,
    ) -> None:
        if not 0 <= shared_loss < 1:
            raise UsageError(f"A shared link loses {shared_loss:g} of itself.", "Use 0, up to less than 1.")
        self.topology = topology
        self.lockstep = lockstep
        self._weights = Weights(unfair, topology.seed) if unfair != FAIR else None
        self._weighed: dict[tuple[Plan, float], Plan] = {}
        self._wires = [
            Wire(n, c * PER_US) for n, c in zip(topology.names, topology.capacity_bps, strict=True)
        ]
        self._lossy: dict[Wire, float] = {}  # those that lose by being shared: what they carry then
        for wire in self._wires:
            kept = (1 - unfair.loss) * (1 - shared_loss if "->" in wire.name else 1)
            if kept < 1:
                self._lossy[wire] = wire.full * kept
        if lockstep:
            for out, into in topology.pairs:
                pair(self._wires[out], self._wires[into])
        self._now = 0.0
        self._running: dict[int, Running] = {}
        self._ended: list[int] = []  # not reported yet
        self._heap: list[tuple[float, int, Current]] = []  # ends; an entry that is not its end is void
        self._live = 0
        self._number = 0
        self._new: list[Current] = []  # on their wires since the rates were computed
        self._touched: list[Wire] = []  # tight wires whose streams have changed since
        self._plans: dict[tuple[int, int, float | None], tuple[tuple[Flow, ...], tuple[Plan, ...]]] = {}
        self._remember = topology.fabric is None or topology.ecmp == "connection"
        self._rates = Rates(remember=lockstep and self._remember)

    def begin(self, transfer: Transfer, now_us: float) -> None:
        """Raises UsageError for flows that the topology cannot carry."""
        if transfer.id in self._running:
            raise ValueError(f"transfer {transfer.id} has begun already")
        plans = self._plans_of(transfer)
        self._run_to(now_us)
        weight = 1.0
        if self._weights is not None:
            weight = self._weights.of(transfer.job, self._now, self._begun_on(plans))
            plans = self._at_weight(plans, weight)
        running = self._running[transfer.id] = Running(transfer, plans, now_us, weight)
        for index, one in enumerate(plans):
            self._number += 1
            current = Current(one, running, self._number, now_us)
            running.currents[current] = index
            self._attach(current)

    def next_us(self) -> float | None:
        if self._ended:
            return self._now
        return self._next()

    def advance(self, now_us: float) -> list[int]:
        self._run_to(now_us)
        ended, self._ended = self._ended, []
        return ended

    def left_bytes(self, transfer: int, now_us: float) -> float:
        """`size_bytes` (or what its flows carry, where that is 0) times its share of bits to come."""
        running = self._at(transfer, now_us)
        if running is None:
            return 0.0
        self._resolve()
        left = 0.0
        for current in running.currents:
            there = current.left - current.rate * (now_us - current.since)
            if there > 0.0:
                left += there / current.plan.size * current.plan.bits
        if not running.transfer.size_bytes:
            return left / 8
        total = fsum(plan.bits for plan in running.plans)
        return running.transfer.size_bytes * left / total if total else 0.0

    def suspend(self, transfer: int, now_us: float) -> None:
        running = self._at(transfer, now_us)
        if running is not None and not running.suspended:
            running.suspended = True
            for current in running.currents:
                self._detach(current)

    def resume(self, transfer: int, now_us: float) -> None:
        running = self._at(transfer, now_us)
        if running is not None and running.suspended:
            running.suspended = False
            for current in running.currents:
                self._attach(current)

    def recap(self, transfer: int, cap_bps: float, now_us: float) -> None:
        """Raises UsageError for a cap that makes no sense."""
        running = self._at(transfer, now_us)
        if running is None:
            return
        plans = self._at_weight(self._plans_of(running.transfer, cap_bps), running.weight)
        for current, index in running.currents.items():
            if not running.suspended:
                self._detach(current)
            current.follow(plans[index])
            if not running.suspended:
                self._attach(current)

    def usage(self) -> Mapping[str, LinkUsage]:
        """Busy is a link that somebody wants to send over, also while all its streams are starved."""
        self._resolve()
        return {wire.name: self._seen(wire) for wire in self._wires}

    def _seen(self, wire: Wire) -> LinkUsage:
        wire.watch(self._now)
        carried = wire.carried
        for current in wire.streams:
            left = max(0.0, current.left - current.rate * (self._now - current.since))
            carried += (current.told - left) * dict(current.wires)[wire]
        return LinkUsage(carried, wire.busy_us, wire.overloaded_us, wire.excess)

    def _wire(self, job: int, index: int) -> Wire:
        """The link of the topology as this job sees it: here the one that all share."""
        return self._wires[index]

    def _plans_of(self, transfer: Transfer, cap_bps: float | None = None) -> tuple[Plan, ...]:
        """Jobs repeat themselves: the same flows (the same object) of a job are planned once."""
        key = (transfer.job, id(transfer.flows), cap_bps)
        known = self._plans.get(key)
        if known is not None and known[0] is transfer.flows:
            return known[1]
        job = transfer.job
        subflows = self.topology.subflows(transfer)
        plans = plan(subflows, lambda i: self._wire(job, i), self.lockstep, cap_bps)
        if self._remember:
            if len(self._plans) >= REMEMBERED:
                self._plans.clear()
            self._plans[key] = transfer.flows, plans
        return plans

    def _begun_on(self, plans: tuple[Plan, ...]) -> Iterator[float]:
        """When those began that are under way on these wires."""
        wires = (wire for one in plans for wire, _ in one.wires)
        return (current.of.begun for wire in wires for current in wire.streams)

    def _at_weight(self, plans: tuple[Plan, ...], weight: float) -> tuple[Plan, ...]:
        """The plans with that much of their weight: the same each time, as rates are remembered by plans."""
        if weight == 1:
            return plans
        known = self._weighed
        if len(known) >= REMEMBERED:
            known.clear()
        for one in plans:
            if (one, weight) not in known:
                lighter = known[one, weight] = copy(one)
                lighter.weight *= weight
        return tuple(known[one, weight] for one in plans)

    def _at(self, transfer: int, now_us: float) -> Running | None:
        """The transfer at this time; None if it has ended by then and was not reported."""
        self._run_to(now_us)
        running = self._running.get(transfer)
        if running is None and transfer not in self._ended:
            raise ValueError(f"no transfer {transfer} is under way")
        return running

    def _run_to(self, now: float) -> None:
        """Let all end that ends by now, each at its own time."""
        if now < self._now:
            raise ValueError(f"time goes back from {self._now} to {now} us")
        last = now * (1 + SAME_TIME)
        while True:
            end = self._next()
            if end is None or end > last:
                break
            self._now = min(end, now)
            together = end * (1 + SAME_TIME)
            ended = []
            heap = self._heap
            while heap and heap[0][0] <= together:
                end, _, current = heappop(heap)
                if current.end != end:
                    continue
                current.left = current.rate = 0.0
                self._detach(current)
                of = current.of
                del of.currents[current]
                if not of.currents:
                    del self._running[of.transfer.id]
                    ended.append(of.transfer.id)
            self._ended += sorted(ended)
        self._now = now

    def _next(self) -> float | None:
        """The next end of a stream."""
        if self._new or self._touched:
            self._resolve()
        heap = self._heap
        while heap:
            end, _, current = heap[0]
            if current.end == end:
                return end
            heappop(heap)
        return None

    def _attach(self, current: Current) -> None:
        """Put a stream on its wires; its rate is found when it is needed."""
        now = current.since = self._now
        cap, asked, weight = current.cap, current.asked, current.weight
        touched = self._touched
        for wire in current.plan.uneven:
            wire.uneven += 1
            if wire.caps > wire.bound and not wire.tight:
                wire.tight = True
                touched.append(wire)
        for wire, load in current.wires:
            wire.watch(now)
            wire.streams[current] = weight * load
            wire.asked += asked * load
            wire.caps += cap * load
            if wire in self._lossy:
                self._crowd(wire)
            if wire.tight:
                touched.append(wire)
            elif wire.caps > wire.bound and (wire.uneven or not wire.spare):
                wire.tight = True
                touched.append(wire)
        self._new.append(current)
        self._live += 1

    def _crowd(self, wire: Wire) -> None:
        """The link's capacity, with one job or several in one of its queues."""
        jobs = {(current.priority, current.of.transfer.job) for current in wire.streams}
        several = len(jobs) > len({priority for priority, _ in jobs})
        wire.set_capacity(self._lossy[wire] if several else wire.full)

    def _detach(self, current: Current) -> None:
        """Take a stream off its wires, with what it has carried."""
        now = self._now
        if current.rate:
            current.left = max(0.0, current.left - current.rate * (now - current.since))
        current.rate = 0.0
        current.since = now
        current.end = inf
        carried = current.told - current.left
        current.told = current.left
        cap, asked = current.cap, current.asked
        for wire, load in current.wires:
            wire.watch(now)
            wire.carried += carried * load
            del wire.streams[current]
            if wire.streams:
                wire.asked -= asked * load
                wire.caps -= cap * load
                if wire in self._lossy:
                    self._crowd(wire)
                if wire.tight:
                    wire.tight = wire.caps > wire.bound
                    self._touched.append(wire)
            else:
                wire.asked = wire.caps = 0.0
                wire.tight = False
        for wire in current.plan.uneven:
            wire.uneven -= 1
            if not wire.uneven:
                wire.tight = False
        self._live -= 1

    def _resolve(self) -> None:
        """Find the rates of all streams that the latest changes concern."""
        if not (self._new or self._touched):
            return
        streams = self._rates.find(self._new, self._touched, self._live)
        self._new, self._touched = [], []
        self._schedule(streams)

    def _schedule(self, streams: list[Current]) -> None:
        """Let the streams go on at the rates found; whose rate is the same keeps its end to the bit."""
        now, heap = self._now, self._heap
        for current in streams:
            rate, before = current.share, current.rate
            if before:
                if abs(rate - before) <= SAME_RATE * before:
                    continue
                current.left = max(0.0, current.left - before * (now - current.since))
            current.since = now
            current.rate = rate
            if rate > 0.0:
                current.end = now + current.left / rate
                heappush(heap, (current.end, current.number, current))
            else:
                current.end = inf
        if len(heap) > 64 + 4 * self._live:
            heap[:] = [entry for entry in heap if entry[2].end == entry[0]]
            heapify(heap)
