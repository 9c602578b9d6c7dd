"""Expected starts: the state is copied between two turns of the leader, and played beside it."""

from __future__ import annotations

from collections.abc import Mapping

from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobSpec
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.foreseen import Foreseen, Start, copied, foresee
from rm.daemon.services.asking import Asking

KEPT_US = 5_000_000  # for so long an answer is good for everybody


class Foresight:
    """Its methods run in the web server's event loop.

    Args:
        policies: for the thread that thinks.
    """

    def __init__(self, *, asking: Asking, policies: Policies, clock: Clock) -> None:
        self._asking = asking
        self._policies = policies
        self._clock = clock
        self._kept: tuple[int, Foreseen, dict[int, str]] | None = None

    async def starts(self) -> tuple[Foreseen, Mapping[int, str]]:
        """What is foreseen of the pending jobs, and whose they are."""
        kept, now_us = self._kept, self._clock.now_us()
        if kept is not None and 0 <= now_us - kept[0] < KEPT_US:
            return kept[1], kept[2]
        state, rules, tuning, now_us = await self._copy()
        users = {number: state.jobs[number].spec.user for number in state.pending}
        found = await self._asking.think("", lambda: foresee(state, self._policies, rules, tuning, now_us))
        self._kept = now_us, found, users
        return found, users

    async def start_of(self, job: int) -> Start | None:
        """Of a pending job; None: nobody knows, or it is far away."""
        return (await self.starts())[0].starts.get(job)

    async def start_of_new(self, spec: JobSpec) -> Start | None:
        """Of a job, as if it were submitted now."""
        if spec.dependency or spec.hold:
            return None
        state, rules, tuning, now_us = await self._copy()
        found = await self._asking.think(
            spec.user, lambda: foresee(state, self._policies, rules, tuning, now_us, spec)
        )
        return found.starts.get(0)

    async def _copy(self) -> tuple[ClusterState, Rules, Tuning, int]:
        def look(cycle: Cycle, now_us: int) -> tuple[ClusterState, Rules, Tuning, int]:
            return copied(cycle.state), cycle.rules, cycle.tuning, now_us

        copy: tuple[ClusterState, Rules, Tuning, int] = await self._asking.ask(look)
        return copy
