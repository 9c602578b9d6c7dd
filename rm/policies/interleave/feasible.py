"""Perfect rotations as bit sets: which of them a job has left beside a given load.

For each bandwidth v of a job, the slots where the load exceeds capacity - v are "bad"; a
rotation is forbidden when one of the job's runs would touch a bad slot, which is an OR of
rotated copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from rm.policies.interleave.circle import Circle, rotate

Load = list[list[tuple[int, int]]]  # per link: (load, set of slots with exactly that load)


class OutOfSteps(Exception):
    """The search has used up its steps; never leaves this package."""


class Steps:
    """A budget of search steps: how the pure room bounds work without a clock."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise OutOfSteps


class Feasibility:
    """Loads on one circle and the rotations that they leave to its jobs."""

    def __init__(self, circle: Circle) -> None:
        self.circle = circle
        slots = circle.slots
        self.whole = (1 << slots) - 1
        self.full = [(1 << n) - 1 for n in circle.n]
        # multiplying an n-slot set by this repeats it around the circle
        self.tile = [sum(1 << (i * n) for i in range(b)) for n, b in zip(circle.n, circle.mul, strict=True)]
        self.level_sets = [
            [[(v, _set_of(runs)) for v, runs in job_runs] for job_runs in link_runs]
            for link_runs in circle.runs
        ]

    def volume_fits(self) -> bool:
        return all(
            v <= b * self.circle.slots for v, b in zip(self.circle.volume, self.circle.capacity, strict=True)
        )

    def empty(self) -> Load:
        return [[(0, self.whole)] for _ in self.circle.links]

    def add(self, load: Load, j: int, k: int) -> Load:
        """The load with job j put at rotation k."""
        n, tile = self.circle.n[j], self.tile[j]
        result: Load = []
        for link, old in enumerate(load):
            levels = self.level_sets[link][j]
            if not levels:
                result.append(old)
                continue
            new: dict[int, int] = {}
            placed = [(v, rotate(bits, k, n) * tile) for v, bits in levels]
            for total, slots in old:
                rest = slots
                for v, bits in placed:
                    hit = slots & bits
                    if hit:
                        new[total + v] = new.get(total + v, 0) | hit
                        rest &= ~bits
                if rest:
                    new[total] = new.get(total, 0) | rest
            result.append(list(new.items()))
        return result

    def admissible(self, load: Load, j: int) -> int:
        """The rotations of job j that overload no slot, as a set."""
        n, full = self.circle.n[j], self.full[j]
        forbidden = 0
        for link, levels in enumerate(load):
            capacity = self.circle.capacity[link]
            for v, runs in self.circle.runs[link][j]:
                bad = 0
                for total, slots in levels:
                    if total + v > capacity:
                        bad |= slots
                if not bad:
                    continue
                folded = bad
                while folded > full:
                    folded = (folded & full) | (folded >> n)
                for offset, width in runs:
                    forbidden |= _spread(rotate(folded, (n - offset) % n, n), width, n)
                if forbidden == full:
                    return 0
        return full & ~forbidden


def middle_of_first_run(allowed: int, n: int) -> int:
    """Middle of the circular run of admissible rotations that holds the smallest one (R14)."""
    return run_middle(*next(iter(circular_runs(allowed, n))), n)


def circular_runs(allowed: int, n: int) -> list[tuple[int, int]]:
    """Maximal circular runs (start, length), the one holding the smallest member first."""
    if allowed == (1 << n) - 1:
        return [(0, n)]
    starts = allowed & ~rotate(allowed, 1, n)
    runs: list[tuple[int, int]] = []
    while starts:
        low = starts & -starts
        starts ^= low
        start = low.bit_length() - 1
        turned = rotate(allowed, (n - start) % n, n)
        runs.append((start, ((~turned) & (turned + 1)).bit_length() - 1))
    runs.sort(key=lambda run: 0 if run[0] + run[1] > n else run[0])
    return runs


def run_middle(start: int, length: int, n: int) -> int:
    return (start + (length - 1) // 2) % n


def _spread(bits: int, width: int, n: int) -> int:
    """OR of the set moved 0, 1, ..., width-1 slots earlier, in O(log width) steps."""
    done = 1
    while done < width:
        step = min(done, width - done)
        bits |= rotate(bits, n - step, n)
        done += step
    return bits


def _set_of(runs: Sequence[tuple[int, int]]) -> int:
    return sum(((1 << width) - 1) << offset for offset, width in runs)
