"""The picture of a circle: where its rings and their pieces are. Geometry only; who draws brings colours.

Each job has a ring around the middle, filled where it sends, thick in proportion to the link; further
out is the sum of all, and beyond that what of it exceeds the link. Time runs clockwise from the top, in
turns; lengths are the drawing's units, and the middle is at 0, 0 with y pointing down. Pieces are SVG paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rm.policies.interleave.answer import Span, sums

FILLED = 0.9  # of a ring's room: the thickness of a demand for the whole link
WHOLE = 0.9999  # a piece from an end to itself would be none


@dataclass(frozen=True, slots=True)
class Rings:
    """Radii: jobs from `inner` to `outer`, their sum from `sum_inner` to `sum_outer`, an excess as thick
    again. `thinnest`: of a ring's room, what the least demand has. `levels_most`: finer pieces of the sum
    nobody would see."""

    inner: float
    outer: float
    sum_inner: float
    sum_outer: float
    thinnest: float = 0.15
    levels_most: int = 720

    def room(self, jobs: int) -> float:
        """The distance between the rings of this many jobs."""
        return (self.outer - self.inner) / jobs

    def of_job(
        self, number: int, jobs: int, spans: Iterable[Span], perimeter: int, capacity: int
    ) -> tuple[float, list[str]]:
        """The ring's inner radius and its pieces."""
        room = self.room(jobs)
        inside = self.inner + number * room
        return inside, [
            piece(
                inside,
                inside + max(self.thinnest, min(1.0, rate / capacity)) * room * FILLED,
                start / perimeter,
                end / perimeter,
            )
            for start, end, rate in spans
        ]

    def of_sum(self, levels: Sequence[Span], perimeter: int, capacity: int) -> tuple[list[str], list[str]]:
        """The pieces of the sum up to the capacity, and those of what exceeds it."""
        thick = self.sum_outer - self.sum_inner
        within, beyond = [], []
        for start, end, level in levels[: self.levels_most]:
            a, b, share = start / perimeter, end / perimeter, level / capacity
            within.append(piece(self.sum_inner, self.sum_inner + thick * min(1.0, share), a, b))
            if share > 1:
                beyond.append(piece(self.sum_outer, self.sum_outer + thick * min(1.0, share - 1), a, b))
        return within, beyond


def levels_of(spans: Iterable[Sequence[Span]], perimeter: int) -> list[Span]:
    """What all jobs together send, in pieces of equal rate around the circle."""
    return sums((span for mine in spans for span in mine), perimeter)


def score_of(levels: Iterable[Span], perimeter: int, capacity: int) -> float:
    """100·(1 − excess/(B·D)) in continuous time (CASSINI eq. 2, Metronome eq. 18)."""
    excess = sum((end - start) * max(0, level - capacity) for start, end, level in levels)
    return float(100 * (1 - excess / (capacity * perimeter)))


def piece(inside: float, outside: float, start: Fraction, end: Fraction) -> str:
    """The path of a piece of a ring; start and end in turns."""
    share = min(float(end - start), WHOLE)
    a, b = float(start), float(start) + share
    large = 1 if share > 0.5 else 0
    (x0, y0), (x1, y1) = at(outside, a), at(outside, b)
    (x2, y2), (x3, y3) = at(inside, b), at(inside, a)
    return (
        f"M{x0} {y0}A{outside:.2f} {outside:.2f} 0 {large} 1 {x1} {y1}"
        f"L{x2} {y2}A{inside:.2f} {inside:.2f} 0 {large} 0 {x3} {y3}Z"
    )


def at(radius: float, turns: float) -> tuple[float, float]:
    """The point of a circle this many turns from its top."""
    angle = math.tau * turns
    return round(radius * math.sin(angle), 2), round(-radius * math.cos(angle), 2)
