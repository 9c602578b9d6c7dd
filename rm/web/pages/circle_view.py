"""CASSINI's circles of the links that jobs share: the link's time rolled around, before and after.

One circle for all jobs starting together, one for the rotations in force; in the latter a hand shows
the present, slower than it is where nobody could follow it, and on it a dot for each job, which lags or
leads when the job is off its slot. Each job has a ring, filled where it sends; the outermost ring is the
sum, which sticks out where it exceeds the link's capacity. Time runs clockwise from the top; lengths are
the drawing's units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rm.api.jobs import Iterations
from rm.api.network import Demand, Link
from rm.policies.interleave.answer import Span
from rm.policies.interleave.rings import Rings, at, levels_of, score_of
from rm.units import fold_hosts
from rm.web.pages.text import Look, duration, look, rate, shown

RINGS = Rings(inner=36.0, outer=100.0, sum_inner=106.0, sum_outer=124.0)
TURN_US = 3_000_000  # the least time that the hand takes for a turn
IN_SLOT_US = 500  # so near its slot a job is in it
MOST = 24  # groups of links that are drawn


@dataclass(frozen=True, slots=True)
class Ring:
    """One job. `x`, `y`: where its number stands, `plate` its size; `dot` is where on the hand its dot is."""

    job: int
    look: str
    radius: float
    arcs: tuple[str, ...]
    x: float
    y: float
    plate: float
    dot: float


@dataclass(frozen=True, slots=True)
class Disc:
    title: str
    score: float
    rings: tuple[Ring, ...]
    sums: tuple[str, ...]
    overs: tuple[str, ...]
    says: str  # the same in words


@dataclass(frozen=True, slots=True)
class Live:
    """A job in its slot, and what the page's script needs of it: its iterations last `period_us` and
    begin `rotation_us` after the circle's top, and `late_us` after that; it sends in `phases`."""

    job: int
    name: str
    look: str
    period: str
    shift: str
    late: str
    seen: bool
    rotation_us: int
    period_us: int
    late_us: int
    phases: str  # offset-end pairs in microseconds, as JSON


@dataclass(frozen=True, slots=True)
class LinkView:
    """Links that look the same, as those of one gang do. `anchor_us` is an instant at which the hand of
    the circle stands at its top; it goes `slower` times slower than the jobs."""

    name: str
    count: int
    capacity: str
    jobs: tuple[int, ...]
    score: str
    perimeter: str
    perimeter_us: int
    gap: str
    before: Disc | None
    after: Disc | None
    anchor_us: int | None
    slower: int
    lives: tuple[Live, ...]
    note: str


def alike(rows: Sequence[Link]) -> list[list[Link]]:
    """The links of at least two jobs, in groups that look the same, those of the lowest score first."""
    found: dict[str, list[Link]] = {}
    for row in rows:
        if len(row.jobs) > 1:
            turns = [(r.job, r.slots, r.circle_slots) for r in row.rotations]
            same = [row.jobs, row.capacity_bps, row.score, row.perimeter_us, row.gap_us]
            found.setdefault(repr([same, turns, row.demands]), []).append(row)
    return sorted(found.values(), key=lambda group: (group[0].score is None, group[0].score or 0.0))


