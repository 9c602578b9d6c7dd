"""Time of the rotation search at 72 slots, against plain enumeration.

    python -m bench rotation

The peer enumerates every scheme in numpy, vectorised over the last job's rotations. Workloads
are drawn from a fixed seed: jobs of one period or half of it, whose phases fill the given share
of a link.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bench.figure import Figure, Settings
from rm.policies.interleave import (
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
TARGET_MS = 2.0
PERFECT = "first perfect interval"
Problem = tuple[Plan, list[LinkLoad]]


def draw(jobs: int, load: float, chance: random.Random) -> Problem:
    """A link with this many jobs whose phases take `load` of its time in total."""
    weights = [chance.uniform(0.5, 1.5) for _ in range(jobs)]
    demands = []
    for job, weight in enumerate(weights):
        period = PERIOD_US // (chance.choice((1, 1, 2)) if job else 1)
        busy = max(1, int(load * period * weight / sum(weights)))
        phases = canonical_phases(period, [(0, busy, CAPACITY_MBPS)])
        demands.append(Demand(job, period, phases, rank_key(0, job, "")))
    plan = unify(demands, g_t=5_000)
    if plan is None:
        raise SystemExit("bench/rotation.py: the drawn periods do not match; this is a defect of the bench.")
    return plan, [LinkLoad(CAPACITY_MBPS, {d.job: d.phases for d in demands})]


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


def measure(call: Callable[..., Any], problems: Iterable[Problem]) -> tuple[list[float], list[Any]]:
    times, results = [], []
    for plan, links in problems:
        start = time.perf_counter()
        results.append(call(plan, links))
        times.append(1000 * (time.perf_counter() - start))
    return times, results


def row(jobs: int, what: str, times: list[float], exact: int) -> dict[str, Any]:
    ordered = sorted(times)
    return {
        "jobs": jobs,
        "what": what,
        "cases": len(ordered),
        "proven": exact,
        "median_ms": round(ordered[len(ordered) // 2], 3),
        "p90_ms": round(ordered[int(0.9 * (len(ordered) - 1))], 3),
        "max_ms": round(ordered[-1], 3),
    }


def bench(jobs: int, cases: int, enumerated: int) -> list[dict[str, Any]]:
    chance = random.Random(jobs)
    problems = [draw(jobs, load, chance) for load in (0.6, 0.75, 0.9, 1.05, 1.2) for _ in range(cases)]
    schemes = [search_block(*p) for p in problems]
    perfect = [p for p, s in zip(problems, schemes, strict=True) if s.perfect]
    crowded = [p for p, s in zip(problems, schemes, strict=True) if not s.perfect]
    rows = []
    for what, chosen in ((PERFECT, perfect), ("least contention", crowded)):
        if chosen:
            times, found = measure(search_block, chosen)
            rows.append(row(jobs, what, times, sum(s.exact for s in found)))
    if perfect:
        times, found = measure(search_offline, perfect)
        rows.append(row(jobs, "largest cushion", times, sum(s is not None and s.exact for s in found)))
    if enumerated:
        sample = problems[:: max(1, len(problems) // enumerated)]
        times, least = measure(enumerate_all, sample)
        rows.append(row(jobs, "enumeration in numpy", times, len(sample)))
        for problem, excess in zip(sample, least, strict=True):
            found_excess = search_block(*problem).excess
            if found_excess != excess:
                raise SystemExit(
                    f"bench/rotation.py: the search found {found_excess}, enumeration {excess}: a defect."
                )
    return rows


def run(settings: Settings) -> list[Figure]:
    cases = 4 if settings.quick else 10
    figures = []
    for r in [*bench(4, cases, enumerated=5), *bench(6, cases, enumerated=0)]:
        what = f"{r['jobs']} jobs, {r['what']}, median"
        goal = TARGET_MS if (r["jobs"], r["what"]) == (4, PERFECT) else None
        spread = f"90th percentile {r['p90_ms']:.2f} ms, worst {r['max_ms']:.2f} ms"
        of = f"of {r['cases']}, {r['proven']} proven; {spread}"
        figures.append(Figure(what, r["median_ms"], "ms", of, goal))
    return figures
