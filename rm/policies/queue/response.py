"""response: little work first, and whoever would end late rises, so that neither mean nor longest times pay.

Ours, not a paper's. Shortest remaining service first (`srsf`) has the least mean time, and its last jobs
pay for it; first come, first served the other way around. Here each job counts by its service times
e^(-urgency * response / longest): `response` is the time from its submission to its end if it started
now, and `longest` the longest that any job says it runs that has not ended, whether it waits, is held or
runs, but at most `longest_days`. So its submission is moved by the logarithm of its service, much as by
Boost, which is optimal for the tail of one server (G. Yu and Z. Scully, ACM SIGMETRICS 2024); and of two that
are as old and as large the longer one goes first, whose end decides when all have ended. Settled here:

* `--priority` decides first, as under `backfill`; and what does not fit yet is not overtaken by what would
  delay it, either.
* Nobody waits for ever: of two that run equally long, the later one goes first only if it comes within
  longest / urgency * ln(service of the earlier / its own) of the other. What a job expects beyond its time
  limit does not count. What it expects beyond `longest_days` counts as service alone: else one job that says
  years, and may be held, would make the waiting of all others count for nothing.
* A time limit says how long a job runs at most: it counts as its service, but not in its response, and in
  the longest only where no job says what it expects. So nobody gains by naming none or a long one.
* A job that says nothing counts as one as long as the longest, and only its waiting speaks for it. Where no
  job says anything, all are served in the order of submission.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

from rm.core.model.job import Job, JobSpec
from rm.core.model.progress import gpus_of
from rm.core.model.snapshot import Snapshot
from rm.policies.queue.backfill import BackfillOptions, BackfillPolicy
from rm.units import DAY_US


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """`urgency`: how much response counts against service: 0 is shortest service first, beyond 5 it costs
    more in the mean than it saves of the longest. `longest_days`: more of an expected run time counts neither
    in response nor as the longest. `depth`: as for backfill."""

    urgency: float = 4.0
    longest_days: float = 7.0
    depth: int = 4


class ResponsePolicy(BackfillPolicy):
    """By priority (highest first), then service and response, then time of submission, then job id."""

    name = "response"

    def __init__(self, options: ResponseOptions = ResponseOptions()) -> None:
        super().__init__(BackfillOptions(options.depth))
        self._urgency = max(0.0, options.urgency)
        self._most_us = options.longest_days * DAY_US

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        now_us, urgency = snapshot.now_us, self._urgency
        longest_us = max(1.0, min(self._most_us, _longest_us(snapshot.jobs.values())))

        def key(job: Job) -> tuple[int, float, int, int]:
            spec = job.spec
            runs_us = _expected_us(spec)
            at_most_us = runs_us if runs_us is not None else spec.time_limit_us
            service = max(1.0, longest_us if at_most_us is None else at_most_us) * max(1, gpus_of(job))
            response_us = max(0, now_us - job.submitted_us) + min(runs_us or 0, longest_us)
            rank = log(service) - urgency * response_us / longest_us
            return -spec.queue_priority, rank, job.submitted_us, job.id

        return sorted(pending, key=key)


def _expected_us(spec: JobSpec) -> int | None:
    expected_us, limit_us = spec.expected_us, spec.time_limit_us
    return expected_us if expected_us is None or limit_us is None else min(expected_us, limit_us)


def _longest_us(jobs: Iterable[Job]) -> int:
    """Of those that have not ended: the longest expected run time, else the longest limit. All
    of them count, not those of one pass, so that each pass has the same order."""
    expected_us = limit_us = 0
    for job in jobs:
        spec = job.spec
        said_us, at_most_us = spec.expected_us, spec.time_limit_us
        if said_us is not None and said_us > expected_us and not job.state.final:
            expected_us = max(expected_us, _expected_us(spec) or 0)
        if at_most_us is not None and at_most_us > limit_us and not job.state.final:
            limit_us = at_most_us
    return expected_us or limit_us


POLICY = ResponsePolicy
OPTIONS = ResponseOptions
