"""The results that archives of others are still to get, in the store: all leaders share them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rm.core.monitoring.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far an archive has got: all results up to number `read` are settled, but those in `left`."""

    read: int = 0
    left: tuple[int, ...] = ()

    @property
    def needs(self) -> int:
        """The number of the oldest result that it may still want."""
        return min(self.left, default=self.read + 1)


class Results(Protocol):
    """Numbers grow and are never used twice. Not fenced by the lease, and from any thread; raises as `Store`
    does."""

    def add(self, outcomes: Iterable[Outcome]) -> int:
        """Keep them, in one transaction; the number of the newest result."""
        ...

    def newest(self) -> int:
        """The number of the newest result that there has been, forgotten ones included; 0: there was none."""
        ...

    def after(self, number: int, limit: int) -> tuple[list[tuple[int, Outcome]], int]:
        """The oldest `limit` results with a larger number, in order, without those that cannot be read; and
        the number of the last one that was looked at, `number` where there was none."""
        ...

    def some(self, numbers: Collection[int]) -> list[tuple[int, Outcome]]:
        """Those of these numbers that there still are, in order."""
        ...

    def cursors(self) -> Mapping[str, Cursor]: ...

    def put_cursor(self, archive: str, cursor: Cursor) -> None: ...

    def forget_cursors(self, but: Collection[str]) -> None:
        """Of archives that are no more."""
        ...

    def prune(self, before: int, most: int, most_bytes: int) -> int:
        """Forget the results with a smaller number, and the oldest of more than `most` or `most_bytes`;
        counts them."""
        ...
