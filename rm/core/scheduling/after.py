"""The cluster once the jobs that were preempted have gone, and those for which they went are there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from rm.core.jobs.state import all_of, placed_view, take
from rm.core.model.job import Job, Placement
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
    left = [number for number in snapshot.claims.get(job.id, ()) if number in snapshot.placed]
    if not left:
        return None
    named = ", ".join(str(number) for number in left[:NAMED_MAX]) + (", …" if len(left) > NAMED_MAX else "")
    which = "jobs" if len(left) > 1 else "job"
    return Reason(ReasonCode.RESOURCES, f"waits for the end of {which} {named}, preempted for it")


class After:
    """`kept`: what each claim is kept, by the pending job; those `met` have got theirs.

    A host on which an attempt that was given up still runs stays as it is now: what would come free there
    nobody knows.
    """

    def __init__(self, snapshot: Snapshot, tries: Tries, met: Collection[int] = ()) -> None:
        self._snapshot = snapshot
        self._jobs = dict(snapshot.jobs)
        self._placed: dict[int, PlacedJob] = dict(snapshot.placed)
        self._on: dict[str, dict[int, Placement]] = {}
        for number, one in snapshot.placed.items():
            self._put(number, one.placement)
        self._changed: dict[str, Free] = {}
        self._known: dict[tuple[str, frozenset[int]], Free] = {}  # what is left by whom, as it was asked
        self.kept: dict[int, Placement] = {}
        self._leave(number for gone in snapshot.claims.values() for number in gone)
        for number in snapshot.claims:
            if number not in met:
                self._claim(snapshot.jobs[number], tries)

    def without(self, gone: Collection[int] = ()) -> Snapshot:
        """The cluster then, had these jobs gone, too."""
        left, touched = set(gone), dict[str, None]()
        free, placed = TrackedDict({**self._snapshot.free, **self._changed}), TrackedDict(self._placed)
        for number in left:
            touched |= dict.fromkeys(placed.pop(number).placement.hosts)
        free.update((host, self._free(host, left)) for host in touched if host in self._snapshot.hosts)
        return replace(self._snapshot, free=free, placed=placed, jobs=self._jobs, claims={})

    def narrow(self) -> None:
        """Take what is kept out of what is free now."""
        free = self._snapshot.free
        assert isinstance(free, dict)
        for host in dict.fromkeys(host for mine in self.kept.values() for host in mine.hosts):
            free[host] = overlap(free[host], self._changed[host])

    def _claim(self, waiting: Job, tries: Tries) -> None:
        one = next((one for _, one in Turns(self._snapshot).of([waiting])), None)
        if one is None or (mine := tries(one, self.without())) is None:
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
        free, slices = all_of(self._snapshot.hosts[host]), set[int]()
        for number in sorted(there):
            job, placement = self._jobs[number], self._on[host][number]
            if job.slice_of in slices:  # of a slice one runs at a time
                continue
            if job.slice_of:
                slices.add(job.slice_of)
            free = take(free, job.spec, placement.on(host))
        return free
