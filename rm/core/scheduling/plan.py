"""The cluster as it will be: what runs until its expected end, and what is reserved from when until when.

What a job gets is free for it from its start to its end, whatever starts and ends meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping

from rm.core.jobs.free import take
from rm.core.jobs.room import admits, of_type
from rm.core.jobs.state import placed_view
from rm.core.model.host_reservation import changes_us
from rm.core.model.job import Job, Placement
from rm.core.model.placement_request import request_of
from rm.core.model.planned import Planned
from rm.core.model.replacing import replace
from rm.core.model.snapshot import NEWEST, Free, PlacedJob, Snapshot, TrackedDict
from rm.core.scheduling.limits.licensing import lacking
from rm.core.scheduling.reservation import Reservation, Tries, holds, overlap
from rm.core.scheduling.running import FOREVER_US, UNKNOWN_US, Ends, Running, Stay

NOTHING = Free(0, 0, ())


class Plan:
    """`snapshot` is the pass's own, in which it reserves what it places; of that `placed` is told."""

    def __init__(self, snapshot: Snapshot, ends: Ends) -> None:
        self.all: dict[int, Reservation] = {}  # by pending job
        self._snapshot = snapshot
        self._ends = ends
        self._running: Running | None = None  # worked out when it is asked for
        self._on: dict[str, dict[int, Reservation]] = {}

    @property
    def running(self) -> Running:
        if self._running is None:
            self._running = Running(self._snapshot, self._ends)
        return self._running

    def placed(self, job: Job, placement: Placement) -> None:
        """It runs by this pass."""
        if self._running is not None:
            until_us = min(self.until_us(job), UNKNOWN_US)  # as the next pass will see it
            self._running.add(Stay(job, placement, until_us))
        self._forget(placement)

    def add(self, one: Reservation) -> None:
        self.all[one.number] = one
        for host in one.placement.hosts:
            self._on.setdefault(host, {})[one.number] = one
        self._forget(one.placement)

    def remove(self, number: int) -> Reservation | None:
        one = self.all.pop(number, None)
        for host in one.placement.hosts if one is not None else ():
            del self._on[host][number]
        if one is not None:
            self._forget(one.placement)
        return one

    def move(self, number: int, placement: Placement) -> None:
        """To other hosts, at the same time."""
        one = self.all[number]
        for host in one.placement.hosts:
            del self._on[host][number]
        self._forget(one.placement)
        one.placement = placement
        for host in placement.hosts:
            self._on.setdefault(host, {})[number] = one
        self._forget(placement)

    def _forget(self, placement: Placement) -> None:
        for one in self.all.values():
            for host in placement.hosts if one.free else ():
                one.free.pop(host, None)

    def until_us(self, job: Job, at_us: int | None = None) -> int:
        """When a pending job is over that starts then; None: now."""
        end_us = self._ends(job)
        if end_us is None:
            return FOREVER_US
        later_us = 0 if at_us is None else at_us - self._snapshot.now_us
        return min(end_us + later_us, FOREVER_US)

    # -- what is known already ---------------------------------------------------------------

    def kept(self, planned: Planned, job: Job, tries: Tries) -> Reservation | None:
        """A reservation as it was planned before, from now on if its time has come; None if that is not
        possible any more beside all others."""
        if planned.at_us is None:
            return None
        at_us = max(planned.at_us, self._snapshot.now_us)
        one = Reservation(planned.job, job, at_us, self.until_us(job, at_us), planned.placement, tries)
        return one if self.feasible(one) else None

    def feasible(self, one: Reservation) -> bool:
        """Can it have these hosts from its start to its end, beside all that are planned?"""
        hosts, spec, where = self._snapshot.hosts, one.job.spec, one.placement
        if len(where.tasks) != spec.ntasks and spec.ntasks:
            return False
        placed = self._snapshot.placed
        if self._snapshot.by_user or spec.exclusive_user:  # nobody else asks who is there
            placed = self._placed(one.at_us, (one.number,))
        then = replace(self._snapshot, now_us=one.at_us, placed=placed)
        shape = request_of(one.job, then).demand.shape
        for name in where.hosts:
            host = hosts.get(name)
            if host is None or not admits(host, shape) or not self._suits(one, host.name):
                return False
        return not self._crossed(one) and not self._unlicensed(one.number, one.job, one.at_us, one.until_us)

    def _suits(self, one: Reservation, name: str) -> bool:
        """Is what it has of the host free for it at its start, and of the kind that it wants?"""
        host, spec, tasks = self._snapshot.hosts[name], one.job.spec, one.placement.on(name)
        free = self.free(name, one.at_us, (one.number,))
        wanted = {gpu for task in tasks for gpu in task.gpus}
        typed = wanted.issubset(of_type(host, tuple(wanted), spec.demand.shape.gpu_type))
        return typed and holds(host, free, spec, tasks)

    def _crossed(self, one: Reservation) -> bool:
        """Is something on its hosts meanwhile that leaves it too little, or may not be there beside it?"""
        for other in self.all.values():
            if other.until_us <= one.at_us or one.until_us <= other.at_us or other.number == one.number:
                continue
            for name in (host for host in one.placement.hosts if host in other.placement.hosts):
                if _apart(one.job, other.job):
                    return True
                if other.at_us <= one.at_us:
                    continue  # was looked at
                free, tasks = self.free(name, other.at_us, (one.number,)), one.placement.on(name)
                if not holds(self._snapshot.hosts[name], free, one.job.spec, tasks):
                    return True
        return False

    def _unlicensed(self, number: int, job: Job, at_us: int, until_us: int) -> bool:
        """Would a licence be missing, to it or to what starts meanwhile?"""
        if not job.spec.demand.licenses:
            return False
        mine = placed_view(job, Placement(()), NEWEST)
        if lacking(job.demand, replace(self._snapshot, placed=self._placed(at_us, (number,)))) is not None:
            return True
        for other in self._starting(number, at_us, until_us):
            there = {**self._placed(other.at_us, (number, other.number)), job.id: mine}
            if lacking(other.job.demand, replace(self._snapshot, placed=there)) is not None:
                return True
        return False

    # -- what will be free -------------------------------------------------------------------

    def free(self, host: str, at_us: int, without: Collection[int] = (), beside: Stay | None = None) -> Free:
        """What is left of a host then, without some reservations, and `beside` a job that starts now."""
        free = self.running.free(host, at_us)
        for one in self._on.get(host, {}).values():
            if one.at_us <= at_us < one.until_us and one.number not in without:
                free = take(free, one.job.spec, one.placement.on(host))
        if beside is not None and beside.until_us > at_us and host in beside.placement.hosts:
            free = take(free, beside.job.spec, beside.placement.on(host))
        return free

    def _free_for(self, one: Reservation, host: str) -> Free:
        """What it finds at its start."""
        if host not in one.free:
            one.free[host] = self.free(host, one.at_us, (one.number,))
        return one.free[host]

    def _starting(self, number: int, after_us: int, before_us: int) -> Iterator[Reservation]:
        """The others that start after the one time and before the other."""
        for one in self.all.values():
            if after_us < one.at_us < before_us and one.number != number:
                yield one

    def _placed(
        self, at_us: int, without: Collection[int], beside: Stay | None = None
    ) -> dict[int, PlacedJob]:
        found = self.running.placed(at_us)
        for one in self.all.values():
            if one.at_us <= at_us < one.until_us and one.number not in without:
                found[one.number] = placed_view(one.job, one.placement, NEWEST)
        if beside is not None and beside.until_us > at_us:
            found[beside.job.id] = placed_view(beside.job, beside.placement, NEWEST)
        return found

    def around(
        self, number: int, job: Job, at_us: int, until_us: int, beside: Stay | None = None
    ) -> Snapshot:
        """The cluster as the job would find it then, with that alone free which is until its end."""
        now_us, windows = self._snapshot.now_us, self._snapshot.reservations
        if at_us < UNKNOWN_US:
            now_us = at_us
        elif windows:  # all that are known have passed by then
            now_us = max(changes_us(job.spec, now_us, windows), default=now_us)
        free, hosts = TrackedDict(self._snapshot.free), self._snapshot.hosts
        names = dict.fromkeys([*self.running.changed_by(at_us), *self._on])
        for host in dict.fromkeys([*names, *(beside.placement.hosts if beside is not None else ())]):
            if host in hosts:
                free[host] = self.free(host, at_us, (number,), beside)
        for other in self._starting(number, at_us, until_us):
            for host in other.placement.hosts:
                left = self.free(host, other.at_us, (number,), beside)
                free[host] = NOTHING if _apart(job, other.job) else overlap(free[host], left)
        placed = TrackedDict(self._placed(at_us, (number,), beside))
        alone = {one.number for one in self.all.values() if one.job.spec.exclusive_user}
        if beside is not None and beside.job.spec.exclusive_user:
            alone.add(beside.job.id)
        by_user = self._snapshot.by_user | alone
        return replace(self._snapshot, now_us=now_us, free=free, placed=placed, by_user=by_user)

    def narrowed(self, job: Job, ahead: Iterable[Reservation]) -> Snapshot:
        """What a job may use that starts now and outlasts the starts of those `ahead`."""
        free = TrackedDict(self._snapshot.free)
        for one in ahead:
            for host in (host for host in one.placement.hosts if host in free):
                free[host] = (
                    NOTHING if _apart(job, one.job) else overlap(free[host], self.free(host, one.at_us))
                )
        return replace(self._snapshot, free=free)

    # -- who may come before whom ------------------------------------------------------------

    def beside(self, stay: Stay, ahead: Iterable[Reservation]) -> Mapping[int, Placement] | None:
        """Where those go whose place a job takes that starts now, at the time at which they were to start;
        None: one of them would be delayed."""
        moved: dict[int, Placement] = {}
        before: dict[int, Placement] = {}
        for one in ahead:
            if self._undisturbed(one, stay):
                continue
            then = self.around(one.number, one.job, one.at_us, one.until_us, stay)
            elsewhere = one.tries(then)
            if elsewhere is None or self._unlicensed_beside(one, stay):
                for number, placement in before.items():
                    self.move(number, placement)
                return None
            before[one.number], moved[one.number] = one.placement, elsewhere
            self.move(one.number, elsewhere)
        for number, placement in before.items():
            self.move(number, placement)
        return moved

    def _undisturbed(self, one: Reservation, stay: Stay) -> bool:
        touched = [host for host in stay.placement.hosts if host in one.placement.hosts]
        if touched and _apart(one.job, stay.job):
            return False
        if self._unlicensed_beside(one, stay):
            return False
        for name in touched:
            left = take(self._free_for(one, name), stay.job.spec, stay.placement.on(name))
            if not holds(self._snapshot.hosts[name], left, one.job.spec, one.placement.on(name)):
                return False
        return True

    def _unlicensed_beside(self, one: Reservation, stay: Stay) -> bool:
        if not one.job.spec.demand.licenses or not stay.job.spec.demand.licenses:
            return False
        there = self._placed(one.at_us, (one.number,), stay)
        return lacking(one.job.demand, replace(self._snapshot, placed=there)) is not None

    # -- the earliest start ------------------------------------------------------------------

    def earliest(
        self, number: int, job: Job, tries: Tries, before_us: int | None = None, after_us: int = 0
    ) -> Reservation | None:
        """The first end of a job, or edge of a reservation, from which on the job fits until its own end
        beside all others, if that is before `before_us`, and not before `after_us`, which may be the time
        itself; None: there is none.

        `tries` is asked a logarithmic number of times for each stretch in which what is reserved stays the
        same for the job: there, the more has ended, the more fits. Before a known time it is asked about the
        end of each stretch first.
        """
        times, stretches = self._starts(number, job, before_us, after_us)

        def fits(index: int) -> Placement | None:
            at_us = times[index]
            until_us = self.until_us(job, at_us)
            found = tries(self.around(number, job, at_us, until_us))
            if found is None or self._unlicensed(number, job, at_us, until_us):
                return None
            return found

        first = 0
        for last in stretches:
            failed, found = first - 1, last if before_us is not None else first
            while (placement := fits(found)) is None:
                failed = found
                if found == last:
                    break
                found = min(2 * found + 1 - first, last)
            if placement is None:
                first = last + 1
                continue
            while found - failed > 1:
                middle = (failed + found) // 2
                sooner = fits(middle)
                if sooner is None:
                    failed = middle
                else:
                    found, placement = middle, sooner
            at_us = times[found]
            return Reservation(number, job, at_us, self.until_us(job, at_us), placement, tries)
        return None

    def _starts(
        self, number: int, job: Job, before_us: int | None, after_us: int
    ) -> tuple[list[int], list[int]]:
        """(when it might start, in order; the indices at which stretches end)"""
        now_us, spec = self._snapshot.now_us, job.spec
        lasts_us = self.until_us(job) - now_us
        edges = set(changes_us(spec, now_us, self._snapshot.reservations))
        times = self.running.times() | ({after_us} if after_us > now_us else set())
        for one in self.all.values():
            if one.number == number:
                continue
            times |= {one.at_us, min(one.until_us, UNKNOWN_US)}
            if one.at_us < UNKNOWN_US:
                edges |= {one.at_us, one.at_us - lasts_us + 1}  # from then on the job would still be there
        edges = {edge for edge in edges if edge > now_us}
        known = sorted(at for at in times | edges if at < UNKNOWN_US)
        del known[: bisect_left(known, after_us)]
        if UNKNOWN_US in times or not known:
            known.append(UNKNOWN_US)
        if before_us is not None:
            del known[bisect_left(known, before_us) :]
        if not known:
            return [], []
        begins = (bisect_left(known, edge) for edge in edges)
        stretches = sorted({begin - 1 for begin in begins if 0 < begin < len(known)} | {len(known) - 1})
        return known, stretches


def _apart(one: Job, other: Job) -> bool:
    """May they not be on one host, since it is to be one user's alone?"""
    return one.spec.user != other.spec.user and (one.spec.exclusive_user or other.spec.exclusive_user)