def link(
    group: Sequence[Link],
    names: Mapping[int, str],
    iterations: Mapping[int, Iterations],
    look: Look = look,
) -> LinkView:
    """One of the groups of `alike`; `iterations` as the API has them, by job."""
    row = group[0]
    perimeter, capacity = row.perimeter_us or 0, row.capacity_bps
    rotated = {r.job: Fraction(r.slots * perimeter, r.circle_slots) for r in row.rotations}
    demands = {d.job: d for d in row.demands if d.job in rotated and d.period_us > 0}
    before = after = None
    if perimeter and capacity and demands:
        still = dict.fromkeys(rotated, Fraction(0))
        before = _disc("Before: all start together", None, demands, still, perimeter, capacity, look)
        after = _disc("After: rotated", row.score, demands, rotated, perimeter, capacity, look)
    anchor_us = _anchor(rotated, iterations) if after else None
    lives = tuple(
        _live(demand, rotated[job], anchor_us, names, iterations.get(job), look)
        for job, demand in demands.items()
    )
    return LinkView(
        name=shown(fold_hosts(row.name for row in group), 200),
        count=len(group),
        capacity=rate(capacity) if capacity else "unknown capacity",
        jobs=tuple(row.jobs),
        score="–" if row.score is None else f"{row.score:.4g}",
        perimeter=duration(perimeter),
        perimeter_us=perimeter,
        gap=duration(row.gap_us),
        before=before,
        after=after,
        anchor_us=anchor_us,
        slower=-(-TURN_US // perimeter) if perimeter else 1,
        lives=lives if after else (),
        note="" if after else _why_none(row),
    )


def _why_none(row: Link) -> str:
    if row.score is None:
        return "Its jobs together never need more than it carries, or their traffic is not known yet."
    return "No rotation is in force: the jobs' periods have no common circle."


def _anchor(rotated: Mapping[int, Fraction], iterations: Mapping[int, Iterations]) -> int | None:
    """When the circle's time was zero, by any job that has got its slot.

    The time-shifts of a link's jobs differ from their rotations on it by the same amount.
    """
    for job, rotation in rotated.items():
        told = iterations.get(job)
        if told is not None and told.slot is not None:
            return round(told.slot.epoch_us + told.slot.shift_us - rotation)
    return None


def _live(
    demand: Demand,
    rotation: Fraction,
    anchor_us: int | None,
    names: Mapping[int, str],
    told: Iterations | None,
    look: Look,
) -> Live:
    job, period = demand.job, demand.period_us
    items = told.items if told is not None else ()
    start_us = items[-1][0] if items else None
    late_us = 0
    if start_us is not None and anchor_us is not None:
        late_us = round((start_us - anchor_us - rotation) % period)
        late_us -= period if late_us > period / 2 else 0
    late = "no iteration seen yet"
    if start_us is not None and anchor_us is not None:
        late = "last iteration in its slot"
    if abs(late_us) >= IN_SLOT_US:
        late = f"last iteration {duration(abs(late_us))} {'after' if late_us >= 0 else 'before'} its slot"
    ends = [[p.offset_us, p.offset_us + p.duration_us] for p in demand.phases]
    return Live(
        job=job,
        name=shown(names.get(job, f"job {job}"), 40),
        look=look(job),
        period=duration(period),
        shift=f"rotated by {duration(float(rotation))}" if rotation else "not rotated",
        late=late,
        seen=start_us is not None,
        rotation_us=round(rotation),
        period_us=period,
        late_us=late_us,
        phases=str(ends),
    )


def _disc(
    title: str,
    score: float | None,
    demands: Mapping[int, Demand],
    rotated: Mapping[int, Fraction],
    perimeter: int,
    capacity: int,
    look: Look,
) -> Disc:
    spans = {job: spans_of(d, rotated[job], perimeter) for job, d in demands.items()}
    levels = levels_of(spans.values(), perimeter)
    room = RINGS.room(len(spans))
    rings = []
    for number, (job, mine) in enumerate(spans.items()):
        inside, arcs = RINGS.of_job(number, len(spans), mine, perimeter, capacity)
        x, y = at(inside + room / 2, float(mine[0][0]) / perimeter) if mine else (0.0, -inside)
        plate = round(min(8.0, 0.55 * room), 2)
        rings.append(Ring(job, look(job), inside, tuple(arcs), x, y, plate, inside + room / 2))
    within, beyond = RINGS.of_sum(levels, perimeter, capacity)
    return Disc(
        title=title,
        score=score_of(levels, perimeter, capacity) if score is None else score,
        rings=tuple(rings),
        sums=tuple(within),
        overs=tuple(beyond),
        says=_says(spans, perimeter),
    )


def _says(spans: Mapping[int, Sequence[Span]], perimeter: int) -> str:
    parts = []
    for job, mine in spans.items():
        times = ", ".join(
            f"{duration(float(a % perimeter))} to {duration(float(b % perimeter))}" for a, b, _ in mine[:4]
        )
        more = " and so on" if len(mine) > 4 else ""
        parts.append(f"job {job} sends from {times}{more}")
    return "; ".join(parts) + "."


def spans_of(demand: Demand, rotation: Fraction, perimeter: int) -> list[Span]:
    """What a job sends during one circle; a phase may reach beyond its end."""
    period = demand.period_us
    times = max(1, round(perimeter / period))
    return [
        (start + phase.offset_us, start + phase.offset_us + phase.duration_us, phase.rate_bps)
        for start in (rotation + Fraction(i * perimeter, times) for i in range(times))
        for phase in demand.phases
    ]
