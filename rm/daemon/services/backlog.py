"""How many jobs of each user wait, and what they weigh: specifications are kept in memory and database."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rm.arrays import each, mask
from rm.core.jobs.events import RequeueRequested
from rm.core.jobs.state import ClusterState
from rm.core.model.acceptance import size_bytes
from rm.core.model.asked.demand import Demand
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.replacing import replace
from rm.errors import Conflict


@dataclass(slots=True)
class Load:
    """`demands`: how many of the jobs ask for each; `left`: of a change, how many ask for each no more."""

    jobs: int = 0
    bytes: int = 0
    demands: Counter[Demand] = field(default_factory=Counter)
    left: Counter[Demand] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.bytes or self.demands)


@dataclass(frozen=True, slots=True)
class Admission:
    """Room that is kept for a submission until its jobs are committed, by user."""

    kept: dict[str, Load]


def loads_of(specs: Sequence[JobSpec]) -> dict[str, Load]:
    """What the specifications of each user weigh."""
    return _loads((spec, spec.demand) for spec in specs)


def _loads(jobs: Iterable[tuple[JobSpec, Demand]]) -> dict[str, Load]:
    loads: dict[str, Load] = {}
    for spec, demand in jobs:
        load = loads.setdefault(spec.user, Load())
        load.jobs += 1
        load.bytes += size_bytes(spec)
        load.demands[demand] += 1
    return loads


def growth_of(state: ClusterState, job: Job, update: JobUpdate, part: str) -> Load:
    """By how much what waits of its user becomes more: elements that a change of some of an array (`part`)
    makes jobs of their own, and what they and other jobs then ask for."""
    new = replace(job, spec=update.applied(job.spec))
    own, size = state.elements.get(job.id, {}), size_bytes(new.spec)
    if job.array is None:
        if job.state is not JobState.PENDING:
            return Load()
        return _asking_otherwise(Load(0, max(0, size - size_bytes(job.spec))), (job,), update)
    chosen = mask(part) if part else ~0
    there = [state.jobs[own[task]] for task in each(job.array.has("requeued") & chosen) if task in own]
    if not part:
        load = Load(0, max(0, size - size_bytes(job.spec)) * (1 + len(own)))
        return _asking_otherwise(load, (job, *there), update)
    leave = (job.array.has("waiting") & chosen).bit_count()
    more = sum(max(0, size_bytes(update.applied(one.spec)) - size_bytes(one.spec)) for one in there)
    load = Load(leave, leave * size + more, Counter({new.demand: leave} if leave else {}))
    return _asking_otherwise(load, there, update)


def _asking_otherwise(load: Load, jobs: Iterable[Job], update: JobUpdate) -> Load:
    """With what these waiting jobs ask for after the change, and before it."""
    kinds: dict[Demand, list[Job]] = {}  # one of each is changed: of an array they may be 100,000
    for job in jobs:
        kinds.setdefault(job.demand, []).append(job)
    for before, these in kinds.items():
        after = replace(these[0], spec=update.applied(these[0].spec)).demand
        if after != before:
            load.demands[after] += len(these)
            load.left[before] += len(these)
    return load


def load_of_again(state: ClusterState, request: RequeueRequested, back: Iterable[Job]) -> dict[str, Load]:
    """What the jobs weigh that have ended and that a requeue lets wait again, of which some come `back` into
    memory with it. A job that runs does not count: it may be requeued however much waits."""
    recalled = {job.id: job for job in back}

    def found(number: int) -> list[Job]:
        job = state.jobs.get(number) or recalled.get(number)
        return [job] if job is not None and job.state.final else []

    again = found(request.job)
    record = state.jobs.get(request.job) or recalled.get(request.job)
    if record is not None and (array := record.array) is not None:
        chosen = mask(request.array_tasks) if request.array_tasks else ~0
        if request.failed:
            chosen &= array.has("failed")
        numbers = {job.array_task: job.id for job in recalled.values()}
        known = state.elements.get(record.id, {})
        for task in each((array.has("completed") | array.has("failed") | array.has("cancelled")) & chosen):
            again += found(known.get(task, numbers.get(task, 0)))
    # hosts that failed to launch them are not avoided any more
    return _loads((job.spec, replace(job, avoid=()).demand) for job in again)


class Backlog:
    """What `admit` grants counts until `release`, and what `grow` grants until the leader's turn is over;
    each job that waits counts by itself once it is there."""

    def __init__(self, jobs_max: int, bytes_max: int, demands_max: int) -> None:
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._demands_max = demands_max
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[str, int, Demand]] = {}  # job -> (user, bytes, what it asks for)
        self._loads: dict[str, Load] = {}
        self._turn: object = None
        self._grown: list[dict[str, Load]] = []  # by what was granted in this turn

    def during(self, turn: object) -> Backlog:
        """In this turn of the leader. What was granted in another one is there, or was refused after all."""
        with self._lock:
            if turn is not self._turn:
                grown, self._turn, self._grown = self._grown, turn, []
                for asked in grown:
                    self._subtract_all(asked)
        return self

    def admit(self, specs: Sequence[JobSpec], asked: dict[str, Load] | None = None) -> Admission:
        """Room for all of these, or for none. `asked` is what they weigh, where that is known.

        Raises:
            Conflict: a user would have too many jobs waiting.
        """
        if asked is None:
            asked = loads_of(specs)
        with self._lock:
            self._grant(asked)
        return Admission(asked)

    def grow(self, asked: dict[str, Load]) -> None:
        """Room for what a change of jobs that wait, or a requeue of jobs that have ended, makes more. Another
        request of the same turn counts it, although none of them has taken effect.

        Raises:
            Conflict: a user would have too many jobs waiting, or too large or too different ones.
        """
        asked = {user: more for user, more in asked.items() if more}
        with self._lock:
            self._grant(asked)
            if asked:
                self._grown.append(asked)

    def _grant(self, asked: dict[str, Load]) -> None:
        for user, more in asked.items():
            self._refuse(user, self._loads.get(user, Load()), more)
        for user, more in asked.items():
            load = self._loads.setdefault(user, Load())
            load.jobs += more.jobs
            load.bytes += more.bytes
            load.demands.update(more.demands)

    def _refuse(self, user: str, load: Load, more: Load) -> None:
        if more.jobs and load.jobs + more.jobs > self._jobs_max:
            raise Conflict(
                f"{user} has {load.jobs} jobs waiting, and with {more.jobs} more would have over "
                f"{self._jobs_max}.",
                "Submit them when some have started (limits.pending_jobs).",
            )
        if more.bytes and load.jobs and load.bytes + more.bytes > self._bytes_max:
            raise Conflict(
                f"The waiting jobs of {user} would have over {self._bytes_max} bytes of scripts, "
                "environments and lists.",
                "Submit them when some have started, or export less (limits.pending_bytes).",
            )
        # not by a union, which would hash all that the user asks for
        different = sum(demand not in load.demands for demand in more.demands)
        different -= sum(
            load.demands[demand] <= jobs and demand not in more.demands for demand, jobs in more.left.items()
        )
        if different > 0 and len(load.demands) + different > self._demands_max:
            raise Conflict(
                f"The waiting jobs of {user} would ask for more than {self._demands_max} different things "
                "(tasks, processors, memory, GPUs, hosts, partitions, zone, features, licences, priority, "
                "traffic).",
                "Let more of them ask for the same, or submit them when some have started "
                "(limits.pending_demands).",
            )

    def release(self, admission: Admission) -> None:
        """The room is not kept any more; it may be called from any thread."""
        with self._lock:
            self._subtract_all(admission.kept)

    def changed(self, jobs: Iterable[Job]) -> None:
        """What has become of jobs."""
        with self._lock:
            for job in jobs:
                known = self._waiting.get(job.id)
                now: tuple[str, int, Demand] | None = None
                if job.state is JobState.PENDING:
                    demand = job.demand
                    if known is not None and not job.updates and known[2] == demand:
                        continue
                    now = (job.spec.user, size_bytes(job.spec), demand)
                if now == known:
                    continue
                if known is not None:
                    del self._waiting[job.id]
                    self._subtract(known[0], Load(1, known[1], Counter((known[2],))))
                if now is not None:
                    self._waiting[job.id] = now
                    load = self._loads.setdefault(now[0], Load())
                    load.jobs += 1
                    load.bytes += now[1]
                    load.demands[now[2]] += 1

    def _subtract_all(self, asked: dict[str, Load]) -> None:
        for user, less in asked.items():
            self._subtract(user, less)

    def _subtract(self, user: str, less: Load) -> None:
        load = self._loads.get(user)
        if load is None:  # less than nothing is nothing: a slip in the count must stop nobody
            return
        load.jobs -= less.jobs
        load.bytes -= less.bytes
        for demand, jobs in less.demands.items():
            load.demands[demand] -= jobs
            if not load.demands[demand]:
                del load.demands[demand]
        if not load:
            del self._loads[user]
