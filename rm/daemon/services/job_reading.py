"""The use cases that read jobs: of the leader, or of the store those that left its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from rm.core.jobs.actions import Collect
from rm.core.jobs.chain import Chain, chain_of
from rm.core.jobs.handlers.dependency import never
from rm.core.jobs.handlers.fencing import waiting
from rm.core.model.asked.dependency import Standing
from rm.core.model.described import Described, partition_of
from rm.core.model.job import Job, JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.network.alignment import PERFECT, Alignment
from rm.core.model.progress import Progress
from rm.core.model.reasons import Reason
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle, in_order
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.explaining import explain
from rm.core.scheduling.held import why_held
from rm.core.scheduling.queue_position import queue_position
from rm.core.scheduling.releasing import why_alone
from rm.core.store import Store
from rm.daemon.services.array_elements import (
    one_element,
    stored_element,
)
from rm.daemon.services.asking import SCANNED, Asking
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.reasons import NO_REASONS, Reasons, with_reason
from rm.errors import NotFound, Refusal

SLICE = 200  # jobs that one request reads or changes without leaving others their turn


class JobReading:
    """Its methods run in the web server's event loop.

    Args:
        asking: the way to the leader.
        store, clock: of the daemon.
        policies: for the thread that thinks: the leader's remember what they saw last.
        waiters: who waits for a job.
        recent_us: how long ended jobs are in the leader's state.
        collecting: the collections of an attempt's logs that are on their way.
    """

    def __init__(
        self,
        *,
        asking: Asking,
        store: Store,
        clock: Clock,
        policies: Policies,
        waiters: JobWaiters,
        recent_us: int,
        collecting: Callable[[int, int], Sequence[Collect]],
    ) -> None:
        self._asking = asking
        self._store = store
        self._clock = clock
        self._policies = policies
        self._waiters = waiters
        self._recent_us = recent_us
        self._collecting = collecting

    async def jobs(
        self,
        *,
        states: frozenset[JobState],
        user: str,
        name: str,
        limit: int,
        everything: bool,
        before: int = 0,
    ) -> Sequence[Job]:
        found, _ = await self.jobs_and_reasons(
            states=states, user=user, name=name, limit=limit, everything=everything, before=before
        )
        return found

    async def jobs_and_reasons(
        self,
        *,
        states: frozenset[JobState],
        user: str,
        name: str,
        limit: int,
        everything: bool,
        before: int = 0,
        by_rests: bool = False,
    ) -> tuple[Sequence[Job], Reasons]:
        """The jobs as they are stored, why those of them wait that do, and in which of several partitions the
        others run. `by_rests`: an array of which elements were cancelled before they started counts as
        CANCELLED as well."""
        if everything:
            stored = await asyncio.to_thread(
                self._store.jobs,
                states=states or None,
                user=user or None,
                name=name or None,
                limit=limit or None,
                before_id=before or None,
                by_rests=by_rests,
            )
            waiting = [job for job in stored if job.state is JobState.PENDING]
            if not waiting and not any("," in job.spec.partition for job in stored):
                return stored, NO_REASONS
            some = waiting if len(waiting) <= SLICE else None
            reasons: Reasons = await self._asking.ask(
                lambda cycle, now_us: Reasons.of_listed(cycle, stored, some)
            )
            return stored, reasons
        since_us = self._clock.now_us() - self._recent_us

        rests = by_rests and JobState.CANCELLED in states

        def is_recent(job: Job) -> bool:
            return not job.state.final or (job.ended_us or 0) >= since_us

        def fits(job: Job) -> bool:
            return bool(
                is_recent(job)
                and (not before or job.id < before)
                and (not states or job.state in states or (rests and job.array and job.array.dropped))
                and (not user or job.spec.user == user)
                and (not name or job.spec.name == name)
            )

        wanted = fits if before or states or user or name else is_recent

        def chosen(newest_first: Iterable[Job]) -> list[Job]:
            return list(islice(filter(wanted, newest_first), limit or None))[::-1]

        def look(cycle: Cycle, now_us: int) -> tuple[list[Job], Reasons] | None:
            jobs = cycle.state.jobs  # they came by ascending id
            if len(jobs) > SCANNED and not 0 < limit <= SCANNED:
                return None  # so few never are enough
            found = chosen(islice(reversed(jobs.values()), SCANNED))
            if len(jobs) > SCANNED and not (limit and len(found) == limit):
                return None
            return found, listed(cycle, found)

        def listed(cycle: Cycle, found: list[Job]) -> Reasons:
            return Reasons.of_listed(cycle, found, found if len(found) <= SLICE else None)

        answer: tuple[list[Job], Reasons] | None = await self._asking.ask(look)
        if answer is not None:
            return answer
        found = await self._asking.scan(lambda cycle, _: list(reversed(cycle.state.jobs.values())), chosen)
        return found, await self._asking.ask(lambda cycle, _: listed(cycle, found))

    async def queue(self, *, user: str, limit: int) -> Sequence[Job]:
        def look(cycle: Cycle, now_us: int) -> tuple[list[Job], Snapshot, Reasons]:
            state = cycle.state
            pending = [state.jobs[j] for j in state.pending]
            return pending, state.detached(state.snapshot(now_us)), Reasons.of(cycle)

        def think(copy: tuple[list[Job], Snapshot, Reasons]) -> list[Job]:
            pending, snapshot, reasons = copy
            ordered = in_order(pending, self._policies.queue, snapshot)
            found = (job for job in ordered if not user or job.spec.user == user)
            return list(map(reasons.shown, islice(found, limit or None)))

        return await self._asking.think_of(user or "everybody's", look, think)

    async def job(self, job_id: int) -> Job:
        return (await self.described(job_id)).job

    async def job_steps(
        self, jobs: Sequence[int], after: StepName | None, limit: int
    ) -> tuple[Sequence[JobStep], frozenset[int]]:
        steps = await asyncio.to_thread(self._store.job_steps, jobs, after, limit)
        endless = {(one.name.job, one.name.attempt) for one in steps if one.ended_us is None}
        return steps, frozenset(job for job, attempt in endless if self._collecting(job, attempt))

    async def described(self, job_id: int, array_tasks: str = "") -> Described:
        if array_tasks:
            return await self._element(job_id, array_tasks)

        def ask(cycle: Cycle, now_us: int) -> Described | None:
            state = cycle.state
            job = state.jobs.get(job_id)
            if job is None:
                return None
            schedule = next((s for s in state.alignment.schedules if s.job == job_id), None)
            told, partition = with_reason(cycle, job, now_us), partition_of(job, state.hosts)
            return Described(told, schedule, state.progress.get(job_id), partition)

        found: Described | None = await self._asking.ask(ask)
        if found is not None:
            return found
        job = await asyncio.to_thread(self._store.job, job_id)
        if job is None:
            raise NotFound(
                f"There is no job {job_id}.", "`rmx queue --all` lists all jobs.", Refusal.UNKNOWN_JOB
            )
        return Described(job)

    async def elements_of(self, array_id: int, tasks: list[int]) -> list[Job]:
        return await asyncio.to_thread(self._store.elements, array_id, tasks)

    async def _element(self, array_id: int, array_tasks: str) -> Described:
        """An element of an array: its own job, or the array's record as if it were one."""
        record = await self.job(array_id)
        task = one_element(record, array_tasks)

        def look(cycle: Cycle, now_us: int) -> tuple[int | None, Job, Job]:
            kept = cycle.state.jobs.get(array_id, record)
            return cycle.state.elements.get(array_id, {}).get(task), kept, with_reason(cycle, kept, now_us)

        own, kept, told = await self._asking.ask(look)
        if own is not None:
            return await self.described(own)
        found = await stored_element(self._store, told, task)
        if found.held and not told.held:  # the array's reason is of its other elements
            found = replace(found, reason=why_held(found))
        elif found.state is JobState.CANCELLED and found.id == array_id:
            lost = found.depends is Standing.FAILED
            found = replace(found, reason=never(found.dependencies) if lost else kept.reason)
        return Described(found)

    async def progress(self, job_ids: Sequence[int]) -> Mapping[int, Progress]:
        def look(cycle: Cycle, now_us: int) -> dict[int, Progress]:
            told = cycle.state.progress
            return {i: told[i] for i in job_ids if i in told}

        found: dict[int, Progress] = await self._asking.ask(look) if job_ids else {}
        return found

    async def wait(self, job_id: int, timeout_s: float, array_tasks: str = "") -> Job:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            with self._until_news(job_id, array_tasks) as woken:  # before the look: no change is missed
                job = (await self.described(job_id, array_tasks)).job
                if array_tasks and job.id != job_id:  # it has a job of its own by now
                    job_id, array_tasks = job.id, ""
                    continue
                left = deadline - asyncio.get_running_loop().time()
                if job.state.final or left <= 0:
                    return job
                try:
                    await asyncio.wait_for(woken.wait(), left)
                except TimeoutError:
                    return (await self.described(job_id, array_tasks)).job

    def _until_news(self, job_id: int, array_tasks: str) -> AbstractContextManager[asyncio.Event]:
        """For who waits for the end of a job, or of an element: what is no single one is refused at the
        look."""
        if array_tasks.isdigit():
            return self._waiters.element(job_id, int(array_tasks))
        return self._waiters.waiting(job_id, for_end=True)

    async def why(self, job_id: int, array_tasks: str = "") -> Mapping[str, Any]:
        job = (await self.described(job_id, array_tasks)).job
        if job.state is not JobState.PENDING:
            return await self._why_there(job)

        def look(cycle: Cycle, now_us: int) -> tuple[Snapshot, list[Job], Tuning]:
            state = cycle.state
            pending = [state.jobs[j] for j in state.pending]
            return state.detached(state.snapshot(now_us)), pending, cycle.tuning

        def think(found: tuple[Snapshot, list[Job], Tuning]) -> dict[str, Any]:
            snapshot, pending, tuning = found
            _, reasons, verdicts = explain(job, snapshot, self._policies, tuning)
            place = queue_position(job, pending, self._policies.queue, snapshot)
            chain = chain_of(job, snapshot.jobs) if job.dependencies else Chain()
            return {"reasons": reasons, "verdicts": verdicts, "queue_position": place, "chain": chain}

        thoughts = await self._asking.think_of(job.spec.user, look, think)
        return {"job": job.id, "state": job.state, "alignment": None, **thoughts}

    async def _why_there(self, job: Job) -> Mapping[str, Any]:
        """Of a job that has been placed: the decision as it was taken, and its alignment as it is now."""

        def look(cycle: Cycle, now_us: int) -> tuple[Alignment, Reason | None]:
            return cycle.state.alignment, waiting(cycle.state, job, cycle.rules, now_us)

        alignment, leased = await self._asking.ask(look)
        reason = leased or job.reason or why_alone(alignment, job.id)
        choice = await asyncio.to_thread(self._store.choice, job.id)
        return {
            "job": job.id,
            "state": job.state,
            "reasons": [reason] if reason else [],
            "verdicts": choice.verdicts if choice is not None else [],
            "alignment": None if job.state.final else alignment_around(alignment, job.id),
            "placement": None if job.state.final else job.placement,
            "choice": choice,
        }


def alignment_around(alignment: Alignment, job: int) -> Alignment | None:
    """What the plan says of one job's links and paths, and of the jobs it is aligned with; None = nothing."""
    mine = tuple(link for link in alignment.links if job in link.jobs)
    paths = tuple(path for path in alignment.paths if path.job == job)
    if not mine and not paths:
        return None
    component = next((s.component for s in alignment.schedules if s.job == job), None)
    return Alignment(
        score=min((link.score for link in mine), default=PERFECT),
        links=mine,
        schedules=tuple(s for s in alignment.schedules if s.component == component),
        unmatched=tuple(j for j in alignment.unmatched if any(j in link.jobs for link in mine)),
        paths=paths,
    )
