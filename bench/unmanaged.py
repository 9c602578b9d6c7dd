"""How well rm estimates what iterations would take unmanaged: the estimate beside the simulator.

    python -m bench unmanaged

The cases of `bench never_worse`: two to twelve jobs that meet on the links of two hosts, with jitter up to
10 %. By how much an iteration takes longer than alone is estimated by `rm.policies.interleave.unmanaged` from
profiles alone, and simulated without management, over 20 s and two seeds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import fmean

from bench.figure import Figure, Settings
from bench.modes import LINK_BPS, UNMANAGED, Case, lost
from bench.never_worse import CASES, QUICK, SEEDS, drawn
from rm.core.model.traffic import on_off
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.profile import phases_of
from rm.policies.interleave.unmanaged import unmanaged_periods


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
    found = list(compared(drawn(QUICK if settings.quick else CASES)))
    figures = []
    for what, few in (("2 jobs", (2, 2)), ("3 to 6 jobs", (3, 6)), ("7 to 12 jobs", (7, 12))):
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
