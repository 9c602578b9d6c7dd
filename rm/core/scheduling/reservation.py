"""Reservations: when the first job that does not fit will fit, and what others may use until then.

Source: EASY backfilling (D. Lifka, JSSPP 1995; A. Mu'alem and D. Feitelson, IEEE TPDS 2001): only the
first job that does not fit gets a reservation, at the earliest time at which enough of what runs
will have ended. Another job may start before it if it ends by then, or leaves the reserved job
enough. Here "enough" is what the placement policy says of the cluster as it will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from rm.core.jobs.state import all_of, needs, one_of_each_slice, placed_view, take, usable_gpus
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

    def outlasted_by(self, end_us: int | None) -> bool:
        """Would a job that ends then still hold what it has when the reserved one is to start?"""
        return end_us is None or (self.at_us is not None and end_us > self.at_us)

    def admits(self, job: Job, placement: Placement) -> bool:
        """Is there still enough for the reserved job when this one runs on? If so, it is counted in."""
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
            if elsewhere is None:
                return False
            self.placement = elsewhere
        self.then = then
        return True

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


def earliest(job: Job, snapshot: Snapshot, ends: Ends, fits: Fits) -> Reservation | None:
    """The first end of running jobs, or edge of a reservation of hosts, after which the job fits; None when
    it does not even then.

    `fits` is asked a logarithmic number of times for each stretch in which the hosts that are reserved stay
    the same for the job: there, the more has ended, the more fits.
    """
    states = _Future(snapshot, ends, job.spec)
    first = 0
    for last in states.stretches:
        failed, found = first - 1, first
        while (placement := fits(states.at(found))) is None:
            failed = found
            if found == last:
                break
            found = min(2 * found + 1 - first, last)
        if placement is None:
            first = last + 1
            continue
        while found - failed > 1:
            middle = (failed + found) // 2
            sooner = fits(states.at(middle))
            if sooner is None:
                failed = middle
            else:
                found, placement = middle, sooner
        return Reservation(job, states.times[found], states.at(found), placement, fits)
    return None


class _Future:
    """The cluster after each time at which running jobs are expected to end, worked out as asked for."""

    def __init__(self, snapshot: Snapshot, ends: Ends, spec: JobSpec) -> None:
        self._snapshot = snapshot
        edges = changes_us(spec, snapshot.now_us, snapshot.reservations)
        known: dict[int, list[int]] = {edge: [] for edge in edges}
        never: list[int] = []
        self._on: dict[str, dict[int, None]] = {}
        for number, placed in snapshot.placed.items():
            end_us = ends(snapshot.jobs[number])
            (never if end_us is None else known.setdefault(end_us, [])).append(number)
            for host in placed.placement.hosts:
                self._on.setdefault(host, {})[number] = None
        self.times: list[int | None] = [*sorted(known)]
        ending = [known[at] for at in sorted(known)]
        if never or not known:
            self.times.append(None)
            ending.append(never)
        starts = (self.times.index(edge) for edge in edges)
        # where each ends; within one, the same hosts are reserved
        self.stretches = [*sorted(start - 1 for start in starts if start), len(self.times) - 1]
        self._ended: list[list[int]] = ending
        self._changed: list[dict[str, Free]] = []
        self._sweep = self._each()

    def at(self, step: int) -> Snapshot:
        """The cluster when the jobs of this time and of all before it have ended."""
        while len(self._changed) <= step:
            self._changed.append(next(self._sweep))
        free, placed = dict(self._snapshot.free), dict(self._snapshot.placed)
        for i in range(step + 1):
            free.update(self._changed[i])
            for number in self._ended[i]:
                del placed[number]
        past = self.times[:step] if len(self.stretches) > 1 else []
        now_us = self.times[step] or (past[-1] if past else None) or self._snapshot.now_us
        return replace(self._snapshot, now_us=now_us, free=TrackedDict(free), placed=TrackedDict(placed))

    def _each(self) -> Iterator[dict[str, Free]]:
        placed, jobs, hosts = self._snapshot.placed, self._snapshot.jobs, self._snapshot.hosts
        for ended in self._ended:
            changed: dict[str, Free] = {}
            for number in ended:
                for host in placed[number].placement.hosts:
                    del self._on[host][number]
                    if host in hosts:
                        changed[host] = all_of(hosts[host])
            for host, free in changed.items():
                for job in one_of_each_slice(jobs[number] for number in sorted(self._on[host])):
                    free = take(free, job.spec, placed[job.id].placement.on(host))
                changed[host] = free
            yield changed


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
