"""Whether a job waits for a place where it meets nobody, though there is room for it now.

Ours, not a paper's. CASSINI lets a job wait wherever no placement is compatible, for as long as that is so.
Here it waits only for what is worth it: the first of those whom it would meet is expected to end before
meeting has cost all of them `patience` times that long. What meeting costs a job is the part of the link's
time that its compatibility score lacks, for as long as the job is expected to run. Only jobs that say how
long they run count: a time limit is far above that, and would let jobs wait too long.
"""

from __future__ import annotations

import math

from rm.core.model.job import Job, JobState
from rm.core.model.network.alignment import PERFECT, Alignment
from rm.core.model.progress import expected_left_us
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.units import MINUTE_US, SECOND_US, format_count

UNTIL = "until_us"
AGAIN_US = SECOND_US  # after which a job is looked at again at the earliest: whom it meets may be overdue
NOTICED = 0.1  # of a score, below which it counts as perfect


def below(alignment: Alignment, min_score: float) -> Reason:
    """Why a placement whose links score less than asked for is not taken."""
    worst = min(alignment.links, key=lambda link: link.score)
    return Reason(
        ReasonCode.CONTENTION,
        f"on link {worst.link} no rotation keeps it apart from the jobs there: "
        f"compatibility score {worst.score:.1f}, {min_score:.1f} needed",
        (("score", worst.score), ("min_score", min_score)),
    )


def better_later(job: Job, alignment: Alignment, snapshot: Snapshot, patience: float) -> Reason | None:
    """Why the job waits rather than start with this alignment; None: it starts."""
    runs_us = job.spec.expected_us
    if not patience or runs_us is None:
        return None
    met = [link for link in alignment.links if job.id in link.jobs and link.score < PERFECT - NOTICED]
    if not met:
        return None
    worst = min(met, key=lambda link: link.score)
    lost = 1 - max(0.0, worst.score) / PERFECT
    costs_us = lost * runs_us
    ends: list[tuple[int, int]] = []
    for number in sorted({other for link in met for other in link.jobs} - {job.id}):
        other = snapshot.jobs.get(number)
        if other is None or other.state is JobState.SUSPENDED:
            continue
        left_us = expected_left_us(other, snapshot.progress.get(number), snapshot.now_us)
        if left_us is not None:
            ends.append((left_us, number))
            costs_us += lost * left_us if other.spec.expected_us is not None else 0.0
    soonest_us, first = min(ends, default=(0, 0))
    if not ends or soonest_us >= patience * costs_us:
        return None
    return Reason(
        ReasonCode.CONTENTION,
        f"on link {worst.link} it would meet {format_count(len(ends), 'job')} at compatibility score "
        f"{worst.score:.1f}, which costs all of them some {costs_us / MINUTE_US:.0f} min; job {first} is "
        f"expected to end in {soonest_us / MINUTE_US:.0f} min",
        (("score", worst.score), (UNTIL, snapshot.now_us + max(soonest_us, AGAIN_US))),
    )


def until_us(reason: Reason) -> int | None:
    """When to look at a job again that waits for this reason, even if nothing has come free; None: never."""
    return next((int(value) for name, value in reason.numbers if name == UNTIL), None)


def looked_at_us(reason: Reason) -> float:
    """The same to sort reasons by: infinite for never."""
    at_us = until_us(reason)
    return math.inf if at_us is None else at_us
