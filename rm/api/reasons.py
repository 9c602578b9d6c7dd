"""Why not: typed reasons and what placement thinks of each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rm.api.answer import Answer, Number


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A code, one sentence, and the numbers behind it."""

    code: str
    message: str
    numbers: Mapping[str, Number | str] = {}


def distinct(told: Iterable[Reason]) -> list[Reason]:
    """Without those whose sentence is a part of an earlier one: a summary stands before what it sums up."""
    found: list[Reason] = []
    for reason in told:
        if not any(reason.code == one.code and reason.message in one.message for one in found):
            found.append(reason)
    return found


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Of one host: the reason for which it is refused, or its scores in the pipeline's order."""

    host: str
    refused: Reason | None
    scores: Sequence[tuple[str, Number]]


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
    score: Number
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
    adjust: Number = 0.0
    regulated: bool = True


class Bursts(msgspec.Struct, frozen=True, kw_only=True):
    """A burst ends after a silence of `gap_us`; one longer than `longest_us` goes behind those that wait."""

    gap_us: int
    longest_us: int


class ShapingRule(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic class of one job on one host; priority 0 is the first. With `bursts` whoever begins one
    earlier has the link until it ends."""

    job: int
    host: str
    priority: int
    rate_bps: int
    ceil_bps: int
    bursts: Bursts | None = None


class JobPath(msgspec.Struct, frozen=True, kw_only=True):
    """What the job sends from the host to hosts below other leaves goes over this spine, counted from 0."""

    job: int
    host: str
    spine: int


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """`unmatched` jobs share a contended link and have no rotation."""

    score: Number
    links: Sequence[LinkAlignment] = ()
    schedules: Sequence[Schedule] = ()
    shaping: Sequence[ShapingRule] = ()
    unmatched: Sequence[int] = ()
    paths: Sequence[JobPath] = ()
    recompute: bool = False
    rejected: Reason | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits is expected to start at `at_us`, on these hosts; if all jobs use up
    their time limits. Where jobs end as those before them did, four of five start between `soonest_us` and
    `latest_us`, and half by `likely_us`. Of an array its next element."""

    job: int
    at_us: int
    soonest_us: int
    hosts: Sequence[str]
    likely_us: int
    latest_us: int


class Starts(Answer, frozen=True, kw_only=True):
    """A job that is not among them starts after `until_us`, or nobody knows when."""

    starts: Sequence[Start]
    until_us: int | None


class Priority(msgspec.Struct, frozen=True, kw_only=True):
    """What the priority of a job is made of: `sum` adds up the others without `nice`, which is
    taken away. `partition` is the highest of what the job's partitions add; `partitions` has each, where
    they are several."""

    job: int
    sum: float
    site: float
    age: float
    fair_share: float
    qos: float = 0.0
    partition: float = 0.0
    size: float
    nice: float
    partitions: Mapping[str, float] = {}


class Priorities(Answer, frozen=True, kw_only=True):
    """Of the jobs that wait or run; none where the queue policy does not order them by such sums. One that
    runs keeps the age with which it started; its other parts are those of now."""

    priorities: Sequence[Priority]


class PriorityWeights(Answer, frozen=True, kw_only=True):
    """What each part of a priority is at most; 0: it does not count."""

    site: float = 1.0
    age: float = 0.0
    fair_share: float = 0.0
    qos: float = 0.0
    partition: float = 0.0
    size: float = 0.0


class Plan(Answer, frozen=True, kw_only=True):
    """A dry run: where the job would start now; without a placement the reasons why not, and when it is
    expected to start, or, as a sentence, why nobody knows."""

    placement: Placement | None
    alignment: Alignment | None
    reasons: Sequence[Reason]
    verdicts: Sequence[Verdict]
    start: Start | None = None
    no_start: str = ""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate: its first hosts by name, the placement policy's own score, and the compatibility score
    with the jobs that it would have shared links with; null is not a finite number."""

    hosts: Sequence[str]
    host_count: int
    score: Number | None
    alignment_score: Number | None
    note: str = ""
    taken: bool = False
    rejected: Reason | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A placement as it was decided, at `at_us`. The answer's `verdicts` are from that time: of the
    first of `chosen_hosts`, and of the nearest of `refused_hosts`. `passed_over_hosts` fitted but
    were not chosen; null is unknown. `compared` are the first of `compared_candidates`."""

    at_us: int
    placement_policy: str
    chosen_hosts: int
    refused_hosts: int | None
    passed_over_hosts: int | None
    compared: Sequence[Compared]
    compared_candidates: int


class JobAhead(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is tried before another."""

    job: int
    user: str


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pending job stands in the order of the queue policy, among the jobs that may get hosts that it
    could have. `ahead` are the first of `jobs_ahead`, as far as the caller may know of them."""

    position: int
    jobs_ahead: int
    ahead: Sequence[JobAhead]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """`job` waits for `awaited` to `kind`, Slurm's word. `state` is of the latter, as far as the caller may
    know of it: null where it is not known (any more), like its `name`. `tasks`: the elements of that job
    array that it waits for, such as `3-9,12`; "" = all."""

    job: int
    kind: str
    awaited: int
    standing: str
    state: str | None
    name: str | None
    tasks: str = ""


class Why(Answer, frozen=True, kw_only=True):
    """Why a job waits; or why it was placed where it is: `choice` is null for a job that waits, and where an
    older rm had placed it without a record. `queue_position` is null for a job that does not wait, and for
    one that may not be tried now (held, before its begin time, or waiting for other jobs). `chain`: for which
    jobs it waits, then for which these wait, and so on; `chain_left_out` more are not named. `start`: when it
    is expected to start; of one that waits, where nobody knows, `no_start` says why. `priority`: there where
    the queue policy orders jobs by such sums. `ref`: what users call it, `36_2` for an element of a job
    array, whose `job` is the array where it has none of its own."""

    job: int
    state: str
    reasons: Sequence[Reason]
    verdicts: Sequence[Verdict]
    alignment: Alignment | None
    ref: str = ""
    placement: Placement | None = None
    choice: Choice | None = None
    queue_position: QueuePosition | None = None
    chain: Sequence[Link] = ()
    chain_left_out: int = 0
    start: Start | None = None
    no_start: str = ""
    priority: Priority | None = None
