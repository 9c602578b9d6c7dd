"""Iteration reports on their way from the hosts' threads to the regulator's.

Hosts and jobs say what they like, as often as they like. So each job has at most one turn waiting, of a
bounded number of reports, and a bounded rate: neither memory nor the turns of others depend on what one says.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rm.adapters.hosts.pace import Pace
from rm.protocol.notifications import Iteration, Iterations

# Of one job: what is more is left out, of what waits the oldest. No training iterates so fast.
WAITING_MAX = 256
BURST, PER_S = 2_000, 1_000
JOBS_MAX = 10_000  # whose rates are remembered
SPEAKER = 0  # the ranks of a gang move together: one speaks for all


class Reported(NamedTuple):
    """What one host has said of an attempt since the attempt's last turn, oldest first."""

    host: str
    job: int
    attempt: int
    items: list[Iteration]


@dataclass(slots=True)
class _Waiting:
    host: str
    attempt: int
    pace: Pace
    items: list[Iteration] = field(default_factory=list)


class Reports:
    """Any thread may add. `on_some` is called with a job of which nothing had waited: `take` is due."""

    def __init__(
        self, on_some: Callable[[int], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_some, self._monotonic = on_some, monotonic
        self._lock = threading.Lock()
        self._jobs: OrderedDict[int, _Waiting] = OrderedDict()  # heard of last at the end

    def add(self, host: str, message: Iterations) -> None:
        """The host has the speaker of the attempt, if it reports for it."""
        job, attempt = message.job, message.attempt
        items = [item for item in message.items if item[0] == SPEAKER][-WAITING_MAX:]
        if not items:
            return
        with self._lock:
            waiting = self._jobs.get(job)
            if waiting is None or waiting.attempt < attempt:
                waiting = self._jobs[job] = _Waiting(host, attempt, Pace(BURST, PER_S, self._monotonic))
            if waiting.attempt > attempt:
                return  # the last words of an attempt that is over
            self._jobs.move_to_end(job)
            if len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
            first = not waiting.items
            waiting.items = [*waiting.items, *(one for one in items if waiting.pace.take())][-WAITING_MAX:]
            first = first and bool(waiting.items)
        if first:
            self._on_some(job)

    def take(self, job: int) -> Reported | None:
        """What waits of the job; None: it was forgotten."""
        with self._lock:
            waiting = self._jobs.get(job)
            if waiting is None:
                return None
            items, waiting.items = waiting.items, []
        return Reported(waiting.host, job, waiting.attempt, items)
