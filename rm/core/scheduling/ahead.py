"""A pass in which the first job that does not fit stands before those after it (EASY backfilling)."""

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
    """

    def __init__(
        self, snapshot: Snapshot, ends: Ends, attempt: Attempt[D], kind: Callable[[Job], Demand]
    ) -> None:
        self.reservation: Reservation | None = None
        self._snapshot = snapshot
        self._ends = ends
        self._attempt = attempt
        self._kind = kind
        self._hopeless: set[Demand] = set()  # what does not fit even when all has ended
        self._behind: dict[Demand, Reason] = {}  # what it refused to a job that would outlast it

    def reserve(self, job: Job) -> bool:
        """Give the reservation to a job that does not fit, if it is the first that ever will."""
        kind = self._kind(job)
        if self.reservation is not None or kind in self._hopeless:
            return False

        def fits(then: Snapshot) -> Placement | None:
            found = self._attempt(job, then)[0]
            return found.placement if found is not None else None

        self.reservation = earliest(job, self._snapshot, self._ends, fits)
        if self.reservation is None:
            self._hopeless.add(kind)
        return self.reservation is not None

    def place(self, job: Job) -> tuple[D | None, list[Reason]]:
        """The engine's choice, unless it would delay the reserved job: then another that would not."""
        ahead, kind = self.reservation, self._kind(job)
        stays = ahead is not None and ahead.outlasted_by(self._ends(job))
        if stays and kind in self._behind:
            return None, [self._behind[kind]]
        found, reasons = self._attempt(job, self._snapshot)
        if ahead is None or found is None or not stays or ahead.admits(job, found.placement):
            return found, reasons
        found = self._attempt(job, ahead.narrowed(self._snapshot))[0]
        if found is not None and ahead.admits(job, found.placement):
            return found, []
        self._behind[kind] = ahead.reason()
        return None, [self._behind[kind]]
