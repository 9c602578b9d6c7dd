"""The jobs that came lately, to come again in plays of what is to come.

In each play they come in the order and at the distances in which they came, from another point of that time
on, and from its end again from its begin: so bursts stay bursts. Source: the circular block bootstrap
(D. Politis and J. Romano, in Exploring the Limits of Bootstrap, 1992), with the whole time as one block.
"""

from __future__ import annotations

from collections.abc import Iterable

from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.replacing import replace
from rm.core.scheduling.lengths import PLAYS

LEAST = 10  # jobs that came, below which nothing is known
COMING_MAX = 1_000  # in one play


class Arrivals:
    """Of the `jobs` in memory. Of the time before the first end among them some may be forgotten: it does not
    count, unless nothing has ended."""

    def __init__(self, jobs: Iterable[Job], now_us: int) -> None:
        known = [job for job in jobs if job.array_task is None]
        ends = [job.ended_us for job in known if job.state.final and job.ended_us is not None]
        since_us = min(ends, default=now_us)
        came = [job for job in known if since_us <= job.submitted_us < now_us and _counts(job)]
        self._came = sorted((job.submitted_us - since_us, job.id, job.spec) for job in came)
        self._span_us = now_us - since_us

    def __bool__(self) -> bool:
        """Is anything known?"""
        return len(self._came) >= LEAST

    def of(self, play: int) -> list[tuple[int, JobSpec]]:
        """(how long from now, what): those of one play, which last as long as those that came."""
        if not self:
            return []
        shift_us = self._span_us * (play + 1) // (PLAYS + 1)
        coming = sorted(((at_us - shift_us) % self._span_us, number) for at_us, number, _ in self._came)
        specs = {number: spec for _, number, spec in self._came}
        return [(at_us, _alone(specs[number])) for at_us, number in coming[:COMING_MAX]]


def _counts(job: Job) -> bool:
    """Not what was cancelled before it began, nor what waits for its user."""
    return not job.spec.hold and not (job.state is JobState.CANCELLED and job.started_us is None)


def _alone(spec: JobSpec) -> JobSpec:
    """Without what belongs to the time at which it came: what it waited for, and its times."""
    if not spec.dependency and spec.begin_us is None and spec.deadline_us is None and not spec.mail_events:
        return spec
    return replace(spec, dependency="", begin_us=None, deadline_us=None, time_min_us=None, mail_events="")
