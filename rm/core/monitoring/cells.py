"""The grid: one cell per mesh, check and direction, with MaDDash's statuses.

How the tries make a cell's status: `rm.core.monitoring.judging`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum


class Status(IntEnum):
    OK = 0
    WARN = 1
    CRITICAL = 2
    UNKNOWN = 3  # tried, and nothing was learnt; or too long ago
    NOT_RUN = 4
    MAINTENANCE = 5

    @property
    def word(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def letter(self) -> str:
        return "owc?.m"[self]


STALE_INTERVALS = 3  # a cell that was not tried for this many of its intervals is unknown


@dataclass(frozen=True, slots=True)
class Cell:
    """One check of one direction.

    `status` is what counts, since `since_us`; `message` and `value` are the figures that made it.
    `path`: what a trace found when a loss began, in words, while it lasts.
    `result` is what the newest try itself says, `streak` tries in a row. Of the newest tries is kept what
    the next one is judged with, oldest first: `packets` are (lost, sent) of those that counted packets, from
    the first one that lost some; `values` what others found since the last one that agreed with the status.
    """

    mesh: str
    check: str
    source: str
    destination: str
    status: Status = Status.NOT_RUN
    message: str = ""
    value: float | None = None
    checked_us: int = 0
    result: Status = Status.NOT_RUN
    streak: int = 0
    since_us: int = 0
    path: str = ""
    packets: tuple[tuple[int, int], ...] = ()
    values: tuple[float, ...] = ()

    @property
    def said(self) -> str:
        """The message, with what the trace found."""
        return f"{self.message}; {self.path}" if self.path else self.message

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.mesh, self.check, self.source, self.destination


@dataclass(frozen=True, slots=True)
class Change:
    """A cell's status became another at `at_us`: the history of a cell, one after the other.

    The first good result of a cell that never ran is none.
    """

    mesh: str
    check: str
    source: str
    destination: str
    at_us: int
    was: Status
    status: Status
    message: str = ""
    value: float | None = None


def change_of(old: Cell, new: Cell) -> Change | None:
    """What is to be remembered of a cell that was `old` and is `new`."""
    if new.status is old.status or (old.status, new.status) == (Status.NOT_RUN, Status.OK):
        return None
    return Change(*new.key, new.since_us, old.status, new.status, new.message, new.value)


def is_stale(cell: Cell, now_us: int, every_us: int) -> bool:
    """Have its tests stopped coming?"""
    return every_us > 0 and now_us - cell.checked_us > STALE_INTERVALS * every_us


def shown(cell: Cell, now_us: int, every_us: int, maintenance: bool = False) -> Cell:
    """The cell as it is now: under maintenance, or unknown when its tests have stopped coming."""
    if maintenance:
        return replace(cell, status=Status.MAINTENANCE)
    if cell.status in (Status.MAINTENANCE, Status.NOT_RUN):
        return cell if cell.status is Status.NOT_RUN else replace(cell, status=cell.result)
    if is_stale(cell, now_us, every_us):
        return replace(cell, status=Status.UNKNOWN, message=f"not checked since: {cell.message}")
    return cell
