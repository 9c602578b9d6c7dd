"""From iteration reports to how far jobs have come, for the policies that reckon with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobState
from rm.core.model.progress import Progress
from rm.core.ports import Clock

EVERY_US = 5_000_000  # at most one event in so long, for all jobs together
LEFT_MAX_US = 1 << 53  # nobody awaits more, and sums of it fit where they are kept
RECENT = 20  # iterations, the mean of whose durations is the period


@dataclass(frozen=True, slots=True)
class Awaited:
    """A running attempt whose user said how many iterations it will make."""

    attempt: int
    started_us: int
    iterations: int


@dataclass(slots=True)
class _Seen:
    attempt: int
    done: int = 0
    last: int = -1  # number of the last iteration heard of
    recent_us: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))


def awaited_of(state: ClusterState) -> dict[int, Awaited]:
    """The running jobs of which it is known how many iterations they make."""
    found: dict[int, Awaited] = {}
    for number in state.placed:
        job = state.jobs[number]
        if job.spec.iterations and job.state is JobState.RUNNING and job.started_us is not None:
            found[number] = Awaited(job.attempt, job.started_us, job.spec.iterations)
    return found


class ProgressWatch:
    """Remaining time = iterations still to make x their recent mean duration; belongs to one thread."""

    def __init__(self, post: Callable[[ev.Event], None], clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._awaited: Mapping[int, Awaited] = {}
        self._seen: dict[int, _Seen] = {}
        self._news: set[int] = set()
        self._due_us = 0

    def expect(self, awaited: Mapping[int, Awaited]) -> None:
        """The jobs that run now; of others nothing is kept."""
        self._awaited = awaited
        for gone in self._seen.keys() - awaited.keys():
            del self._seen[gone]

    def heard(self, job: int, attempt: int, number: int, duration_us: int) -> None:
        """Iteration `number`, counted from 0, is done. A smaller number than before was counted anew:
        who watches a job from outside begins at 0 whenever it begins to watch."""
        if job not in self._awaited:
            return  # it did not say how many iterations it makes
        seen = self._seen.get(job)
        if seen is None or seen.attempt != attempt:
            seen = self._seen[job] = _Seen(attempt)
        seen.done = max(seen.done + 1, number + 1) if number > seen.last else seen.done + 1
        seen.last = number
        seen.recent_us.append(duration_us)
        self._news.add(job)

    def tell(self) -> None:
        """Post what is new, if it is time."""
        now_us = self._clock.now_us()
        if not self._news or now_us < self._due_us:
            return
        news, self._news = self._news, set()
        told = []
        for job in sorted(news):
            awaited, seen = self._awaited.get(job), self._seen.get(job)
            if awaited is not None and seen is not None and seen.attempt == awaited.attempt:
                period_us = sum(seen.recent_us) // len(seen.recent_us)
                left_us = min(max(0, awaited.iterations - seen.done) * period_us, LEFT_MAX_US)
                told.append(Progress(job, seen.attempt, max(0, now_us - awaited.started_us), left_us))
        if told:
            self._due_us = now_us + EVERY_US
            self._post(ev.JobsProgressed(tuple(told)))
