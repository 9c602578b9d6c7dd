"""First come, first served on a host's link, as rules for its jobs."""

from __future__ import annotations

from collections.abc import Iterable

from rm.core.model.network.alignment import Bursts, ShapingRule
from rm.core.model.snapshot import PlacedJob

USUAL = Bursts(gap_us=10_000, longest_us=1_000_000)
LEAST_SHARE = 100  # each HTB class is guaranteed one part in this many: priority decides the rest


def least_bps(capacity_bps: int) -> int:
    """What the class of each job on a link is guaranteed."""
    return max(1, capacity_bps // LEAST_SHARE)


def burst_rules(
    host: str, capacity_bps: int, jobs: Iterable[PlacedJob], bursts: Bursts = USUAL
) -> list[ShapingRule]:
    """Rules for all the jobs of a link; high jobs come before all others."""
    least = least_bps(capacity_bps)
    return [
        ShapingRule(job.job, host, 0 if job.high else 1, least, capacity_bps, bursts)
        for job in sorted(jobs, key=lambda j: j.job)
    ]
