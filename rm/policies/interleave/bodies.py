"""Bodies: jobs whose time-shifts against each other are settled, so that they move as one.

Ours, for parts of the affinity graph that are too large to be solved at once. On a link several bodies meet
as several jobs do: a body sends there what its jobs send, and repeats itself when they all have come around.
So the searches for jobs (R14, R17) put bodies side by side too, and what holds within a body stays as it is.
Each body has one pace: its periods fit into each other exactly, and only jobs on their own are lengthened to
join it. Times are whole ticks; periods are rounded up to `GRAIN`, so that their halves and thirds are whole
as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.profile import Phases, canonical_phases
from rm.policies.interleave.solve import Solution, Thresholds, solve_block, solve_equals
from rm.policies.interleave.unify import Demand, Rank

GRAIN = 240
ROUNDING = 1  # ticks by which phases may overlap: shifts are rounded to whole ticks
ROUNDS_MAX = 64  # of its shortest period until a body repeats itself
LEADING: Rank = (-(1 << 60), 0, "")  # the rank of the body whose times stay as they are


@dataclass(frozen=True, slots=True)
class Place:
    """A job's iterations begin at `shift` + n * `period`, by the time of its body."""

    shift: int
    period: int


Places = Mapping[int, Place]


def around(places: Iterable[Place]) -> int | None:
    """After how many ticks jobs at these places repeat themselves; None where that is too long to be used."""
    periods = [place.period for place in places]
    common = math.lcm(*periods)
    return common if common <= ROUNDS_MAX * min(periods) else None


def together(phases: Mapping[int, Phases], places: Places) -> tuple[int, Phases] | None:
    """(period, phases) of what these jobs send in sum at their places; None: they hardly repeat
    themselves."""
    common = around(places[job] for job in phases)
    if common is None:
        return None
    raw = (
        ((places[job].shift + n * places[job].period + offset) % common, duration, rate)
        for job, own in phases.items()
        for n in range(common // places[job].period)
        for offset, duration, rate in own
    )
    return common, canonical_phases(common, raw)


def apart(link: LinkLoad, places: Places) -> bool:
    """Do the link's jobs, all of one body, never ask for more than its capacity?"""
    found = together(link.phases, places)
    return found is not None and all(
        rate <= link.capacity or duration <= ROUNDING for _, duration, rate in found[1]
    )


def cushion(link: LinkLoad, places: Places) -> int | None:
    """The smallest time from the end of one job's phase to the start of another's, of those that contend
    (R11, R12); None when none do."""
    jobs = sorted(link.phases)
    pairs = [
        (a, b, p, q)
        for i, a in enumerate(jobs)
        for b in jobs[i + 1 :]
        for p in link.phases[a]
        for q in link.phases[b]
    ]
    found: int | None = None
    for a, b, p, q in [x for x in pairs if x[2][2] + x[3][2] > link.capacity] or pairs:
        common = math.gcd(places[a].period, places[b].period)
        ahead = (places[b].shift + q[0] - places[a].shift - p[0]) % common
        least = min(ahead - p[1], common - ahead - q[1])
        found = least if found is None else min(found, least)
    return None if found is None else max(0, found)


def side_by_side(
    units: Sequence[Places],
    links: Sequence[LinkLoad],
    demands: Mapping[int, Demand],
    pinned: Collection[int],
    thresholds: Thresholds,
) -> dict[int, Place] | None:
    """Places by which no job meets another on these links, by the time of the largest body; None: none found.

    Args:
        units: bodies, and jobs on their own, which have the places of nobody: an empty period.
        pinned: jobs that are not to be lengthened.
    """
    leader = max(range(len(units)), key=lambda i: (len(units[i]), -min(units[i])))
    own: list[dict[int, Phases]] = [{} for _ in links]
    asked: list[Demand] = []
    for number, unit in enumerate(units):
        if len(unit) == 1:
            [job] = unit
            period = -(-demands[job].period // GRAIN) * GRAIN
            is_pinned = job in pinned
            for phases, link in zip(own, links, strict=True):
                if job in link.phases:
                    phases[number] = link.phases[job]
        else:
            there = {j for link in links for j in link.phases if j in unit}
            common = around(unit[job] for job in there)
            if common is None:
                return None
            period, is_pinned = common, True
            for phases, link in zip(own, links, strict=True):
                met = {j: p for j, p in link.phases.items() if j in unit}
                if met:
                    turn, sent = together(met, unit) or (common, ())
                    phases[number] = repeated(sent, turn, common // turn)
        rank = min(demands[job].rank for job in unit)
        if number == leader and len(unit) > 1:
            rank = LEADING
        asked.append(Demand(number, period, (), rank, is_pinned))
    loads = [LinkLoad(link.capacity, phases) for link, phases in zip(links, own, strict=True)]
    if len(units[leader]) > 1:
        solution: Solution | None = solve_block(asked, loads, thresholds)
    else:
        solution, _ = solve_equals(asked, loads, thresholds)
    if solution is None or not solution.scheme.perfect:
        return None
    return _moved(units, asked, solution)


def repeated(phases: Phases, period: int, times: int) -> Phases:
    """The phases of several periods as those of one."""
    if times == 1:
        return phases
    return tuple((offset + n * period, length, rate) for n in range(times) for offset, length, rate in phases)


def _moved(units: Sequence[Places], asked: Sequence[Demand], solution: Solution) -> dict[int, Place] | None:
    """The places of all jobs after the bodies have been rotated; None: a body would lose its pace."""
    found: dict[int, Place] = {}
    for number, unit in enumerate(units):
        period, later = solution.plan.period(number), round(solution.scheme.shift(number))
        if period.denominator != 1 or (len(unit) > 1 and period != Fraction(asked[number].period)):
            return None
        for job, place in unit.items():
            own = place.period if len(unit) > 1 else int(period)
            found[job] = Place((place.shift + later) % own, own)
    return found
