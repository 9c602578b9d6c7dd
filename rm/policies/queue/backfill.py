"""backfill: by priority, and what does not fit yet is not overtaken by what would delay it.

Source: backfilling (D. Lifka, JSSPP 1995; A. Mu'alem and D. Feitelson, IEEE TPDS 2001), as
`rm.core.scheduling.ahead` carries it out: the first jobs in order that do not fit get a reservation
for the earliest time at which enough will have ended; a later job may start before that if
it ends in time or leaves the reserved jobs enough. Without it (`priority`, `fifo`) a large job may
wait as long as smaller ones keep coming. Settled here:

* `depth` says how many jobs have a reservation: with 1 it is EASY backfilling, with more it nears
  conservative backfilling (Mu'alem and Feitelson). They keep their times from pass to pass.
* A job ends when its reports say, else after its expected run time, else at its time limit, which
  also bounds the other two.
* A job that has outlived its expectation is expected to need as long again as it is overdue, at
  least a minute (growing corrections, as D. Tsafrir et al., IEEE TPDS 2007, find to serve best).
* A job without any of these never ends, as in Slurm without a limit: it is let pass only where it
  leaves the reserved job enough, and a job that waits for it has a reservation without a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rm.core.model.job import Job, JobState
from rm.core.model.progress import expected_left_us
from rm.core.model.snapshot import Snapshot
from rm.policies.queue.priority import PriorityPolicy


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """`depth`: how many jobs that do not fit have a reservation."""

    depth: int = 4


class BackfillPolicy:
    """By priority (highest first), then time of submission, then job id; with reservations."""

    name = "backfill"

    def __init__(self, options: BackfillOptions = BackfillOptions()) -> None:
        self.depth = max(1, options.depth)

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        return PriorityPolicy().order(pending, snapshot)

    def end_us(self, job: Job, snapshot: Snapshot) -> int | None:
        now_us = snapshot.now_us
        if job.state is JobState.COMPLETING:
            return now_us
        if job.state is JobState.SUSPENDED:
            return None  # nobody knows when it goes on
        left_us = expected_left_us(job, snapshot.progress.get(job.id), now_us)
        return None if left_us is None else now_us + left_us


POLICY = BackfillPolicy
OPTIONS = BackfillOptions
