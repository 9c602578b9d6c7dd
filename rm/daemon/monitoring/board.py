"""The grid's cells, as the newest tries and the maintenance windows make them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from rm.core.model.host import Host, selected
from rm.core.monitoring.cells import Cell, Change, Status, change_of, is_stale, shown
from rm.core.monitoring.history import History, Sample, checks_of
from rm.core.monitoring.judging import DELAYS, after, in_doubt, judge, least_over_ms
from rm.core.monitoring.maintenance import HostWindow
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.metrics import METRIC_OF, NO_ANSWER_US
from rm.core.monitoring.occurrence import occurrence
from rm.core.monitoring.pairing import Pairing
from rm.core.monitoring.peers import Zones, usual_of, zones_of
from rm.core.ports import Clock
from rm.errors import StoreError
from rm.units import MINUTE_US, SECOND_US

log = logging.getLogger(__name__)

Key = tuple[str, str, str]  # check, source, destination
COMPARED = {**dict.fromkeys(DELAYS, False), "bandwidth": True}  # with peers -> more is better
NOT_GOOD = (Status.WARN, Status.CRITICAL, Status.UNKNOWN)
AGAIN_US = 5 * MINUTE_US  # after which a cell that is not good is tried again before its next run
USUAL_FOR_US = 30 * SECOND_US  # before what is usual is looked up anew


@dataclass(frozen=True, slots=True)
class Tried:
    """One direction's try; `packets`: how many its loss is a share of, 0 = not known; `path`: what a trace
    found, in words; `wrong`: checks of services without a right answer; `failed` says why."""

    source: Host
    destination: Host
    sample: Sample
    packets: int = 0
    path: str = ""
    wrong: frozenset[str] = frozenset()


class Board:
    """Any thread may read and report."""

    def __init__(
        self, history: History, clock: Clock, zone: tzinfo, windows: Sequence[HostWindow] = ()
    ) -> None:
        self._history = history
        self._clock = clock
        self._zone = zone
        self._windows = tuple(windows)
        self._lock = threading.Lock()
        self._cells: dict[str, dict[Key, Cell]] = {}  # by mesh
        for cell in history.cells():
            self._cells.setdefault(cell.mesh, {})[cell.key[1:]] = cell
        self._gone: dict[str, int] = {}  # hosts that were removed, and when
        self._zone_of: dict[str, str] = {}
        self._usual: dict[
            tuple[str, str], tuple[int, dict[Zones, float]]
        ] = {}  # by mesh and check; since when
        self._alone: dict[str, set[Key]] = {}  # by mesh: judged while nothing was known of the peers
        self._tried: dict[tuple[str, frozenset[str]], int] = {}  # by mesh and pair: again, and when

    def tell(self, mesh: Mesh, tried: Iterable[Tried], repeats: bool = False) -> list[Change]:
        """Take the tries in, in order of time; returns how statuses changed.

        `repeats`: tries may come again, as from an archive; they are skipped.
        """
        changes: list[Change] = []
        told: dict[Key, Cell] = {}
        now_us = self._clock.now_us()
        near_us = {check: 1_000 * least_over_ms(check, mesh.thresholds) for check in DELAYS}
        checks = frozenset(mesh.checks)
        with self._lock:
            known = self._cells.setdefault(mesh.name, {})
            alone = self._alone.setdefault(mesh.name, set())
            for one in sorted(tried, key=lambda t: t.sample.at_us):
                if self._is_gone(one.sample):
                    continue
                for host in (one.source, one.destination):
                    self._zone_of[host.name] = host.zone
                at_us = one.sample.at_us
                maintained = self.maintained(mesh, one.source, one.destination, at_us)
                for check in checks.intersection(checks_of(one.sample)):
                    key = (check, one.source.name, one.destination.name)
                    old = known.get(key) or Cell(mesh.name, *key)
                    if repeats and at_us <= old.checked_us <= now_us:
                        continue
                    value = one.sample.values.get(METRIC_OF[check])
                    if check in one.wrong:
                        value = NO_ANSWER_US
                    usual = None
                    alone.discard(key)
                    # a short delay needs no comparison
                    if check in COMPARED and ((value or 0) >= near_us.get(check, 0) or old.values):
                        usual = self._usual_of(mesh, check, one.source.zone, one.destination.zone, now_us)
                        if usual is None:
                            alone.add(key)
                    new = after(
                        old,
                        value,
                        one.sample.failed,
                        at_us,
                        mesh.thresholds,
                        mesh.attempts,
                        sent=one.packets,
                        usual=usual,
                        maintenance=maintained,
                    )
                    if check == "trace":
                        new = replace(new, path=one.path or old.path)
                    if new.value == NO_ANSWER_US:
                        new = replace(new, value=None)
                    known[key] = told[key] = new
                    if (change := change_of(old, new)) is not None:
                        changes.append(change)
        try:
            self._history.put_cells(told.values(), changes)
        except StoreError as error:  # they are in memory; a restart would count their tries anew
            log.error("the grid of mesh %s is not durable: %s", mesh.name, error)
        return changes

    def traced(self, change: Change, path: str) -> None:
        """What a trace found when a loss began: it stays with the cell while that lasts, and in the
        history."""
        key = change.check, change.source, change.destination
        with self._lock:
            cell = self._cells.get(change.mesh, {}).get(key)
            if cell is None or cell.status not in (Status.WARN, Status.CRITICAL):
                return
            cell = self._cells[change.mesh][key] = replace(cell, path=path)
        try:
            self._history.put_cells([cell], [replace(change, message=f"{change.message}; {path}")])
        except StoreError as error:
            log.error("a trace from %s to %s is not durable: %s", change.source, change.destination, error)

    def _usual_of(self, mesh: Mesh, check: str, here: str, there: str, now_us: int) -> float | None:
        """What is usual between these zones; None: nothing is known of peers."""
        since_us, usual = self._usual.get((mesh.name, check), (0, {}))
        if not 0 <= now_us - since_us < (USUAL_FOR_US if usual else SECOND_US):
            cells = self._cells[mesh.name].values()
            known = self._zone_of
            values = (
                (c.source, c.destination, c.value)
                for c in cells
                if c.check == check and c.value is not None and c.source in known and c.destination in known
            )
            usual = usual_of(values, known, COMPARED[check])
            self._usual[mesh.name, check] = (now_us, usual)
        return usual.get(zones_of(here, there))

    def unmet(self, mesh: Mesh, names: Collection[str]) -> set[str]:
        """Those of these hosts of which the mesh has no result, good or bad."""
        with self._lock:
            return set(names).difference(*(key[1:] for key in self._cells.get(mesh.name, ())))

    def doubtful(self, mesh: Mesh) -> list[frozenset[str]]:
        """The pairs that are worth a test before their next run, the most urgent first: those whose newest
        try gave what does not count yet, worse than the status, or better; those that were good while nothing
        was known of their peers, and are bad beside them; those that are not good, AGAIN_US after their
        newest try, so that a status ends soon after its cause."""
        now_us = self._clock.now_us()
        urgent: dict[frozenset[str], tuple[bool, int]] = {}
        with self._lock:
            alone = self._alone.get(mesh.name, ())
            for key, cell in self._cells.get(mesh.name, {}).items():
                if cell.status is Status.MAINTENANCE:
                    continue
                open_yet = cell.result is not cell.status or (
                    key in alone and self._stands_out(mesh, cell, now_us)
                )
                pair = frozenset(key[1:])
                last_us = max(cell.checked_us, self._tried.get((mesh.name, pair), 0))
                again = cell.status in NOT_GOOD and now_us - last_us >= AGAIN_US
                if open_yet or again:
                    rank = (not open_yet, 0 if open_yet else last_us)
                    urgent[pair] = min(rank, urgent.get(pair, rank))
        return sorted(urgent, key=lambda pair: (*urgent[pair], sorted(pair)))

    def tried(self, mesh: Mesh, pairs: Iterable[frozenset[str]]) -> None:
        """These were tested again. Where jobs left no gap a test tells nothing: it is not due for that."""
        now_us = self._clock.now_us()
        with self._lock:
            recent = {key: at_us for key, at_us in self._tried.items() if now_us - at_us < AGAIN_US}
            self._tried = recent | {(mesh.name, pair): now_us for pair in pairs}

    def lossy(self, mesh: Mesh) -> set[frozenset[str]]:
        """The pairs of which more packets would decide how much they lose, or whether that is over."""
        with self._lock:
            return {
                frozenset((c.source, c.destination))
                for c in self._cells.get(mesh.name, {}).values()
                if c.check == "loss"
                and c.status is not Status.MAINTENANCE
                and c.result is not Status.UNKNOWN
                and (c.result is not c.status or in_doubt(c, mesh.thresholds))
            }

    def _stands_out(self, mesh: Mesh, cell: Cell, now_us: int) -> bool:
        """Is what was good by itself bad beside the peers that are known by now?"""
        if cell.status is not Status.OK:
            return False
        usual = self._usual_of(
            mesh, cell.check, self._zone_of[cell.source], self._zone_of[cell.destination], now_us
        )
        return judge(cell.check, cell.value, "", mesh.thresholds, usual)[0] > Status.OK

    # -- what is gone

    def present(self, samples: Iterable[Sample]) -> list[Sample]:
        """Those of hosts that were not removed since: a late result would be taken for one of a new
        host of the same name."""
        with self._lock:
            return [s for s in samples if not self._is_gone(s)]

    def _is_gone(self, sample: Sample) -> bool:
        return bool(self._gone) and any(
            sample.at_us <= self._gone.get(name, -1) for name in (sample.source, sample.destination)
        )

    def forget_host(self, name: str) -> None:
        """The host was removed.

        Raises:
            StoreError: the database still knows it; the daemon's next start tries again.
        """
        with self._lock:
            self._gone[name] = self._clock.now_us()
            for mesh, cells in self._cells.items():
                self._cells[mesh] = {key: cell for key, cell in cells.items() if name not in key[1:]}
        self._history.forget_host(name)

    def forget_others(self, meshes: Collection[str] | None, hosts: Collection[str]) -> None:
        """Forget what earlier lives of the daemon left of any other mesh (None = of no mesh) or host."""
        with self._lock:
            left = {*self._cells, *(s.mesh for s in self._history.mesh_states())}
            others = [] if meshes is None else sorted(left - set(meshes))
            for name in others:
                self._cells.pop(name, None)
            named = {name for cells in self._cells.values() for key in cells for name in key[1:]}
        for name in others:
            log.info("mesh %s is forgotten", name)
            self._history.forget_mesh(name)
        for name in sorted(named - set(hosts)):
            self.forget_host(name)

    # -- what is shown

    def maintained(self, mesh: Mesh, a: Host, b: Host, at_us: int) -> bool:
        if any(w.covers(at_us, self._zone) for w in mesh.maintenance):
            return True
        return any(w.covers(h, at_us, self._zone) for w in self._windows for h in (a, b))

    def windows(
        self, meshes: Iterable[Mesh], hosts: Mapping[str, Host]
    ) -> list[tuple[str, str, list[str], int, int]]:
        """(mesh or "", text, hosts, begin, end) of each maintenance window, as it is or comes next."""
        now_us = self._clock.now_us()
        every = [
            (m.name, w, [h.name for h in hosts.values() if m.selects(h)])
            for m in meshes
            for w in m.maintenance
        ]
        every += [
            ("", w.window, [h.name for h in hosts.values() if selected(h, w.hosts, w.zones)])
            for w in self._windows
        ]
        found = ((mesh, w, names, occurrence(w, now_us, self._zone)) for mesh, w, names in every)
        return [(mesh, w.text, names, *when) for mesh, w, names, when in found if when is not None]

    def cells(
        self, mesh: Mesh, hosts: Mapping[str, Host], every_us: int, pairing: Pairing | None = None
    ) -> list[Cell]:
        """The mesh's cells as they are now, of the hosts that there still are. `every_us`: how often
        each is tried. `pairing`: cells that are stale are left out when it does not mean them any more,
        as of a host that represented its zone for a while; None: everything reported is shown."""
        now_us, checks = self._clock.now_us(), frozenset(mesh.checks)
        closed = any(w.covers(now_us, self._zone) for w in mesh.maintenance)
        under = {name for name, h in hosts.items() for w in self._windows if w.covers(h, now_us, self._zone)}
        with self._lock:
            mine = list(self._cells.get(mesh.name, {}).values())
        found = []
        for cell in mine:
            a, b = hosts.get(cell.source), hosts.get(cell.destination)
            if a is None or b is None or cell.check not in checks:
                continue
            maintained = closed or (bool(under) and (a.name in under or b.name in under))
            now = shown(cell, now_us, every_us, maintained)
            stale = pairing is not None and is_stale(cell, now_us, every_us)
            if not stale or pairing is None or pairing.means(a, b):
                found.append(now)
        return found
