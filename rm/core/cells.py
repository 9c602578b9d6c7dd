"""The grid: one cell per mesh, check and direction, with MaDDash's statuses.

A cell's status follows a result only after several tries in a row agree (MaDDash's
`retryAttempts`), so that one bad packet does not wake anybody. Maintenance takes effect at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from rm.core.mesh import Thresholds


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


# What of a sample each check looks at.
METRIC_OF = {"loss": "loss_pct", "delay": "delay_us", "bandwidth": "bandwidth_bps", "mtu": "mtu_bytes"}
CHECKS = tuple(METRIC_OF)
STALE_INTERVALS = 3  # a cell that was not tried for so many of its intervals is unknown


@dataclass(frozen=True, slots=True)
class Cell:
    """One check of one direction. `status` is what counts; `result` is what the newest try itself
    says, `streak` tries in a row; `since_us` is when the status last changed."""

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


def judge(check: str, value: float | None, failed: str, limits: Thresholds) -> tuple[Status, str]:
    """What one try says, and in words. `value` as in METRIC_OF; `failed`: why there is none."""
    if value is None:
        return Status.UNKNOWN, failed or "nothing was measured"
    if check == "loss":
        return _above(value, limits.loss_warn_pct, limits.loss_critical_pct, f"loss {value:.4g} %", " %")
    if check == "delay":
        ms = value / 1_000
        return _above(ms, limits.delay_warn_ms, limits.delay_critical_ms, f"delay {ms:.4g} ms", " ms")
    if check == "bandwidth":
        mbps = value / 1e6
        said = f"bandwidth {mbps:.4g} Mbit/s"
        return _below(mbps, limits.bandwidth_warn_mbps, limits.bandwidth_critical_mbps, said, " Mbit/s")
    return _below(value, limits.mtu_warn_bytes, limits.mtu_critical_bytes, f"MTU {value:.0f} bytes", " bytes")


def _above(value: float, warn: float, critical: float, said: str, unit: str) -> tuple[Status, str]:
    if critical and value >= critical:
        return Status.CRITICAL, f"{said}, critical from {critical:g}{unit}"
    if warn and value >= warn:
        return Status.WARN, f"{said}, a warning from {warn:g}{unit}"
    return Status.OK, said


def _below(value: float, warn: float, critical: float, said: str, unit: str) -> tuple[Status, str]:
    if critical and value < critical:
        return Status.CRITICAL, f"{said}, critical below {critical:g}{unit}"
    if warn and value < warn:
        return Status.WARN, f"{said}, a warning below {warn:g}{unit}"
    return Status.OK, said


def after(
    cell: Cell,
    result: Status,
    message: str,
    value: float | None,
    at_us: int,
    attempts: int,
    maintenance: bool = False,
) -> Cell:
    """The cell after one more try.

    A status other than the present one must come `attempts` times in a row; the first good result of
    a cell that never ran counts at once, and so do the beginning and the end of maintenance.
    """
    streak = cell.streak + 1 if result is cell.result else 1
    status = cell.status
    if maintenance:
        status = Status.MAINTENANCE
    elif (
        streak >= attempts or status is Status.MAINTENANCE or (status, result) == (Status.NOT_RUN, Status.OK)
    ):
        status = result
    return replace(
        cell,
        status=status,
        message=message,
        value=value,
        checked_us=at_us,
        result=result,
        streak=min(streak, max(attempts, 1)),  # further ones change nothing
        since_us=at_us if status is not cell.status else cell.since_us,
    )


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
