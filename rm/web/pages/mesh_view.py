"""The meshes, for those who may run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rm.api.monitoring import Mesh
from rm.web.pages.text import moment, shown, since


@dataclass(frozen=True, slots=True)
class MeshRow:
    """`name` as it is, for its address; `label` to be read."""

    name: str
    label: str
    state: str
    schedule: str
    last: str
    next: str


def meshes(rows: Sequence[Mesh], now_us: int) -> tuple[MeshRow, ...]:
    return tuple(
        MeshRow(
            row.name,
            shown(row.name),
            row.state + (f" by {shown(row.paused_by, 100)}" if row.paused_by else ""),
            shown(row.schedule),
            f"{since(row.ended_us, now_us)} ago" if row.ended_us else "never",
            moment(row.next_us),
        )
        for row in rows
    )
