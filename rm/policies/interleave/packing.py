"""A necessary condition that ends hopeless searches early: do the remaining phases still fit?

Where every two jobs of a link contend, phases with their cushions may nowhere overlap. After
some are placed, only free stretches that are long enough for the shortest remaining one can be
used, and together they must hold all that remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rm.policies.interleave.circle import Circle, rotate


class Packing:
    """The condition for one link and one demanded cushion."""

    def __init__(self, circle: Circle, starts: Sequence[int], widths: Sequence[int]) -> None:
        self.circle = circle
        self.starts = starts
        self.widths = widths
        self.whole = (1 << circle.slots) - 1
        jobs = range(len(widths))
        self.masks = [
            ((1 << widths[j]) - 1) * sum(1 << (i * circle.n[j]) for i in range(circle.mul[j])) for j in jobs
        ]
        self.volume = [w * b for w, b in zip(widths, circle.mul, strict=True)]
        self.possible = sum(self.volume) <= circle.slots and all(
            w <= n for w, n in zip(widths, circle.n, strict=True)
        )

    def has_room(self, rotations: Mapping[int, int], rest: Iterable[int]) -> bool:
        """May the jobs `rest` still fit beside those that are placed?"""
        slots, taken = self.circle.slots, 0
        for j, at in rotations.items():
            taken |= rotate(self.masks[j], (self.starts[j] + at) % slots, slots)
        left = list(rest)
        if not left:
            return True
        free, width = self.whole & ~taken, min(self.widths[j] for j in left)
        usable = free
        done = 1
        while done < width and usable:  # keep only slots that start a long enough free stretch
            step = min(done, width - done)
            usable &= rotate(usable, slots - step, slots)
            done += step
        done = 1
        while done < width and usable:  # and all slots of those stretches
            step = min(done, width - done)
            usable |= rotate(usable, step, slots)
            done += step
        return usable.bit_count() >= sum(self.volume[j] for j in left)


def packing_for(circle: Circle, least: int = 0) -> Packing | None:
    """The condition for end-to-start gaps of at least `least` (in 1/(2*slots) tick, >= 0).

    None where it does not apply: some job has several phases or is on no common link, or two
    jobs may overlap.
    """
    slots, perimeter = circle.slots, circle.perimeter
    for link in circle.links:
        phases = [link.phases.get(job, ()) for job in circle.jobs]
        if any(len(p) != 1 for p in phases):
            continue
        lowest = sorted(p[0][2] for p in phases)[:2]
        if sum(lowest) <= link.capacity or len(phases) < 2:
            continue
        offsets = [p[0][0] * slots for p in phases]
        latest = max(offset % perimeter for offset in offsets)
        starts, widths = [], []
        for offset, ((_, duration, _),) in zip(offsets, phases, strict=True):
            first, into = divmod(offset, perimeter)
            touched = -(-(offset + slots * duration) // perimeter) - first
            # another phase starts a cushion after this one ends, itself at most `latest` into its
            # first slot: at least this many whole slots lie between the two first slots
            between = -(-(2 * (slots * duration + into - latest) + least) // (2 * perimeter))
            starts.append(first)
            widths.append(max(touched, between))
        return Packing(circle, starts, widths)
    return None
