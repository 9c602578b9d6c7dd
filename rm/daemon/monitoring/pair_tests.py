"""The tests of one pair of hosts, both ways."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from rm.core.model.host import Host
from rm.core.model.network import LinkStats
from rm.core.monitoring.history import Sample, checks_of, complaint
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.metrics import checks_of_test
from rm.core.monitoring.pairing import Pair
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.monitoring.board import Tried
from rm.daemon.monitoring.bookings import Bookings
from rm.daemon.monitoring.probe import Prober, Way, Window
from rm.errors import RmError

log = logging.getLogger(__name__)

ON_DEMAND = "on-demand"
SHARED = ("latency",)  # tests that fill no link


class Gaps(Protocol):
    """When a test between two hosts disturbs no job."""

    def busy(self, a: str, b: str) -> bool:
        """Do jobs communicate over the links of these hosts?"""
        ...

    def next(self, a: str, b: str, duration_us: int) -> Sequence[Window]:
        """The next gaps, (begin by the leader's clock, length), up to so much together; empty: none."""
        ...


@dataclass(slots=True)
class Seen:
    """What the leader knew when a round began."""

    known: dict[tuple[str, str], LinkStats] = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """What came of one pair: both directions, and the tests for which there was no gap."""

    tried: list[Tried] = field(default_factory=list)
    ok: bool = False
    skipped: int = 0


class PairTests:
    """Any thread may test a pair, and then waits, also until its hosts are free for it."""

    def __init__(
        self, prober: Callable[[], Prober], clock: Clock, gaps: Gaps, throughput_interval_s: float
    ) -> None:
        self._prober = prober
        self._clock = clock
        self._gaps = gaps
        self._throughput_us = throughput_interval_s * 1e6
        self._bookings = Bookings()

    def both_ways(self, mesh: Mesh, pair: Pair, seen: Seen) -> Result:
        """All tests of one pair, both ways; what failed is reported as a failure, not by silence."""
        a, b = pair
        found = (Way(), Way())
        failed: list[str] = []
        checks: list[str] = []
        skipped = 0
        with self._bookings.both(a.name, b.name, shared=mesh.tests == SHARED):
            at_us = self._clock.now_us()
            for test in mesh.tests:
                try:
                    done = self._test(test, mesh, a, b, found, seen)
                except (RmError, TimeoutError) as error:
                    failed.append(f"{test}: {error or 'no answer in time'}")
                    log.warning("cannot measure %s to %s: %s", a.name, b.name, failed[-1])
                    done = True
                if done:
                    checks += checks_of_test(test)
                else:
                    skipped += 1
        if not checks:  # nothing was tried
            return Result(ok=True, skipped=skipped)
        said = "; ".join(failed)
        tried = []
        for source, destination, way in ((a, b, found[0]), (b, a, found[1])):
            sample = Sample(source.name, destination.name, at_us, mesh.name, way.values, said)
            if set(checks_of(sample)) != set(checks):
                sample = replace(sample, checks=tuple(checks))
            if absurd := complaint(sample, self._clock.now_us()):
                log.warning("%s It is left out.", absurd)
                failed.append(absurd)
                sample = replace(sample, values={}, failed=absurd, checks=tuple(checks))
            tried.append(Tried(source, destination, sample, way.packets))
        return Result(tried, not failed, skipped)

    def _test(
        self,
        test: str,
        mesh: Mesh,
        a: Host,
        b: Host,
        found: tuple[Way, Way],
        seen: Seen,
    ) -> bool:
        """Make one test of the pair and put its values into `found`; False when it was left out."""
        if test == "latency":
            for way, told in zip(found, self._prober().latency(a, b, mesh), strict=True):
                way.values.update(told.values)
                way.packets = told.packets
        elif test == "mtu":
            found[0].values["mtu_bytes"] = self._prober().mtu(a, b)
            found[1].values["mtu_bytes"] = self._prober().mtu(b, a)
        elif mesh.name == ON_DEMAND and not self._throughput_due(seen.known.get((a.name, b.name))):
            return False
        else:
            spare = not mesh.disturb and self._gaps.busy(a.name, b.name)
            for way, source, sink in ((found[0], a, b), (found[1], b, a)):
                rate_bps = (
                    self._prober().throughput_in(partial(self._gaps.next, a.name, b.name), source, sink, mesh)
                    if spare
                    else self._prober().throughput(source, sink, mesh)
                )
                if rate_bps is None:
                    return False
                way.values["bandwidth_bps"] = rate_bps
        return True

    def _throughput_due(self, known: LinkStats | None) -> bool:
        if known is None or known.bandwidth_bps is None:
            return True
        at_us = known.bandwidth_at_us or known.measured_at_us
        return self._clock.now_us() - at_us >= self._throughput_us


def known_of(cycle: Cycle, pairs: Iterable[Pair]) -> Seen:
    known: Mapping[tuple[str, str], LinkStats] = cycle.state.network
    both = [key for a, b in pairs for key in ((a.name, b.name), (b.name, a.name))]
    return Seen({key: known[key] for key in both if key in known})
