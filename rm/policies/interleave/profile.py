"""Traffic profiles in canonical form, and what a job puts on one host link.

Ticks and bandwidth units are the caller's (the product uses microseconds and bit/s); all
arithmetic is in integers (R1, R2, R13).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.errors import ConfigError, UsageError

Phases = tuple[tuple[int, int, int], ...]
"""(offset, duration, bandwidth) triples; canonical: sorted, disjoint, inside the period."""

KNOWN_MAX = 4_096  # profiles of which results are kept: a pass asks for those of each kind of job many times

DEMAND_MODELS = ("ring", "sum", "alltoall", "literal")


def canonical_phases(period: int, phases: Iterable[tuple[int, int, int]]) -> Phases:
    """Split wrap-arounds, sum overlaps, merge equal neighbours, drop nothing-phases (R2).

    Raises UsageError when a phase does not fit its period or a number is negative.
    """
    if period <= 0:
        raise UsageError(f"A traffic profile has the period {period}.", "Give a period above zero.")
    steps: dict[int, int] = {}
    for offset, duration, bandwidth in phases:
        if not 0 <= duration <= period or offset < 0 or bandwidth < 0:
            raise UsageError(
                f"The phase (offset {offset}, duration {duration}, rate {bandwidth}) does not fit "
                f"into the period {period}.",
                "Offsets and rates must not be negative, durations not exceed the period.",
            )
        if duration == 0 or bandwidth == 0:
            continue
        start = offset % period
        pieces = ((start, min(start + duration, period)), (0, max(0, start + duration - period)))
        for left, right in pieces:
            if left < right:
                steps[left] = steps.get(left, 0) + bandwidth
                steps[right] = steps.get(right, 0) - bandwidth
    result: list[tuple[int, int, int]] = []
    level = 0
    marks = sorted(steps)
    for left, right in itertools.pairwise(marks):
        level += steps[left]
        if level == 0:
            continue
        if result and result[-1][2] == level and result[-1][0] + result[-1][1] == left:
            result[-1] = (result[-1][0], right - result[-1][0], level)
        else:
            result.append((left, right - left, level))
    return tuple(result)


@lru_cache(maxsize=KNOWN_MAX)
def phases_of(profile: TrafficProfile) -> Phases:
    """The canonical phases of a profile as integer triples."""
    raw = ((p.offset_us, p.duration_us, p.rate_bps) for p in profile.phases)
    return canonical_phases(profile.period_us, raw)


def profile_from(period: int, phases: Iterable[tuple[int, int, int]]) -> TrafficProfile:
    return TrafficProfile(period, tuple(Phase(*p) for p in phases))


def canonical(profile: TrafficProfile) -> TrafficProfile:
    """The profile in canonical form (R2)."""
    return profile_from(profile.period_us, phases_of(profile))


@lru_cache(maxsize=KNOWN_MAX)
def link_demand(
    profile: TrafficProfile,
    tasks_on_host: int,
    tasks_total: int,
    model: str = "ring",
    capacity: int | None = None,
) -> TrafficProfile:
    """What a job with `tasks_on_host` of its `tasks_total` tasks sends through that host's link (R13).

    With `capacity` the result is self-limited to it, which lengthens the period: the job's
    baseline. No phases = no demand. Metronome's eq. 4 is the model "literal".
    """
    scaled = (
        (offset, duration, _demanded(bw, tasks_on_host, tasks_total, model))
        for offset, duration, bw in phases_of(profile)
    )
    demand = profile_from(profile.period_us, canonical_phases(profile.period_us, scaled))
    return demand if capacity is None else self_limited(demand, capacity)


def self_limited(profile: TrafficProfile, capacity: int) -> TrafficProfile:
    """The profile of a job alone on a link of `capacity`: wider phases last longer (R13)."""
    return job_demands(profile, {"": 1}, {"": capacity}, "literal")[""]


def job_demands(
    profile: TrafficProfile,
    tasks_by_host: Mapping[str, int],
    capacity_by_link: Mapping[str, int],
    model: str = "ring",
    uplinks: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, TrafficProfile]:
    """Demands on all links of one job, with one common period, self-limited (R13).

    A collective transfer moves at the pace of its slowest link, so each phase is stretched by
    the worst ratio of demand to capacity among the job's links, on every link alike. A link of
    unknown capacity (0) stretches nothing, and nothing is demanded of it.

    Args:
        uplinks: of leaves that the job's traffic leaves: the tasks below it, and how often a ring
            over the job's hosts leaves it. A ring sends its rate out (and in) each time; in the
            other models a leaf is like one host with all of its tasks.
    """
    total = sum(tasks_by_host.values())
    places = {link: _Place(k, None, capacity_by_link[link]) for link, k in tasks_by_host.items()}
    for link, (k, crossings) in (uplinks or {}).items():
        places[link] = _Place(k, crossings, capacity_by_link[link])
    found = _demands_at(profile, frozenset(places.values()), total, model)
    return {link: found[place] for link, place in places.items()}


class _Place(NamedTuple):
    """What makes the links of one job alike: of hundreds there are a handful of such."""

    tasks: int
    crossings: int | None  # of an uplink; None: it is a host's link
    capacity: int


@lru_cache(maxsize=KNOWN_MAX)
def _demands_at(
    profile: TrafficProfile, places: frozenset[_Place], total: int, model: str
) -> Mapping[_Place, TrafficProfile]:
    """The demands of `job_demands` on the links of such places; `total` tasks has the job."""
    result: dict[_Place, list[tuple[int, int, int]]] = {place: [] for place in places}
    grown = 0
    for offset, duration, bw in phases_of(profile):
        wanted = {
            place: bw * place.crossings
            if place.crossings is not None and model == "ring"
            else _demanded(bw, place.tasks, total, model)
            for place in places
            if place.capacity
        }
        slower = max([Fraction(1), *(Fraction(rate, place.capacity) for place, rate in wanted.items())])
        lasts = _ceil(duration * slower)
        for place, rate in wanted.items():
            result[place].append((offset + grown, lasts, _ceil(rate / slower)))
        grown += lasts - duration
    period = profile.period_us + grown
    return {place: profile_from(period, canonical_phases(period, raw)) for place, raw in result.items()}


def _demanded(bw: int, k: int, n: int, model: str) -> int:
    """Bandwidth through the link of a host with k of the n tasks."""
    if model == "literal":
        return k * bw
    if not 0 < k < n:
        return 0
    if model == "ring":
        return bw
    if model == "sum":
        return k * bw
    if model == "alltoall":
        return -(-bw * k * (n - k) // (n - 1))
    raise ConfigError(f"There is no demand model {model!r}.", f"Known are: {', '.join(DEMAND_MODELS)}.")


def _ceil(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)
