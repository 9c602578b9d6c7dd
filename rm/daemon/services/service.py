"""The use cases: what the HTTP API offers, in terms of the leader, the fleet and the store.

Changes go through `Leader.request` and are answered after their commit; reads either ask the
leader between two steps or, for jobs that left memory, the store.
"""

from __future__ import annotations

import asyncio
import operator
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from rm import __version__
from rm.arrays import JobId, each, mask
from rm.config import LimitsConfig
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect
from rm.core.jobs.chain import Chain, chain_of
from rm.core.jobs.dependency import depending_now
from rm.core.jobs.fencing import waiting
from rm.core.jobs.state import ClusterState
from rm.core.model.acceptance import accept
from rm.core.model.alignment import Alignment
from rm.core.model.demand import Demand
from rm.core.model.described import Described
from rm.core.model.host import Host
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.job_update import JobUpdate
from rm.core.model.logs import LogPlace
from rm.core.model.progress import Progress
from rm.core.model.reasons import Reason
from rm.core.model.snapshot import Snapshot
from rm.core.model.unknown import unknown_names
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle, in_order
from rm.core.scheduling.engine import Policies, Tuning, explain, never_fits, not_yet
from rm.core.scheduling.queue_position import queue_position
from rm.core.store import Store
from rm.daemon.agents import Hosts
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.execution.log_reader import LogReader
from rm.daemon.leading.audit_log import AuditLog
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.services.array_elements import (
    PART,
    divided,
    gone,
    not_there,
    one_element,
    stored_element,
    to_change,
    to_requeue,
)
from rm.daemon.services.backlog import Admission, Backlog, loads_of
from rm.daemon.services.host_keys import Keys
from rm.daemon.services.host_service import HostService, shown
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.named_jobs import NamedJobs, named_jobs
from rm.daemon.services.parts import first_part, weight_of
from rm.daemon.services.reasons import NO_REASONS, Reasons, with_reason
from rm.daemon.services.steps_service import Steps
from rm.daemon.services.stored import StoredCounts
from rm.daemon.services.token_keeper import TokenKeeper
from rm.errors import Conflict, IllegalTransition, ImpossibleRequest, NotFound, RmError, StoreUnavailable
from rm.protocol.attempts import Signalled, SignalTo
from rm.protocol.codes import Code, code_of

T = TypeVar("T")
SLICE = 200  # changes that one request makes in one turn of the leader …
BUSY_SLICE = 100  # … when others wait
NO_FAULTS: Mapping[str, str] = MappingProxyType({})
POSSIBLE_MAX = 10_000  # demands that are known to fit some time


class Iterations(Protocol):
    """Iteration statistics of running and recent jobs."""

    def of(self, job: int) -> Mapping[str, Any]: ...


