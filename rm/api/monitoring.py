"""Meshes, their grids, and the archives that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rm.api.answer import Answer, Number, Request

# 0 ok, 1 warn, 2 critical, 3 unknown, 4 not run, 5 maintenance
CellStatus = Annotated[int, Meta(ge=0, le=5)]


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """A table of rm.toml that was left out, and why."""

    name: str
    message: str


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Maintenance, as it is or comes next; `mesh` "" = of hosts in all meshes."""

    mesh: str
    when: str
    hosts: Sequence[str]
    begins_us: int
    ends_us: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run of a mesh: round `turn` of `rounds` comes next."""

    name: str
    paused_by: str | None
    begun_us: int | None
    ended_us: int | None
    turn: int
    rounds: int
    measured: int
    failed: int
    skipped: int


class Mesh(Run, frozen=True, kw_only=True):
    """`kind` is `mesh`, or the kind of the archive; `sides`: which hosts are measured towards which,
    null = all with all; `thresholds`: those for a warning and for critical, 0 = never; `statuses`:
    how many cells are in each; `complaint`: why it does not keep its schedule, "" when it does; `service`:
    what tests of dns and http ask."""

    kind: str
    complaint: str = ""
    schedule: str
    tests: Sequence[str]
    checks: Sequence[str]
    hosts: Sequence[str]
    sides: Sequence[Sequence[str]] | None
    without: Sequence[Sequence[str]]
    state: Literal["paused", "running", "waiting"]
    next_us: int | None
    every_us: int
    jitter_us: int
    slip_us: int
    packets: int
    spacing_us: int
    duration_us: int
    rate_bps: int
    service: Mapping[str, str | int] = {}
    retry_attempts: int
    thresholds: Mapping[str, Number]
    statuses: Mapping[str, int]


class Meshes(Answer, frozen=True, kw_only=True):
    meshes: Sequence[Mesh]
    malformed: Sequence[Malformed]
    maintenance: Sequence[Window]


class RunMesh(Request, frozen=True, kw_only=True):
    """All rounds, or those that are due in one run."""

    all: bool = False


class OneMesh(Answer, frozen=True, kw_only=True):
    mesh: Run


class GridHost(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    zone: str


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One check of one direction; `result` is what the newest try said, `streak` how often in a row."""

    check: str
    source: str
    destination: str
    status: CellStatus
    message: str
    value: Number | None
    checked_us: int | None
    since_us: int | None
    result: CellStatus
    streak: int


class Grid(Answer, frozen=True, kw_only=True):
    mesh: str
    checks: Sequence[str]
    hosts: Sequence[GridHost]
    cells: Sequence[Cell]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    at_us: int
    check: str
    source: str
    destination: str
    was: CellStatus
    status: CellStatus
    message: str
    value: Number | None


class Changes(Answer, frozen=True, kw_only=True):
    """In the order of time."""

    mesh: str
    changes: Sequence[Change]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """An archive: its newest reading, what it brought, and what went wrong."""

    name: str
    kind: str
    url: str
    every: str
    tried_us: int
    read_us: int
    recorded: int
    refused: int
    strangers: int
    message: str


class Sources(Answer, frozen=True, kw_only=True):
    sources: Sequence[Source]
    malformed: Sequence[Malformed]


class OneSource(Answer, frozen=True, kw_only=True):
    source: Source


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that results are sent to: how many wait, were sent and were given up since the daemon leads;
    `meshes`: of which, none = all; `message`: why the newest try failed, "" when it did not."""

    name: str
    kind: str
    host: str
    meshes: Sequence[str]
    waiting: int
    sent: int
    dropped: int
    tried_us: int
    sent_us: int
    message: str


class Archives(Answer, frozen=True, kw_only=True):
    archives: Sequence[Archive]
    malformed: Sequence[Malformed]
