"""Time of the rotation searches, against plain enumeration and against Metronome's own figures.

    python -m bench rotation

Workloads are drawn from a fixed seed: jobs of one period, a half or a third of it, of three kinds:
one phase at the link's full rate; one phase at part of it; up to three phases at different rates. All
together ask for a given share of the link. Of each case the best of three times counts, so that
other programs on the machine count less. The peer enumerates every scheme in numpy, vectorised over the
last job's rotations; what it needs depends on the number of schemes alone.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.figure import Figure, Settings
from rm.policies.interleave import (
    BUDGET,
    Circle,
    Demand,
    LinkLoad,
    Plan,
    canonical_phases,
    rank_key,
    search_block,
    search_offline,
    unify,
)

PERIOD_US = 720_000
CAPACITY_MBPS = 25_000
KINDS = {"full rate": 1, "part of the rate": 1, "several phases": 3}
RATES = (0.3, 0.4, 0.5, 0.6, 0.75, 1.0)
AMPLE = 1_000_000  # steps: enough to prove every case of up to 6 jobs
TARGETS_MS = {
    (4, "perfect"): 1.0, (4, "cushion"): 2.0, (4, "best"): 20.0,
    (6, "perfect"): 2.0, (6, "cushion"): 30.0, (6, "best"): 500.0,
}  # fmt: skip
WHAT = {
    "perfect": "first perfect rotation",
    "cushion": "largest cushion",
    "best": "best of an imperfect case",
}
METRONOME = {
    "perfect": "Metronome's scheduler 1,500 ms",
    "cushion": "Metronome's controller 5 s",
    "best": "Metronome's scheduler 1,500 ms",
}
Problem = tuple[Plan, list[LinkLoad]]


def draw(kind: str, jobs: int, load: float, slots: int, chance: random.Random) -> Problem:
    """A link with this many jobs that ask for `load` of it in total."""
    weights = [chance.uniform(0.5, 1.5) for _ in range(jobs)]
    demands = []
    for job, weight in enumerate(weights):
        period = PERIOD_US // (chance.choice((1, 1, 2, 3)) if job else 1)
        count = chance.randint(1, KINDS[kind])
        part = period // count
        phases = []
        for i in range(count):
            rate = 1.0 if kind == "full rate" else chance.choice(RATES)
            busy = int(load * period * weight / sum(weights) / count / rate)
            busy = max(1, min(busy, part - 1))
            offset = chance.randrange(part - busy) if count > 1 else 0
            phases.append((i * part + offset, busy, int(CAPACITY_MBPS * rate)))
        demands.append(Demand(job, period, canonical_phases(period, phases), rank_key(0, job, "")))
    plan = unify(demands, g_t=5_000, slots=slots)
    if plan is None:
        raise SystemExit("bench/rotation.py: the drawn periods do not match; this is a defect of the bench.")
    return plan, [LinkLoad(CAPACITY_MBPS, {d.job: d.phases for d in demands})]


def problems(jobs: int, slots: int, cases: int) -> list[Problem]:
    chance = random.Random(jobs)
    loads = (0.4, 0.6, 0.75, 0.9, 1.05, 1.2)
    return [draw(kind, jobs, load, slots, chance) for kind in KINDS for load in loads for _ in range(cases)]


def enumerate_all(plan: Plan, links: list[LinkLoad]) -> int:
    """The least excess of all schemes, one numpy step per rotation of all jobs but the last."""
    circle = Circle(plan, links)
    (link,) = circle.links
    tiled = [
        np.tile(np.array(p, dtype=np.int64), b) for p, b in zip(circle.pattern[0], circle.mul, strict=True)
    ]
    last = np.stack([np.roll(tiled[-1], k) for k in range(circle.n[-1])])
    turned = [[np.roll(t, k) for k in range(n)] for t, n in zip(tiled, circle.n, strict=True)]
    best = None
    for k in itertools.product([0], *(range(n) for n in circle.n[1:-1])):
        base = sum(turned[j][at] for j, at in enumerate(k))
        least = int(np.maximum(last + base - link.capacity, 0).sum(axis=1).min())
        best = least if best is None else min(best, least)
    return best or 0


def timed(call: Callable[..., Any], *args: Any, times: int = 3) -> tuple[float, Any]:
    """Milliseconds and the result."""
    best, result = math.inf, None
    for _ in range(times):
        since = time.perf_counter()
        result = call(*args)
        best = min(best, 1000 * (time.perf_counter() - since))
    return best, result


class Enumeration:
    """What plain enumeration needs for all periods equal; beyond what is bearable, extrapolated."""

    def __init__(self, quick: bool) -> None:
        chance = random.Random(0)
        self.ms = {}
        for jobs in (4,) if quick else (4, 5):
            while True:
                plan, links = draw("full rate", jobs, 1.05, 72, chance)
                if max(plan.mul) == 1:
                    break
            self.ms[jobs] = timed(enumerate_all, plan, links, times=1)[0]

    def told(self, jobs: int, slots: int) -> str:
        if jobs in self.ms and slots == 72:
            return f"enumeration in numpy {self.ms[jobs]:,.0f} ms (measured, equal periods)"
        known = max(self.ms)
        per_scheme = self.ms[known] / 72 ** (known - 1) * slots / 72
        seconds = per_scheme * slots ** (jobs - 1) / 1000
        if seconds < 6000:
            needed = f"{seconds / 60:,.0f} minutes"
        else:
            days = seconds / 86400
            needed = f"{days:,.0f} days" if days < 1e6 else f"10^{math.log10(days):.0f} days"
        return f"enumeration in numpy {needed} (extrapolated from {known} jobs)"


def check(found: Sequence[tuple[Problem, Any]]) -> None:
    """Some of the schemes against enumeration; the time of this is not shown."""
    for problem, scheme in found:
        least = enumerate_all(*problem)
        if scheme.excess != least:
            raise SystemExit(
                f"bench/rotation.py: the search found {scheme.excess}, enumeration {least}: a defect."
            )


def figure(jobs: int, slots: int, case: str, runs: list[tuple[float, Any]], naive: Enumeration) -> Figure:
    times = sorted(ms for ms, _ in runs)
    p90, proven = times[int(0.9 * (len(times) - 1))], sum(found.exact for _, found in runs)
    middle = times[len(times) // 2]
    conditions = f"of {len(times)} cases, {proven} proven; median {middle:.2f} ms, worst {times[-1]:.2f} ms"
    if case == "best" and proven < len(times):
        gaps = [found.gap for _, found in runs if not found.exact]
        conditions += f"; where {BUDGET:,} steps did not prove it the gap is at most {max(gaps):.1f} points"
    if case == "cushion" and proven < len(times):
        short = [found.psi / found.bound for _, found in runs if not found.exact]
        conditions += (
            f"; where {BUDGET:,} steps did not prove it, it is {float(min(short)):.0%} or more of the bound"
        )
    return Figure(
        f"{jobs} jobs, {slots} slots, {WHAT[case]}, 90th pct.",
        p90,
        "ms",
        conditions,
        TARGETS_MS.get((jobs, case)) if slots == 72 else None,
        peer=f"{naive.told(jobs, slots)}; {METRONOME[case]}",
    )


def bench(jobs: int, slots: int, cases: int, budget: int, naive: Enumeration) -> list[Figure]:
    runs: dict[str, list[tuple[float, Any]]] = {case: [] for case in WHAT}
    solved = []
    times = 3 if jobs < 8 else 1
    for plan, links in problems(jobs, slots, cases):
        took, scheme = timed(search_block, plan, links, budget, times=times)
        solved.append(((plan, links), scheme))
        runs["perfect" if scheme.perfect else "best"].append((took, scheme))
        if scheme.perfect:
            took, spread = timed(lambda p=plan, ls=links: search_offline(p, ls, budget=budget), times=times)
            if spread is not None:
                runs["cushion"].append((took, spread))
    if jobs == 4 and slots == 72:
        check(solved[:: max(1, len(solved) // 8)])
    return [figure(jobs, slots, case, found, naive) for case, found in runs.items() if found]


def run(settings: Settings) -> list[Figure]:
    naive = Enumeration(settings.quick)
    cases = 3 if settings.quick else 8
    few = 1 if settings.quick else 2
    return [
        *bench(4, 72, cases, AMPLE, naive),
        *bench(6, 72, cases, AMPLE, naive),
        *bench(8, 72, few, BUDGET, naive),
        *bench(8, 3600, few, BUDGET, naive),
    ]
