"""The cluster once the jobs that were preempted have gone, and those for which they went are there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from rm.core.jobs.free import left_on
from rm.core.jobs.lending import NOBODY, cpus_on, to_one_more
from rm.core.jobs.state import placed_view
from rm.core.model.host import Host
from rm.core.model.job import Job, JobState, Placement
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import NEWEST, Free, PlacedJob, Snapshot, TrackedDict
from rm.core.scheduling.reservation import overlap
from rm.core.scheduling.turns import Turns

NAMED_MAX = 8
Tries = Callable[[Job, Snapshot], Placement | None]


def claimed_first(
    jobs: Iterable[Job], snapshot: Snapshot, tries: Tries, met: Collection[int]
) -> Iterator[Job]:
    """The jobs in their order, but those for which others go first. Before the rest has its turn, what these
    wait for is taken out of what is free; by then `met` has those that got it in this pass."""
    jobs = list(jobs)
    yield from (job for job in jobs if job.id in snapshot.claims)
    After(snapshot, tries, met).narrow()
    yield from (job for job in jobs if job.id not in snapshot.claims)


def awaited(job: Job, snapshot: Snapshot) -> Reason | None:
    """Why a job waits for which others go; None: there is none, or they have gone."""
    left = [number for number in snapshot.claims.get(job.id, ()) if _goes(number, snapshot)]
    if not left:
        return None
    named = ", ".join(str(number) for number in left[:NAMED_MAX]) + (", …" if len(left) > NAMED_MAX else "")
    which = "jobs" if len(left) > 1 else "job"
    return Reason(ReasonCode.RESOURCES, f"waits for the end of {which} {named}, preempted for it")


def _goes(number: int, snapshot: Snapshot) -> bool:
    """Is it ending? Others that a claim names are to stand still once these have gone."""
    return number in snapshot.placed and snapshot.jobs[number].state is JobState.COMPLETING


def lending(snapshot: Snapshot, tries: Tries, lenders: Collection[int]) -> Snapshot:
    """The cluster now, as one job may use it for which these stand still: without what is kept for others."""
    After(snapshot, tries).narrow()
    free, on = TrackedDict(snapshot.free), dict[str, list[tuple[Job, Placement]]]()
    for number, one in snapshot.placed.items():
        for host in one.placement.hosts:
            on.setdefault(host, []).append((snapshot.jobs[number], one.placement))
    for host in _may_lend(lenders, snapshot.placed, snapshot):
        more = _lent_by(lenders, on[host], snapshot.hosts[host])
        free[host] = replace(free[host], cpus=free[host].cpus + more)
    return replace(snapshot, free=free)


def _may_lend(lenders: Iterable[int], placed: Mapping[int, PlacedJob], snapshot: Snapshot) -> Iterable[str]:
    """The hosts of these on which they may lend: what strays use there may be what they lent before."""
    theirs = dict.fromkeys(host for number in lenders for host in placed[number].placement.hosts)
    return [host for host in theirs if host in snapshot.hosts and not snapshot.free[host].strays]


def _lent_by(lenders: Collection[int], there: Iterable[tuple[Job, Placement]], host: Host) -> int:
    """The processors that these would lend on a host to one that borrows from nobody yet; `there` are the
    jobs on it."""
    counted = list[tuple[Job, int]]()
    for job, placement in there:
        stands = replace(job, yields_to=(NOBODY,)) if job.id in lenders and not job.yields_to else job
        counted.append((stands, cpus_on(job, placement, host)))
    return to_one_more(counted, [job.id for job, _ in counted if job.id in lenders])


class After:
    """`kept`: what each claim is kept, by the pending job; those `met` have got theirs. Those `standing` do
    not go, but would stand still, and lend their processors.

    A host on which an attempt that was given up still runs stays as it is now: what would come free there
    nobody knows, and nothing is lent there.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        tries: Tries,
        met: Collection[int] = (),
        standing: Collection[int] = (),
    ) -> None:
        self._snapshot, self._standing = snapshot, frozenset(standing)
        self._jobs = dict(snapshot.jobs)
        self._placed: dict[int, PlacedJob] = dict(snapshot.placed)
        self._on: dict[str, dict[int, Placement]] = {}
        for number, one in snapshot.placed.items():
            self._put(number, one.placement)
        self._changed: dict[str, Free] = {}
        self._known: dict[tuple[str, frozenset[int]], Free] = {}  # what is left by whom, as it was asked
        self.kept: dict[int, Placement] = {}
        self._leave(number for gone in snapshot.claims.values() for number in gone if _goes(number, snapshot))
        for number, gone in snapshot.claims.items():
            if number not in met:
                lenders = [one for one in gone if one in self._placed]
                self._standing |= {*lenders}
                self._claim(snapshot.jobs[number], tries, lenders)

    def without(self, gone: Collection[int] = ()) -> Snapshot:
        """The cluster then, had these jobs gone, too, or stood still."""
        lenders = self._standing.intersection(gone)
        left, touched = set(gone) - lenders, dict[str, None]()
        free, placed = TrackedDict({**self._snapshot.free, **self._changed}), TrackedDict(self._placed)
        for number in left:
            touched |= dict.fromkeys(placed.pop(number).placement.hosts)
        free.update((host, self._free(host, left)) for host in touched if host in self._snapshot.hosts)
        for host in _may_lend(lenders, self._placed, self._snapshot):
            more = self._lent(host, left, lenders)
            free[host] = replace(free[host], cpus=free[host].cpus + more)
        return replace(self._snapshot, free=free, placed=placed, jobs=self._jobs, claims={})

    def narrow(self) -> None:
        """Take what is kept out of what is free now."""
        free = self._snapshot.free
        assert isinstance(free, dict)
        for host in dict.fromkeys(host for mine in self.kept.values() for host in mine.hosts):
            free[host] = overlap(free[host], self._changed[host])

    def _claim(self, waiting: Job, tries: Tries, lenders: Collection[int]) -> None:
        one = next((one for _, one in Turns(self._snapshot).of([waiting])), None)
        if one is None or (mine := tries(one, self.without(lenders))) is None:
            return
        number = -waiting.id  # of an element that has none yet, beside others of its array
        self.kept[waiting.id] = mine
        self._jobs[number] = one
        self._placed[number] = placed_view(one, mine, NEWEST)
        self._put(number, mine)
        self._changed |= {host: self._free(host, ()) for host in mine.hosts}

    def _put(self, number: int, placement: Placement) -> None:
        for host in placement.hosts:
            self._on.setdefault(host, {})[number] = placement

    def _leave(self, gone: Iterable[int]) -> None:
        touched: dict[str, None] = {}
        for number in gone:
            one = self._placed.pop(number, None)
            for host in one.placement.hosts if one is not None else ():
                del self._on[host][number]
                touched[host] = None
        self._changed |= {host: self._free(host, ()) for host in touched if host in self._snapshot.hosts}

    def _lent(self, host: str, gone: Collection[int], lenders: Collection[int]) -> int:
        there = ((self._jobs[n], where) for n, where in self._on[host].items() if n not in gone)
        return _lent_by(lenders, there, self._snapshot.hosts[host])

    def _free(self, host: str, gone: Collection[int]) -> Free:
        now = self._snapshot.free[host]
        if now.strays:
            return self._changed.get(host, now)
        there = host, frozenset(number for number in self._on[host] if number not in gone)
        if there not in self._known:
            self._known[there] = self._left(host, there[1])
        return self._known[there]

    def _left(self, host: str, there: Collection[int]) -> Free:
        """What these leave of the host."""
        on = self._on[host]
        jobs = ((self._jobs[number], on[number]) for number in sorted(there))
        free = left_on(self._snapshot.hosts[host], jobs)
        free.cpus = max(0, free.cpus)  # a claim may be for what others are to lend
        return free
