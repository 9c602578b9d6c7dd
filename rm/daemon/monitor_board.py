"""The grid's cells, as the newest tries and the maintenance windows make them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from rm.core.cells import METRIC_OF, Cell, Change, after, change_of, is_stale, judge, shown
from rm.core.history import History, Sample, checks_of
from rm.core.host import Host, selected
from rm.core.maintenance import HostWindow
from rm.core.mesh import Mesh
from rm.core.occurrence import occurrence
from rm.core.pairing import Pairing
from rm.core.ports import Clock
from rm.errors import StoreError

log = logging.getLogger(__name__)

Key = tuple[str, str, str]  # check, source, destination


@dataclass(frozen=True, slots=True)
class Tried:
    """One direction's try."""

    source: Host
    destination: Host
    sample: Sample


class Board:
    """Any thread may ask and tell."""

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

    def tell(self, mesh: Mesh, tried: Iterable[Tried], repeats: bool = False) -> list[Change]:
        """Take the tries in, in order of time; returns how statuses changed.

        `repeats`: tries may come that were told before, as from an archive; they are passed over.
        """
        changes: list[Change] = []
        told: dict[Key, Cell] = {}
        now_us = self._clock.now_us()
        with self._lock:
            known = self._cells.setdefault(mesh.name, {})
            for one in sorted(tried, key=lambda t: t.sample.at_us):
                if self._is_gone(one.sample):
                    continue
                at_us = one.sample.at_us
                maintained = self.maintained(mesh, one.source, one.destination, at_us)
                for check in checks_of(one.sample):
                    key = (check, one.source.name, one.destination.name)
                    old = known.get(key) or Cell(mesh.name, *key)
                    if repeats and at_us <= old.checked_us <= now_us:
                        continue
                    value = one.sample.values.get(METRIC_OF[check])
                    result, said = judge(check, value, one.sample.failed, mesh.thresholds)
                    new = after(old, result, said, value, at_us, mesh.attempts, maintained)
                    known[key] = told[key] = new
                    if (change := change_of(old, new)) is not None:
                        changes.append(change)
        try:
            self._history.put_cells(told.values(), changes)
        except StoreError as error:  # they are in memory; a restart would count their tries anew
            log.error("the grid of mesh %s is not durable: %s", mesh.name, error)
        return changes

    # -- what is gone

    def present(self, samples: Iterable[Sample]) -> list[Sample]:
        """Those of hosts that were not removed since: what is told late would be taken for that of a new
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
        as of a host that represented its zone for a while; None: whatever was told is shown."""
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
