"""Running jobs, and those that ended lately, as bars in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rm.api.jobs import Job
from rm.units import fold_hosts, format_elapsed
from rm.web.pages.queue_view import elapsed_us, group_of
from rm.web.pages.text import Look, look, moment, shown

SPAN = 1_000.0  # units of the drawing's width
LEAST_US, MOST_US = 60_000_000, 86_400_000_000  # of the past that is shown
FUTURE = 0.5  # of the past shown: how far ahead a bar may reach, at most
MOST = 100
TICKS = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """A job; x and width in the drawing's units. `ahead`: what it is expected to take yet."""

    id: int
    name: str
    look: str
    state: str
    hosts: str
    x: float
    width: float
    ahead: float
    says: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """`ticks` are (position, time of day); `now` a position."""

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    now: float
    left_out: int


def timeline(
    jobs: Sequence[Job], progress: Mapping[int, int], now_us: int, look: Look = look
) -> Timeline | None:
    """`progress`: remaining time in microseconds, of the jobs that report it. None: nothing has run."""
    ran = [j for j in jobs if j.started_us is not None]
    if not ran:
        return None
    ran.sort(key=lambda j: (group_of(j.state) != "running", -(j.started_us or 0)))
    ran, left_out = ran[:MOST], len(ran) - MOST
    first_us = min(j.started_us or 0 for j in ran)
    begin_us = min(max(first_us, now_us - MOST_US), now_us - LEAST_US)
    past_us = now_us - begin_us
    ends = {j.id: end_us(j, progress.get(j.id), now_us) for j in ran}
    until_us = min(max(now_us, *(e or 0 for e in ends.values())), now_us + int(FUTURE * past_us))
    whole_us = until_us - begin_us

    def at(us: int) -> float:
        return float(round(SPAN * (min(max(us, begin_us), until_us) - begin_us) / whole_us, 2))

    bars = tuple(_bar(j, ends[j.id], progress.get(j.id), now_us, at, look(j.id)) for j in ran)
    ticks = tuple(
        (round(SPAN * i / TICKS, 2), moment(begin_us + whole_us * i // TICKS)) for i in range(TICKS + 1)
    )
    return Timeline(bars, ticks, at(now_us), max(0, left_out))


def end_us(job: Job, remaining_us: int | None, now_us: int) -> int | None:
    """When a running job should be done: by its iterations, by its declaration, or by its limit."""
    if group_of(job.state) != "running":
        return None
    if remaining_us is not None:
        return now_us + remaining_us
    spec = job.spec
    said = spec.expected_us if spec.expected_us is not None else spec.time_limit_us
    return None if said is None else max(now_us, (job.started_us or 0) + said)


def _bar(
    job: Job, end: int | None, remaining_us: int | None, now_us: int, at: Callable[[int], float], looks: str
) -> Bar:
    stop = job.ended_us or now_us
    x = at(job.started_us or 0)
    width = max(2.0, at(stop) - x)
    says = format_elapsed(elapsed_us(job, now_us))
    if job.ended_us:
        says += f" until {moment(job.ended_us)}"
    elif remaining_us is not None:
        says += f", about {format_elapsed(remaining_us)} to go"
    elif end is not None:
        says += f", at most until {moment(end)}" if job.spec.expected_us is None else ""
    return Bar(
        job.id,
        shown(job.spec.name, 40),
        looks,
        job.state,
        shown(fold_hosts(job.hosts)),
        x,
        round(width, 2),
        round(at(end) - at(stop), 2) if end is not None else 0.0,
        says,
    )
