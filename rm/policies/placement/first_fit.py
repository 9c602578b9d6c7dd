"""first-fit: the baseline that knows no network.

Hosts in inventory order, each filled as far as it goes; as few hosts as the gang allows when the
user bounds their number, otherwise simply the first with room.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rm.core.job import Job
from rm.core.ports import Candidate, Proposal
from rm.core.reasons import HostVerdict
from rm.core.snapshot import Snapshot
from rm.policies.placement.steps.blockers import by_kind, headline
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.filters import refusal, shape_of
from rm.policies.placement.steps.gang import Gang, Ints, place


class FirstFitPolicy:
    """The first hosts of the inventory that hold the job; further candidates start later."""

    name = "first-fit"
    Options = None

    def __init__(self) -> None:
        self._capacities = LatestCapacities()

    def candidates(self, job: Job, snapshot: Snapshot, explain: bool = False) -> Proposal:
        capacities = self._capacities.under(snapshot)
        shape, gang = shape_of(job.spec), Gang.of(job.spec)
        caps = capacities.of(shape)
        verdicts = []
        if explain:
            verdicts = [
                HostVerdict(
                    host.name,
                    refusal(host, snapshot.free.get(host.name), shape),
                    (("room_tasks", float(min(caps[i], gang.tasks))),),
                )
                for i, host in enumerate(capacities.hosts)
            ]
        if not gang.fits(caps):
            reasons = [headline(job, capacities)]
            if explain:
                reasons += by_kind(shape, capacities)
            return Proposal(iter(()), reasons, verdicts)

        def found() -> Iterator[Candidate]:
            left = caps.copy()
            while gang.fits(left):
                chosen = first_hosts(left, gang)
                spread = gang.spread([int(left[n]) for n in chosen])
                counts = [(capacities.hosts[n], count) for n, count in zip(chosen, spread, strict=True)]
                yield Candidate(place(counts, snapshot.free, shape), 0.0, "first hosts with room")
                left[: chosen[0] + 1] = 0

        return Proposal(found(), [], verdicts)


POLICY = FirstFitPolicy


def first_hosts(caps: Ints, gang: Gang) -> list[int]:
    """The hosts taken in inventory order so that the gang, given that it fits, stays feasible."""
    chosen: list[int] = []
    picked = 0
    rest = caps.copy()
    while picked < gang.tasks or len(chosen) < gang.hosts_min:
        slots = gang.most_hosts - len(chosen) - 1
        least = max(gang.least_cap(picked, rest, slots), 1)
        n = int(np.argmax(rest >= least))
        chosen.append(n)
        # hosts still owed to hosts_min get a task each
        owed = max(gang.hosts_min - len(chosen), 0)
        picked += min(int(rest[n]), max(gang.tasks - picked - owed, 1))
        rest[n] = 0
    return chosen
