"""What makes up the priorities of waiting and running jobs."""

from __future__ import annotations

from collections.abc import Mapping

from rm.core.model.job import Job
from rm.core.model.priority_parts import PriorityParts
from rm.core.model.snapshot import Snapshot
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.services.asking import Asking


class Priorities:
    """Its method runs in the web server's event loop.

    Args:
        policies: for the thread that thinks.
    """

    def __init__(self, *, asking: Asking, policies: Policies) -> None:
        self._asking = asking
        self._policies = policies

    def weights(self) -> PriorityParts:
        """What each part is at most; where the queue policy has no parts, all but the job's own are 0."""
        weights: PriorityParts = getattr(self._policies.queue, "weights", PriorityParts(site=1.0))
        return weights

    async def parts(self, job: int | None = None) -> Mapping[int, tuple[PriorityParts, str]]:
        """Of one pending job, or of all that wait or run, with their users; of none where the queue policy
        has no parts."""
        parts = getattr(self._policies.queue, "parts", None)
        if parts is None:
            return {}

        def look(cycle: Cycle, now_us: int) -> tuple[Snapshot, list[Job]]:
            state = cycle.state
            one = [job] if job in state.pending else []
            wanted = [*state.pending, *state.placed] if job is None else one
            return state.detached(state.snapshot(now_us)), [state.jobs[number] for number in wanted]

        def think(copy: tuple[Snapshot, list[Job]]) -> dict[int, tuple[PriorityParts, str]]:
            snapshot, jobs = copy
            return {one.id: (parts(one, snapshot), one.spec.user) for one in jobs}

        return await self._asking.think_of("everybody's", look, think)
