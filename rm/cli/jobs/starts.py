"""`rmx queue --start`: when the jobs that wait are expected to start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rm.cli.session import Session, emit_json, table
from rm.cli.shown import moment, row_ref
from rm.units import fold_hosts

if TYPE_CHECKING:
    from rm.api.job_rows import JobRow

COLUMNS = ("JOBID", "PARTITION", "NAME", "USER", "EARLIEST", "LIKELY", "LATEST", "EXPECTED", "ON", "REASON")
UNKNOWN = "N/A"


def show_starts(session: Session, rows: Sequence[JobRow], as_json: bool, header: bool) -> None:
    """Of these jobs those that wait, the first to start first."""
    answer = session.client.starts()
    found = {one.job: one for one in answer.starts}
    waiting = [row for row in rows if row.state == "PENDING"]
    if as_json:
        shown = {row.id for row in waiting}
        emit_json({"starts": [one for one in answer.starts if one.job in shown], "until_us": answer.until_us})
        return
    waiting.sort(key=lambda row: (found[row.id].at_us if row.id in found else 1 << 62, row.id))
    cells = []
    for row in waiting:
        start = found.get(row.id)
        names = ("soonest_us", "likely_us", "latest_us", "at_us")
        when = (moment(getattr(start, name) if start else None, UNKNOWN) for name in names)
        where = fold_hosts(list(start.hosts)) if start else ""
        cells.append((row_ref(row), row.partition or "-", row.name, row.user, *when, where, row.reason))
    table(COLUMNS, cells, header=header)
