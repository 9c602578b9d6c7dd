"""The tests of one pair of hosts, both ways."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import msgspec

from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import LinkStats
from rm.core.monitoring.history import Sample, checks_of, complaint
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.metrics import SERVICES, checks_of_test
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.pairing import Pair
from rm.core.monitoring.path import said_of
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.monitoring.board import Tried
from rm.daemon.monitoring.bookings import NONE, Bookings, Crossing
from rm.daemon.monitoring.probe import Prober, Way, Window
from rm.errors import RmError

log = logging.getLogger(__name__)

ON_DEMAND = "on-demand"
SHARED = {"latency", "trace", "clock", *SERVICES}  # tests that fill no link
TRACE_TRIES = 3


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
    fabric: Fabric | None = None


@dataclass(slots=True)
class Result:
    """What came of one pair: both directions, and the tests for which there was no gap."""

    tried: list[Tried] = field(default_factory=list)
    ok: bool = False
    skipped: int = 0
    outcomes: list[Outcome] = field(default_factory=list)


class PairTests:
    """Any thread may test a pair, and then waits, also until its hosts are free for it."""

    def __init__(
        self,
        prober: Callable[[], Prober],
        clock: Clock,
        gaps: Gaps,
        throughput_interval_s: float,
        is_archived: Callable[[str], bool],
    ) -> None:
        self._prober = prober
        self._clock = clock
        self._gaps = gaps
        self._throughput_us = throughput_interval_s * 1e6
        self._is_archived = is_archived
        self._bookings = Bookings()

    def of(self, mesh: Mesh, pair: Pair, seen: Seen) -> Result:
        """All tests of one pair, both ways, or of a host by itself."""
        return self._alone(mesh, pair[0]) if mesh.is_of_services else self._both_ways(mesh, pair, seen)

    def _both_ways(self, mesh: Mesh, pair: Pair, seen: Seen) -> Result:
        """All tests of one pair, both ways; what failed is reported as a failure, not by silence."""
        a, b = pair
        found = (Way(), Way())
        failed: list[str] = []
        checks: list[str] = []
        outcomes: list[Outcome] = []
        skipped = 0
        shared = SHARED.issuperset(mesh.tests)
        with self._bookings.both(a.name, b.name, shared, self._crossing(mesh, a, b, seen)):
            at_us = self._clock.now_us()
            for test in mesh.tests:
                begun_us, why = self._clock.now_us(), ""
                try:
                    done = self._test(test, mesh, a, b, found, seen)
                except (RmError, TimeoutError) as error:
                    why = f"{test}: {str(error) or 'no answer in time'}"
                    failed.append(why)
                    log.warning("cannot measure %s to %s: %s", a.name, b.name, why)
                    done = True
                if not done:
                    skipped += 1
                    continue
                checks += checks_of_test(test)
                for here, there, way in ((a, b, found[0]), (b, a, found[1])):
                    told = {} if why else way.found
                    if told or why:
                        outcomes.append(
                            Outcome(mesh, test, here, there, begun_us, self._clock.now_us(), why, told)
                        )
        if not checks:  # nothing was tried
            return Result(ok=True, skipped=skipped)
        tried = []
        for source, destination, way in ((a, b, found[0]), (b, a, found[1])):
            said = "; ".join(filter(None, (*failed, way.failed)))
            sample = Sample(source.name, destination.name, at_us, mesh.name, way.values, said)
            if set(checks_of(sample)) != set(checks):
                sample = replace(sample, checks=tuple(checks))
            if absurd := complaint(sample, self._clock.now_us()):
                log.warning("%s It is left out.", absurd)
                failed.append(absurd)
                sample = replace(sample, values={}, failed=absurd, checks=tuple(checks))
                outcomes = [
                    replace(one, failed=one.failed or absurd, found={}) if one.source is source else one
                    for one in outcomes
                ]
            tried.append(Tried(source, destination, sample, way.packets, way.path))
        return Result(tried, not failed and not any(way.failed for way in found), skipped, outcomes)

    def _alone(self, mesh: Mesh, host: Host) -> Result:
        """What the host asks of services. Their wrong answers are results; that the host does not answer is
        a failure."""
        values: dict[str, float] = {}
        said: list[str] = []
        failed: list[str] = []
        wrong: set[str] = set()
        outcomes: list[Outcome] = []
        at_us = self._clock.now_us()
        for test in mesh.tests:
            begun_us, why, told = self._clock.now_us(), "", dict[str, Any]()
            try:
                answer = (self._prober().resolve if test == "dns" else self._prober().fetch)(
                    host, mesh.service
                )
                told = msgspec.structs.asdict(answer)
                if answer.error:
                    why = f"{test}: {mesh.service.in_words(test)}: {answer.error}"
                    wrong.update(checks_of_test(test))
                    said.append(why)
                else:
                    values[f"{test}_us"] = answer.time_us
            except (RmError, TimeoutError) as error:
                why = f"{test}: {str(error) or 'no answer in time'}"
                log.warning("cannot test from %s: %s", host.name, why)
                failed.append(why)
            ended_us = self._clock.now_us()
            outcomes.append(Outcome(mesh, test, host, host, begun_us, ended_us, why, told))
        checks = tuple(check for test in mesh.tests for check in checks_of_test(test))
        sample = Sample(host.name, host.name, at_us, mesh.name, values, "; ".join(said + failed), checks)
        tried = Tried(host, host, sample, wrong=frozenset(wrong))
        return Result([tried], not failed and not said, 0, outcomes)

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
            archived = self._is_archived(mesh.name)
            for way, told in zip(found, self._prober().latency(a, b, mesh, archived), strict=True):
                way.values.update(told.values)
                way.packets, way.found = told.packets, told.found
        elif test == "mtu":
            for way, source, destination in ((found[0], a, b), (found[1], b, a)):
                mtu = way.values["mtu_bytes"] = self._prober().mtu(source, destination)
                way.found = {"bytes": int(mtu)}
        elif test == "clock":
            told = self._prober().clock(a, b, mesh)
            back = {"local": told.found["remote"], "remote": told.found["local"]}
            for way, about in (
                (found[0], told.found),
                (found[1], {**back, "difference_us": -told.found["difference_us"]}),
            ):
                way.values.update(told.values)
                way.found = about
        elif test == "trace":
            for way, source, destination in ((found[0], a, b), (found[1], b, a)):
                self._trace(way, source, destination)
        elif self._rests(mesh, a, b, seen):
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
                way.found = {"bps": rate_bps}
        return True

    def _trace(self, way: Way, source: Host, destination: Host) -> None:
        """The way, and if it leads there, its length."""
        path = self._prober().trace(source, destination, TRACE_TRIES, 0)
        way.path = said_of(path, source.name, destination.name)
        hops = tuple((hop.address, hop.rtt_us) for hop in path.hops)
        way.found = {"hops": hops, "reached": path.reached}
        if path.reached:
            way.values["hops"] = len(path.hops)
        else:
            way.failed = way.path

    def _crossing(self, mesh: Mesh, a: Host, b: Host, seen: Seen) -> Crossing:
        """What of the fabric's uplinks the tests fill."""
        if seen.fabric is None or "throughput" not in mesh.tests or self._rests(mesh, a, b, seen):
            return NONE
        return _crossing_of(seen.fabric, mesh, a, b)

    def _rests(self, mesh: Mesh, a: Host, b: Host, seen: Seen) -> bool:
        """Is throughput known well enough to be left out?"""
        return mesh.name == ON_DEMAND and not self._throughput_due(seen.known.get((a.name, b.name)))

    def _throughput_due(self, known: LinkStats | None) -> bool:
        if known is None or known.bandwidth_bps is None:
            return True
        at_us = known.bandwidth_at_us or known.measured_at_us
        return self._clock.now_us() - at_us >= self._throughput_us


def _crossing_of(fabric: Fabric, mesh: Mesh, a: Host, b: Host) -> Crossing:
    """Leaves may send all tests over the same spine."""
    rates = [bps for bps in (a.nic_bps, b.nic_bps, mesh.rate_bps, fabric.uplink_bps) if bps]
    leaves = frozenset(fabric.crossings((a.name, b.name)))
    return Crossing(leaves, min(rates), fabric.uplink_bps)


def known_of(cycle: Cycle, pairs: Iterable[Pair]) -> Seen:
    known: Mapping[tuple[str, str], LinkStats] = cycle.state.network
    both = [key for a, b in pairs for key in ((a.name, b.name), (b.name, a.name))]
    return Seen({key: known[key] for key in both if key in known}, cycle.state.fabric)
