"""The weekly digest of an account: what was used for it, by whom, and what its jobs waited for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rm.core.sharing.ended import WAIT_KINDS, Sums
from rm.units import DAY_US, HOUR_US, MINUTE_US, SECOND_US, format_elapsed

WEEK_US = 7 * DAY_US
MONDAY_US = 4 * DAY_US  # the first one after the epoch, which began on a Thursday
NAME_WIDTH = 16
SENT = "sent"  # the mark of a week whose text is not known
REMEMBERED = 8  # weeks before now of which is known that they were mailed, and as many after it


def week_before(now_us: int) -> tuple[int, int]:
    """(from, until before) of the last whole week, which begins on Monday, UTC."""
    until_us = (now_us - MONDAY_US) // WEEK_US * WEEK_US + MONDAY_US
    return until_us - WEEK_US, until_us


@dataclass(frozen=True, slots=True)
class Mailed:
    """Which weeks an address got: until when each lasts -> the mark of its text. `early` are those that a
    clock which went back since has not reached yet: either they were mailed before they were over, or that
    clock is wrong now."""

    weeks: Mapping[int, str] = field(default_factory=dict)
    early: frozenset[int] = frozenset()

    def at(self, until_us: int) -> Mailed:
        """As it is when the last whole week ends there."""
        return replace(self, early=self.early | {week for week in self.weeks if week > until_us})

    def may_miss(self, until_us: int) -> bool:
        """Could this week be due?"""
        return until_us not in self.weeks or until_us in self.early

    def is_older(self, until_us: int) -> bool:
        """Is it before all that were mailed, by a clock that went back?"""
        return bool(self.weeks) and until_us < min(self.weeks)

    def has(self, until_us: int, text: str) -> bool:
        return self.weeks.get(until_us) in (SENT, mark_of(text))

    def corrects(self, until_us: int) -> bool:
        """Is a letter of this week one that takes the place of another?"""
        return until_us in self.weeks

    def with_week(self, until_us: int, text: str) -> Mailed:
        """It got this text, after the week was over."""
        known = sorted({*self.weeks, until_us})
        past = [week for week in known if week <= until_us][-REMEMBERED:]
        kept = past + [week for week in known if week > until_us][:REMEMBERED]
        weeks = {week: self.weeks.get(week, "") for week in kept} | {until_us: mark_of(text)}
        return Mailed(weeks, self.early.intersection(kept) - {until_us})


def mark_of(text: str) -> str:
    """Another one for another text."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def digest(account: str, since_us: int, until_us: int, lines: Sequence[tuple[str, Any]]) -> str:
    """`lines`: (user, sums) of each user in the account whose jobs ended in the time; `sums` has the names of
    `Sums`."""
    days = f"{_date(since_us)} to {_date(until_us - 1)}"
    head = [f"What the account {account} used from {days} (UTC)", ""]
    if not lines:
        return "\n".join([*head, "No job that had started ended in this time.", ""])
    whole = Sums._make(sum(getattr(sums, name) for _, sums in lines) for name in Sums._fields)
    return "\n".join([*head, *_summary(whole), "", *_table(whole, lines), "", *_waits(whole), ""])


def _summary(whole: Sums) -> list[str]:
    jobs = "1 job" if whole.jobs == 1 else f"{whole.jobs} jobs"
    found = [f"{jobs} ended, {whole.failed} of which did not complete."]
    held = f"{_hours(whole.cpu_us)} processor hours"
    if whole.gpu_us:
        held = f"{_hours(whole.gpu_us)} GPU hours and {held}"
    found.append(f"They held {held}.")
    if whole.gpu_watched_us:
        found.append(f"GPUs were idle for {_idle(whole)} of the time for which they were watched.")
    found.append(f"Lost to other jobs on their links: {whole.slowed_us // MINUTE_US} minutes.")
    if saved := whole.saved_us // MINUTE_US:
        found.append(f"Saved by interleaving, as estimated: {saved} minutes.")
    return found


def _table(whole: Sums, lines: Sequence[tuple[str, Any]]) -> list[str]:
    """Those who held most come first."""
    columns = ("JOBS", "FAILED", "GPU-H", "GPU-IDLE", "CPU-H", "WAITED", "LOST")
    rows = sorted(lines, key=lambda line: (-line[1].gpu_us, -line[1].cpu_us, line[0]))
    rows = [*rows, ("all", whole)] if len(rows) > 1 else rows
    width = max(NAME_WIDTH, *(len(user) for user, _ in rows))
    found = [f"{'USER':<{width}}" + "".join(f" {name:>9}" for name in columns)]
    for user, sums in rows:
        cells = (
            sums.jobs, sums.failed, _hours(sums.gpu_us), _idle(sums), _hours(sums.cpu_us),
            format_elapsed(sums.waited_us), format_elapsed(sums.slowed_us),
        )  # fmt: skip
        found.append(f"{user:<{width}}" + "".join(f" {cell:>9}" for cell in cells))
    return found


def _waits(whole: Sums) -> list[str]:
    """From the submission on, the longest first."""
    parts = sorted(((getattr(whole, f"waited_{kind}_us"), kind) for kind in WAIT_KINDS), reverse=True)
    total_us = sum(us for us, _ in parts)
    if total_us < SECOND_US:
        return ["The jobs did not wait."]
    found = [f"The jobs waited {format_elapsed(total_us)} in all:"]
    for us, kind in parts:
        if us >= SECOND_US:
            found.append(f"  {kind:<12}{format_elapsed(us):>14}{100 * us / total_us:>6.0f} %")
    return found


def _hours(us: int) -> str:
    return f"{us / HOUR_US:.1f}"


def _idle(sums: Any) -> str:
    """Of what was watched; `-`: nothing was."""
    if not sums.gpu_watched_us:
        return "-"
    return f"{100 * (1 - min(1.0, sums.gpu_busy_us / sums.gpu_watched_us)):.0f} %"


def _date(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d")
