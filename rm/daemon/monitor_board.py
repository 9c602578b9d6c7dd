"""The grid's cells, as the newest tries and the maintenance windows make them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from rm.core.cells import METRIC_OF, Cell, Flip, after, judge, shown
from rm.core.history import History, Sample
from rm.core.host import Host, selected
from rm.core.maintenance import HostWindow
from rm.core.mesh import Mesh
from rm.core.occurrence import occurrence
from rm.core.ports import Clock
from rm.errors import StoreError

log = logging.getLogger(__name__)

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Tried:
    """One direction's try, and the checks that it was made for."""

    source: Host
    destination: Host
    sample: Sample
    checks: Sequence[str]


class Board:
    """Any thread may ask and tell. `listeners` hear of every change of a status."""

    def __init__(
        self, history: History, clock: Clock, zone: tzinfo, windows: Sequence[HostWindow] = ()
    ) -> None:
        self._history = history
        self._clock = clock
        self._zone = zone
        self._windows = tuple(windows)
        self._lock = threading.Lock()
        self._cells: dict[Key, Cell] = {c.key: c for c in history.cells()}
        self.listeners: list[Callable[[Sequence[Flip]], None]] = []

    def tell(self, mesh: Mesh, tried: Iterable[Tried]) -> list[Flip]:
        """Take the tries in; returns the changes of statuses, of which the listeners have heard."""
        flips: list[Flip] = []
        changed: list[Cell] = []
        with self._lock:
            for one in tried:
                maintained = self.maintained(mesh, one.source, one.destination, one.sample.at_us)
                for check in one.checks:
                    key = (mesh.name, check, one.source.name, one.destination.name)
                    old = self._cells.get(key) or Cell(*key)
                    value = one.sample.values.get(METRIC_OF[check])
                    result, said = judge(check, value, one.sample.failed, mesh.thresholds)
                    new = after(old, result, said, value, one.sample.at_us, mesh.attempts, maintained)
                    self._cells[key] = new
                    if new.status is not old.status:
                        flips.append(Flip(new, old.status))
                    if (new.status, new.result, new.streak) != (old.status, old.result, old.streak):
                        changed.append(new)
        try:
            self._history.put_cells(changed)
        except StoreError as error:  # they are in memory; a restart would count their tries anew
            log.error("the grid of mesh %s is not durable: %s", mesh.name, error)
        if flips:
            for listener in self.listeners:
                listener(flips)
        return flips

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

    def cells(self, mesh: Mesh, hosts: Mapping[str, Host], every_us: int) -> list[Cell]:
        """The mesh's cells as they are now, of the hosts that there still are. `every_us`: how often
        each is tried."""
        now_us = self._clock.now_us()
        with self._lock:
            mine = [c for c in self._cells.values() if c.mesh == mesh.name]
        found = []
        for cell in mine:
            a, b = hosts.get(cell.source), hosts.get(cell.destination)
            if a is not None and b is not None and cell.check in mesh.checks:
                found.append(shown(cell, now_us, every_us, self.maintained(mesh, a, b, now_us)))
        return found
