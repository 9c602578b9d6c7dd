"""How well rm estimates what iterations would take unmanaged: the estimate beside the simulator.

    python -m bench unmanaged

The cases of `bench never_worse`: two to twelve jobs that meet on the links of two hosts, with jitter up to
10 %; and crowds of 25 to 64 like them. By how much an iteration takes longer than alone is estimated by
`rm.policies.interleave.unmanaged` from profiles alone, and simulated without management, over 20 s and two
seeds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import chain
from statistics import fmean

from bench.figure import Figure, Settings
from bench.modes import LINK_BPS, PERIODS, UNMANAGED, Case, lost
from bench.never_worse import CASES, QUICK, SEEDS, drawn
from rm.core.model.asked.traffic import on_off
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.profile import phases_of
from rm.policies.interleave.unmanaged import unmanaged_periods

CROWDS, QUICK_CROWDS = 10, 2
CROWDED = (25, 64)


def crowds(number: int) -> Iterator[Case]:
    """The same cases each time; kinds of periods in turn."""
    chance = random.Random("crowds")
    for index in range(number):
        fill, jitter = round(chance.uniform(0.5, 1.3), 2), round(chance.uniform(0, 0.1), 3)
        yield Case(chance.randint(*CROWDED), fill, jitter, PERIODS[index % len(PERIODS)], False)


def estimated(case: Case) -> list[float]:
    """By how many per cent each job's iterations grow."""
    profiles = [on_off(case.period_us(job), case.fill / case.jobs, LINK_BPS) for job in range(case.jobs)]
    load = LinkLoad(LINK_BPS, {job: phases_of(profile) for job, profile in enumerate(profiles)})
    periods = {job: profile.period_us for job, profile in enumerate(profiles)}
    found = unmanaged_periods(load, periods)
    return [100 * (found[job] / periods[job] - 1) for job in range(case.jobs)]


def simulated(case: Case) -> list[float]:
    seeds = [lost(case, UNMANAGED, seed) for seed in SEEDS]
    return [fmean(of_job) for of_job in zip(*seeds, strict=True)]


def compared(cases: Iterator[Case]) -> Iterator[tuple[Case, list[float], list[float], float]]:
    for case in cases:
        began = time.process_time()
        ours = estimated(case)
        took_s = time.process_time() - began
        yield case, ours, simulated(case), took_s


def run(settings: Settings) -> list[Figure]:
    quick = settings.quick
    cases = chain(drawn(QUICK if quick else CASES), crowds(QUICK_CROWDS if quick else CROWDS))
    found = list(compared(cases))
    figures = []
    for few in ((2, 2), (3, 6), (7, 12), CROWDED):
        what = "2 jobs" if few == (2, 2) else f"{few[0]} to {few[1]} jobs"
        of = [one for one in found if few[0] <= one[0].jobs <= few[1]]
        whole = fmean(fmean(ours) for _, ours, _, _ in of), fmean(fmean(theirs) for _, _, theirs, _ in of)
        off = sorted(abs(a - b) for _, ours, theirs, _ in of for a, b in zip(ours, theirs, strict=True))
        figures.append(
            Figure(
                f"estimated loss, {what}", whole[0], "%",
                f"{len(of)} cases; simulated {whole[1]:.1f} %. A job's own is off by "
                f"{off[len(off) // 2]:.1f} points in the median, at most by "
                f"{off[len(off) * 9 // 10]:.1f} in nine of ten",
            )
        )  # fmt: skip
    slowest_ms = sorted(1e3 * took_s for _, _, _, took_s in found)
    figures.append(
        Figure(
            "processor time of an estimate", slowest_ms[len(slowest_ms) // 2], "ms",
            f"median; the longest {slowest_ms[-1]:.0f} ms",
        )
    )  # fmt: skip
    return figures
