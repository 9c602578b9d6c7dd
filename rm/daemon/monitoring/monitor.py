"""Measures the network between the hosts, mesh by mesh, and informs the leader, the history and the grid.

A run of a mesh makes some rounds of its pairs (`rm.core.monitoring.pairing`); the next run goes on where it
stopped. How it spreads its tests, and looks closer at pairs in doubt, is `rm.core.monitoring.pace`'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host, HostState
from rm.core.monitoring.cells import Change, Status
from rm.core.monitoring.history import History, learn
from rm.core.monitoring.mesh import Mesh, MeshState
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.pace import FOLLOW_UPS, REST_US, apart_us, closer, pace_of, spacing_us
from rm.core.monitoring.pairing import Pair, Pairing, rounds_from
from rm.core.monitoring.path import lost_from, said_of
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.agents import Agents
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.board import Board, Tried
from rm.daemon.monitoring.pair_tests import ON_DEMAND, SHARED, Gaps, PairTests, Result, Seen, known_of
from rm.daemon.monitoring.ports import Archives, Settings
from rm.daemon.monitoring.probe import MARGIN_S, Prober
from rm.errors import Conflict, NotFound, RmError, StoreError, UsageError
from rm.protocol.hosts import Ping
from rm.units import SECOND_US, format_duration

log = logging.getLogger(__name__)

PINGS = 5
BAD = (Status.WARN, Status.CRITICAL)
TRACES = 8  # of a round of tests, at most
TRACERS = 2  # at the same time, beside the rounds of tests, which are shorter
TRACE_TRIES = ((5, 0), (20, 1_000_000))
RETRY_S = 60.0  # after which a result that does not count yet is tried again; see `confirm`
CONFIRMED = 3  # tests of a host then, at most
ROUND_S = 60.0  # a round of these is over by then: a run waits for it


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
        archives: Archives | None = None,
    ) -> None:
        self._agents = agents
        self._leader = leader
        self._clock = clock
        self._history = history
        self._settings = settings
        self._interval_of = interval_of
        self._pool = ThreadPoolExecutor(settings.parallel, thread_name_prefix="monitor")
        # tests that fill links wait for each other, and keep none of the others waiting
        self._filling = ThreadPoolExecutor(settings.parallel, thread_name_prefix="throughput")
        self._tracing = ThreadPoolExecutor(TRACERS, thread_name_prefix="trace")
        self._stopping = False
        self._scheduled: dict[str, int] = {}  # since when scheduled runs go on
        self._took_us: dict[str, int] = {}  # the newest scheduled run of a mesh
        self._running: dict[str, threading.Lock] = {m.name: threading.Lock() for m in meshes}
        self._confirming = ""  # the mesh between whose runs pairs are being tested
        self._wanted: set[str] = set()  # meshes of which a run waits for the end of that
        self._on_demand = threading.Lock()
        self._states = {s.mesh: s for s in history.mesh_states()}
        self._keeping = threading.Lock()
        self.meshes = {m.name: m for m in meshes}
        self.board = board
        self.prober = Prober(agents)
        self._archives = archives
        self._tests = PairTests(
            lambda: self.prober, clock, gaps, settings.throughput_interval_s, self.is_archived
        )

    def is_archived(self, mesh: str) -> bool:
        return self._archives is not None and self._archives.takes(mesh)

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
        return apart_us(self._interval_of(mesh), self._takes_us(mesh.name)) * runs

    def _takes_us(self, name: str) -> int:
        """How long a scheduled run takes: the newest, or the one that has begun, if that is longer."""
        begun_us = self._scheduled.get(name)
        going_us = 0 if begun_us is None else self._clock.now_us() - begun_us
        return max(going_us, self._took_us.get(name, 0))

    def complaint(self, mesh: Mesh) -> str:
        """Why the mesh does not keep its schedule, as a sentence; "" when it does."""
        takes_us, interval_us = self._takes_us(mesh.name), self._interval_of(mesh)
        if takes_us <= interval_us:
            return ""
        takes, interval = (format_duration(us // SECOND_US * SECOND_US) for us in (takes_us, interval_us))
        each = format_duration(self.every_us(mesh))
        return (
            f"A run of mesh {mesh.name} takes {takes}, longer than its interval of {interval}: each pair is "
            f"measured every {each}. Give it a longer interval or fewer rounds, or raise monitor.parallel."
        )

    def close(self, wait: bool = False) -> None:
        """`wait`: until what has begun has ended; else that is left alone."""
        self._stopping = not wait
        for pool in (self._pool, self._filling, self._tracing):
            pool.shutdown(wait=wait, cancel_futures=not wait)

    # -- runs ----------------------------------------------------------------------------------

    def scheduled(self, name: str) -> None:
        """One run by the clock: nobody waits for it, so that what goes wrong is logged."""
        try:
            self.run(name, spread=True)
            if said := self.complaint(self.meshes[name]):
                log.warning("%s", said)
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
            UsageError: it has no runs.
            Conflict: it is being run already.
        """
        mesh = self.mesh(name)
        if mesh.is_continuous:
            raise UsageError(
                f"Mesh {name} measures without a pause: there is nothing to run.",
                f"`rmx monitor status {name}` shows what it finds.",
            )
        self._wanted.add(name)
        taken = self._running[name].acquire(timeout=ROUND_S if self._confirming == name else 0)
        self._wanted.discard(name)
        if not taken:
            raise Conflict(f"Mesh {name} is being run already.", "Try again when it has ended.")
        try:
            hosts, before = self.hosts(), self.state(name)
            pairing = Pairing(mesh, hosts, up_of(hosts))
            state = replace(self.state(name), begun_us=self._clock.now_us(), cycle=len(pairing), message="")
            state = replace(state, measured=0, failed=0, skipped=0)
            turn = pairing.turn(state.turn % max(1, len(pairing)), 0 if everything else mesh.rounds)
            self.keep(state)
            if spread:
                self._scheduled[name] = state.begun_us
            rounds = [(number, len(pairing.round(number))) for number in turn]
            pace = pace_of(rounds, self._settings.parallel, self._interval_of(mesh), mesh)
            groups: Sequence[tuple[int, ...]] = [(number,) for number in turn]
            if spread and not mesh.spacing_us:
                groups = pace.groups
                mesh = replace(mesh, spacing_us=spacing_us(pace.test_us, mesh.packets))
            if "latency" in mesh.tests:
                self._measure_zones(h for h in hosts if h.state is HostState.UP and mesh.selects(h))
            for group in groups:
                if self._stopping:
                    break
                results = self._round(mesh, [pair for number in group for pair in pairing.round(number)])
                state = replace(state, turn=(group[-1] + 1) % len(pairing)).counting(
                    (r.ok, r.skipped) for r in results
                )
                self.keep(state)
            if spread:
                self._look_closer(mesh, pairing, hosts, state.begun_us, pace.test_us)
            if spread:
                self._took_us[name] = self._clock.now_us() - self._scheduled[name]
            if not (state.measured or state.failed or self._stopping):
                return self.keep(replace(before, turn=state.turn, cycle=state.cycle))
            return self.keep(replace(state, ended_us=self._clock.now_us()), durable=True)
        finally:
            self._scheduled.pop(name, None)
            self._running[name].release()

    def _look_closer(
        self, mesh: Mesh, pairing: Pairing, hosts: Sequence[Host], begun_us: int, test_us: int
    ) -> None:
        """Test the pairs in doubt again with more packets, as long as that ends before the next run."""
        close = closer(mesh, test_us)
        by_name = {h.name: h for h in hosts}
        for _ in range(FOLLOW_UPS if "latency" in mesh.tests else 0):
            pairs = [
                (by_name[a], by_name[b])
                for a, b in sorted(map(sorted, self.board.lossy(mesh)))
                if a in by_name and b in by_name and pairing.means(by_name[a], by_name[b])
            ][: self._settings.parallel]
            ends_us = self._clock.now_us() + test_us + REST_US
            if not pairs or self._stopping or ends_us > begun_us + self._interval_of(mesh):
                return
            self._round(close, pairs)

    def confirm(self) -> None:
        """Between the runs of meshes whose next run is far: measure the hosts of which a mesh knows nothing,
        as those that came up after its run, and test again the pairs that the board finds doubtful: so a
        fault that an hourly test has met is reported after minutes, and so is its end."""
        for mesh in self.meshes.values():
            far = self._interval_of(mesh) > RETRY_S * SECOND_US and not mesh.is_continuous
            if self.state(mesh.name).paused_by or not far or not self._running[mesh.name].acquire(False):
                continue
            self._confirming = mesh.name
            try:
                self._confirm(mesh, self.hosts())
            except (RmError, TimeoutError) as error:
                if not self._stopping:
                    log.warning("mesh %s: %s", mesh.name, error or "the daemon was too busy")
            except (CancelledError, RuntimeError):
                if not self._stopping:  # the pool is closed then
                    raise
            finally:
                self._confirming = ""
                self._running[mesh.name].release()

    def _may_confirm(self, mesh: Mesh) -> bool:
        return not (self._stopping or mesh.name in self._wanted or self.state(mesh.name).paused_by)

    def _confirm(self, mesh: Mesh, hosts: Sequence[Host]) -> None:
        """New hosts take part in as many rounds as a run has; of doubtful pairs each host in CONFIRMED."""
        up = up_of(hosts)
        pairing = Pairing(mesh, hosts, up)
        new = self.board.unmet(mesh, up)
        begun_us, results = self._clock.now_us(), list[Result]()
        for pairs in pairing.rounds_of(new, mesh.rounds):
            if not self._may_confirm(mesh):
                return
            results += self._round(mesh, pairs)
        state = self.state(mesh.name)
        if results and not state.ended_us:  # a fresh cluster's first run, before one is due
            state = replace(state, begun_us=begun_us, ended_us=self._clock.now_us())
            self.keep(state.counting((r.ok, r.skipped) for r in results), durable=True)
        by_name = {h.name: h for h in hosts}
        ends = [e for e in map(ends_of, self.board.doubtful(mesh)) if up.issuperset(e)]
        doubtful = [(by_name[here], by_name[there]) for here, there in ends]
        meant = (pair for pair in doubtful if pairing.means(*pair))
        for pairs in rounds_from(meant, CONFIRMED, self._settings.parallel):
            if not self._may_confirm(mesh):
                return
            self._round(mesh, pairs)
            self.board.tried(mesh, (frozenset((a.name, b.name)) for a, b in pairs))

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
            hosts = self.hosts()
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

    def keep(self, state: MeshState, durable: bool = False) -> MeshState:
        """The state of a mesh, which may have been paused meanwhile."""
        with self._keeping:
            state = replace(state, paused_by=self.state(state.mesh).paused_by)
            self._states[state.mesh] = state
            if durable:
                self._history.put_mesh_state(state)
            return state

    def hosts(self) -> list[Host]:
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
        pool = self._pool if SHARED.issuperset(mesh.tests) else self._filling
        results = list(pool.map(lambda pair: self._tests.of(mesh, pair, seen), pairs))
        self.take(mesh, [t for r in results for t in r.tried], [o for r in results for o in r.outcomes])
        return results

    def take(self, mesh: Mesh, tried: Sequence[Tried], outcomes: Iterable[Outcome]) -> None:
        """Tell everybody of tries: the leader, the history, the grid, archives of others."""
        present = self.board.present(t.sample for t in tried)
        fresh_us = self.every_us(mesh) if mesh.name != ON_DEMAND else None
        if self.is_archived(mesh.name) and self._archives is not None:
            self._archives.keep(outcomes)

        def learnt(state: ClusterState) -> list[ev.Event]:
            """With what is known by now: another mesh may have measured the same pair meanwhile."""
            events: list[ev.Event] = []
            for sample in present:
                key = (sample.source, sample.destination)
                events.append(ev.Measured(*key, learn(state.network.get(key), sample, fresh_us)))
            return events

        if present and mesh.is_of_links:
            self._leader.request(learnt).result(MARGIN_S)
        try:
            self._history.record(present)
        except StoreError as error:
            log.error("measurements of mesh %s are not in the history: %s", mesh.name, error)
        if mesh.name != ON_DEMAND:
            self._trace(self.board.tell(mesh, tried))

    def _trace(self, changes: Iterable[Change]) -> None:
        """Find the way on which packets begin to be lost; of a fault of many pairs some are enough."""
        begun = [c for c in changes if c.check == "loss" and c.status in BAD and c.was not in BAD]
        for change in begun[:TRACES]:
            if not self._stopping:
                self._tracing.submit(self._traced, change)

    def _traced(self, change: Change) -> None:
        """At first quickly; where few packets are lost, then for longer, as routers answer once a second."""
        by_name = {h.name: h for h in self.hosts()}
        a, b = by_name.get(change.source), by_name.get(change.destination)
        try:
            for tries, round_us in TRACE_TRIES:
                if a is None or b is None or self._stopping:
                    return
                path = self.prober.trace(a, b, tries, round_us)
                self.board.traced(change, said_of(path, a.name, b.name))
                if lost_from(path) is not None:
                    return
        except (RmError, TimeoutError) as error:
            log.info("no trace from %s to %s: %s", change.source, change.destination, error)
        except Exception:  # nobody takes the result of this call
            log.exception("no trace from %s to %s", change.source, change.destination)


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


def ends_of(pair: frozenset[str]) -> tuple[str, str]:
    """The two hosts of a pair, which is one where a host tests by itself."""
    return min(pair), max(pair)


def up_of(hosts: Iterable[Host]) -> set[str]:
    """Those that answer."""
    return {h.name for h in hosts if h.state is HostState.UP}
