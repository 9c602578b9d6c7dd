"""How much work lies ahead of each GPU and each host.

Source: Ada-SRSF, Sec. IV-A: the remaining workload of a job, L_J = (C_J + E_J)·|G(J)|, is its
remaining time times its GPUs; a GPU's is the sum over the jobs on it, a server's the
sum over its GPUs. Settled here: a task without GPUs lays its job's workload on its host.

The sums follow the snapshots: only jobs that began, ended or were heard of since the last one cost
anything, so that 1,000 running jobs are a fraction of a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rm.core.model.job import Job
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.progress import Progress, gpus_of, remaining_us
from rm.core.model.snapshot import PlacedJob, Snapshot, Touched, TrackedDict
from rm.policies.placement.steps.capacity import Capacities
from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.network_score import Floats

LITTER_MIN = 4_096  # entries of jobs that have ended, before it is worth while to sweep them out


@dataclass(frozen=True, slots=True)
class Workload:
    """Remaining workload in microseconds times GPUs: of GPUs (hosts x positions) and of hosts."""

    gpus: Floats
    hosts: Floats


@dataclass(slots=True)
class _Known:
    row: int
    entries: int
    placed: PlacedJob
    job: Job | None
    progress: Progress | None


class LatestWorkload:
    """The workload under the snapshot asked for last. Only a cache: the sums do not depend on what
    was asked before.

    `unknown_us` is what a job counts of which nobody knows how long it still takes.
    """

    def __init__(self, unknown_us: int) -> None:
        self.unknown_us = unknown_us
        self._hosts: object = None
        self._snapshot: Snapshot | None = None
        self._mark: Touched | None = None
        self._log_seen = 0
        self._jobs: dict[int, _Known]
        self._rows: int
        self._entries: int
        self._litter: int
        # of each job: what was left at `since`, or is left now where that is -1; and its GPUs
        self._left: Floats
        self._since: Floats
        self._weight: Floats
        # where its tasks are: the cell of a GPU or host, and the row of the job
        self._cells: Ints
        self._owners: Ints
        self._start_over()

    def own(self, request: PlacementRequest) -> float:
        """L_J of a job that is to be placed: what each of its GPUs will have more to do."""
        left_us = self.unknown_us if request.remaining_us is None else request.remaining_us
        return float(left_us * request.demand.gpus)

    def under(self, snapshot: Snapshot, capacities: Capacities) -> Workload:
        """The sums for the jobs placed under `snapshot`, whose hosts `capacities` describes."""
        if capacities.hosts is not self._hosts:  # other hosts, or some of them have changed
            self._hosts, self._snapshot, self._mark = capacities.hosts, None, None
            self._start_over()
        placed = snapshot.placed
        if snapshot is self._snapshot and isinstance(placed, TrackedDict):
            changed = placed.changed[self._log_seen :]
        else:
            changed = self._news(snapshot)
        for job in changed:
            self._note(job, snapshot, capacities)
        self._snapshot = snapshot
        self._log_seen = len(placed.changed) if isinstance(placed, TrackedDict) else 0
        if self._litter > max(LITTER_MIN, self._entries // 2):
            self._sweep(snapshot, capacities)
        return self._sums(snapshot.now_us, capacities)

    def _news(self, snapshot: Snapshot) -> list[int]:
        """As `_differing`; where the snapshots follow each other only of the jobs that were touched
        meanwhile, and of those for which the pass before reserved, since it may not have been taken at its
        word."""
        mark, before = snapshot.touched, self._mark
        self._mark = mark if mark is not None and mark.placed is snapshot.placed else None
        if self._mark is None or before is None or before.touches is not self._mark.touches:
            return self._differing(snapshot)
        numbers = before.touches.between(before.until, self._mark.until)
        if numbers is None:
            return self._differing(snapshot)
        if isinstance(before.placed, TrackedDict):
            numbers.update(before.placed.changed)
        placed, found = snapshot.placed, []
        for job in numbers:
            seen, view = self._jobs.get(job), placed.get(job)
            if view is None:
                if seen is not None:
                    self._drop(job)
            elif (
                seen is None
                or seen.placed is not view
                or seen.job is not snapshot.jobs.get(job)
                or seen.progress is not snapshot.progress.get(job)
            ):
                found.append(job)
        return sorted(found, key=lambda job: (placed[job].sequence, job))

    def _differing(self, snapshot: Snapshot) -> list[int]:
        """The jobs that are new or otherwise than they were seen last; those that are gone are dropped."""
        known = self._jobs
        known_of, job_of, progress_of = known.get, snapshot.jobs.get, snapshot.progress.get
        found = []
        for job, placed in snapshot.placed.items():
            seen = known_of(job)
            if (
                seen is None
                or seen.placed is not placed
                or seen.job is not job_of(job)
                or seen.progress is not progress_of(job)
            ):
                found.append(job)
        if len(known) + len(found) > len(snapshot.placed):
            for job in known.keys() - snapshot.placed.keys():
                self._drop(job)
        return found

    def _note(self, number: int, snapshot: Snapshot, capacities: Capacities) -> None:
        placed, job = snapshot.placed[number], snapshot.jobs.get(number)
        progress = snapshot.progress.get(number)
        seen = self._jobs.get(number)
        if seen is None or seen.placed.placement is not placed.placement:
            if seen is not None:
                self._drop(number)
            row, entries = self._append(placed, capacities)
        else:
            row, entries = seen.row, seen.entries
        self._jobs[number] = _Known(row, entries, placed, job, progress)
        left_us, since_us = estimate(job, progress)
        self._left[row] = self.unknown_us if left_us is None else left_us
        self._since[row] = since_us
        self._weight[row] = gpus_of(job) if job is not None else _gpus(placed)

    def _append(self, placed: PlacedJob, capacities: Capacities) -> tuple[int, int]:
        """A row for the job, and as many entries as it has GPUs, and tasks without any."""
        cells = []
        counted = set()  # tasks may see the same GPUs
        for task in placed.placement.tasks:
            host = capacities.number.get(task.host)
            if host is None:
                continue  # removed while it runs there
            if not task.gpus:
                cells.append(capacities.gpus_max * len(capacities.hosts) + host)
            for gpu in task.gpus:
                at = capacities.position(host, gpu)
                if at is not None and (host, at) not in counted:
                    counted.add((host, at))
                    cells.append(host * capacities.gpus_max + at)
        row, self._rows = self._rows, self._rows + 1
        if row == len(self._left):
            self._left, self._since = np.tile(self._left, 2), np.tile(self._since, 2)
            self._weight = np.tile(self._weight, 2)
        first, self._entries = self._entries, self._entries + len(cells)
        while self._entries > len(self._cells):
            self._cells, self._owners = np.tile(self._cells, 2), np.tile(self._owners, 2)
        self._cells[first : self._entries] = cells
        self._owners[first : self._entries] = row
        return row, len(cells)

    def _drop(self, job: int) -> None:
        gone = self._jobs.pop(job)
        self._weight[gone.row] = 0
        self._litter += gone.entries

    def _start_over(self) -> None:
        self._jobs = {}
        self._rows = self._entries = self._litter = 0
        self._left, self._since, self._weight = np.zeros(64), np.zeros(64), np.zeros(64)
        self._cells, self._owners = np.zeros(256, dtype=np.int64), np.zeros(256, dtype=np.int64)

    def _sweep(self, snapshot: Snapshot, capacities: Capacities) -> None:
        self._start_over()
        for job in snapshot.placed:
            self._note(job, snapshot, capacities)

    def _sums(self, now_us: int, capacities: Capacities) -> Workload:
        left, since = self._left[: self._rows], self._since[: self._rows]
        passed = np.where(since >= 0, np.maximum(now_us - since, 0), 0)
        work = np.maximum(left - passed, 0) * self._weight[: self._rows]
        hosts, gpus = len(capacities.hosts), capacities.gpus_max
        cells = self._cells[: self._entries]
        counted = np.bincount(cells, work[self._owners[: self._entries]], hosts * (gpus + 1))
        sums: Floats = counted.astype(np.float64)
        by_gpu = sums[: hosts * gpus].reshape(hosts, gpus)
        return Workload(by_gpu, by_gpu.sum(axis=1) + sums[hosts * gpus :])


def estimate(job: Job | None, progress: Progress | None) -> tuple[int | None, int]:
    """(remaining microseconds, as of when): as of -1 means now, at any time; None = unknown."""
    if job is None:
        return None, -1
    reported = progress is not None and progress.attempt == job.attempt
    if reported or job.started_us is None or not job.occupies:
        return remaining_us(job, progress, 0), -1
    return remaining_us(job, None, job.started_us), job.started_us


def _gpus(placed: PlacedJob) -> int:
    """GPUs of a job of which only the placement is known."""
    tasks = placed.placement.tasks
    return len({(t.host, g) for t in tasks for g in t.gpus}) + sum(not t.gpus for t in tasks)
