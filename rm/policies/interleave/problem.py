"""A question about interleaving as people and programs write it: jobs, links, milliseconds, Mbit/s.

    {"capacity_mbps": 25000, "slots": 72,
     "jobs": [{"name": "a", "priority": "high", "period_ms": 255,
               "phases": [{"offset_ms": 141, "duration_ms": 114, "bandwidth_mbps": 22000}]},
              {"name": "b", "period_ms": 255, "duty_cycle": 0.4, "bandwidth_mbps": 15000}]}

or, in place of one link for all, "links": [{"name": "l1", "capacity_mbps": 25000, "jobs": ["a", "b"]}].
Every complaint names the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.errors import UsageError
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.profile import job_demands, phases_of
from rm.policies.interleave.unify import Demand, Rank, rank_key
from rm.units import DAY_US

SLOTS, MOST_SLOTS = 72, 3600
PRIORITIES = {"high": 100, "low": 0}
ONE_LINK = "link"
_PER_MS, _PER_MBPS = 1000, 1_000_000
_MOST_US, _MOST_BPS = DAY_US, 10**15
_DIGITS = 30


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job of the question; `profile` as it is written, before links limit it."""

    name: str
    high: bool
    rank: Rank
    profile: TrafficProfile


@dataclass(frozen=True, slots=True)
class NamedLink:
    name: str
    capacity_bps: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs are numbered by their place in the list."""

    jobs: tuple[NamedJob, ...]
    links: tuple[NamedLink, ...]
    slots: int = SLOTS

    def demands(self) -> tuple[dict[int, Demand], dict[str, LinkLoad]]:
        """What each job demands on its links, slowed down by the narrowest of them (R13)."""
        demands: dict[int, Demand] = {}
        phases: dict[str, dict[int, Any]] = {link.name: {} for link in self.links}
        for number, job in enumerate(self.jobs):
            capacity = {link.name: link.capacity_bps for link in self.links if number in link.jobs}
            profiles = job_demands(job.profile, dict.fromkeys(capacity, 1), capacity, "literal")
            own = next(iter(profiles.values()), job.profile)
            demands[number] = Demand(number, own.period_us, phases_of(own), job.rank)
            for name, profile in profiles.items():
                if found := phases_of(profile):
                    phases[name][number] = found
        return demands, {link.name: LinkLoad(link.capacity_bps, phases[link.name]) for link in self.links}


def problem_from(value: Any) -> Problem:
    """The question in a decoded JSON value; numbers may be int, float or Decimal.

    Raises UsageError with the place of what is wrong.
    """
    top = _object(value, "the top level", ("capacity_mbps", "slots", "jobs", "links"))
    jobs = tuple(_job(job, f"jobs[{i}]", i) for i, job in enumerate(_list(top, "jobs", "")))
    _distinct([job.name for job in jobs], "jobs", ".name")
    slots = top.get("slots", SLOTS)
    if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
        raise UsageError(f"slots is {_shown(slots)}.", f"Give a whole number from 1 to {MOST_SLOTS}.")
    if "links" not in top:
        capacity = _amount(top, "capacity_mbps", "", _PER_MBPS, _MOST_BPS, positive=True)
        return Problem(jobs, (NamedLink(ONE_LINK, capacity, tuple(range(len(jobs)))),), slots)
    numbers = {job.name: i for i, job in enumerate(jobs)}
    links = tuple(_link(link, f"links[{i}]", numbers, top) for i, link in enumerate(_list(top, "links", "")))
    _distinct([link.name for link in links], "links", ".name")
    return Problem(jobs, links, slots)


def _job(value: Any, where: str, number: int) -> NamedJob:
    known = ("name", "priority", "period_ms", "phases", "duty_cycle", "bandwidth_mbps")
    job = _object(value, where, known)
    name = _name(job, where)
    priority = job.get("priority", "low")
    if isinstance(priority, str) and priority in PRIORITIES:
        priority = PRIORITIES[priority]
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise UsageError(f"{where}.priority is {_shown(priority)}.", 'Give "high", "low" or a whole number.')
    period = _amount(job, "period_ms", where, _PER_MS, _MOST_US, positive=True)
    short = [key for key in ("duty_cycle", "bandwidth_mbps") if key in job]
    if "phases" in job and short:
        raise UsageError(
            f"{where} has both phases and {short[0]}.",
            "Give phases, or duty_cycle with bandwidth_mbps for one phase.",
        )
    if "phases" in job:
        items = _list(job, "phases", where)
        phases = [_phase(p, f"{where}.phases[{i}]", period) for i, p in enumerate(items)]
    else:
        if not short:
            raise UsageError(
                f"{where} has no phases.", "Give phases, or duty_cycle with bandwidth_mbps for one phase."
            )
        share = _number(job, "duty_cycle", where)
        if not 0 <= share <= 1:
            raise UsageError(
                f"{where}.duty_cycle is {_shown(job['duty_cycle'])}.",
                "Give a part of the period, from 0 to 1.",
            )
        rate = _amount(job, "bandwidth_mbps", where, _PER_MBPS, _MOST_BPS)
        phases = [Phase(0, -(-period * share.numerator // share.denominator), rate)]
    profile = TrafficProfile(period, tuple(phases))
    return NamedJob(name, priority >= PRIORITIES["high"], rank_key(priority, number, name), profile)


def _phase(value: Any, where: str, period: int) -> Phase:
    phase = _object(value, where, ("offset_ms", "duration_ms", "bandwidth_mbps"))
    offset = _amount(phase, "offset_ms", where, _PER_MS, _MOST_US) if "offset_ms" in phase else 0
    duration = _amount(phase, "duration_ms", where, _PER_MS, _MOST_US)
    rate = _amount(phase, "bandwidth_mbps", where, _PER_MBPS, _MOST_BPS)
    period_ms = f"{period / _PER_MS:.15g} ms"
    if offset >= period:
        raise UsageError(
            f"{where}.offset_ms is {_shown(phase['offset_ms'])}, outside of the period of {period_ms}.",
            "Offsets count from the start of an iteration and are below the period.",
        )
    if duration > period:
        raise UsageError(
            f"{where}.duration_ms is {_shown(phase['duration_ms'])}, more than the period of {period_ms}.",
            "A phase lasts one period at most.",
        )
    return Phase(offset, duration, rate)


def _link(value: Any, where: str, numbers: Mapping[str, int], top: Mapping[str, Any]) -> NamedLink:
    link = _object(value, where, ("name", "capacity_mbps", "jobs"))
    name = _name(link, where)
    if "capacity_mbps" in link or "capacity_mbps" not in top:
        capacity = _amount(link, "capacity_mbps", where, _PER_MBPS, _MOST_BPS, positive=True)
    else:
        capacity = _amount(top, "capacity_mbps", "", _PER_MBPS, _MOST_BPS, positive=True)
    names = _list(link, "jobs", where)
    for i, job in enumerate(names):
        if not isinstance(job, str) or job not in numbers:
            known = ", ".join(list(numbers)[:10])
            raise UsageError(
                f"{where}.jobs[{i}] is {_shown(job)}, no job of this file.", f"Its jobs: {known}."
            )
    _distinct(names, f"{where}.jobs")
    return NamedLink(name, capacity, tuple(numbers[job] for job in names))


def _object(value: Any, where: str, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{_begin(where)} is {_shown(value)}.", f"Give an object with {', '.join(known)}.")
    for key in value:
        if key not in known:
            raise UsageError(
                f"{_begin(where)} has an unknown key {_shown(key)}.", f"Known: {', '.join(known)}."
            )
    return value


def _list(table: Mapping[str, Any], key: str, where: str) -> list[Any]:
    at = f"{where}.{key}" if where else key
    if key not in table:
        raise UsageError(f"{at} is missing.", "Give a list.")
    value = table[key]
    if not isinstance(value, list) or not value:
        raise UsageError(f"{at} is {_shown(value)}.", "Give a list with at least one entry.")
    return value


def _name(table: Mapping[str, Any], where: str) -> str:
    if "name" not in table:
        raise UsageError(f"{where}.name is missing.", "Give each job and each link a name.")
    name = table["name"]
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise UsageError(f"{where}.name is {_shown(name)}.", "Give a printable text.")
    return name


def _amount(
    table: Mapping[str, Any], key: str, where: str, unit: int, most: int, positive: bool = False
) -> int:
    """A number in `unit`s as an integer, rounded to the nearest."""
    number = _number(table, key, where) * unit
    at = f"{where}.{key}" if where else key
    amount = round(number)
    if number < 0 or (positive and amount < 1):
        least = f"{1 / unit:.15g} or more" if positive else "0 or more"
        raise UsageError(f"{at} is {_shown(table[key])}.", f"Give {least}.")
    if amount > most:
        raise UsageError(f"{at} is {_shown(table[key])}.", f"Give {most // unit} at most.")
    return amount


def _number(table: Mapping[str, Any], key: str, where: str) -> Fraction:
    at = f"{where}.{key}" if where else key
    if key not in table:
        raise UsageError(f"{at} is missing.", "Give a number.")
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UsageError(f"{at} is {_shown(value)}.", "Give a number.")
    exact = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite() or (exact and abs(exact.adjusted()) > _DIGITS):
        raise UsageError(f"{at} is {_shown(value)}.", "Give a number of a sensible size.")
    return Fraction(exact)


def _distinct(names: Sequence[str], where: str, key: str = "") -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            first = f"{where}[{names.index(name)}]{key}"
            raise UsageError(f"{where}[{i}]{key} is {_shown(name)}, and so is {first}.", "Name each once.")


def _begin(where: str) -> str:
    return where[0].upper() + where[1:] if where.startswith("the ") else where


def _shown(value: Any) -> str:
    """A value of the file in a sentence, cut when it is long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 60 else text[:57] + "..."
