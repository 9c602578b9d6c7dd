"""Is any job slower under the defaults than unmanaged? Simulated, over cases drawn from the whole grid.

    python -m bench never_worse
    python -m bench.never_worse docs/images/never-worse.svg    # draws them, too

Two to twelve jobs of one priority, fill 0.5 to 1.3, jitter up to 10 %, all sorts of periods (`bench modes`
describes them). Each case is the mean of two seeds; between seeds the slowest job of an overloaded link
differs by 10 points and more, so a case that seems slower is played with 16 before it counts.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings
from bench.modes import DEFAULT, NOISE_PCT, PERIODS, UNMANAGED, Case, Lost, mean, play
from rm.sim.figure import save

CASES, QUICK = 200, 40
SEEDS = (1, 2)
MORE_SEEDS = tuple(range(1, 17))


@dataclass(frozen=True, slots=True)
class Compared:
    case: Case
    managed: Lost
    unmanaged: Lost
    seeds: int

    @property
    def slower(self) -> float:
        """How many points the slowest job loses by being managed."""
        return self.managed.slowest - self.unmanaged.slowest


def drawn(number: int) -> Iterator[Case]:
    """The same cases each time."""
    chance = random.Random("never worse")
    for _ in range(number):
        fill, jitter = round(chance.uniform(0.5, 1.3), 2), round(chance.uniform(0, 0.1), 3)
        yield Case(chance.randint(2, 12), fill, jitter, chance.choice(PERIODS), False)


def compare(case: Case) -> Compared:
    found = _played(case, SEEDS)
    return _played(case, MORE_SEEDS) if found.slower > NOISE_PCT else found


def _played(case: Case, seeds: Sequence[int]) -> Compared:
    managed, unmanaged = (
        mean(play(case, mode, seed, True) for seed in seeds) for mode in (DEFAULT, UNMANAGED)
    )
    return Compared(case, managed, unmanaged, len(seeds))


def figures(found: list[Compared]) -> list[Figure]:
    worst = max(found, key=lambda one: one.slower)
    worse = [one for one in found if one.slower > NOISE_PCT]
    managed, unmanaged = mean(one.managed for one in found), mean(one.unmanaged for one in found)
    again = sum(one.seeds > len(SEEDS) for one in found)
    return [
        Figure(
            f"cases in which the slowest job loses {NOISE_PCT:g} points more", len(worse), "cases",
            f"of {len(found)}, {again} of them played with {len(MORE_SEEDS)} seeds; the worst "
            f"{worst.slower:+.1f} points: {worst.case}", target=0,
        ),
        Figure(
            "slowest job, the mean of all cases", managed.slowest, "%",
            f"unmanaged {unmanaged.slowest:.1f} %; all jobs {managed.mean:.1f} %, unmanaged "
            f"{unmanaged.mean:.1f} %", target=unmanaged.slowest,
        ),
    ]  # fmt: skip


def run(settings: Settings) -> list[Figure]:
    return figures([compare(case) for case in drawn(QUICK if settings.quick else CASES)])


def draw(found: list[Compared], path: str) -> None:
    def plot(figure: Any) -> None:
        figure.set_size_inches(6.5, 5.5)
        panel = figure.subplots()
        for kind in PERIODS:
            of = [one for one in found if one.case.periods == kind]
            across, up = [one.unmanaged.slowest for one in of], [one.managed.slowest for one in of]
            panel.scatter(across, up, s=14, label=f"{kind} periods")
        most = max(one.unmanaged.slowest for one in found) + 5
        panel.plot([0, most], [0, most], color="#9aa5b1", linewidth=1, label="the same")
        panel.set_xlabel("unmanaged: the slowest job's iterations grow by, %")
        panel.set_ylabel("under the defaults, %")
        panel.legend(fontsize=8)

    save(plot, Path(path))


if __name__ == "__main__":
    everything = [compare(case) for case in drawn(CASES)]
    for one in figures(everything):
        print("\n".join(one.lines()))
    draw(everything, sys.argv[1])
