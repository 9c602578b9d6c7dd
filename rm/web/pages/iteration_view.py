"""Iteration times of running jobs against what they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm.api.jobs import Iterations, Job
from rm.web.pages.text import Look, duration, look, shown

LAST = 60  # iterations drawn
MOST = 24  # jobs
WIDTH, HEIGHT = 600.0, 100.0
ABOVE = 1.35  # the drawing's top, in baselines


@dataclass(frozen=True, slots=True)
class Chart:
    """`bars` and `waits` are paths: a bar for each iteration, and the upper part of those that waited."""

    job: int
    name: str
    look: str
    bars: str
    waits: str
    baseline_y: float | None
    baseline: str
    mean: str
    p90: str
    p99: str
    ratio: str
    count: int
    pauses: int
    slow: bool
    says: str


def charts(jobs: Sequence[Job], iterations: Mapping[int, Iterations], look: Look = look) -> list[Chart]:
    """One of each job whose iterations are known, in the order of `jobs`."""
    return [
        _chart(job, iterations[job.id], look(job.id))
        for job in jobs
        if job.id in iterations and iterations[job.id].items
    ]


def _chart(job: Job, told: Iterations, looks: str) -> Chart:
    items = told.items[-LAST:]
    baseline, mean = told.baseline_us, told.mean_us
    longest = max(item[1] for item in items)
    top = max(1.0, min(longest, 3 * baseline) if baseline else longest, ABOVE * (baseline or 0))
    room = WIDTH / LAST
    wide, bars, waits = round(room * 0.8, 2), [], []
    for number, (_, length, waited, _) in enumerate(items):
        x, tall = round(number * room, 2), HEIGHT * min(1.0, length / top)
        y, paused = round(HEIGHT - tall, 2), round(min(tall, HEIGHT * min(waited, length) / top), 2)
        bars.append(f"M{x} {y}h{wide}V{HEIGHT:g}h{-wide}z")
        if paused > 0:
            waits.append(f"M{x} {y}h{wide}v{paused}h{-wide}z")
    ratio = mean / baseline if mean and baseline else None
    said = f"{told.count} iterations, {duration(mean)} on average"
    if ratio is not None:
        said += f", {ratio:.3f} times the baseline of {duration(baseline)}"
    return Chart(
        job=job.id,
        name=shown(job.spec.name),
        look=looks,
        bars="".join(bars),
        waits="".join(waits),
        baseline_y=round(HEIGHT * (1 - baseline / top), 2) if baseline else None,
        baseline=duration(baseline),
        mean=duration(mean),
        p90=duration(told.p90_us),
        p99=duration(told.p99_us),
        ratio="–" if ratio is None else f"{ratio:.3f}",
        count=told.count,
        pauses=told.pauses,
        slow=ratio is not None and ratio > 1.1,
        says=said,
    )
