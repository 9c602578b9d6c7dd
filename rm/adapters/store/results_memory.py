"""The results that archives are still to get, in memory: for tests."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.results import Cursor


@dataclass(slots=True)
class ResultTables:
    """What several `MemoryResults` share."""

    results: dict[int, Outcome] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    newest: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryResults:
    """A `Results`."""

    def __init__(self, tables: ResultTables | None = None) -> None:
        self._t = tables or ResultTables()

    def add(self, outcomes: Iterable[Outcome]) -> int:
        with self._t.lock:
            for outcome in outcomes:
                self._t.newest += 1
                self._t.results[self._t.newest] = outcome
            return self._t.newest

    def newest(self) -> int:
        return self._t.newest

    def after(self, number: int, limit: int) -> tuple[list[tuple[int, Outcome]], int]:
        with self._t.lock:
            found = [one for one in sorted(self._t.results.items(), key=_number) if one[0] > number][:limit]
            return found, found[-1][0] if found else number

    def some(self, numbers: Collection[int]) -> list[tuple[int, Outcome]]:
        with self._t.lock:
            return [one for one in sorted(self._t.results.items(), key=_number) if one[0] in numbers]

    def cursors(self) -> Mapping[str, Cursor]:
        with self._t.lock:
            return dict(self._t.cursors)

    def put_cursor(self, archive: str, cursor: Cursor) -> None:
        with self._t.lock:
            self._t.cursors[archive] = cursor

    def forget_cursors(self, but: Collection[str]) -> None:
        with self._t.lock:
            self._t.cursors = {name: cursor for name, cursor in self._t.cursors.items() if name in but}

    def prune(self, before: int, most: int, most_bytes: int) -> int:
        with self._t.lock:
            kept, size = dict[int, Outcome](), 0
            for number, outcome in sorted(self._t.results.items(), key=_number, reverse=True):
                size += len(repr(outcome.found))
                if number < before or len(kept) >= most or size > most_bytes:
                    break
                kept[number] = outcome
            gone = len(self._t.results) - len(kept)
            self._t.results = kept
            return gone


def _number(one: tuple[int, Outcome]) -> int:
    return one[0]
