"""A run in a few numbers, and several variants over the same seeds in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rm.sim.result import JobResult, Result
from rm.sim.statistics import mean_std, reduction_pct

# metric -> what it says, unit; all of them are better when smaller
METRICS: Mapping[str, tuple[str, str]] = {
    "mean_jct_s": ("mean job completion time", "s"),
    "p95_jct_s": ("95th percentile of the job completion time", "s"),
    "makespan_s": ("from the first arrival to the last end", "s"),
    "mean_wait_s": ("mean time in the queue", "s"),
    "mean_slowdown": ("mean over jobs: iteration / undisturbed iteration", "x"),
    "p95_slowdown": ("95th percentile of the same", "x"),
    "congestion_gbit": ("demand above the links' capacity (stands for ECN marks)", "Gbit"),
}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed; 0 of none."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def metrics(result: Result) -> dict[str, float]:
    """One run's METRICS; of jobs that did not reach a thing, nothing is counted."""
    jct = [j.jct_us / 1e6 for j in result.jobs if j.jct_us is not None]
    waits = [j.wait_us / 1e6 for j in result.jobs if j.wait_us is not None]
    slow = [j.mean_us / j.alone_us for j in result.jobs if j.iterations and j.alone_us]
    return {
        "mean_jct_s": fmean(jct) if jct else 0.0,
        "p95_jct_s": quantile(jct, 0.95),
        "makespan_s": result.makespan_us / 1e6,
        "mean_wait_s": fmean(waits) if waits else 0.0,
        "mean_slowdown": fmean(slow) if slow else 0.0,
        "p95_slowdown": quantile(slow, 0.95),
        "congestion_gbit": sum(use.excess_bits for use in result.links.values()) / 1e9,
    }


def gains(base: Sequence[float], other: Sequence[float]) -> tuple[float, float] | None:
    """Mean and spread, in percent, of how much less `other` is than `base`, seed by seed."""
    pairs = [(a, b) for a, b in zip(base, other, strict=True) if a]
    return mean_std([reduction_pct(a, b) for a, b in pairs]) if pairs else None


def job_row(job: JobResult) -> dict[str, Any]:
    """A job for `--json`: seconds and milliseconds, None for what did not happen."""

    def seconds(us: float | None) -> float | None:
        return None if us is None else us / 1e6

    return {
        "name": job.name,
        "arrival_s": job.arrival_us / 1e6,
        "start_s": seconds(job.start_us),
        "end_s": seconds(job.end_us),
        "jct_s": seconds(job.jct_us),
        "iterations": job.iterations,
        "iteration_ms": job.mean_us / 1e3,
        "alone_ms": job.alone_us / 1e3,
        "paused_s": job.paused_us / 1e6,
        "attempts": job.attempts,
        "hosts": list(job.hosts),
    }


def run_row(result: Result) -> dict[str, Any]:
    """A run for `--json`."""
    return {
        "metrics": metrics(result),
        "jobs": [job_row(job) for job in result.jobs],
        "links": {
            name: {
                "carried_gbit": use.carried_bits / 1e9,
                "busy_s": use.busy_us / 1e6,
                "overloaded_s": use.overloaded_us / 1e6,
                "excess_gbit": use.excess_bits / 1e9,
            }
            for name, use in result.links.items()
            if use.carried_bits
        },
        "simulated_s": result.span_us / 1e6,
        "events": result.events,
        "alignments": result.alignments,
        "worst_score": result.worst_score,
        "pauses": result.pauses,
        "inspections": result.inspections,
        "moved": result.moved,
    }
