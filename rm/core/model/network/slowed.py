"""By how much jobs on shared links are slower than alone, beside which others, and what interleaving saves
them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OTHERS_MOST = 20  # that a job remembers by their ids
SOME = 0  # stands for those that are not remembered, or may not be known
PERIODS_MOST = 4  # that an iteration takes; a longer one did something else


@dataclass(frozen=True, slots=True)
class Slowed:
    """An attempt has lost time since the last such news: microseconds, by the job beside which it was;
    `saved_us`: what it would have lost more without interleaving, as estimated."""

    job: int
    attempt: int
    by: tuple[tuple[int, int], ...]
    saved_us: int = 0


def lost_us(by: Iterable[tuple[int, int]]) -> int:
    return sum(us for _, us in by)


def with_more(
    known: tuple[tuple[int, int], ...], more: Iterable[tuple[int, int]], most_us: int
) -> tuple[tuple[int, int], ...]:
    """Added up, those that cost most first; together at most `most_us`, whatever a host has reported."""
    found = dict(known)
    left_us = max(0, most_us - lost_us(known))
    for job, us in more:
        taken_us = min(max(0, us), left_us)
        left_us -= taken_us
        if taken_us:
            found[job] = found.get(job, 0) + taken_us
    ordered = sorted(found.items(), key=lambda item: (item[0] == SOME, -item[1], item[0]))
    kept, rest = ordered[:OTHERS_MOST], ordered[OTHERS_MOST:]
    if rest:
        kept = [one for one in kept if one[0] != SOME]
        kept.append((SOME, lost_us(rest) + sum(us for job, us in ordered[:OTHERS_MOST] if job == SOME)))
    return tuple(kept)


def more_saved(known_us: int, more_us: int, ran_us: int) -> int:
    """Added up, and never more than a job of the slowest iterations that count would save in the time that it
    ran, whatever a host has reported."""
    return min(known_us + max(0, more_us), max(known_us, (PERIODS_MOST - 1) * ran_us))
