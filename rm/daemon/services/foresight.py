"""Expected starts: the state is copied between two turns of the leader, and played beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobSpec
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.foreseen import Foreseen, Playing, copied
from rm.daemon.services.asking import Asking

KEPT_US = 5_000_000  # for so long an answer is good for everybody
PLAYED_S = 5.0  # a play of large arrays takes far longer: it ends then, and the answer is what it has found
Told = tuple[Foreseen, Mapping[int, str]]
Copy = tuple[ClusterState, Rules, Tuning, int]


class Foresight:
    """Its methods run in the web server's event loop.

    Args:
        policies: for the thread that thinks.
    """

    def __init__(self, *, asking: Asking, policies: Policies, clock: Clock) -> None:
        self._asking = asking
        self._policies = policies
        self._clock = clock
        self._kept: tuple[int, Foreseen, Mapping[int, str]] | None = None
        self._coming: asyncio.Future[Told] | None = None

    async def starts(self) -> Told:
        """What is foreseen of the pending jobs, and whose they are."""
        kept, now_us = self._kept, self._clock.now_us()
        if kept is not None and 0 <= now_us - kept[0] < KEPT_US:
            return kept[1], kept[2]
        if self._coming is None:  # all who ask meanwhile get the same
            self._coming = asyncio.ensure_future(self._foresee())
            self._coming.add_done_callback(self._came)
        return await asyncio.shield(self._coming)

    async def _foresee(self) -> Told:
        def begin(copy: Copy) -> tuple[Playing, Mapping[int, str]]:
            state, rules, tuning, now_us = copy
            users = {number: state.jobs[number].spec.user for number in state.pending}
            return Playing(state, self._policies, rules, tuning, now_us), users

        playing, users = await self._asking.think_of("", _copy, begin)
        return await self._played("", playing), users

    async def _played(self, whose: str, playing: Playing) -> Foreseen:
        """In slices: who asks for less meanwhile has their turn between two of them."""
        time_s = asyncio.get_running_loop().time
        ends_s = time_s() + PLAYED_S
        while not await self._asking.think(whose, playing.go_on) and time_s() < ends_s:
            pass
        return playing.found()

    def _came(self, done: asyncio.Future[Told]) -> None:
        self._coming = None
        if not done.cancelled() and done.exception() is None:
            self._kept = self._clock.now_us(), *done.result()

    async def start_of_new(self, spec: JobSpec) -> Foreseen | None:
        """Of a job, as if it were submitted now: it is 0. None: it would wait for other jobs."""
        if spec.dependency:
            return None

        def begin(copy: Copy) -> Playing:
            state, rules, tuning, now_us = copy
            return Playing(state, self._policies, rules, tuning, now_us, spec)

        playing = await self._asking.think_of(spec.user, _copy, begin)
        return await self._played(spec.user, playing)


def _copy(cycle: Cycle, now_us: int) -> Copy:
    return copied(cycle.state), cycle.rules, cycle.tuning, now_us
