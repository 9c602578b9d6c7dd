"""Links, what is measured between hosts, and the history of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rm.api.answer import Answer, Number, Request
from rm.api.jobs import Phase
from rm.api.reasons import Rotation


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a job sends on the link during one iteration."""

    job: int
    period_us: int
    phases: Sequence[Phase]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """`score`, `perimeter_us` and `gap_us` are null, `rotations` and `demands` empty while jobs do not
    contend for it."""

    name: str
    capacity_bps: int
    jobs: Sequence[int]
    score: Number | None
    perimeter_us: int | None
    rotations: Sequence[Rotation]
    gap_us: int | None
    demands: Sequence[Demand] = ()


class Links(Answer, frozen=True, kw_only=True):
    links: Sequence[Link]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The newest measurement of one direction."""

    source: str
    destination: str
    loss_pct: Number | None
    delay_us: Number | None
    jitter_us: Number | None = None
    bandwidth_bps: Number | None
    age_us: int | None
    failures: int = 0
    confidence: Number | None = None


class Pairs(Answer, frozen=True, kw_only=True):
    pairs: Sequence[Pair]


class Measure(Request, frozen=True, kw_only=True):
    """null: all zones."""

    zone: str | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    why: str


class Measured(Answer, frozen=True, kw_only=True):
    """How many pairs were measured, and the hosts without a result."""

    measured: int
    left_out: Sequence[LeftOut] = ()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One try: its values by metric (`loss_pct`, `delay_us`, `jitter_us`, `rtt_us`, `bandwidth_bps`,
    `mtu_bytes`, `clock_error_us`), or why it failed."""

    at_us: int
    mesh: str
    values: Mapping[str, Number]
    failed: str
    checks: Sequence[str] = ()


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    min: Number
    mean: Number
    max: Number
    count: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the tries of an hour or a day, by metric."""

    start_us: int
    span_us: int
    stats: Mapping[str, Stat]
    tries: int
    failures: int


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What placement knows of the direction now."""

    loss_pct: Number | None = None
    delay_us: Number | None = None
    jitter_us: Number | None = None
    bandwidth_bps: Number | None = None
    age_us: int | None = None
    failures: int = 0
    confidence: Number | None = None
    bandwidth_confidence: Number | None = None


class History(Answer, frozen=True, kw_only=True):
    """One direction; summaries instead of samples where these are too many or forgotten."""

    source: str
    destination: str
    samples: Sequence[Sample]
    summaries: Sequence[Summary]
    now: Known | None
