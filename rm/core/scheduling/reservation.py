"""Reservations: when the first jobs that do not fit will fit, and what others may use until then.

Source: EASY backfilling (D. Lifka, JSSPP 1995; A. Mu'alem and D. Feitelson, IEEE TPDS 2001): only the
first job that does not fit gets a reservation, at the earliest time at which enough of what runs
will have ended. Another job may start before it if it ends by then, or leaves the reserved job
enough. Here "enough" is what the placement policy says of the cluster as it will be.

Several jobs may have one (conservative backfilling, in the same paper): each is worked out on the cluster as
it will be with those before it, which it must not delay either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rm.core.jobs.free import all_of, left_on, needs, take, usable_gpus
from rm.core.jobs.state import placed_view
from rm.core.model.host import Host
from rm.core.model.host_reservation import changes_us
from rm.core.model.job import Job, JobSpec, Placement, TaskPlacement
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Free, Snapshot, TrackedDict
from rm.core.scheduling.licensing import lacking

Ends = Callable[[Job], int | None]  # when a job will have ended, started now if it does not run; None = never
Fits = Callable[[Snapshot], Placement | None]


@dataclass(slots=True)
class Reservation:
    """`job` is expected to start at `at_us`; None = once jobs have ended whose end nobody knows.

    `then` is the cluster at that time without it, and `placement` one way in which it fits there.
    """

    job: Job
    at_us: int | None
    then: Snapshot
    placement: Placement
    fits: Fits
    ends_us: int | None = None  # when it is expected to have ended; None = never

    def outlasted_by(self, end_us: int | None) -> bool:
        """Would a job that ends then still hold what it has when the reserved one is to start?"""
        return end_us is None or (self.at_us is not None and end_us > self.at_us)

    def admits(self, job: Job, placement: Placement) -> bool:
        """Is there still enough for the reserved job when this one runs on? If so, it is counted in."""
        weighed = self._with(job, placement)
        if weighed is None:
            return False
        self.then, self.placement = weighed
        return True

    def leaves_enough(self, job: Job, placement: Placement) -> bool:
        """The same, without counting it in."""
        return self._with(job, placement) is not None

    def _with(self, job: Job, placement: Placement) -> tuple[Snapshot, Placement] | None:
        """The cluster at its start with this job as well, and how the reserved one fits there."""
        free = TrackedDict(self.then.free)
        for host in placement.hosts:
            free[host] = take(free[host], job.spec, placement.on(host))
        sequence = max((p.sequence for p in self.then.placed.values()), default=0) + 1
        placed = TrackedDict({**self.then.placed, job.id: placed_view(job, placement, sequence)})
        by_user = self.then.by_user | {job.id} if job.spec.exclusive_user else self.then.by_user
        then = replace(self.then, free=free, placed=placed, by_user=by_user)
        mine = self.placement
        touched = [h for h in placement.hosts if h in mine.hosts]
        licensed = lacking(self.job.demand, then) is None
        specs, apart = (job.spec, self.job.spec), job.spec.user != self.job.spec.user
        alone = bool(touched) and apart and any(spec.exclusive_user for spec in specs)
        room = all(holds(then.hosts[h], free[h], self.job.spec, mine.on(h)) for h in touched)
        if alone or not licensed or not room:
            elsewhere = self.fits(then)
            return None if elsewhere is None else (then, elsewhere)
        return then, mine

    def narrowed(self, snapshot: Snapshot) -> Snapshot:
        """The cluster as a job may use it that outlasts the start: without what is reserved."""
        free = TrackedDict(snapshot.free)
        for host in self.placement.hosts:
            kept = take(self.then.free[host], self.job.spec, self.placement.on(host))
            free[host] = overlap(free[host], kept)
        return replace(snapshot, free=free)

    def reason(self) -> Reason:
        """Why a job waits that would fit were it not for the reservation."""
        return Reason(
            ReasonCode.PRIORITY,
            f"waits behind the reservation of job {self.job.id}, which starts {self.start}: "
            "it would not have ended by then, and not enough would be left",
            (("reserved_job", self.job.id), *self._numbers),
        )

    def promised(self, reason: Reason) -> Reason:
        """Why the reserved job itself waits, and until when."""
        message = f"{reason.message}; expected to start {self.start}"
        return Reason(reason.code, message, (*reason.numbers, *self._numbers))

    @property
    def _numbers(self) -> tuple[tuple[str, int], ...]:
        return () if self.at_us is None else (("reserved_start_us", self.at_us),)

    @property
    def start(self) -> str:
        if self.at_us is None:
            return "when jobs without a time limit have ended"
        try:
            at = datetime.fromtimestamp(self.at_us / 1e6, UTC)
        except (OverflowError, ValueError, OSError):
            return "in the far future"
        return f"at {at:%Y-%m-%d %H:%M:%S} UTC"


Tries = Callable[[Snapshot], Placement | None]


def earliest(
    job: Job, snapshot: Snapshot, ends: Ends, tries: Tries, before: Sequence[Reservation] = ()
) -> Reservation | None:
    """The first end of running jobs, or edge of a reservation, after which the job fits and delays none of
    those `before` it; None when it does not even then. It is counted in there.

    `tries` is asked a logarithmic number of times for each stretch in which what is reserved stays the same
    for the job: there, the more has ended, the more fits.
    """
    end_us = ends(job)
    lasts_us = None if end_us is None else end_us - snapshot.now_us
    states = _Future(snapshot, ends, job.spec, lasts_us, before)
    first = 0
    for last in states.stretches:
        failed, found = first - 1, first
        while (placement := tries(states.around(found))) is None:
            failed = found
            if found == last:
                break
            found = min(2 * found + 1 - first, last)
        if placement is None:
            first = last + 1
            continue
        while found - failed > 1:
            middle = (failed + found) // 2
            sooner = tries(states.around(middle))
            if sooner is None:
                failed = middle
            else:
                found, placement = middle, sooner
        if not all(one.admits(job, placement) for one in states.behind(found)):
            return None
        at_us = states.times[found]
        over_us = None if at_us is None or lasts_us is None else at_us + lasts_us
        return Reservation(job, at_us, states.at(found), placement, tries, over_us)
    return None


class _Future:
    """The cluster after each time at which running jobs are expected to end, and reserved ones to start or to
    end, worked out as asked for. `lasts_us`: how long the job takes that is to fit; None = for ever."""

    def __init__(
        self,
        snapshot: Snapshot,
        ends: Ends,
        spec: JobSpec,
        lasts_us: int | None,
        before: Sequence[Reservation],
    ) -> None:
        self._snapshot, self._before, self._lasts_us = snapshot, before, lasts_us
        edges = set(changes_us(spec, snapshot.now_us, snapshot.reservations))
        ended: dict[int | None, list[int]] = {}
        started: dict[int | None, list[Reservation]] = {}
        self._on: dict[str, dict[int, Placement]] = {}
        for number, placed in snapshot.placed.items():
            ended.setdefault(ends(snapshot.jobs[number]), []).append(number)
            for host in placed.placement.hosts:
                self._on.setdefault(host, {})[number] = placed.placement
        for one in before:
            started.setdefault(one.at_us, []).append(one)
            if one.at_us is None:
                continue
            edges.add(one.at_us)
            if lasts_us is not None:
                edges.add(one.at_us - lasts_us + 1)  # from then on the job would still be there
            if one.ends_us is not None:
                ended.setdefault(one.ends_us, []).append(one.job.id)
        edges = {edge for edge in edges if edge > snapshot.now_us}
        known = sorted({at for at in (*ended, *started) if at is not None} | edges)
        self.times: list[int | None] = [*known]
        if None in ended or None in started or not known:
            self.times.append(None)
        starts = (known.index(edge) for edge in edges)
        # where each ends; within one, the same is reserved
        self.stretches = [*sorted(start - 1 for start in starts if start), len(self.times) - 1]
        self._ended, self._started = ended, started
        self._changed: list[dict[str, Free]] = []
        self._sweep = self._each()

    def behind(self, step: int) -> list[Reservation]:
        """Those that start while the job would be there that starts at this time."""
        at_us = self.times[step]
        if at_us is None:
            return []
        end_us = None if self._lasts_us is None else at_us + self._lasts_us
        later = (one for one in self._before if one.at_us is None or one.at_us > at_us)
        return [one for one in later if one.outlasted_by(end_us)]

    def around(self, step: int) -> Snapshot:
        """The cluster at this time, without what is reserved while the job would be there."""
        snapshot = self.at(step)
        for one in self.behind(step):
            snapshot = one.narrowed(snapshot)
        return snapshot

    def at(self, step: int) -> Snapshot:
        """The cluster when the jobs of this time and of all before it have ended."""
        while len(self._changed) <= step:
            self._changed.append(next(self._sweep))
        free, placed = dict(self._snapshot.free), dict(self._snapshot.placed)
        for i, at in enumerate(self.times[: step + 1]):
            free.update(self._changed[i])
            for number in self._ended.get(at, ()):
                del placed[number]
            for one in self._started.get(at, ()):
                sequence = max((p.sequence for p in placed.values()), default=0) + 1
                placed[one.job.id] = placed_view(one.job, one.placement, sequence)
        past = self.times[:step] if len(self.stretches) > 1 else []
        now_us = self.times[step] or (past[-1] if past else None) or self._snapshot.now_us
        return replace(self._snapshot, now_us=now_us, free=TrackedDict(free), placed=TrackedDict(placed))

    def _each(self) -> Iterator[dict[str, Free]]:
        placed, jobs, hosts = self._snapshot.placed, dict(self._snapshot.jobs), self._snapshot.hosts
        where = {number: one.placement for number, one in placed.items()}
        for one in self._before:
            jobs[one.job.id], where[one.job.id] = one.job, one.placement
        for at in self.times:
            changed: dict[str, None] = {}
            for number in self._ended.get(at, ()):
                for host in where[number].hosts:
                    del self._on[host][number]
                    changed[host] = None
            for one in self._started.get(at, ()):
                for host in one.placement.hosts:
                    self._on.setdefault(host, {})[one.job.id] = one.placement
                    changed[host] = None
            yield {host: self._free(host, jobs) for host in changed if host in hosts}

    def _free(self, host: str, jobs: Mapping[int, Job]) -> Free:
        there = self._on[host]
        known = self._snapshot.hosts[host]
        return left_on(known, ((jobs[number], there[number]) for number in sorted(there)))


def holds(host: Host, free: Free, spec: JobSpec, tasks: tuple[TaskPlacement, ...]) -> bool:
    """Do these very tasks of a job fit into what is free, with these GPUs?"""
    if spec.exclusive:
        return free == all_of(host)
    cpus, mem = needs(spec, len(tasks))
    mem = host.mem_bytes if spec.mem_all else mem
    usable = set(usable_gpus(free, spec.gpu_mem_bytes))
    return free.cpus >= cpus and free.mem_bytes >= mem and all(usable.issuperset(t.gpus) for t in tasks)


def overlap(a: Free, b: Free) -> Free:
    """What is free in both."""
    idle, memory = set(b.gpus), dict(b.gpu_mem)
    return Free(
        min(a.cpus, b.cpus),
        min(a.mem_bytes, b.mem_bytes),
        tuple(g for g in a.gpus if g in idle),
        tuple((g, min(size, memory[g])) for g, size in a.gpu_mem if g in memory),
        a.strays or b.strays,
    )
