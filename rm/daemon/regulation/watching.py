"""Transparent mode: hosts watch the jobs that report nothing, and freeze them at their boundaries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from rm.core.ports import Clock
from rm.daemon.regulation.asking import HostCalls
from rm.daemon.regulation.running import Place, Running
from rm.protocol.network import Regulate, Regulated

log = logging.getLogger(__name__)

REGULATE_US = 3_600_000_000


class Watching:
    """Which attempts are watched from outside, and where; belongs to one thread.

    Args:
        defer: runs a function in that thread, soon: answers come in the fleet's.
        to_itself: called in that thread when a watched job turns out to report by itself.
    """

    def __init__(
        self,
        calls: HostCalls,
        clock: Clock,
        epoch: int,
        defer: Callable[[Callable[[], None]], None],
        to_itself: Callable[[Running], None],
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._epoch = epoch
        self._defer = defer
        self._to_itself = to_itself
        self._running: Mapping[int, Running] = {}
        self._watched: dict[tuple[int, str], tuple[int, int]] = {}  # -> attempt, since_us of the host

    def see(self, running: Mapping[int, Running]) -> None:
        """The jobs that run now; others are watched no longer."""
        self._running = running
        for gone in [key for key in self._watched if key[0] not in running]:
            del self._watched[gone]

    def watches(self, running: Running) -> bool:
        return any(j == running.job and a == running.attempt for (j, _), (a, _) in self._watched.items())

    def watch(self, running: Running) -> None:
        """Let the job's hosts watch it, those that do not do so yet."""
        for place in running.places:
            here = (running.attempt, place.since_us)
            if self._watched.get((running.job, place.host)) != here:
                self._watched[(running.job, place.host)] = here
                self._ask(running, place)

    def _ask(self, running: Running, place: Place) -> None:
        phases = len(running.traffic.phases) if running.traffic else 1
        request = Regulate(
            job=running.job,
            attempt=running.attempt,
            epoch=self._epoch,
            interface=place.interface,
            duration_us=REGULATE_US,
            rank=place.rank,
            phases=max(1, phases),
        )
        self._calls.ask(
            running,
            place,
            request,
            timeout_s=REGULATE_US / 1e6 + 30,
            on_answer=partial(self._answered, running),
            on_end=partial(self._over, running, place, self._clock.now_us()),
        )

    def _answered(self, running: Running, answer: Regulated) -> None:
        if answer.cooperative:
            self._defer(lambda: self._leave_to_itself(running))

    def _over(self, running: Running, place: Place, began_us: int) -> None:
        if self._clock.now_us() - began_us >= REGULATE_US // 2:
            self._defer(lambda: self._watch_on(running, place))

    def _watch_on(self, running: Running, place: Place) -> None:
        """The agent has watched for as long as it was asked to: ask again."""
        now = self._running.get(running.job)
        watched = self._watched.pop((running.job, place.host), None)
        if watched is not None and now is not None and now.attempt == running.attempt:
            self.watch(now)

    def _leave_to_itself(self, running: Running) -> None:
        """A job that seemed silent had only been slow to start: from now on its own reports count."""
        mine = [k for k, v in self._watched.items() if (k[0], v[0]) == (running.job, running.attempt)]
        for key in mine:
            del self._watched[key]
        if mine:
            log.info("job %d reports its iterations by itself", running.job)
            self._to_itself(running)