class Service(HostService):
    """One per daemon; its methods run in the web server's event loop. Here: the jobs.

    Args:
        leader, store, hosts, clock: of the daemon.
        keys: shows and pins the hosts' SSH keys.
        iterations: what the regulator knows of jobs' iterations.
        measure: measures the network now, of one zone or of all.
        logs: where the logs are that came home; `collecting` names those that are on their way.
        recent_us: how long ended jobs are in the leader's state.
        facts: of the daemon, for its status: version, agents, started_us, epoch.
        policies: of its own, for the thread that thinks: the leader's remember what they saw last.
        backlog, waiters: how many jobs wait, and who waits for one; the leader tells both of changed jobs.
        policy_faults: sentences about policies that failed, by their names.
        monitoring, alerting, steps, tokens, audit: the other topics of the API; None where there is none.
    """

    def __init__(
        self,
        *,
        leader: Leader,
        store: Store,
        hosts: Hosts,
        keys: Keys,
        iterations: Iterations,
        measure: Callable[[str | None], Measured],
        clock: Clock,
        logs: LogPlace,
        recent_us: int,
        facts: Mapping[str, Any],
        policies: Policies,
        backlog: Backlog | None = None,
        waiters: JobWaiters | None = None,
        collecting: Callable[[int, int], Sequence[Collect]] = lambda job, attempt: (),
        policy_faults: Mapping[str, str] = NO_FAULTS,
        monitoring: MonitorService | None = None,
        alerting: Alerting | None = None,
        steps: Steps | None = None,
        tokens: TokenKeeper | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(leader=leader, hosts=hosts, keys=keys, measure=measure, monitoring=monitoring)
        self.alerting = alerting
        self.steps = steps
        self.tokens = tokens
        self.audit = audit
        self._policy_faults = policy_faults
        self._store = store
        self._iterations = iterations
        self._clock = clock
        self._collecting = collecting
        self._reader = LogReader(hosts, logs, self.job, store.logs, collecting)
        self._recent_us = recent_us
        self._facts = facts
        self._possible: set[Demand] = set()
        self._possible_for: tuple[Host, ...] = ()
        self._policies = policies
        self._backlog = backlog or Backlog(LimitsConfig().pending_jobs, LimitsConfig().pending_bytes)
        self._bulks: dict[str, asyncio.Lock] = {}
        self._waiters = waiters or JobWaiters()
        self._stored = StoredCounts(store, clock, lambda: leader.version, leader.waiting)

    # -- jobs ----------------------------------------------------------------------------------

    async def submit(
        self, specs: Sequence[JobSpec], key: str = "", may_know: Callable[[str], bool] = lambda user: True
    ) -> Sequence[int]:
        """The new jobs' ids, each durable; with an idempotency `key` that came before, those of that time.
        They may depend on jobs of users whose jobs the caller `may_know`.

        Many are submitted in parts, between which others have their turn. Where the daemon ends in between,
        the same submission with the same key goes on after the parts that are there.
        """
        await self._refuse_impossible(specs)
        named = await named_jobs(specs, self.job, self._elements_of, may_know)
        weights = await beside(specs, lambda: [*map(weight_of, specs)])
        if sum(weights) <= SLICE:
            return await self._submit(specs, key, named, weights)
        turn = self._bulks.setdefault(specs[0].user, asyncio.Lock())  # one user has one of these at a time
        async with turn:
            return await self._submit(specs, key, named, weights)

    async def _submit(
        self, specs: Sequence[JobSpec], key: str, named: NamedJobs, weights: Sequence[int]
    ) -> Sequence[int]:
        ids: list[int] = []
        room: Admission | None = None
        asked = await beside(specs, lambda: loads_of(specs))
        name = (specs[0].user, key)

        def make(state: ClusterState, count: int, made: list[int]) -> list[ev.Event]:
            """May be called again, on the state of before, when another item makes the turn fail."""
            nonlocal room
            promised = self._leader.promised
            known = promised.submitted(name) if key else []
            if len(known) > len(ids):
                told = zip(known, specs, strict=False)
                if len(known) > len(specs) or any(
                    i in state.jobs and not state.jobs[i].updates and state.jobs[i].spec != spec
                    for i, spec in told
                ):
                    raise Conflict("Another submission had this idempotency key.", "Make a new one.")
                made[:] = known[len(ids) :]
                return []
            if room is None:
                room = self._backlog.admit(specs[len(ids) :], None if ids else asked)
            part = specs[len(ids) : len(ids) + count]
            past = [named.of(spec, state) for spec in part]
            made[:] = promised.new_jobs(len(part), name if key else None)
            return [ev.JobSubmitted(i, s, key, p) for i, s, p in zip(made, part, past, strict=True)]

        try:
            while len(ids) < len(specs):
                most = BUSY_SLICE if self._leader.is_busy() else SLICE
                count, weight = first_part(weights[len(ids) : len(ids) + most], most)
                made: list[int] = []
                await self._request(partial(make, count=count, made=made), weight=weight)
                ids += made
        finally:
            if room is not None:
                self._backlog.release(room)  # what was committed counts by itself
        return ids

    async def _refuse_impossible(self, specs: Sequence[JobSpec]) -> None:
        """Raise for a job that no state of this cluster could take; each demand is asked once."""
        kinds: dict[Demand, JobSpec] = {}
        for spec in specs:
            kinds.setdefault(spec.demand, spec)

        # one look, without a turn of the leader's: hosts may as well change after the answer
        if kinds.keys() <= self._possible_on(self._leader.hosts):
            return

        def look(cycle: Cycle, now_us: int) -> tuple[tuple[Host, ...], Snapshot]:
            state = cycle.state
            return tuple(state.hosts.values()), state.detached(state.snapshot(now_us))

        hosts, snapshot = await self._ask(look)
        possible = self._possible_on(hosts)

        def think() -> None:
            for kind, spec in kinds.items():
                if kind in possible:
                    continue
                against = unknown_names(spec, snapshot.hosts)
                if not against:
                    never = never_fits(Job(0, spec, 0, traffic=spec.traffic), snapshot, self._policies)
                    against = [reason.message for reason in never]
                if against:
                    said = "; ".join(dict.fromkeys(against))
                    raise ImpossibleRequest(
                        f"Job '{spec.name}' could never run on this cluster: {said}.",
                        "See `rmx hosts` for what there is.",
                    )
                possible.add(kind)

        await self._think(specs[0].user, think)

    def _possible_on(self, hosts: tuple[Host, ...]) -> set[Demand]:
        """Demands that are known to fit some time on these hosts; in the event loop's thread."""
        known = self._possible_for
        same = len(hosts) == len(known) and all(map(operator.is_, hosts, known))
        if not same or len(self._possible) > POSSIBLE_MAX:
            self._possible = set()
            self._possible_for = hosts
        return self._possible

    async def plan(
        self, spec: JobSpec, may_know: Callable[[str], bool] = lambda user: True
    ) -> Mapping[str, Any]:
        await self._refuse_impossible([spec])
        named = await named_jobs([spec], self.job, self._elements_of, may_know)

        def look(cycle: Cycle, now_us: int) -> tuple[Snapshot, Tuning, Job | None, Job]:
            state = cycle.state
            waits_for = depending_now(spec, state, named.of(spec, state), now_us)
            job = Job(0, spec, now_us, traffic=spec.traffic, dependencies=waits_for)
            return state.detached(state.snapshot(now_us)), cycle.tuning, cycle.reserved, job

        snapshot, tuning, reserved, job = await self._ask(look)
        decision, reasons, verdicts = await self._think(
            spec.user, lambda: explain(job, snapshot, self._policies, tuning, reserved)
        )
        if not_yet(job, snapshot.now_us) is not None:
            decision = None
        return {
            "placement": decision.placement if decision else None,
            "alignment": replace(decision.alignment, plans=()) if decision else None,  # for simulators
            "reasons": reasons,
            "verdicts": verdicts,
        }

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
    ) -> tuple[Sequence[Job], Reasons]:
        """The jobs as they are stored, and why those of them wait that do."""
        if everything:
            stored = await asyncio.to_thread(
                self._store.jobs,
                states=states or None,
                user=user or None,
                name=name or None,
                limit=limit or None,
                before_id=before or None,
            )
            waiting = [job for job in stored if job.state is JobState.PENDING]
            if not waiting:
                return stored, NO_REASONS
            some = waiting if len(waiting) <= SLICE else None
            reasons: Reasons = await self._ask(lambda cycle, now_us: Reasons.of(cycle, some))
            return stored, reasons
        since_us = self._clock.now_us() - self._recent_us

        def look(cycle: Cycle, now_us: int) -> tuple[list[Job], Reasons]:
            state = cycle.state
            newest_first = (
                job
                for job in reversed(state.jobs.values())  # they came by ascending id
                if (not job.state.final or (job.ended_us or 0) >= since_us)
                and (not before or job.id < before)
                and (not states or job.state in states)
                and (not user or job.spec.user == user)
                and (not name or job.spec.name == name)
            )
            found = list(islice(newest_first, limit or None))[::-1]
            few = found if len(found) <= SLICE else None
            return found, Reasons.of(cycle, few)

        answer: tuple[list[Job], Reasons] = await self._ask(look)
        return answer

    async def queue(self, *, user: str, limit: int) -> Sequence[Job]:
        def look(cycle: Cycle, now_us: int) -> tuple[list[Job], Snapshot, Reasons]:
            state = cycle.state
            pending = [state.jobs[j] for j in state.pending]
            return pending, state.detached(state.snapshot(now_us)), Reasons.of(cycle)

        pending, snapshot, reasons = await self._ask(look)

        def think() -> list[Job]:
            ordered = in_order(pending, self._policies.queue, snapshot)
            found = (job for job in ordered if not user or job.spec.user == user)
            return list(map(reasons.shown, islice(found, limit or None)))

        return await self._think(user, think)

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
            return Described(with_reason(cycle, job), schedule, state.progress.get(job_id))

        found: Described | None = await self._ask(ask)
        if found is not None:
            return found
        job = await asyncio.to_thread(self._store.job, job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id}.", "`rmx queue --all` lists all jobs.")
        return Described(job)

    async def _named(self, job_id: int, array_tasks: str) -> Job:
        return (await self._element(job_id, array_tasks)).job if array_tasks else await self.job(job_id)

    async def _elements_of(self, array_id: int, tasks: list[int]) -> list[Job]:
        return await asyncio.to_thread(self._store.elements, array_id, tasks)

    async def _element(self, array_id: int, array_tasks: str) -> Described:
        """An element of an array: its own job, or the array's record as if it were one."""
        record = await self.job(array_id)
        task = one_element(record, array_tasks)

        def look(cycle: Cycle, now_us: int) -> tuple[int | None, Job]:
            state = cycle.state
            return state.elements.get(array_id, {}).get(task), state.jobs.get(array_id, record)

        own, record = await self._ask(look)
        if own is not None:
            return await self.described(own)
        return Described(await stored_element(self._store, record, task))

    async def progress(self, job_ids: Sequence[int]) -> Mapping[int, Progress]:
        def look(cycle: Cycle, now_us: int) -> dict[int, Progress]:
            told = cycle.state.progress
            return {i: told[i] for i in job_ids if i in told}

        found: dict[int, Progress] = await self._ask(look) if job_ids else {}
        return found

    async def cancel_all(self, job_ids: Sequence[int], by: str) -> Sequence[Job]:
        """Cancel those that have not ended; the jobs as they are then."""

        def make(state: ClusterState, part: Sequence[int], wide: list[Job]) -> list[ev.Event]:
            alive = [state.jobs[i] for i in part if i in state.jobs and not state.jobs[i].state.final]
            few, wide[:] = divided(alive, PART)
            return [ev.CancelRequested(job.id, by) for job in few]

        def look(cycle: Cycle, now_us: int) -> list[Job]:
            return [cycle.state.jobs[i] for i in job_ids if i in cycle.state.jobs]

        done = 0
        while done < len(job_ids):
            part = job_ids[done : done + (BUSY_SLICE if self._leader.is_busy() else SLICE)]
            wide: list[Job] = []
            with suppress(IllegalTransition):  # one has ended in this very turn: the others are cancelled
                await self._request(partial(make, part=part, wide=wide), weight=len(part))
            for array in wide:
                with suppress(IllegalTransition, Conflict):  # all of it has ended meanwhile
                    await self._change_parts(array, "", partial(ev.CancelRequested, array.id, by))
            done += len(part)
        answer: list[Job] = await self._ask(look)
        return answer

    async def cancel(
        self, job_id: int, by: str, signal: int | None, array_tasks: str = "", signal_to: SignalTo = "steps"
    ) -> Job:
        job = await self.job(job_id)
        if signal is not None:
            return await self._signal_all(job, signal, signal_to, array_tasks)
        if job.state.final:
            raise Conflict(f"Job {job.ref} has already ended ({job.state}).")
        return await self._change_parts(job, array_tasks, lambda tasks: ev.CancelRequested(job_id, by, tasks))

    async def _signal_all(self, job: Job, signal: int, to: SignalTo, array_tasks: str) -> Job:
        """The job, or all elements of an array that run."""
        if job.array is None:
            return await self._signal(job, signal, to)
        chosen = job.array.has("running") & (mask(array_tasks) if array_tasks else ~0)
        if not chosen:
            named = JobId(job.id, array_tasks)
            raise Conflict(f"No element of {named} runs: there is nothing to signal.")
        for task in each(chosen):
            await self._signal((await self._element(job.id, str(task))).job, signal, to)
        return job

    async def _signal(self, job: Job, signal: int, to: SignalTo) -> Job:
        hosts = dict.fromkeys(t.host for t in job.tasks if t.ended_us is None)
        if not job.occupies or not hosts:
            raise Conflict(f"Job {job.id} is {job.state}: there is nothing to signal.")
        for host in hosts:
            request = Signalled(
                job=job.id, attempt=job.attempt, signal=signal, to=to, epoch=self._facts["epoch"]
            )
            future = self._hosts.call(host, request)
            try:
                await asyncio.wrap_future(future)
            except RmError as error:
                if code_of(error) is not Code.NO_SUCH_ATTEMPT:
                    raise
                raise Conflict(f"Job {job.id} does not run on {host}: there is nothing to signal.") from None
        return job

    async def hold(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        job = await self.job(job_id)
        return await self._change_parts(job, array_tasks, lambda tasks: ev.HoldRequested(job_id, by, tasks))

    async def release(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        job = await self.job(job_id)
        return await self._change_parts(
            job, array_tasks, lambda tasks: ev.ReleaseRequested(job_id, by, tasks)
        )

    async def suspend(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        job = await self.job(job_id)
        return await self._change_parts(
            job, array_tasks, lambda tasks: ev.SuspendRequested(job_id, by, tasks)
        )

    async def resume_job(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        job = await self.job(job_id)
        return await self._change_parts(job, array_tasks, lambda tasks: ev.ResumeRequested(job_id, by, tasks))

    async def limit_array(self, job_id: int, by: str, limit: int) -> Job:
        return await self._change(job_id, ev.ArrayLimitSet(job_id, by, limit))

    async def update(
        self, job_id: int, by: str, update: JobUpdate, may_know: Callable[[str], bool], may_raise: bool
    ) -> Job:
        """Change what the job asks for, checked as at its submission. `may_raise`: also the time limit of a
        job that runs."""
        job = await self.job(job_id)
        spec = update.applied(job.spec)
        accept(spec)
        if job.state is JobState.PENDING and spec.demand != job.spec.demand:
            await self._refuse_impossible([spec])
        asked = [spec] if update.dependency else []
        named = await named_jobs(asked, self.job, self._elements_of, may_know)

        def make(state: ClusterState) -> list[ev.Event]:
            if job_id not in state.jobs:
                raise Conflict(f"Job {job_id} has ended too long ago to be changed.", "Submit it again.")
            return [ev.JobUpdated(job_id, by, update, named.of(spec, state) if asked else (), may_raise)]

        changed: Job = await self._request(make, lambda state: state.jobs[job_id])
        return changed

    async def requeue(self, job_id: int, by: str, array_tasks: str = "", failed: bool = False) -> Job:
        """Jobs that ended long ago come back from the store, but for those that are not kept any more."""
        job = await self.job(job_id)
        if job.array is None:
            return await self._requeue(job, by, array_tasks, failed)
        parts = to_requeue(job, array_tasks, failed)
        return await in_parts(parts, lambda part: self._requeue(job, by, part, failed))

    async def _requeue(self, job: Job, by: str, array_tasks: str, failed: bool) -> Job:
        def look(cycle: Cycle, now_us: int) -> tuple[int, ...]:
            return tuple(cycle.state.elements.get(job.id, ()))

        recalled = await gone(self._store, job, array_tasks, await self._ask(look))

        def make(state: ClusterState) -> list[ev.Event]:
            back = not_there(recalled, state)
            request = ev.RequeueRequested(job.id, by, array_tasks, failed)
            return [ev.JobsRecalled(back), request] if back else [request]

        def answer(state: ClusterState) -> Job:
            return state.jobs[job.id]

        changed: Job = await self._request(make, answer, weight=min(SLICE, max(1, len(recalled))))
        return changed

    async def wait(self, job_id: int, timeout_s: float, array_tasks: str = "") -> Job:
        """An element of an array that waits has no job of its own: its array says when it has."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        with self._waiters.waiting(job_id) as woken:
            while True:
                woken.clear()  # before the look: a change after it must not be missed
                job = await self._named(job_id, array_tasks)
                left = deadline - asyncio.get_running_loop().time()
                if job.state.final or left <= 0:
                    return job
                try:
                    await asyncio.wait_for(woken.wait(), left)
                except TimeoutError:
                    return await self._named(job_id, array_tasks)

    def logs(
        self,
        job_id: int,
        rank: int,
        stream: str,
        offset: int,
        follow: bool,
        lines: int = 0,
        attempt: int = 0,
    ) -> AsyncIterator[bytes]:
        return self._reader.read(job_id, rank, stream, offset, follow, lines, attempt)

    async def log_note(self, job_id: int, rank: int, stream: str, attempt: int = 0) -> str:
        return await self._reader.note(job_id, rank, stream, attempt)

    async def why(self, job_id: int) -> Mapping[str, Any]:
        job = await self.job(job_id)
        if job.state is not JobState.PENDING:
            return await self._why_there(job)

        def look(cycle: Cycle, now_us: int) -> tuple[Snapshot, list[Job], Tuning, Job | None]:
            state = cycle.state
            pending = [state.jobs[j] for j in state.pending]
            return state.detached(state.snapshot(now_us)), pending, cycle.tuning, cycle.reserved

        snapshot, pending, tuning, reserved = await self._ask(look)

        def think() -> dict[str, Any]:
            _, reasons, verdicts = explain(job, snapshot, self._policies, tuning, reserved)
            place = queue_position(job, pending, self._policies.queue, snapshot)
            chain = chain_of(job, snapshot.jobs) if job.dependencies else Chain()
            return {"reasons": reasons, "verdicts": verdicts, "queue_position": place, "chain": chain}

        thoughts = await self._think(job.spec.user, think)
        return {"job": job_id, "state": job.state, "alignment": None, **thoughts}

    async def _why_there(self, job: Job) -> Mapping[str, Any]:
        """Of a job that has been placed: the decision as it was taken, and its alignment as it is now."""

        def look(cycle: Cycle, now_us: int) -> tuple[Alignment, Reason | None]:
            return cycle.state.alignment, waiting(cycle.state, job, cycle.rules, now_us)

        alignment, leased = await self._ask(look)
        reason = leased or job.reason
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

    def iterations(self, job_id: int) -> Mapping[str, Any]:
        return self._iterations.of(job_id)

    async def status(self) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Any]:
            state = cycle.state
            jobs = dict(Counter(job.state for job in state.jobs.values() if not job.state.final))
            hosts: dict[str, int] = {}
            for host in state.hosts.values():
                seen = shown(host, state.jobs_on.get(host.name, set())).state
                hosts[seen] = hosts.get(seen, 0) + 1
            ours = self._facts["agents"]
            others = [h.name for h in state.hosts.values() if h.agent_version not in ("", ours)]
            return {**known, "jobs": jobs, "hosts": hosts, "other_agents": sorted(others)}

        policies = self._policies
        known = {
            "daemon": {"version": __version__, "pid": os.getpid(), **self._facts},
            "policies": {
                "queue": policies.queue.name,
                "placement": policies.placement.name,
                "comm": policies.comm.name,
            },
        }
        try:
            answer = await self._ask(ask)
            held = await self._stored.now()
        except StoreUnavailable as error:  # that is how the daemon is
            return {**known, "jobs": {}, "hosts": {}, "waiting": str(error)}
        jobs = answer["jobs"] | {state: count for state, count in held.counts.items() if state.final}
        faults = list(self._policy_faults.values())
        return {**answer, "jobs": jobs, "set_aside": [one.why for one in held.aside], "policy_faults": faults}

    # -- within --------------------------------------------------------------------------------

    async def _change_parts(self, job: Job, array_tasks: str, event_of: Callable[[str], ev.Event]) -> Job:
        """A job, or some elements of an array."""
        parts = [array_tasks] if job.array is None else to_change(job, array_tasks)
        return await in_parts(parts, lambda part: self._change(job.id, event_of(part)))

    async def _change(self, job_id: int, event: ev.Event) -> Job:
        await self.job(job_id)  # NotFound, if it never was

        def make(state: ClusterState) -> list[ev.Event]:
            if job_id not in state.jobs:
                raise Conflict(f"Job {job_id} has ended too long ago to be changed.", "Submit it again.")
            return [event]

        job: Job = await self._request(make, lambda state: state.jobs[job_id])
        return job


async def beside(specs: Sequence[JobSpec], work: Callable[[], T]) -> T:
    """Beside the event loop, which ten thousand specifications would hold up."""
    return await asyncio.to_thread(work) if len(specs) > SLICE else work()


async def in_parts(parts: Sequence[str], change: Callable[[str], Awaitable[Job]]) -> Job:
    """One part after the other; elements that the last change came too late for do not keep others from it.

    Raises:
        IllegalTransition: it came too late for all.
    """
    done: Job | None = None
    refused: IllegalTransition | None = None
    for part in parts:
        try:
            done = await change(part)
        except IllegalTransition as error:
            refused = refused or error
    if done is None:
        assert refused is not None
        raise refused
    return done


def alignment_around(alignment: Alignment, job: int) -> Alignment | None:
    """What the plan says of one job's links and of the jobs it is aligned with; None = no contention."""
    mine = tuple(link for link in alignment.links if job in link.jobs)
    if not mine:
        return None
    component = next((s.component for s in alignment.schedules if s.job == job), None)
    return Alignment(
        score=min(link.score for link in mine),
        links=mine,
        schedules=tuple(s for s in alignment.schedules if s.component == component),
        unmatched=tuple(j for j in alignment.unmatched if any(j in link.jobs for link in mine)),
    )
