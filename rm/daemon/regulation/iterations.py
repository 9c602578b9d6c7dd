"""Iteration statistics of running and recent jobs, from their reports."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KEPT_PER_JOB = 1_000  # iterations, as long as there are no more than KEPT_JOBS jobs
KEPT_LEAST = 50  # however many jobs there are
USUAL = 9  # of the newest iterations say how long one takes
KEPT_JOBS = 500  # that run no more


@dataclass(slots=True)
class IterationStats:
    """One attempt's iterations: (start_us, duration_us, paused_us, comm_us or None), newest last."""

    attempt: int
    items: deque[tuple[int, int, int, int | None]] = field(default_factory=lambda: deque(maxlen=KEPT_PER_JOB))
    count: int = 0
    pauses: int = 0
    baseline_us: int | None = None

    @property
    def next_start_us(self) -> int | None:
        """When the iteration after the newest begins; None before the first."""
        if not self.items:
            return None
        start_us, duration_us, _, _ = self.items[-1]
        return start_us + duration_us

    @property
    def usual_us(self) -> int | None:
        """About how long an iteration takes: the median of the newest; None before the first."""
        newest = sorted(self.items[-n - 1][1] for n in range(min(USUAL, len(self.items))))
        return newest[len(newest) // 2] if newest else None

    def add(self, start_us: int, duration_us: int, paused_us: int, comm_us: int | None) -> None:
        self.items.append((start_us, duration_us, paused_us, comm_us))
        self.count += 1


class IterationBook:
    """Statistics by job; the oldest jobs leave first, and none that runs."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, IterationStats] = OrderedDict()
        self._running: Mapping[int, object] = {}

    def see(self, running: Mapping[int, object]) -> None:
        """The jobs that run now."""
        self._running = running

    def entry(self, job: int, attempt: int) -> IterationStats:
        found = self._jobs.get(job)
        if found is None or found.attempt != attempt:
            most = KEPT_PER_JOB * KEPT_JOBS // max(KEPT_JOBS, len(self._jobs))
            found = self._jobs[job] = IterationStats(attempt, deque(maxlen=max(KEPT_LEAST, most)))
            self._jobs.move_to_end(job)
            if len(self._jobs) > KEPT_JOBS + len(self._running):
                self._forget()
        return found

    def _forget(self) -> None:
        """Of the jobs that run no more the oldest, many at a time."""
        over = [job for job in self._jobs if job not in self._running]
        for job in over[: len(over) - KEPT_JOBS // 2]:
            del self._jobs[job]

    def find(self, job: int) -> IterationStats | None:
        return self._jobs.get(job)

    def summary(self, job: int) -> Mapping[str, Any]:
        """Mean and percentiles over the kept iterations, microseconds."""
        stats = self._jobs.get(job)
        items = list(stats.items) if stats else []
        durations = sorted(i[1] for i in items)
        return {
            "baseline_us": stats.baseline_us if stats else None,
            "count": stats.count if stats else 0,
            "pauses": stats.pauses if stats else 0,
            "mean_us": round(sum(durations) / len(durations)) if durations else None,
            "p90_us": percentile(durations, 0.90),
            "p99_us": percentile(durations, 0.99),
            "items": items,
        }


def percentile(ordered: list[int], share: float) -> int | None:
    """The value below which `share` of the ordered values lie (nearest rank)."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
