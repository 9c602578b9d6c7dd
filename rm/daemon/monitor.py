"""Measures the network between the hosts with their own probes, and tells the leader.

Full mesh inside a zone, one representative pair between zones; a host takes part in one probe
at a time, so that probes do not disturb each other. Throughput, which fills the link, is only
measured between hosts on which no job communicates.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

from rm.core import events as ev
from rm.core.cycle import Cycle
from rm.core.host import Host, HostState
from rm.core.network import LinkStats
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.daemon.leader import Leader
from rm.errors import RmError, Unreachable

log = logging.getLogger(__name__)

PORTS = range(8_760, 8_960)  # within perfSONAR's range for tests
IDLE_US = 1_000_000
PROBE_INTERVAL_US = 10_000
THROUGHPUT_US = 400_000
PARALLEL = 8
MARGIN_S = 10.0
PINGS = 5
CLOCK_ERROR_US = 500  # of the offsets that pings over the agents' channels give

Pair = tuple[Host, Host]


class Settings(Protocol):
    @property
    def throughput_interval_s(self) -> float: ...
    @property
    def probe_count(self) -> int: ...


class Monitor:
    """`measure` may be called from any thread; measurements never overlap."""

    def __init__(self, agents: Agents, leader: Leader, clock: Clock, settings: Settings) -> None:
        self._agents = agents
        self._leader = leader
        self._clock = clock
        self._settings = settings
        self._lock = threading.Lock()
        self._throughput_us: dict[tuple[str, str], int] = {}
        self._listening: dict[tuple[str, int], threading.Event] = {}
        self._ports = itertools.count()

    def measure(self, zone: str | None = None) -> int:
        """Measure every pair of the mesh (of one zone, if named); returns how many succeeded."""
        with self._lock:
            hosts, _ = self._leader.ask(up_and_busy).result(MARGIN_S)
            measured = 0
            for name, delay_us in self._zone_delays(hosts).items():
                self._leader.post(ev.ZoneMeasured(name, delay_us))
            with ThreadPoolExecutor(PARALLEL, thread_name_prefix="monitor") as pool:
                for matching in rounds(mesh(hosts, zone)):
                    measured += sum(pool.map(self._pair, matching))
            return measured

    def _zone_delays(self, hosts: list[Host]) -> dict[str, int]:
        """One way from here to the nearest host of each zone, rounded to milliseconds."""
        nearest: dict[str, int] = {}
        for host in hosts:
            for _ in range(PINGS):
                sent_us = self._clock.now_us()
                try:
                    self._agents.call(host.name, "ping", timeout_s=MARGIN_S).result(MARGIN_S)
                except (RmError, TimeoutError):
                    break
                trip_us = self._clock.now_us() - sent_us
                nearest[host.zone] = min(trip_us, nearest.get(host.zone, trip_us))
        return {zone: round(trip_us / 2000) * 1000 for zone, trip_us in nearest.items()}

    def _pair(self, pair: Pair) -> bool:
        """Both directions of one pair; what failed is recorded as a failed try, not as silence."""
        a, b = pair
        now_us = self._clock.now_us()
        both = ((a.name, b.name), (b.name, a.name))
        known: dict[tuple[str, str], LinkStats] = {}

        def look(cycle: Cycle, now_us: int) -> frozenset[str]:
            known.update((k, cycle.state.network[k]) for k in both if k in cycle.state.network)
            return up_and_busy(cycle, now_us)[1]  # by now: a long mesh must not disturb a new job

        try:
            busy = self._leader.ask(look).result(MARGIN_S)
            there, back = self._oneway(a, b, now_us)
            if not {a.name, b.name} & busy and self._throughput_due(a, b, now_us):
                there = replace(there, bandwidth_bps=self._throughput(a, b))
                back = replace(back, bandwidth_bps=self._throughput(b, a))
                self._throughput_us[(a.name, b.name)] = now_us
        except (RmError, TimeoutError, KeyError) as error:
            log.warning("cannot measure %s to %s: %s", a.name, b.name, error)
            for key in both:
                self._leader.post(ev.Measured(*key, failed_try(known.get(key))))
            return False
        for key, stats in zip(both, (there, back), strict=True):
            old = known.get(key)
            if stats.bandwidth_bps is None and old is not None:
                stats = replace(stats, bandwidth_bps=old.bandwidth_bps)
            self._leader.post(ev.Measured(*key, stats))
        return True

    def _throughput_due(self, a: Host, b: Host, now_us: int) -> bool:
        last_us = self._throughput_us.get((a.name, b.name))
        return last_us is None or now_us - last_us >= self._settings.throughput_interval_s * 1e6

    def heard(self, host: str, message: dict[str, Any]) -> None:
        """A host's reflector listens; called in the fleet's thread."""
        waiting = self._listening.get((host, message["port"]))
        if waiting is not None:
            waiting.set()

    def _oneway(self, a: Host, b: Host, now_us: int) -> tuple[LinkStats, LinkStats]:
        count = self._settings.probe_count
        request = {"kind": "oneway", "count": count, "interval_us": PROBE_INTERVAL_US}
        ours = [self._agents.clock_offset_us(h.name) for h in (a, b)]
        if ours[0] is not None and ours[1] is not None:
            request |= {"offset_us": ours[1] - ours[0], "offset_error_us": CLOCK_ERROR_US}
        answer = self._probe(a, b, count * PROBE_INTERVAL_US, request)
        return stats_of(answer, "forward", now_us), stats_of(answer, "backward", now_us)

    def _throughput(self, a: Host, b: Host) -> int | None:
        request = {"kind": "throughput", "duration_us": THROUGHPUT_US}
        return int(self._probe(a, b, THROUGHPUT_US, request)["throughput_bps"]) or None

    def _probe(self, a: Host, b: Host, took_us: int, request: dict[str, Any]) -> dict[str, Any]:
        """Let `b` answer for as long as `a` needs, and return what `a` measured."""
        port = PORTS[next(self._ports) % len(PORTS)]
        listening = self._listening[(b.name, port)] = threading.Event()
        try:
            timeout_s = took_us / 1e6 + MARGIN_S
            reflector = self._agents.call(
                b.name,
                "reflect",
                timeout_s=2 * timeout_s,
                port=port,
                duration_us=took_us + int(MARGIN_S * 1e6),
                idle_us=IDLE_US,
                allow=[a.address],
            )
            if not listening.wait(MARGIN_S):
                if reflector.done():
                    reflector.result()  # why it could not listen
                raise Unreachable(f"{b.name} did not begin to reflect.")
            probe = self._agents.call(
                a.name, "probe", timeout_s=timeout_s, address=b.address, port=port, **request
            )
            return probe.result(timeout_s)
        finally:
            del self._listening[(b.name, port)]


def up_and_busy(cycle: Cycle, now_us: int) -> tuple[list[Host], frozenset[str]]:
    """The hosts that answer, and the names of those on which some job communicates."""
    state = cycle.state
    hosts = [h for h in state.hosts.values() if h.state is HostState.UP]
    busy = {
        name
        for placed in state.placed.values()
        if len(placed.placement.hosts) > 1
        for name in placed.placement.hosts
    }
    return hosts, frozenset(busy)


def mesh(hosts: Iterable[Host], zone: str | None) -> list[Pair]:
    """Every pair inside a zone; the first hosts of each two zones, when all zones are meant."""
    zones: dict[str, list[Host]] = {}
    for host in hosts:
        zones.setdefault(host.zone, []).append(host)
    pairs: list[Pair] = []
    for name, members in zones.items():
        if zone is None or name == zone:
            pairs += [(a, b) for i, a in enumerate(members) for b in members[i + 1 :]]
    if zone is None:
        first = [members[0] for members in zones.values()]
        pairs += [(a, b) for i, a in enumerate(first) for b in first[i + 1 :]]
    return pairs


def rounds(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """The pairs in rounds in which no host appears twice."""
    waiting = list(pairs)
    while waiting:
        taken: set[str] = set()
        this, later = [], []
        for a, b in waiting:
            if a.name in taken or b.name in taken:
                later.append((a, b))
            else:
                taken |= {a.name, b.name}
                this.append((a, b))
        yield this
        waiting = later


def stats_of(measured: dict[str, Any], direction: str, now_us: int) -> LinkStats:
    """One direction, `forward` or `backward`, of a one-way probe."""
    loss_pct = measured[f"loss_{direction}_pct"]
    delays = measured.get(f"{direction}_us")
    return LinkStats(
        loss_pct=100.0 if loss_pct is None else loss_pct,
        delay_us=max(0, delays["median"]) if delays else None,
        jitter_us=measured.get(f"jitter_{direction}_us"),
        measured_at_us=now_us,
    )


def failed_try(old: LinkStats | None) -> LinkStats:
    """The last good values, with one more failure on record."""
    if old is None:
        return LinkStats(failures=1)
    return replace(old, failures=old.failures + 1)
