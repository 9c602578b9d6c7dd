"""When links are idle: the gaps between the communication phases of the jobs that share them.

A job's phases repeat with its period from an instant that was seen (or that its schedule names), so
that the next ones can be predicted: the further ahead, the less surely. A test of the network fits into a
gap when it ends before the next phase, with a guard on either side that grows with that doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from rm.core.model.asked.traffic import TrafficProfile

Span = tuple[int, int]  # from, until; microseconds
LEAST_SEEN = 4  # iterations needed to predict the next ones


@dataclass(frozen=True, slots=True)
class Beat:
    """A job's phases in time: an iteration began at `origin_us` and each takes `period_us`.

    The n-th iteration from there begins within `jitter_us` + n·`drift_us` of its time.
    """

    origin_us: int
    period_us: int
    phases: tuple[Span, ...]  # offset from the iteration's begin, and length
    jitter_us: int = 0
    drift_us: int = 0


def beat_of(profile: TrafficProfile, seen: Sequence[int], held: bool = False) -> Beat | None:
    """From the begins of the newest iterations, oldest first; None when there are too few.

    The period is the median advance over half of them. A job that is `held` in its slot (it waits for it
    at every iteration) keeps to a grid, which the begins scatter about; any other goes on from where it
    is, and what its iterations vary by adds up.
    """
    if len(seen) < LEAST_SEEN:
        return None
    last, half = len(seen) - 1, len(seen) // 2
    advances = sorted((seen[i + half] - seen[i]) / half for i in range(len(seen) - half))
    period = max(1.0, advances[len(advances) // 2])
    phases = tuple((p.offset_us, p.duration_us) for p in profile.phases if p.rate_bps)
    if held:
        off = sorted(begin - i * period for i, begin in enumerate(seen))
        middle = off[len(off) // 2]
        jitter_us = _most([abs(o - middle) for o in off])
        return Beat(round(middle + last * period), round(period), phases, jitter_us, -(-jitter_us // last))
    jitter_us = _most([abs(b - a - period) for a, b in pairwise(seen)])
    return Beat(seen[-1], round(period), phases, jitter_us, -(-jitter_us // last))


def _most(values: Sequence[float]) -> int:
    """What nine of ten stay below."""
    return ceil(sorted(values)[(len(values) - 1) * 9 // 10])


def busy_spans(beat: Beat, from_us: int, until_us: int) -> Iterator[Span]:
    """The beat's phases that touch this time, each with its doubt on either side. Time before the beat's
    origin is past, and left out."""
    if beat.drift_us * 2 >= beat.period_us:  # nothing can be predicted
        yield from_us, until_us
        return
    longest = max((offset + length for offset, length in beat.phases), default=0)
    number = max(0, (from_us - beat.origin_us - longest - beat.jitter_us) // (beat.period_us + beat.drift_us))
    while True:
        begin_us = beat.origin_us + number * beat.period_us
        doubt_us = beat.jitter_us + beat.drift_us * number
        if begin_us - doubt_us >= until_us:
            return
        for offset, length in sorted(beat.phases):
            span = (begin_us + offset - doubt_us, begin_us + offset + length + doubt_us)
            if span[1] > from_us and span[0] < until_us:
                yield span
        number += 1


def idle_windows(
    beats: Iterable[Beat], from_us: int, until_us: int, least_us: int, guard_us: int
) -> Iterator[Span]:
    """The gaps of at least `least_us` in which no beat communicates, guards taken off, in order.

    Pure: the links' idle time between `from_us` and `until_us`, as far as the beats are known.
    """
    busy = sorted(
        (begin - guard_us, end + guard_us)
        for beat in beats
        for begin, end in busy_spans(beat, from_us - guard_us, until_us + guard_us)
    )
    at_us = from_us
    for begin, end in [*busy, (until_us, until_us)]:
        if begin - at_us >= least_us:
            yield at_us, begin
        at_us = max(at_us, end)


def bursts(windows: Iterable[Span], total_us: int, least_us: int, longest_us: int) -> list[Span]:
    """Cut `total_us` of sending into the windows, as (begin, length): as few and as early as possible.

    No burst is shorter than `least_us`, which a TCP test needs for any result, nor longer than
    `longest_us`. Less than `total_us` comes of it when the windows hold no more.
    """
    found: list[Span] = []
    left_us = total_us
    for begin, end in windows:
        length = min(end - begin, longest_us, max(left_us, least_us))
        if length < least_us:
            continue
        found.append((begin, length))
        left_us -= length
        if left_us <= 0:
            break
    return found
