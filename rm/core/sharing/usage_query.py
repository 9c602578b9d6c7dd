"""What may be asked of the sums of usage: of which time, by which names, and of whom alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rm.core.sharing.ended import DAY_US, HOUR_US, Heap, Sums
from rm.errors import UsageError

NAMES = ("account", "user", "qos", "partition")  # of a job; its hosts are added up apart
BY = (*NAMES, "host", "day")


@dataclass(frozen=True, slots=True)
class Asked:
    """`by`: what each line is of, in this order; `day`, of UTC, goes with any. From `since_us` until before
    `until_us`, which are whole hours. `only`: (name, value) that all must have."""

    by: tuple[str, ...]
    since_us: int
    until_us: int
    only: tuple[tuple[str, str], ...] = ()

    @property
    def of_hosts(self) -> bool:
        return "host" in (*self.by, *(name for name, _ in self.only))

    def spans(self) -> list[tuple[int, int, int]]:
        """(length, from, until before): whole days, and the hours before and after them."""
        first, last = -(-self.since_us // DAY_US) * DAY_US, self.until_us // DAY_US * DAY_US
        if first >= last:
            return [(HOUR_US, self.since_us, self.until_us)]
        found = [(HOUR_US, self.since_us, first), (DAY_US, first, last), (HOUR_US, last, self.until_us)]
        return [span for span in found if span[1] < span[2]]


def asked(
    by: Sequence[str],
    since_us: int,
    until_us: int,
    only: Sequence[tuple[str, str]],
    hours_since_us: int,
    days_since_us: int,
) -> Asked:
    """As whole hours, or days where the hours before `hours_since_us` are forgotten; from the first whole day
    after `days_since_us` on, since what ended before is forgotten, too.

    Raises:
        UsageError: there is no such name, hosts are asked for with what jobs have, or all is forgotten.
    """
    names = tuple(dict.fromkeys(by)) or ("account",)
    for name in names:
        if name not in BY:
            raise UsageError(f"Usage cannot be shown by '{name:.50}'.", f"Choose among {', '.join(BY)}.")
    of_job = [name for name in (*names, *(name for name, _ in only)) if name in NAMES]
    if of_job and "host" in (*names, *(name for name, _ in only)):
        raise UsageError(
            f"Usage is added up for hosts, and for jobs, but not for both: {of_job[0]} and host.",
            "Ask for one of them; sacct --nodelist lists the jobs of hosts.",
        )
    since_us, until_us = _down(since_us, HOUR_US), -_down(-until_us, HOUR_US)
    if since_us < hours_since_us:
        since_us = _down(since_us, DAY_US)
    if until_us < hours_since_us:
        until_us = -_down(-until_us, DAY_US)
    if since_us >= until_us:
        raise UsageError("The time ends before it begins.", "Give --to a later time than --from.")
    known_us = -_down(-days_since_us, DAY_US)
    if until_us <= known_us:
        raise UsageError(
            "What was used then is forgotten.", f"Ask for a time after {_day(known_us)}: see jobs.usage_days."
        )
    since_us = max(since_us, known_us)
    return Asked(names, since_us, until_us, tuple(only))


def answer(asked: Asked, known: Mapping[Heap, Sums]) -> list[tuple[Heap, Sums]]:
    """Out of all sums: what a database does."""
    found: dict[Heap, Sums] = {}
    for span_us, from_us, until_us in asked.spans():
        for heap, sums in known.items():
            told = heap._asdict()
            fits = heap.span_us == span_us and from_us <= heap.start_us < until_us
            if fits and asked.of_hosts == bool(heap.host) and all(told[n] == v for n, v in asked.only):
                day_us = _down(heap.start_us, DAY_US) if "day" in asked.by else 0
                names = {name: told[name] for name in asked.by if name != "day"}
                line = Heap(0, day_us, **names)
                found[line] = found[line].plus(sums) if line in found else sums
    return sorted(found.items())


def _day(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d}"


def _down(at_us: int, to_us: int) -> int:
    return at_us // to_us * to_us
