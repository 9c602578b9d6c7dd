"""The use cases that change jobs; each is answered after its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from rm.arrays import JobId, each, mask
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.acceptance import accept
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.scheduling.cycle import Cycle
from rm.core.store import Store
from rm.daemon.agents import Hosts
from rm.daemon.leading.leader import Leader
from rm.daemon.services.array_elements import (
    DEPENDENT,
    PART,
    divided,
    gone,
    not_there,
    to_change,
    to_requeue,
    to_update,
)
from rm.daemon.services.asking import Asking
from rm.daemon.services.job_reading import SLICE, JobReading
from rm.daemon.services.job_submissions import BUSY_SLICE, JobSubmissions
from rm.daemon.services.named_jobs import named_jobs
from rm.errors import Conflict, IllegalTransition, Refusal, RmError
from rm.protocol.attempts import Signalled, SignalTo
from rm.protocol.codes import Code, code_of


class JobChanges:
    """Its methods run in the web server's event loop.

    Args:
        asking: the way to the leader.
        leader: whether others wait for it.
        reading: finds the jobs.
        submissions: refuses changes after which a job could never run.
        store: has the jobs that left the leader's memory.
        hosts: the connected agents, which get the signals.
        epoch: of this leader.
    """

    def __init__(
        self,
        *,
        asking: Asking,
        leader: Leader,
        reading: JobReading,
        submissions: JobSubmissions,
        store: Store,
        hosts: Hosts,
        epoch: int,
    ) -> None:
        self._asking = asking
        self._leader = leader
        self._reading = reading
        self._submissions = submissions
        self._store = store
        self._hosts = hosts
        self._epoch = epoch

    async def cancel_all(
        self, job_ids: Sequence[int], by: str, states: frozenset[JobState] = frozenset()
    ) -> Sequence[Job]:
        """Cancel those that have not ended; the jobs as they are then, also those that have left the leader's
        memory meanwhile. `states`: only what is in one of these by then. An array is then chosen for its
        elements without jobs of their own, which wait: its others are jobs that are chosen by themselves."""
        waiting = JobState.PENDING in states
        seen: dict[int, Job] = {}

        def make(state: ClusterState, part: Sequence[int], wide: list[Job]) -> list[ev.Event]:
            alive = [state.jobs[i] for i in part if i in state.jobs and not state.jobs[i].state.final]
            if states:
                alive = [
                    job
                    for job in alive
                    if (job.state in states if job.array is None else job.array.waiting and waiting)
                ]
                return [
                    ev.CancelRequested(job.id, by, job.array.waiting if job.array else "") for job in alive
                ]
            few, wide[:] = divided(alive, PART)
            return [ev.CancelRequested(job.id, by) for job in few]

        def note(state: ClusterState, part: Sequence[int]) -> None:
            seen.update((i, state.jobs[i]) for i in part if i in state.jobs)

        def look(cycle: Cycle, now_us: int, part: Sequence[int]) -> None:
            note(cycle.state, part)

        done = 0
        while done < len(job_ids):
            part = job_ids[done : done + (BUSY_SLICE if self._leader.is_busy() else SLICE)]
            wide: list[Job] = []
            change, answer = partial(make, part=part, wide=wide), partial(note, part=part)
            try:
                await self._asking.request(change, answer, weight=len(part))
            except IllegalTransition:  # one has ended in this very turn: the others are cancelled
                await self._asking.ask(partial(look, part=part))
            for array in wide:
                with suppress(IllegalTransition, Conflict):  # all of it has ended meanwhile
                    await self._change_parts(array, "", partial(ev.CancelRequested, array.id, by))
            done += len(part)
        await self._asking.ask(partial(look, part=job_ids))
        return [seen[i] for i in job_ids if i in seen]

    async def cancel(
        self, job_id: int, by: str, signal: int | None, array_tasks: str = "", signal_to: SignalTo = "steps"
    ) -> Job:
        job = await self._reading.job(job_id)
        if signal is not None:
            return await self._signal_all(job, signal, signal_to, array_tasks)
        if job.state.final:
            raise Conflict(f"Job {job.ref} has already ended ({job.state}).", refusal=Refusal.ENDED)
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
            await self._signal((await self._reading.described(job.id, str(task))).job, signal, to)
        return job

    async def _signal(self, job: Job, signal: int, to: SignalTo) -> Job:
        hosts = dict.fromkeys(t.host for t in job.tasks if t.ended_us is None)
        if not job.occupies or not hosts:
            ended = Refusal.ENDED if job.state.final else None
            raise Conflict(f"Job {job.ref} is {job.state}: there is nothing to signal.", refusal=ended)
        for host in hosts:
            request = Signalled(job=job.id, attempt=job.attempt, signal=signal, to=to, epoch=self._epoch)
            future = self._hosts.call(host, request)
            try:
                await asyncio.wrap_future(future)
            except RmError as error:
                if code_of(error) is not Code.NO_SUCH_ATTEMPT:
                    raise
                raise Conflict(f"Job {job.ref} does not run on {host}: there is nothing to signal.") from None
        return job

    async def hold(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Job:
        """`as_admin`: its owner does not release it, unless it is the owner who asks."""
        job = await self._reading.job(job_id)
        as_admin = as_admin and job.spec.user != by
        return await self._change_parts(
            job, array_tasks, lambda tasks: ev.HoldRequested(job_id, by, tasks, as_admin)
        )

    async def release(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Job:
        """`as_admin`: also of what was held so."""
        job = await self._reading.job(job_id)
        return await self._change_parts(
            job, array_tasks, lambda tasks: ev.ReleaseRequested(job_id, by, tasks, as_admin)
        )

    async def suspend(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        job = await self._reading.job(job_id)
        return await self._change_parts(
            job, array_tasks, lambda tasks: ev.SuspendRequested(job_id, by, tasks)
        )

    async def resume_job(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        job = await self._reading.job(job_id)
        return await self._change_parts(job, array_tasks, lambda tasks: ev.ResumeRequested(job_id, by, tasks))

    async def limit_array(self, job_id: int, by: str, limit: int) -> Job:
        return await self._change(job_id, ev.ArrayLimitSet(job_id, by, limit))

    async def update(
        self,
        job_id: int,
        by: str,
        update: JobUpdate,
        may_know: Callable[[str], bool],
        may_raise: bool,
        array_tasks: str = "",
    ) -> Job:
        """Change what the job asks for, checked as at its submission; of an array only of these elements.
        `may_raise`: also the time limit of a job that runs, and beyond what limits would ever let run."""
        job = await self._reading.job(job_id)
        most = PART if update.dependency is None else DEPENDENT
        parts = [array_tasks] if job.array is None or not array_tasks else to_update(job, array_tasks, most)
        pairs = [(old, update.applied(old)) for old in await self._specs_of(job, array_tasks)]
        for _, new in pairs:
            accept(new)
        changed = [new for old, new in pairs if new.demand != old.demand or update.reservation]
        if changed and job.state is JobState.PENDING:
            await self._submissions.refuse_impossible(changed)
        spec = pairs[0][1]
        asked = [spec] if update.dependency else []
        bounded = (
            [] if may_raise or job.occupies else [new for old, new in pairs if _asks_otherwise(new, old)]
        )
        named = await named_jobs(asked, self._reading.job, self._reading.elements_of, may_know)

        def make(state: ClusterState, part: str) -> list[ev.Event]:
            if job_id not in state.jobs:
                raise Conflict(f"Job {job_id} has ended too long ago to be changed.", "Submit it again.")
            self._submissions.refuse_growth(state, state.jobs[job_id], update, part)
            if bounded:
                self._submissions.refuse_beyond_limits(state, state.jobs[job_id], update, bounded)
            past = named.of(spec, state) if asked else ()
            array = state.jobs[job_id].array
            leave = array.has("waiting") & mask(part) if array is not None and part else 0
            first = self._leader.promised.new_jobs(leave.bit_count(), None).start if leave else 0
            return [ev.JobUpdated(job_id, by, update, past, may_raise, part, first)]

        async def change(part: str) -> Job:
            done: Job = await self._asking.request(partial(make, part=part), lambda s: s.jobs[job_id])
            return done

        return await in_parts(parts, change)

    async def _specs_of(self, job: Job, array_tasks: str) -> list[JobSpec]:
        """What is asked for by the job, or by those of the elements that ask for something of their own."""
        if job.array is None or not array_tasks:
            return [job.spec]

        def look(cycle: Cycle, now_us: int) -> list[JobSpec]:
            own = cycle.state.elements.get(job.id, {})
            return [cycle.state.jobs[own[task]].spec for task in each(mask(array_tasks)) if task in own]

        return list(dict.fromkeys([job.spec, *await self._asking.ask(look)]))

    async def requeue(
        self, job_id: int, by: str, array_tasks: str = "", failed: bool = False, hold: bool = False
    ) -> Job:
        """Jobs that ended long ago come back from the store, but for those that are not kept any more."""
        job = await self._reading.job(job_id)
        if job.array is None:
            return await self._requeue(job, ev.RequeueRequested(job_id, by, array_tasks, failed, hold))
        parts = to_requeue(job, array_tasks, failed)
        return await in_parts(
            parts, lambda part: self._requeue(job, ev.RequeueRequested(job_id, by, part, failed, hold))
        )

    async def _requeue(self, job: Job, request: ev.RequeueRequested) -> Job:
        def look(cycle: Cycle, now_us: int) -> tuple[int, ...]:
            return tuple(cycle.state.elements.get(job.id, ()))

        recalled = await gone(self._store, job, request.array_tasks, await self._asking.ask(look))

        def make(state: ClusterState) -> list[ev.Event]:
            back = not_there(recalled, state)
            self._submissions.refuse_again(state, request, back)
            return [ev.JobsRecalled(back), request] if back else [request]

        def answer(state: ClusterState) -> Job:
            return state.jobs[job.id]

        changed: Job = await self._asking.request(make, answer, weight=min(SLICE, max(1, len(recalled))))
        return changed

    async def _change_parts(self, job: Job, array_tasks: str, event_of: Callable[[str], ev.Event]) -> Job:
        """A job, or some elements of an array."""
        parts = [array_tasks] if job.array is None else to_change(job, array_tasks)
        return await in_parts(parts, lambda part: self._change(job.id, event_of(part)))

    async def _change(self, job_id: int, event: ev.Event) -> Job:
        await self._reading.job(job_id)  # NotFound, if it never was

        def make(state: ClusterState) -> list[ev.Event]:
            if job_id not in state.jobs:
                raise Conflict(f"Job {job_id} has ended too long ago to be changed.", "Submit it again.")
            return [event]

        job: Job = await self._asking.request(make, lambda state: state.jobs[job_id])
        return job


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


def _asks_otherwise(new: JobSpec, old: JobSpec) -> bool:
    """In what limits of accounts, QOS and partitions bound, or under which of them it comes."""
    return (new.demand, new.time_limit_us, new.account, new.qos, new.partition) != (
        old.demand, old.time_limit_us, old.account, old.qos, old.partition
    )  # fmt: skip
