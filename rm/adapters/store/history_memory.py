"""The history of the network in memory: for the simulator and for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from rm.core.monitoring.cells import Cell, Change
from rm.core.monitoring.history import Retention, Sample, Summary, merge, summarise
from rm.core.monitoring.mesh import MeshState
from rm.units import DAY_US, HOUR_US, MINUTE_US

SETTLED_US = 2 * MINUTE_US


@dataclass(slots=True)
class HistoryTables:
    """What several `MemoryHistory`s share. Hours and days before their marks are summarised, and what
    is before `forgotten_us` is not taken any more."""

    samples: dict[tuple[str, str, int, str], Sample] = field(default_factory=dict)
    summaries: dict[tuple[int, str, str, int], Summary] = field(default_factory=dict)
    cells: dict[tuple[str, str, str, str], Cell] = field(default_factory=dict)
    changes: dict[tuple[str, str, str, str, int], Change] = field(default_factory=dict)
    meshes: dict[str, MeshState] = field(default_factory=dict)
    hourly_us: int = 0
    daily_us: int = 0
    forgotten_us: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryHistory:
    """A `History` over `HistoryTables`."""

    def __init__(self, tables: HistoryTables) -> None:
        self._t = tables

    def record(self, samples: Iterable[Sample]) -> int:
        new = 0
        with self._t.lock:
            for sample in samples:
                key = (sample.source, sample.destination, sample.at_us, sample.mesh)
                if sample.at_us < self._t.forgotten_us or key in self._t.samples:
                    continue
                self._t.samples[key] = sample
                self._t.hourly_us = min(self._t.hourly_us, sample.at_us // HOUR_US * HOUR_US)
                new += 1
        return new

    def samples(
        self,
        source: str,
        destination: str,
        since_us: int = 0,
        until_us: int | None = None,
        mesh: str = "",
        limit: int | None = None,
    ) -> list[Sample]:
        with self._t.lock:
            found = [
                s
                for s in self._t.samples.values()
                if (s.source, s.destination) == (source, destination)
                and s.at_us >= since_us
                and (until_us is None or s.at_us < until_us)
                and mesh in ("", s.mesh)
            ]
        found.sort(key=lambda s: (s.at_us, s.mesh))
        return found if limit is None else found[max(0, len(found) - limit) :]

    def summaries(
        self, source: str, destination: str, span_us: int, since_us: int = 0, until_us: int | None = None
    ) -> list[Summary]:
        with self._t.lock:
            return [
                s
                for (span, a, b, start_us), s in sorted(self._t.summaries.items())
                if (span, a, b) == (span_us, source, destination)
                and start_us >= since_us
                and (until_us is None or start_us < until_us)
            ]

    def latest(self, mesh: str = "") -> list[Sample]:
        newest: dict[tuple[str, str], Sample] = {}
        with self._t.lock:
            for sample in self._t.samples.values():
                pair = (sample.source, sample.destination)
                if mesh in ("", sample.mesh) and (pair not in newest or newest[pair].at_us <= sample.at_us):
                    newest[pair] = sample
        return [newest[pair] for pair in sorted(newest)]

    def roll_up(self, now_us: int) -> int:
        t = self._t
        with t.lock:
            over_us = max((now_us - SETTLED_US) // HOUR_US * HOUR_US, t.hourly_us)
            made = summarise((s for s in t.samples.values() if t.hourly_us <= s.at_us < over_us), HOUR_US)
            t.hourly_us = over_us
            for one in made:
                t.daily_us = min(t.daily_us, one.start_us // DAY_US * DAY_US)
                self._keep(one)
            days_us = max(over_us // DAY_US * DAY_US, t.daily_us)
            hours = [
                s for s in t.summaries.values() if s.span_us == HOUR_US and t.daily_us <= s.start_us < days_us
            ]
            t.daily_us = days_us
            days = merge(hours, DAY_US)
            for one in days:
                self._keep(one)
            return len(made) + len(days)

    def _keep(self, one: Summary) -> None:
        self._t.summaries[one.span_us, one.source, one.destination, one.start_us] = one

    def prune(self, now_us: int, keep: Retention) -> int:
        t = self._t
        with t.lock:
            raw_us = min(now_us - keep.raw_us, t.hourly_us) // HOUR_US * HOUR_US
            hourly_us = min(now_us - keep.hourly_us, t.daily_us) // DAY_US * DAY_US
            ahead = t.forgotten_us > now_us  # by a clock that has gone back since
            t.forgotten_us = raw_us if ahead else max(t.forgotten_us, raw_us)
            before_us = {HOUR_US: hourly_us, DAY_US: now_us - keep.daily_us}
            before = len(t.samples) + len(t.summaries) + len(t.changes)
            t.samples = {k: s for k, s in t.samples.items() if s.at_us >= raw_us}
            t.summaries = {k: s for k, s in t.summaries.items() if s.start_us >= before_us[s.span_us]}
            thinned_us = (now_us - keep.hourly_us) // DAY_US * DAY_US
            last = {(k[:4], k[4] // DAY_US): k for k in sorted(t.changes)}
            t.changes = {
                k: c
                for k, c in t.changes.items()
                if c.at_us >= now_us - keep.daily_us
                and (c.at_us >= thinned_us or last[k[:4], k[4] // DAY_US] == k)
            }
            return before - len(t.samples) - len(t.summaries) - len(t.changes)

    def cells(self, mesh: str = "") -> list[Cell]:
        with self._t.lock:
            return [c for _, c in sorted(self._t.cells.items()) if mesh in ("", c.mesh)]

    def put_cells(self, new: Iterable[Cell], changes: Iterable[Change] = ()) -> None:
        with self._t.lock:
            self._t.cells.update((c.key, c) for c in new)
            self._t.changes.update(((c.mesh, c.check, c.source, c.destination, c.at_us), c) for c in changes)

    def changes(
        self,
        mesh: str = "",
        check: str = "",
        source: str = "",
        destination: str = "",
        since_us: int = 0,
        limit: int | None = None,
    ) -> list[Change]:
        wanted = (mesh, check, source, destination)
        with self._t.lock:
            found = [
                c
                for c in self._t.changes.values()
                if c.at_us >= since_us
                and all(
                    w in ("", v)
                    for w, v in zip(wanted, (c.mesh, c.check, c.source, c.destination), strict=True)
                )
            ]
        found.sort(key=lambda c: (c.at_us, c.mesh, c.check, c.source, c.destination))
        return found if limit is None else found[max(0, len(found) - limit) :]

    def mesh_states(self) -> list[MeshState]:
        with self._t.lock:
            return [s for _, s in sorted(self._t.meshes.items())]

    def put_mesh_state(self, state: MeshState) -> None:
        with self._t.lock:
            self._t.meshes[state.mesh] = state

    def forget_mesh(self, mesh: str) -> None:
        with self._t.lock:
            self._t.meshes.pop(mesh, None)
            self._t.cells = {k: c for k, c in self._t.cells.items() if c.mesh != mesh}
            self._t.changes = {k: c for k, c in self._t.changes.items() if c.mesh != mesh}

    def forget_host(self, host: str) -> None:
        t = self._t
        with t.lock:
            t.samples = {k: s for k, s in t.samples.items() if host not in (s.source, s.destination)}
            t.summaries = {k: s for k, s in t.summaries.items() if host not in (s.source, s.destination)}
            t.cells = {k: c for k, c in t.cells.items() if host not in (c.source, c.destination)}
            t.changes = {k: c for k, c in t.changes.items() if host not in (c.source, c.destination)}
