"""A pass in which the first jobs that do not fit stand before those after them (backfilling).

The plan of the pass before stays: a job that has a reservation keeps its time, or gets an earlier one, and
nothing that this pass places or plans delays it. It may start later only since something else came to pass
than was expected: a job ran on, a host went, hosts were reserved, a job came that stands before it. Source:
conservative backfilling as A. Mu'alem and D. Feitelson (IEEE TPDS 2001) describe it, in which jobs keep their
reservations, and move to earlier ones when jobs end early ("compression").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Generic, Protocol, TypeVar

from rm.core.model.asked.demand import Demand
from rm.core.model.job import Job, Placement
from rm.core.model.planned import Planned
from rm.core.model.reasons import Reason
from rm.core.model.snapshot import Snapshot
from rm.core.scheduling.limits.limiting import Limited, Limiter
from rm.core.scheduling.plan import Plan
from rm.core.scheduling.reservation import Reservation, Tries
from rm.core.scheduling.running import Ends, Stay
from rm.core.sharing.tally import Key
from rm.units import MINUTE_US


class Placed(Protocol):
    @property
    def placement(self) -> Placement: ...


D = TypeVar("D", bound=Placed)
T = TypeVar("T")
Attempt = Callable[[Job, Snapshot], tuple[D | None, list[Reason]]]
# a job that cannot start as planned waits so long at most before others lose their places
LATE_US = MINUTE_US


class Ahead(Generic[D]):
    """Who stands ahead, and what the others of the pass may still have.

    A pending job is named by its number; what is tried of it may be an element with another one.

    Args:
        snapshot: the pass's own, with the plan of the pass before; the pass reserves in it.
        attempt: the engine's choice for one job under some snapshot, or why there is none.
        kind: jobs of one kind fit or fail together.
        limiter: the pass's own; it sets aside what those under limits will need that stand ahead.
        depth: how many jobs may have a reservation.
        whole: are all pending jobs looked at? Otherwise those that had none get only what was left of
            `depth`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ends: Ends,
        attempt: Attempt[D],
        kind: Callable[[Job], Demand],
        limiter: Limiter,
        depth: int = 1,
        whole: bool = True,
    ) -> None:
        self.reservations: list[Reservation] = []  # of those that have had their turn, in order
        # pending jobs for which something of limits is set aside, since they wait for it: under which keys
        self.aside: dict[int, tuple[Key, ...]] = {}
        self._snapshot = snapshot
        self._attempt = attempt
        self._kind = kind
        self._depth = depth
        self._plan = Plan(snapshot, ends)
        self._limiter = limiter
        limiter.set_aside(snapshot.now_us, lambda: self._plan.running, self._plan.until_us)
        self._new = depth if whole else depth - len(snapshot.planned)  # how many may get one that had none
        self._before: dict[int, Planned] = {}
        self._place_of: dict[int, int] = {}  # of these, in the order of the pass before
        self._late: dict[int, int] = {}  # those that cannot start as planned, and when that was
        self._met: set[int] = set()  # those of `reservations`
        # what does not fit even when all has ended; kept from pass to pass where several come to all jobs
        self.hopeless: set[Demand] = set()
        self.in_vain = 0  # how often this pass found so
        # what those that it would outlast, by their number, refused to a job
        self._behind: dict[tuple[Demand, tuple[int, ...]], Reason] = {}
        self._moves: Mapping[int, Placement] = {}  # what the last one found takes

    def begin(self, jobs: Mapping[int, Job]) -> None:
        """Of these the plan is gone on with, as far as it is possible still."""
        for number, planned in self._snapshot.planned.items():
            if number not in jobs:
                continue
            self._place_of[number] = len(self._before)
            self._before[number] = planned
            one = self._plan.kept(planned, jobs[number], self._tries(jobs[number]))
            if one is not None:
                self._plan.add(one)
            elif planned.at_us is not None:
                self._late[number] = planned.at_us

    @property
    def full(self) -> bool:
        """Have as many jobs a reservation as may?"""
        return len(self.reservations) >= self._depth

    @property
    def planned(self) -> dict[int, Planned]:
        """The plan after the pass, also of those whose turn did not come."""
        found = {one.number: one.planned for one in self.reservations}
        for number, before in self._before.items():
            if number in self._plan.all:
                found.setdefault(number, self._plan.all[number].planned)
            elif number in self._late:
                found.setdefault(number, before)
        return dict(islice(found.items(), self._depth))

    def place(self, job: Job, number: int) -> tuple[D | None, list[Reason]]:
        """The engine's choice, unless it would delay a reserved job: then another that would not.

        A job that came to stand before others whose turn is to come may delay them.
        """
        passed = self._passed(number)
        found, reasons = self._before_those(passed, lambda: self._place(job, number))
        if found is None and number in self._late and not self._soon(number, self._earliest(job, number)):
            return self._before_those(self._coming(), lambda: self._place(job, number))
        return found, reasons

    def took(self, job: Job, number: int, placement: Placement) -> None:
        """The pass has placed what `place` found last."""
        for moved, where in self._moves.items():
            self._plan.move(moved, where)
            self._behind.clear()
        self.leave(number)
        coming = self._coming()
        self._lift(coming)
        self._plan.placed(job, placement)
        self._go_on(coming)

    def leave(self, number: int) -> None:
        """The job needs no reservation any more, or is kept from starting by something else."""
        self._plan.remove(number)
        self._late.pop(number, None)

    def limited(self, job: Job, number: int, limited: Limited | None) -> None:
        """This limit keeps the job from starting; None: its array has as many elements running as it may.

        If it has a reservation, it keeps its hosts, from when on the limit is expected to let it start. Else
        it gets none: others use them as long as it waits for less to be in use.
        """
        if limited is not None and number in self._plan.all and self.reserve(job, number) is not None:
            return
        self.leave(number)
        if limited is not None and (keys := self._limiter.waits(number, job, limited)):
            self.aside[number] = keys

    def reserve(self, job: Job, number: int) -> Reservation | None:
        """Give a reservation to a job that does not fit, if it is among the first that ever will."""
        if number in self._met:
            return None
        kind, kept = self._kind(job), self._plan.all.get(number)
        if self.full or kind in self.hopeless:
            self.leave(number)
            return None
        if kept is not None:
            return self._note(self._before_those(self._passed(number), lambda: self._kept(kept)))
        if number not in self._before and self._new <= 0 and not (self._coming() or self._late):
            return None
        made = self._anew(job, number)
        if made is None:
            self.hopeless.add(kind)
            self.in_vain += 1
            return None
        self._new -= number not in self._before
        self._late.pop(number, None)
        return self._note(made)

    def _note(self, one: Reservation) -> Reservation:
        self._met.add(one.number)
        self._limiter.reserved(one.number, one.job, one.placement, one.at_us)
        self.reservations.append(one)
        self._behind.clear()
        return one

    def _kept(self, one: Reservation) -> Reservation:
        """It, or an earlier one."""
        after_us = self._limiter.opens_us(one.job)
        before_us = one.at_us if one.at_us >= after_us else None
        sooner = self._plan.earliest(one.number, one.job, one.tries, before_us, after_us)
        if sooner is None:
            return one
        self._plan.remove(one.number)
        self._plan.add(sooner)
        return sooner

    def _anew(self, job: Job, number: int) -> Reservation | None:
        """Where a job goes that has no place in the plan."""

        def found() -> Reservation | None:
            one = self._earliest(job, number)
            if one is not None:
                self._plan.add(one)
            return one

        one = self._before_those(self._passed(number), found)
        if number in self._late and not self._soon(number, one):
            self._plan.remove(number)
            return self._before_those(self._coming(), found)
        return one

    def _soon(self, number: int, one: Reservation | None) -> bool:
        """Is a job little later than planned?"""
        return one is not None and one.at_us <= self._late[number] + LATE_US

    def _earliest(self, job: Job, number: int) -> Reservation | None:
        return self._plan.earliest(number, job, self._tries(job), None, self._limiter.opens_us(job))

    def _tries(self, job: Job) -> Tries:
        def tries(then: Snapshot) -> Placement | None:
            found = self._attempt(job, then)[0]
            return found.placement if found is not None else None

        return tries

    def _before_those(self, others: list[Reservation], do: Callable[[], T]) -> T:
        """As if these had no reservation; they get it back where they still can."""
        self._lift(others)
        done = do()
        self._go_on(others)
        return done

    def _coming(self) -> list[Reservation]:
        """In order, those that have a reservation and whose turn is to come."""
        of = self._plan.all
        return [of[number] for number in self._before if number in of and number not in self._met]

    def _passed(self, number: int) -> list[Reservation]:
        """Of these, those that the job has come to stand before since the pass before."""
        last = self._place_of.get(number, len(self._place_of))
        return [one for one in self._coming() if self._place_of[one.number] < last]

    def _lift(self, coming: list[Reservation]) -> None:
        for one in coming:
            self._plan.remove(one.number)

    def _go_on(self, coming: list[Reservation]) -> None:
        for one in coming:
            if one.number in self._plan.all:
                continue
            if self._plan.feasible(one):
                self._plan.add(one)
            else:
                self._late[one.number] = one.at_us
                self._behind.clear()

    def _place(self, job: Job, number: int) -> tuple[D | None, list[Reason]]:
        own = self._plan.remove(number)
        found = self._beside(job, number)
        if own is not None:
            self._plan.add(own)
        return found

    def _beside(self, job: Job, number: int) -> tuple[D | None, list[Reason]]:
        """Without a reservation of its own."""
        until_us = self._plan.until_us(job)
        ahead = [one for one in [*self.reservations, *self._coming()] if one.outlasted_by(until_us)]
        which = self._kind(job), tuple(one.number for one in ahead)
        if which in self._behind:
            return None, [self._behind[which]]
        found, reasons = self._attempt(job, self._snapshot)
        if found is None or self._admitted(job, found.placement, until_us, ahead):
            return found, reasons
        found = self._attempt(job, self._plan.narrowed(job, ahead))[0]
        if found is not None and self._admitted(job, found.placement, until_us, ahead):
            return found, []
        self._behind[which] = ahead[0].reason()
        return None, [self._behind[which]]

    def _admitted(self, job: Job, placement: Placement, until_us: int, ahead: list[Reservation]) -> bool:
        """Is there enough for all of these when the job runs on?"""
        moves = self._plan.beside(Stay(job, placement, until_us), ahead) if ahead else {}
        self._moves = moves or {}
        return moves is not None
