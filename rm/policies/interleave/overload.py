"""Exact search for the least contention where no perfect rotation exists (R15).

Two facts make it short. (1) max(0, x - B) is convex, so what a job adds to the excess never shrinks
when others are placed first: the sum of the jobs' least additions bounds any completion from below,
and so does the volume that finds no free room. (2) Turn the jobs that are not placed yet earlier,
all together: their excess with the placed ones is piecewise linear, and bends upwards only where a
demand of one side rises as one of the other falls. So if P is placed, some best completion has a
job in such a contact with P (or, where no contact ever hinders, an agreed job at rotation 0), and
only these few rotations are tried, for any number of slots; where bounds leave some job fewer
than that, it alone is tried at all of them. Rotations that have been tried are taken away from the
job for all that follows, so that nothing is tried twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rm.policies.interleave.circle import Circle
from rm.policies.interleave.contacts import contacts, twins
from rm.policies.interleave.curves import Array, Curves
from rm.policies.interleave.descent import Descent
from rm.policies.interleave.feasible import OutOfSteps, Steps

_BATCH_CELLS = 1 << 16  # rows times slots of one batch
_STEPS_PER_CURVE = 6  # what a batch costs for each job, in steps of the bit-set search
_CELLS_PER_STEP = 1000
_TABLE_CELLS = 40_000  # of a table for two jobs
_PIECE = 8192  # children that are looked at together


@dataclass(frozen=True, slots=True)
class _Batch:
    """Children of one batch of schemes: row `parent[i]` of it with job `job` at `k[i]`.

    `least[i]` bounds the excess of all completions; `domains` of the jobs that remain.
    """

    placed: tuple[int, ...]
    rotations: Array
    loads: Array
    excess: Array
    domains: dict[int, Array]
    job: int
    parent: Array
    k: Array
    added: Array
    least: Array

    def only(self, chosen: Array) -> _Batch:
        return _Batch(
            self.placed, self.rotations, self.loads, self.excess, self.domains, self.job,
            self.parent[chosen], self.k[chosen], self.added[chosen], self.least[chosen],
        )  # fmt: skip


class LeastExcess:
    """Branch and bound for one circle, reference at rotation 0; excess in units of `curves.unit`."""

    def __init__(self, circle: Circle) -> None:
        self.circle = circle
        self.curves = Curves(circle)
        self.jobs = len(circle.n)
        self.rows = max(1, _BATCH_CELLS // (circle.slots * len(circle.links)))
        self.twin = twins(circle, circle.pattern)
        self._contacts: dict[tuple[int, int], Array] = {}
        self._pairs: dict[tuple[int, int], Array] = {}

    def search(self, steps: Steps, in_order: Steps | None = None) -> tuple[list[int], int, int]:
        """(rotations, their excess, a lower bound on any excess); bound == excess when proven.

        Rotations of proven excess are the lexicographically first ones, as far as the steps of
        `in_order` reach (default: as many as remain in `steps`).
        """
        descent = Descent(self.curves)
        if self.jobs == 1:
            return [0], descent.excess * self.curves.unit, descent.excess * self.curves.unit
        root = self.curves.load([0])
        rest = range(1, self.jobs)
        least = sum(int(curve.min()) for curve in self.curves.curves(rest, root).values())
        floor = int(self.curves.excess(root)[0]) + max(least, int(self.curves.unfitting(root, rest)[0]))
        descent.pairs(floor, steps)
        best, value = descent.rotations, descent.excess
        found, value, bound = self._improve(self._root([], np.zeros(1, np.int64)), best, value, steps)
        if bound == value:
            found = self._first(found, value, in_order or steps)
        return found, value * self.curves.unit, bound * self.curves.unit

    def _improve(
        self, root: _Batch, best: list[int], value: int, steps: Steps, enough: int | None = None
    ) -> tuple[list[int], int, int]:
        """The least excess below `value` of any completion of `root`, and its lower bound.

        Ends as soon as `enough` is reached.
        """
        stack = [root]
        try:
            while stack:
                if enough is not None and value <= enough:
                    break
                batch = stack.pop()
                order = np.argsort(batch.least, kind="stable")
                order = order[batch.least[order] < value]
                if not len(order):
                    continue
                if len(order) > self.rows:
                    stack.append(batch.only(order[self.rows :]))
                stack.append(batch.only(order[: self.rows]))  # counts as open if the steps end now
                best, value = self._branch(stack, best, value, steps)
        except OutOfSteps:
            pass
        left = [int(b.least.min()) for b in stack if len(b.least)]
        return best, value, min([value, *left])

    def _root(self, prefix: Sequence[int], k: Array) -> _Batch:
        """The first jobs at `prefix` and the next one at each of `k`."""
        j, rows = len(prefix), len(k)
        loads = self.curves.load(prefix)
        excess = self.curves.excess(loads)
        rotations = np.zeros((1, self.jobs), dtype=np.int64)
        rotations[0, :j] = prefix
        domains = {i: np.ones((1, self.circle.n[i]), dtype=bool) for i in range(j + 1, self.jobs)}
        added = self.curves.curve(j, loads)[0, k]
        parent = np.zeros(rows, dtype=np.int64)
        return _Batch(
            tuple(range(j)), rotations, loads, excess, domains, j, parent, k, added, excess[0] + added
        )

    def _branch(
        self, stack: list[_Batch], best: list[int], value: int, steps: Steps
    ) -> tuple[list[int], int]:
        """Take the top batch from the stack, and put its rows' children there."""
        top = stack[-1]
        rest = list(top.domains)
        cells = len(top.k) * self.circle.slots * len(self.circle.links)
        steps.take((1 + len(rest)) * (_STEPS_PER_CURVE + cells // _CELLS_PER_STEP))
        stack.pop()
        excess = top.excess[top.parent] + top.added
        rotations = top.rotations[top.parent]
        rotations[:, top.job] = top.k
        if not rest:
            i = int(excess.argmin())
            return ([int(k) for k in rotations[i]], int(excess[i])) if excess[i] < value else (best, value)
        loads = top.loads[top.parent] + self.curves.turned(top.job, top.k)
        domains = {j: d[top.parent] for j, d in top.domains.items()}
        curves = self.curves.curves(rest, loads)
        for j in rest:
            curves[j][~domains[j]] = self.curves.most
        least = {j: c.min(axis=1) for j, c in curves.items()}
        total = excess + sum(least.values())
        if len(rest) == 1:
            i = int(total.argmin())
            if total[i] >= value:
                return best, value
            rotations[i, rest[0]] = curves[rest[0]][i].argmin()
            return [int(k) for k in rotations[i]], int(total[i])
        volume = excess + self.curves.unfitting(loads, rest)
        alive = np.flatnonzero(np.maximum(total, volume) < value)
        if not len(alive):
            return best, value
        if len(alive) < len(total):
            rotations, loads, excess = rotations[alive], loads[alive], excess[alive]
            total, volume = total[alive], volume[alive]
            domains = {j: d[alive] for j, d in domains.items()}
            curves = {j: c[alive] for j, c in curves.items()}
            least = {j: x[alive] for j, x in least.items()}
        placed = (*top.placed, top.job)
        touching = {}
        for j in rest:  # who is above the value alone with the least of the others is out for good
            domains[j] &= curves[j] < (value - (total - least[j]))[:, None]
            touching[j] = domains[j] & self._touching(placed, rotations, j, j == rest[0])
        firsts = [j for j in rest if not any(self.twin[t] == self.twin[j] for t in rest if t < j)]
        firsts.sort(key=lambda j: int(np.count_nonzero(touching[j])))
        few = np.sum([touching[j].sum(axis=1) for j in firsts], axis=0)
        left = np.stack([domains[j].sum(axis=1) for j in firsts])
        narrow = np.where(left.min(axis=0) <= few, left.argmin(axis=0), -1)  # these try one job alone
        for number, j in enumerate(firsts):
            same = [t for t in rest if self.twin[t] == self.twin[j]]
            touching[j] &= (narrow == -1)[:, None]
            tried = touching[j] | (domains[j] & (narrow == number)[:, None])
            if placed == (0,):  # turning everyone by a reference period changes nothing
                tried[:, self.circle.slots // math.lcm(self.circle.mul[0], self.circle.mul[j]) :] = False
            row, k = np.nonzero(tried)
            added = curves[j][row, k]
            bound = np.maximum(added + (total - least[j])[row], volume[row])
            others = {t: domains[t] for t in rest if t != j}
            child = _Batch(placed, rotations, loads, excess, others, j, row, k, added, bound)
            child = child.only(np.flatnonzero(bound < value))
            if len(child.k):
                stack.append(self._sharpened(child, curves, value))
            for t in same:  # what was tried is out for all that follows
                domains[t] = domains[t] & ~touching[j]
                curves[t][touching[j]] = self.curves.most
                total = total - least[t]
                least[t] = curves[t].min(axis=1)
                total = total + least[t]
        return best, value

    def _sharpened(self, child: _Batch, curves: dict[int, Array], value: int) -> _Batch:
        """The children that may stay below `value`, as far as tables for pairs of jobs show.

        Beside the new job each other one adds what it would add without it, and no less than beside
        it and the reference alone.
        """
        for at in range(0, len(child.k), _PIECE):
            part = slice(at, at + _PIECE)
            row, k = child.parent[part], child.k[part]
            bound = child.excess[row] + child.added[part]
            for t in child.domains:
                table = self._beside(child.job, t)
                added = curves[t][row] if table is None else np.maximum(curves[t][row], table[k])
                bound = bound + added.min(axis=1)
            child.least[part] = np.maximum(child.least[part], bound)
        return child.only(np.flatnonzero(child.least < value))

    def _beside(self, j: int, t: int) -> Array | None:
        """(rotations of j, rotations of t): what t adds to the reference and j; None when too large."""
        if self.circle.n[j] * self.circle.n[t] > _TABLE_CELLS:
            return None
        found = self._pairs.get((j, t))
        if found is None:
            loads = self.curves.load([0]) + self.curves.turned(j, np.arange(self.circle.n[j]))
            found = self._pairs[j, t] = self.curves.curve(t, loads)
        return found

    def _touching(self, placed: Sequence[int], rotations: Array, j: int, anchor: bool) -> Array:
        """(rows, rotations) of job j in contact with a placed job; with `anchor` also rotation 0."""
        n = self.circle.n[j]
        found = np.zeros((len(rotations), n), dtype=bool)
        for i in placed:
            mask = self._contacts.get((i, j))
            if mask is None:
                mask = np.zeros(n, dtype=bool)
                mask[contacts(self.circle, i, j)] = True
                self._contacts[i, j] = mask
            turns = sliding_window_view(np.concatenate((mask, mask)), n)
            found |= turns[(-rotations[:, i]) % n]
        if anchor:
            found[:, 0] = True
        return found

    def _first(self, best: list[int], value: int, steps: Steps) -> list[int]:
        """The first scheme in order whose excess is `value`, given one; best effort when steps end."""
        try:
            for j in range(1, self.jobs):
                best = self._earliest(best, j, value, steps)
        except OutOfSteps:
            pass
        return best

    def _earliest(self, best: list[int], j: int, value: int, steps: Steps) -> list[int]:
        """As `best` up to job j-1, job j as early as `value` allows."""
        prefix = best[:j]
        load = self.curves.load(prefix)
        excess = self.curves.excess(load)[0]
        curve = excess + self.curves.curve(j, load)[0]
        end = best[j]
        if j == 1:
            end = min(end, self.circle.slots // math.lcm(self.circle.mul[0], self.circle.mul[1]))
        start = prefix[-1] if j > 1 and self.twin[j] == self.twin[j - 1] else 0
        candidates = start + np.flatnonzero(curve[start:end] <= value)
        rest = range(j + 1, self.jobs)
        at, size = 0, 8
        while at < len(candidates):
            ks, at, size = candidates[at : at + size], at + size, min(2 * size, self.rows)
            cells = len(ks) * self.circle.slots * len(self.circle.links)
            steps.take((1 + len(rest)) * (_STEPS_PER_CURVE + cells // _CELLS_PER_STEP))
            loads = load + self.curves.turned(j, ks)
            least = list(self.curves.curves(rest, loads).values())
            total = curve[ks] + sum((c.min(axis=1) for c in least), np.zeros(len(ks)))
            if rest:
                total = np.maximum(total, curve[ks] + self.curves.unfitting(loads, rest))
            possible = np.flatnonzero(total <= value)
            if len(possible) and len(rest) < 2:  # the bound is the value
                i = int(possible[0])
                return [*prefix, int(ks[i]), *(int(c[i].argmin()) for c in least)]
            ks, found = ks[possible], False
            while len(ks):
                scheme, reached, _ = self._improve(self._root(prefix, ks), best, value + 1, steps, value)
                if reached > value:
                    break
                best, found = scheme, True
                ks = ks[ks < scheme[j]]
            if found:
                break
        return best
