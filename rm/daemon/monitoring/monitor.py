"""Measures the network between the hosts, mesh by mesh, and informs the leader, the history and the grid.

A run of a mesh makes some rounds of its pairs (`rm.core.monitoring.pairing`); the next run goes on where it
stopped. A host takes part in one test at a time. Throughput, which fills the link, is measured
where no job communicates, or in the gaps between the phases of those that do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host, HostState
from rm.core.model.network import LinkStats
from rm.core.monitoring.history import History, Sample, checks_of, complaint, learn
from rm.core.monitoring.mesh import Mesh, MeshState
from rm.core.monitoring.metrics import checks_of_test
from rm.core.monitoring.pairing import Pair, Pairing
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.agents import Agents
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.board import Board, Tried
from rm.daemon.monitoring.bookings import Bookings
from rm.daemon.monitoring.probe import LEAST_SPACING_US, MARGIN_S, Prober, Way, Window
from rm.errors import Conflict, NotFound, RmError, StoreError
from rm.protocol.hosts import Ping
from rm.units import MINUTE_US, SECOND_US

log = logging.getLogger(__name__)

PINGS = 5
ON_DEMAND = "on-demand"
SPREAD = 0.4
LONGEST_TEST_US = 6 * SECOND_US
RETRY_S = 60.0  # after which a result that does not count yet is tried again; see `confirm`


class Settings(Protocol):
    @property
    def throughput_interval_s(self) -> float: ...
    @property
    def probe_count(self) -> int: ...
    @property
    def parallel(self) -> int: ...


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


@dataclass(frozen=True, slots=True)
class Measured:
    """How many pairs were measured on demand, and of which hosts nothing was found: (host, why)."""

    pairs: int
    left_out: tuple[tuple[str, str], ...] = ()


class Monitor:
    """`run` and `measure` may be called from any thread; a mesh never runs twice at once."""

    def __init__(
        self,
        *,
        agents: Agents,
        leader: Leader,
        clock: Clock,
        history: History,
        board: Board,
        meshes: Sequence[Mesh],
        settings: Settings,
        gaps: Gaps,
        interval_of: Callable[[Mesh], int],
    ) -> None:
        self._agents = agents
        self._leader = leader
        self._clock = clock
        self._history = history
        self._settings = settings
        self._gaps = gaps
        self._interval_of = interval_of
        self._bookings = Bookings()
        self._pool = ThreadPoolExecutor(settings.parallel, thread_name_prefix="monitor")
        self._stopping = False
        self._running: dict[str, threading.Lock] = {m.name: threading.Lock() for m in meshes}
        self._on_demand = threading.Lock()
        self._states = {s.mesh: s for s in history.mesh_states()}
        self._keeping = threading.Lock()
        self.meshes = {m.name: m for m in meshes}
        self.board = board
        self.prober = Prober(agents)

    def state(self, mesh: str) -> MeshState:
        return self._states.get(mesh) or MeshState(mesh)

    def mesh(self, name: str) -> Mesh:
        if name not in self.meshes:
            known = ", ".join(self.meshes) or "none"
            raise NotFound(f"There is no mesh '{name}'.", f"There are: {known}.")
        return self.meshes[name]

    def is_running(self, mesh: str) -> bool:
        return self._running[mesh].locked()

    def every_us(self, mesh: Mesh) -> int:
        """How often each pair is measured: every run, or every few runs."""
        cycle = self.state(mesh.name).cycle
        runs = max(1, -(-cycle // mesh.rounds)) if mesh.rounds else 1
        return self._interval_of(mesh) * runs

    def close(self) -> None:
        self._stopping = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- runs ----------------------------------------------------------------------------------

    def scheduled(self, name: str) -> None:
        """One run by the clock: nobody waits for it, so that what goes wrong is logged."""
        try:
            self.run(name, spread=True)
        except Conflict:
            log.info("mesh %s is being run already", name)
        except (RmError, TimeoutError) as error:
            if not self._stopping:
                log.warning("mesh %s: %s", name, error or "the daemon was too busy")
        except (CancelledError, RuntimeError):
            if not self._stopping:  # the pool is closed then
                raise

    def run(self, name: str, everything: bool = False, spread: bool = False) -> MeshState:
        """The next rounds of the mesh, or all of them. A run in which no two hosts were up does not count.

        `spread`: nobody waits for it, and the packets of a test may take their time.

        Raises:
            NotFound: there is no such mesh.
            Conflict: it is being run already.
        """
        mesh = self.mesh(name)
        if not self._running[name].acquire(blocking=False):
            raise Conflict(f"Mesh {name} is being run already.", "Try again when it has ended.")
        try:
            hosts, before = self._hosts(), self.state(name)
            pairing = Pairing(mesh, hosts, up_of(hosts))
            state = replace(self.state(name), begun_us=self._clock.now_us(), cycle=len(pairing), message="")
            state = replace(state, measured=0, failed=0, skipped=0)
            turn = pairing.turn(state.turn % max(1, len(pairing)), 0 if everything else mesh.rounds)
            self._keep(state)
            if spread and not mesh.spacing_us:
                mesh = replace(mesh, spacing_us=self._spacing_us(mesh, len(turn), len(hosts)))
            if "latency" in mesh.tests:
                self._measure_zones(h for h in hosts if h.state is HostState.UP and mesh.selects(h))
            for number in turn:
                if self._stopping:
                    break
                results = self._round(mesh, pairing.round(number))
                state = replace(state, turn=(number + 1) % len(pairing)).counting(
                    (r.ok, r.skipped) for r in results
                )
                self._keep(state)
            if not (state.measured or state.failed or self._stopping):
                return self._keep(replace(before, turn=state.turn, cycle=state.cycle))
            return self._keep(replace(state, ended_us=self._clock.now_us()), durable=True)
        finally:
            self._running[name].release()

    def confirm(self) -> None:
        """Between the runs of meshes whose next run is far: measure the hosts of which a mesh knows nothing,
        as those that came up after its run, and test again the pairs of which the newest try says what does
        not count yet: so a fault that an hourly test has met is reported after minutes."""
        for mesh in self.meshes.values():
            far = self._interval_of(mesh) > RETRY_S * SECOND_US
            if self.state(mesh.name).paused_by or not far or not self._running[mesh.name].acquire(False):
                continue
            try:
                self._confirm(mesh, self._hosts())
            except (RmError, TimeoutError) as error:
                if not self._stopping:
                    log.warning("mesh %s: %s", mesh.name, error or "the daemon was too busy")
            except (CancelledError, RuntimeError):
                if not self._stopping:  # the pool is closed then
                    raise
            finally:
                self._running[mesh.name].release()

    def _confirm(self, mesh: Mesh, hosts: Sequence[Host]) -> None:
        """New hosts take part in as many rounds as a run has; of doubtful pairs each host in one."""
        up = up_of(hosts)
        pairing = Pairing(mesh, hosts, up)
        new = self.board.unmet(mesh, up)
        begun_us, results = self._clock.now_us(), list[Result]()
        for pairs in pairing.rounds_of(new, mesh.rounds):
            if self._stopping:
                return
            results += self._round(mesh, pairs)
        state = self.state(mesh.name)
        if results and not state.ended_us:  # a fresh cluster's first run, before one is due
            state = replace(state, begun_us=begun_us, ended_us=self._clock.now_us())
            self._keep(state.counting((r.ok, r.skipped) for r in results), durable=True)
        by_name = {h.name: h for h in hosts}
        taken: set[str] = set()
        again: list[Pair] = []
        for here, there in sorted(map(sorted, self.board.doubtful(mesh))):
            if {here, there} <= up and taken.isdisjoint((here, there)):
                a, b = by_name[here], by_name[there]
                if pairing.means(a, b):
                    taken.update((here, there))
                    again.append((a, b))
        if again:
            self._round(mesh, again)

    def _spacing_us(self, mesh: Mesh, rounds: int, hosts: int) -> int:
        """Between the packets of a test, so that the run takes SPREAD of the interval at most."""
        at_once = max(1, -(-hosts // 2 // self._settings.parallel)) * max(1, rounds)
        test_us = min(LONGEST_TEST_US, min(self._interval_of(mesh), MINUTE_US) * SPREAD / at_once)
        return max(LEAST_SPACING_US, int(test_us / mesh.packets))

    def measure(self, zone: str | None = None) -> Measured:
        """Measure every pair now (of one zone, if named): latency, and throughput where it was not
        measured lately."""
        with self._on_demand:
            mesh = Mesh(
                ON_DEMAND,
                zones=() if zone is None else (zone,),
                packets=self._settings.probe_count,
                tests=("latency", "throughput"),
                rounds=0,
            )
            hosts = self._hosts()
            self._measure_zones(h for h in hosts if h.state is HostState.UP)
            pairing = Pairing(mesh, hosts, up_of(hosts))
            results = [r for n in range(len(pairing)) for r in self._round(mesh, pairing.round(n))]
            return Measured(sum(r.ok for r in results), left_out(mesh, hosts, results))

    def set_paused(self, name: str, by: str) -> MeshState:
        """Pause the mesh ("" = go on); it is remembered over restarts."""
        self.mesh(name)
        with self._keeping:
            state = self._states[name] = replace(self.state(name), paused_by=by)
            self._history.put_mesh_state(state)
            return state

    def _keep(self, state: MeshState, durable: bool = False) -> MeshState:
        """The state of a run, during which the mesh may have been paused."""
        with self._keeping:
            state = replace(state, paused_by=self.state(state.mesh).paused_by)
            self._states[state.mesh] = state
            if durable:
                self._history.put_mesh_state(state)
            return state

    def _hosts(self) -> list[Host]:
        def all_of(cycle: Cycle, _: int) -> list[Host]:
            return list(cycle.state.hosts.values())

        hosts: list[Host] = self._leader.ask(all_of).result(MARGIN_S)
        return hosts

    def _measure_zones(self, hosts: Iterable[Host]) -> None:
        """One way from here to the nearest host of each zone, rounded to milliseconds."""
        nearest: dict[str, int] = {}
        for host, trip_us in self._pool.map(self._ping, hosts):
            if trip_us is not None:
                nearest[host.zone] = min(trip_us, nearest.get(host.zone, trip_us))
        for zone, trip_us in nearest.items():
            self._leader.post(ev.ZoneMeasured(zone, round(trip_us / 2_000) * 1_000))

    def _ping(self, host: Host) -> tuple[Host, int | None]:
        best: int | None = None
        for _ in range(PINGS):
            sent_us = self._clock.now_us()
            try:
                self._agents.call(host.name, Ping(), MARGIN_S).result(MARGIN_S)
            except (RmError, TimeoutError):
                break
            trip_us = max(0, self._clock.now_us() - sent_us)
            best = trip_us if best is None else min(best, trip_us)
        return host, best

    # -- one round -----------------------------------------------------------------------------

    def _round(self, mesh: Mesh, pairs: Sequence[Pair]) -> list[Result]:
        """Measure disjoint pairs side by side, and report the results."""
        seen: Seen = self._leader.ask(lambda cycle, _: known_of(cycle, pairs)).result(MARGIN_S)
        results = list(self._pool.map(lambda pair: self._pair(mesh, pair, seen), pairs))
        tried = [t for r in results for t in r.tried]
        present = self.board.present(t.sample for t in tried)
        fresh_us = self.every_us(mesh) if mesh.name != ON_DEMAND else None

        def learnt(state: ClusterState) -> list[ev.Event]:
            """With what is known by now: another mesh may have measured the same pair meanwhile."""
            events: list[ev.Event] = []
            for sample in present:
                key = (sample.source, sample.destination)
                events.append(ev.Measured(*key, learn(state.network.get(key), sample, fresh_us)))
            return events

        if present:
            self._leader.request(learnt).result(MARGIN_S)
        try:
            self._history.record(present)
        except StoreError as error:
            log.error("measurements of mesh %s are not in the history: %s", mesh.name, error)
        if mesh.name != ON_DEMAND:
            self.board.tell(mesh, tried)
        return results

    def _pair(self, mesh: Mesh, pair: Pair, seen: Seen) -> Result:
        """All tests of one pair, both ways; what failed is reported as a failure, not by silence."""
        a, b = pair
        found = (Way(), Way())
        failed: list[str] = []
        checks: list[str] = []
        skipped = 0
        with self._bookings.both(a.name, b.name):
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
            for way, told in zip(found, self.prober.latency(a, b, mesh), strict=True):
                way.values.update(told.values)
                way.packets = told.packets
        elif test == "mtu":
            found[0].values["mtu_bytes"] = self.prober.mtu(a, b)
            found[1].values["mtu_bytes"] = self.prober.mtu(b, a)
        elif mesh.name == ON_DEMAND and not self._throughput_due(seen.known.get((a.name, b.name))):
            return False
        else:
            spare = not mesh.disturb and self._gaps.busy(a.name, b.name)
            for way, source, sink in ((found[0], a, b), (found[1], b, a)):
                rate_bps = (
                    self.prober.throughput_in(partial(self._gaps.next, a.name, b.name), source, sink, mesh)
                    if spare
                    else self.prober.throughput(source, sink, mesh)
                )
                if rate_bps is None:
                    return False
                way.values["bandwidth_bps"] = rate_bps
        return True

    def _throughput_due(self, known: LinkStats | None) -> bool:
        if known is None or known.bandwidth_bps is None:
            return True
        at_us = known.bandwidth_at_us or known.measured_at_us
        return self._clock.now_us() - at_us >= self._settings.throughput_interval_s * 1e6


def left_out(mesh: Mesh, hosts: Sequence[Host], results: Iterable[Result]) -> tuple[tuple[str, str], ...]:
    """The hosts of the mesh without any result, and why."""
    found: set[str] = set()
    failed: dict[str, str] = {}
    for one in (t for r in results for t in r.tried):
        for name in (one.source.name, one.destination.name):
            if one.sample.values:
                found.add(name)
            failed.setdefault(name, one.sample.failed or "nothing was measured")
    why = {}
    for host in hosts:
        if not mesh.selects(host) or host.name in found:
            continue
        if host.state is not HostState.UP:
            known = host.reason.rstrip(".") or "its agent has not answered yet"
            why[host.name] = f"{host.state.value}: {known}"
        elif host.name in failed:
            why[host.name] = failed[host.name].rstrip(".")
        else:
            why[host.name] = "there is no other host to measure it with"
    return tuple(why.items())


def up_of(hosts: Iterable[Host]) -> set[str]:
    """Those that answer."""
    return {h.name for h in hosts if h.state is HostState.UP}


def known_of(cycle: Cycle, pairs: Iterable[Pair]) -> Seen:
    known: Mapping[tuple[str, str], LinkStats] = cycle.state.network
    both = [key for a, b in pairs for key in ((a.name, b.name), (b.name, a.name))]
    return Seen({key: known[key] for key in both if key in known})
