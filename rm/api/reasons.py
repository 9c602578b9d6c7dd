"""Why not: typed reasons and what placement thinks of each host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rm.api.answer import Answer


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A code, one sentence, and the numbers behind it."""

    code: str
    message: str
    numbers: Mapping[str, float | int | str] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Of one host: the reason for which it is refused, or its scores in the pipeline's order."""

    host: str
    refused: Reason | None
    scores: Sequence[tuple[str, float]]


class TaskPlacement(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    host: str
    gpus: Sequence[int] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Every task of the job, in the order of ranks."""

    tasks: Sequence[TaskPlacement]


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """The job is rotated by `slots` of `circle_slots` on the link."""

    link: str
    job: int
    slots: int
    circle_slots: int


class LinkAlignment(msgspec.Struct, frozen=True, kw_only=True):
    """One contended link; a score of 100 is one without contention."""

    link: str
    score: float
    perimeter_us: int
    jobs: Sequence[int]
    rotations: Sequence[Rotation] = ()
    gap_us: int | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How a job keeps its place in time: an iteration starts at epoch + shift_us + n·period_us."""

    job: int
    component: int
    shift_us: int
    period_us: int
    base_period_us: int
    inject_us: int = 0
    mul: int = 1
    cushion_us: int = 0
    reference: bool = False
    high: bool = False
    gate: bool = False
    adjust: float = 0.0
    regulated: bool = True


class ShapingRule(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic class of one job on one host; priority 0 is the first."""

    job: int
    host: str
    priority: int
    rate_bps: int
    ceil_bps: int


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """`unmatched` jobs share a contended link and have no rotation."""

    score: float
    links: Sequence[LinkAlignment] = ()
    schedules: Sequence[Schedule] = ()
    shaping: Sequence[ShapingRule] = ()
    unmatched: Sequence[int] = ()
    recompute: bool = False
    rejected: Reason | None = None


class Plan(Answer, frozen=True, kw_only=True):
    """A dry run: where the job would start now; without a placement the reasons why not."""

    placement: Placement | None
    alignment: Alignment | None
    reasons: Sequence[Reason]
    verdicts: Sequence[Verdict]


class Why(Answer, frozen=True, kw_only=True):
    """Why a job waits, or runs where it runs."""

    job: int
    state: str
    reasons: Sequence[Reason]
    verdicts: Sequence[Verdict]
    alignment: Alignment | None
    placement: Placement | None = None
