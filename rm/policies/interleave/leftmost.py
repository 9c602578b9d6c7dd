"""Is there a perfect scheme, and which is the first? Only leftmost schemes need be tried.

Take any perfect scheme and leave some jobs P where they are. Turn all the others earlier, together,
until something hinders: then one of them touches a job of P (it begins where that one ends, or lies
at the edge of the relative rotations that are allowed between the two). If nothing hinders, an agreed
one of them reaches rotation 0. So below P only such rotations need be tried, for any number
of slots, and what has been tried is taken away from the job for all that follows. Where a job has
fewer rotations left than there are such candidates, all of these are tried instead.

The rotations left to a job are a bit set. Placing another one is an AND with the relative rotations
at which the two fit together; where three jobs overload a link of which no two do, the loads are
looked at as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from rm.policies.interleave.circle import Circle, rotate
from rm.policies.interleave.contacts import contacts, twins
from rm.policies.interleave.feasible import Feasibility, Load, OutOfSteps, Steps
from rm.policies.interleave.packing import Packing

_DEEPEST = 250  # jobs: two calls deep for each
PairMasks = Mapping[tuple[int, int], int]  # (earlier, later) -> rotations of the later one
# at rotation 0 of the earlier one


class _Node(NamedTuple):
    """Some jobs placed; of each other one the rotations left, and which of them touch a placed job."""

    rotations: dict[int, int]
    left: dict[int, int]
    touching: dict[int, int]
    load: Load


class Fits:
    """For every two jobs of a circle the relative rotations that overload no link."""

    def __init__(self, feasibility: Feasibility) -> None:
        self.feasibility = feasibility
        circle = self.circle = feasibility.circle
        jobs = range(len(circle.n))
        self.masks = [[0] * len(circle.n) for _ in jobs]
        self.alone = [feasibility.admissible(feasibility.empty(), j) for j in jobs]
        for i in jobs:
            load = feasibility.add(feasibility.empty(), i, 0)
            for j in range(i + 1, len(circle.n)):
                self.masks[i][j] = feasibility.admissible(load, j)
                self.masks[j][i] = self.reverse(i, j, self.masks[i][j])
        phases = [[link.phases.get(job, ()) for job in circle.jobs] for link in circle.links]
        self.twin = twins(circle, phases)
        self.crowds = any(_may_crowd(circle, link) for link in range(len(circle.links)))
        self._touches: dict[tuple[int, int], int] = {}

    def reverse(self, i: int, j: int, mask: int) -> int:
        """The rotations of i at 0 of j, given those of j at 0 of i."""
        common = self.circle.slots // math.lcm(self.circle.mul[i], self.circle.mul[j])
        bits = format(mask & ((1 << common) - 1), f"0{common}b")[::-1]  # bit x is now at common-1-x
        return int(rotate(int(bits, 2), 1 % common, common) * self.repeat(common, i))

    def repeat(self, common: int, j: int) -> int:
        return sum(1 << at for at in range(0, self.circle.n[j], common))

    def touching(self, i: int, j: int) -> int:
        """Rotations of j at which it begins where i, at 0, ends."""
        found = self._touches.get((i, j))
        if found is None:
            found = 0
            for k in set(contacts(self.circle, i, j, both=False).tolist()):
                found |= 1 << k
            self._touches[i, j] = found
        return found


class Leftmost:
    """The search under further masks for pairs, and with an early end by `packing`."""

    def __init__(self, fits: Fits, pairs: PairMasks | None = None, packing: Packing | None = None) -> None:
        self.fits = fits
        self.packing = packing
        self.circle = fits.circle
        self.jobs = len(fits.circle.n)
        self.masks = fits.masks
        if pairs:
            self.masks = [list(row) for row in fits.masks]
            for (i, j), mask in pairs.items():
                self.masks[i][j] &= mask
                self.masks[j][i] = fits.reverse(i, j, self.masks[i][j])
        self._edges: dict[int, list[int]] = {}

    def edges(self, i: int) -> list[int]:
        """For each other job its rotations in contact with i, which is at 0."""
        found = self._edges.get(i)
        if found is None:
            found = []
            for j, (mask, n) in enumerate(zip(self.masks[i], self.circle.n, strict=True)):
                begins = mask & ~rotate(mask, 1 % n, n)
                also = self.fits.crowds and i != j and j > 0
                found.append(begins | self.fits.touching(i, j) if also else begins)
            self._edges[i] = found
        return found

    def root(self, steps: Steps) -> _Node | None:
        """The reference at 0; None when it is clear that there is no perfect scheme.

        Raises OutOfSteps for more jobs than the search can go deep.
        """
        fits, empty = self.fits, self.fits.feasibility.empty()
        if not fits.feasibility.volume_fits() or (self.packing is not None and not self.packing.possible):
            return None
        if not all(fits.alone):
            return None
        if self.jobs > _DEEPEST:
            raise OutOfSteps
        left = dict(enumerate(fits.alone))
        return self._place(_Node({}, left, dict.fromkeys(left, 0), empty), 0, 0, steps)

    def find(self, node: _Node, steps: Steps, special: int = 0) -> dict[int, int] | None:
        """Rotations of a perfect scheme below the node; None when there is none.

        `special` is a job that changes places with no other. Raises OutOfSteps when undecided.
        """
        left = node.left
        if len(left) < 2:
            return node.rotations | {j: _lowest(mask) for j, mask in left.items()}
        narrow = min(left, key=lambda j: left[j].bit_count())
        anchor = next(iter(left))
        candidates = {j: (node.touching[j] | (1 if j == anchor else 0)) & mask for j, mask in left.items()}
        if left[narrow].bit_count() <= sum(c.bit_count() for c in candidates.values()):
            return self._try(node, narrow, left[narrow], steps, special)
        rest = dict(left)
        for j in sorted(candidates, key=lambda j: candidates[j].bit_count()):
            same = [t for t in rest if self.fits.twin[t] == self.fits.twin[j] and t != special]
            if j == special:
                same = [j]
            elif same[0] != j:
                continue
            found = self._try(node._replace(left=rest), j, candidates[j], steps, special)
            if found is not None:
                return found
            for t in same:
                rest[t] &= ~candidates[j]
                if not rest[t]:
                    return None
        return None

    def first(self, steps: Steps) -> tuple[list[int], int] | None:
        """The lexicographically first perfect prefix, and the last job's rotations with it.

        None: there is no perfect scheme. Raises OutOfSteps when that is undecided; when the steps
        end later, the answer is the first one only as far as they reached.
        """
        node = self.root(steps)
        if node is None:
            return None
        if self.jobs == 1:
            return [], self.fits.alone[0]
        best = self.find(node, steps)
        if best is None:
            return None
        best = self._turned(best)
        for j in range(1, self.jobs - 1):
            try:
                best = self._earliest(node, j, best, steps)
            except OutOfSteps:
                steps = Steps(0)
            placed = self._place(node, j, best[j], None)
            assert placed is not None
            node = placed
        return [best[j] for j in range(self.jobs - 1)], node.left[self.jobs - 1]

    def _earliest(self, node: _Node, j: int, best: dict[int, int], steps: Steps) -> dict[int, int]:
        """As `best`, job j (of those left the first) as early as can be.

        Turning jobs earlier keeps j below the rotation that it has, down to 0, where it is the
        agreed one: so the search holds for a part of j's rotations, too, if that begins at 0.
        """
        found: dict[int, int] | None = best
        while found is not None:
            best = found
            earlier = node.left[j] & ((1 << best[j]) - 1)
            found = self.find(node._replace(left=node.left | {j: earlier}), steps, j) if earlier else None
        return best

    def _turned(self, scheme: dict[int, int]) -> dict[int, int]:
        """The first in order of the schemes that differ only by whole periods of the reference."""
        n, period = self.circle.n, self.circle.n[0]
        turned = ({j: (k + t * period) % n[j] for j, k in scheme.items()} for t in range(self.circle.mul[0]))
        return min(turned, key=lambda s: [s[j] for j in range(self.jobs)])

    def _try(self, node: _Node, j: int, candidates: int, steps: Steps, special: int) -> dict[int, int] | None:
        while candidates:
            k = _lowest(candidates)
            candidates &= candidates - 1
            child = self._place(node, j, k, steps)
            if child is not None:
                found = self.find(child, steps, special)
                if found is not None:
                    return found
        return None

    def _place(self, node: _Node, j: int, k: int, steps: Steps | None) -> _Node | None:
        """Job j put at k; None when some other job has no rotation left."""
        if steps is not None:
            steps.take(1 + self.circle.slots // 1440)
        n, masks, edges = self.circle.n, self.masks[j], self.edges(j)
        left, touching = {}, {}
        for i, mask in node.left.items():
            if i == j:
                continue
            turn = k % n[i]
            mask &= rotate(masks[i], turn, n[i])
            if not mask:
                return None
            left[i] = mask
            touching[i] = node.touching[i] | rotate(edges[i], turn, n[i])
        rotations = node.rotations | {j: k}
        if self.packing is not None and left and not self.packing.has_room(rotations, left):
            return None
        load = node.load
        if self.fits.crowds:
            load = self.fits.feasibility.add(load, j, k)
            for i in left if len(rotations) > 1 else ():  # beside one job alone the masks say it all
                left[i] &= self.fits.feasibility.admissible(load, i)
                if not left[i]:
                    return None
        return _Node(rotations, left, touching, load)


def _may_crowd(circle: Circle, link: int) -> bool:
    """May three or more jobs overload the link in a slot in which no two of them do?"""
    rates = [[v for v, _ in runs] for runs in circle.runs[link] if runs]
    lowest = sorted(min(v) for v in rates)
    capacity = circle.capacity[link]
    return len(rates) > 2 and sum(lowest[:2]) <= capacity < sum(max(v) for v in rates)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
