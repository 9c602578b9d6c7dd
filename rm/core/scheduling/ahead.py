"""A pass in which the first jobs that do not fit stand before those after them (backfilling)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rm.core.model.demand import Demand
from rm.core.model.job import Job, Placement
from rm.core.model.reasons import Reason
from rm.core.model.snapshot import Snapshot
from rm.core.scheduling.reservation import Ends, Reservation, earliest


class Placed(Protocol):
    @property
    def placement(self) -> Placement: ...


D = TypeVar("D", bound=Placed)
Attempt = Callable[[Job, Snapshot], tuple[D | None, list[Reason]]]


class Ahead(Generic[D]):
    """Who stands ahead, and what the others of the pass may still have.

    Args:
        snapshot: the pass's own; it reserves in it.
        attempt: the engine's choice for one job under some snapshot, or why there is none.
        kind: jobs of one kind fit or fail together.
        depth: how many jobs may have a reservation.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ends: Ends,
        attempt: Attempt[D],
        kind: Callable[[Job], Demand],
        depth: int = 1,
    ) -> None:
        self.reservations: list[Reservation] = []
        self._snapshot = snapshot
        self._ends = ends
        self._attempt = attempt
        self._kind = kind
        self._depth = depth
        self._hopeless: set[Demand] = set()  # what does not fit even when all has ended
        # what those that it would outlast, by their number, refused to a job
        self._behind: dict[tuple[Demand, tuple[int, ...]], Reason] = {}

    @property
    def full(self) -> bool:
        """Have as many jobs a reservation as may?"""
        return len(self.reservations) >= self._depth

    def reserve(self, job: Job) -> Reservation | None:
        """Give a reservation to a job that does not fit, if it is among the first that ever will."""
        kind = self._kind(job)
        if self.full or kind in self._hopeless:
            return None

        def tries(then: Snapshot) -> Placement | None:
            found = self._attempt(job, then)[0]
            return found.placement if found is not None else None

        made = earliest(job, self._snapshot, self._ends, tries, self.reservations)
        if made is None:
            self._hopeless.add(kind)
        else:
            self.reservations.append(made)
        return made

    def place(self, job: Job) -> tuple[D | None, list[Reason]]:
        """The engine's choice, unless it would delay a reserved job: then another that would not."""
        end_us = self._ends(job)
        ahead = [one for one in self.reservations if one.outlasted_by(end_us)]
        which = self._kind(job), tuple(one.job.id for one in ahead)
        if which in self._behind:
            return None, [self._behind[which]]
        found, reasons = self._attempt(job, self._snapshot)
        if found is None or self._admitted(job, found.placement, ahead):
            return found, reasons
        narrowed = self._snapshot
        for one in ahead:
            narrowed = one.narrowed(narrowed)
        found = self._attempt(job, narrowed)[0]
        if found is not None and self._admitted(job, found.placement, ahead):
            return found, []
        self._behind[which] = ahead[0].reason()
        return None, [self._behind[which]]

    @staticmethod
    def _admitted(job: Job, placement: Placement, ahead: list[Reservation]) -> bool:
        """Is there enough for all of these when the job runs on? If so, it is counted in."""
        if len(ahead) > 1 and not all(one.leaves_enough(job, placement) for one in ahead):
            return False
        return all(one.admits(job, placement) for one in ahead)
