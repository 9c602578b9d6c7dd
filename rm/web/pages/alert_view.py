"""Alerts: those that fire, those that may soon fire, and those that are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rm.api.alerts import Alert, Silence
from rm.units import fold_hosts
from rm.web.pages.text import moment, shown, since

MOST = 20  # rows of those that hold
OVER_MOST = 10
ALIKE_MOST = 2  # more of one condition and state are one row
ACKNOWLEDGED_MOST = 50  # alerts at once: their ids are in an address
STATES = ("firing", "pending", "resolved")


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert, or several alike: `count`. `notes`: who acknowledged it, and which channels could not be
    notified. `target`: the ids to acknowledge, one a line."""

    id: str
    state: str
    condition: str
    level: str
    subject: str
    count: int
    message: str
    since: str
    at: str
    notes: tuple[str, ...]
    target: str


@dataclass(frozen=True, slots=True)
class Alerts:
    """`active`: firing ones first, the newest first; `over` ended lately; `left_out` alerts of `active`."""

    active: tuple[AlertRow, ...]
    left_out: int
    over: tuple[AlertRow, ...]
    silences: tuple[tuple[int, str], ...]


def alerts(rows: Sequence[Alert], now_us: int, silences: Sequence[Silence] = ()) -> Alerts:
    found: dict[str, list[Alert]] = {state: [] for state in STATES}
    for row in rows:
        found.setdefault(row.state, []).append(row)
    for state, these in found.items():
        these.sort(key=lambda row: -_began_us(row, state))
    groups = [*alike(found["firing"]), *alike(found["pending"])]
    return Alerts(
        active=tuple(_row(group, now_us) for group in groups[:MOST]),
        left_out=sum(len(group) for group in groups[MOST:]),
        over=tuple(_row(group, now_us) for group in alike(found["resolved"])[:OVER_MOST]),
        silences=tuple((one.id, _silence(one)) for one in silences if one.until_us > now_us)[:MOST],
    )


def _silence(told: Silence) -> str:
    what = ", ".join(told.conditions) or "all conditions"
    whom = ", ".join(told.hosts) or "all hosts"
    why = f": {told.comment}" if told.comment else ""
    return shown(f"{what} of {whom} until {moment(told.until_us)}, by {told.by}{why}", 300)


def alike(rows: Sequence[Alert]) -> list[list[Alert]]:
    """Groups of alerts that are drawn as one, in the order of their first."""
    found: dict[Any, list[Alert]] = {}
    for row in rows:
        found.setdefault((row.condition, row.level, tuple(_notes(row))), []).append(row)
    return [
        part
        for group in found.values()
        for part in ([group] if len(group) > ALIKE_MOST else [[row] for row in group])
    ]


def _began_us(row: Alert, state: str) -> int:
    """When it came to be what it is."""
    began = {"pending": row.pending_us, "resolved": row.ended_us}
    return began.get(state, row.fired_us) or 0


def _row(group: Sequence[Alert], now_us: int) -> AlertRow:
    row, more = group[0], len(group) - 1
    at_us = _began_us(row, row.state)
    said = shown(row.message, 400)
    return AlertRow(
        id=shown(row.id, 300),
        state=row.state,
        condition=shown(row.condition),
        level=row.level or "",
        subject=shown(fold_hosts(row.subject for row in group), 200),
        count=len(group),
        message=f"{said}; and {more} like it" if more else said,
        since=since(at_us, now_us),
        at=moment(at_us or None),
        notes=tuple(_notes(row)),
        target=_target(group),
    )


def _target(group: Sequence[Alert]) -> str:
    if group[0].state != "firing" or group[0].acked or len(group) > ACKNOWLEDGED_MOST:
        return ""
    return "\n".join(row.id for row in group)


def _notes(row: Alert) -> list[str]:
    notes = []
    if row.acked:
        notes.append(f"acknowledged by {shown(row.acked, 200)}")
    if row.silenced:
        notes.append(f"silenced: {shown(row.silenced, 100)}")
    if row.fired_recently > 1:
        notes.append(f"fired {row.fired_recently} times of late")
    notes += [f"{shown(owed.channel)} is still to be notified" for owed in row.owed]
    if row.failed:
        notes.append(shown(row.failed, 200))
    return notes
