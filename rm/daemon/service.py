"""The use cases: what the HTTP API offers, in terms of the leader, the fleet and the store.

Changes go through `Leader.request` and are answered after their commit; reads either ask the
leader between two steps or, for jobs that left memory, the store.
"""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rm import __version__
from rm.core import events as ev
from rm.core.alignment import Alignment, Schedule
from rm.core.cycle import Cycle
from rm.core.engine import explain, never_fits, shape
from rm.core.host import Host, HostState
from rm.core.job import Job, JobSpec, JobState
from rm.core.ports import Clock
from rm.core.snapshot import Free
from rm.core.state import ClusterState
from rm.core.store import Store
from rm.daemon.executor import Hosts, log_path
from rm.daemon.leader import Leader
from rm.errors import Conflict, ImpossibleRequest, NotFound, RmError, Unreachable

FOLLOW_S = 0.1
CHUNK_BYTES = 256 * 1024


class Keys(Protocol):
    """Host keys: what a host presents, and which are pinned."""

    def present(self, host: Host) -> Mapping[str, Any]: ...
    def accept(self, host: Host, fingerprint: str) -> Mapping[str, Any]: ...


class Iterations(Protocol):
    """Iteration statistics of running and recent jobs."""

    def of(self, job: int) -> Mapping[str, Any]: ...


class AgentForgot(Exception):
    """A host no longer has the log that is being read."""


class Service:
    """One per daemon; its methods run in the web server's event loop."""

    def __init__(
        self,
        leader: Leader,
        store: Store,
        hosts: Hosts,
        keys: Keys,
        iterations: Iterations,
        measure: Callable[[str | None], int],
        clock: Clock,
        logs: Path,
        recent_us: int,
        facts: Mapping[str, Any],
    ) -> None:
        self._leader = leader
        self._store = store
        self._hosts = hosts
        self._keys = keys
        self._iterations = iterations
        self._measure = measure
        self._clock = clock
        self._logs = logs
        self._recent_us = recent_us
        self._facts = facts
        self._possible: set[object] = set()
        self._possible_for: tuple[int, ...] = ()
        self._waiters: dict[int, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._waiters_lock = threading.Lock()

    # -- jobs ----------------------------------------------------------------------------------

    async def submit(self, specs: Sequence[JobSpec]) -> Sequence[int]:
        await self._refuse_impossible(specs)
        ids: list[int] = []

        def make(state: ClusterState) -> list[ev.Event]:
            first = state.next_job
            state.next_job += len(specs)
            ids.extend(range(first, first + len(specs)))
            return [ev.JobSubmitted(i, s) for i, s in zip(ids, specs, strict=True)]

        await self._request(make)
        return ids

    async def _refuse_impossible(self, specs: Sequence[JobSpec]) -> None:
        """Raise for a job that no state of this cluster could take; each shape is asked once."""

        def ask(cycle: Cycle, now_us: int) -> None:
            key = tuple(hash(h) for h in cycle.state.hosts.values())
            if key != self._possible_for:
                self._possible.clear()
                self._possible_for = key
            for spec in specs:
                job = Job(0, spec, now_us, traffic=spec.traffic)
                kind = shape(job)
                if kind in self._possible:
                    continue
                reasons = never_fits(job, cycle.state.snapshot(now_us), cycle.policies)
                if reasons:
                    said = "; ".join(dict.fromkeys(r.message for r in reasons))
                    raise ImpossibleRequest(
                        f"Job '{spec.name}' could never run on this cluster: {said}.",
                        "See `rmx hosts` for what there is.",
                    )
                self._possible.add(kind)

        await self._ask(ask)

    async def plan(self, spec: JobSpec) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Any]:
            job = Job(0, spec, now_us, traffic=spec.traffic)
            snapshot = cycle.state.snapshot(now_us)
            decision, reasons, verdicts = explain(job, snapshot, cycle.policies, cycle.tuning)
            return {
                "placement": decision.placement if decision else None,
                "alignment": decision.alignment if decision else None,
                "reasons": reasons,
                "verdicts": verdicts,
            }

        answer: Mapping[str, Any] = await self._ask(ask)
        return answer

    async def jobs(
        self, *, states: frozenset[JobState], user: str, name: str, limit: int, everything: bool
    ) -> Sequence[Job]:
        if everything:
            return await asyncio.to_thread(
                self._store.jobs,
                states=states or None,
                user=user or None,
                name=name or None,
                limit=limit or None,
            )
        since_us = self._clock.now_us() - self._recent_us

        def ask(cycle: Cycle, now_us: int) -> list[Job]:
            state = cycle.state
            found = [
                with_reason(cycle, job)
                for job in state.jobs.values()
                if (not job.state.final or (job.ended_us or 0) >= since_us)
                and (not states or job.state in states)
                and (not user or job.spec.user == user)
                and (not name or job.spec.name == name)
            ]
            found.sort(key=lambda j: j.id)
            return found[-limit:] if limit else found

        answer: list[Job] = await self._ask(ask)
        return answer

    async def job(self, job_id: int) -> Job:
        def ask(cycle: Cycle, now_us: int) -> Job | None:
            job = cycle.state.jobs.get(job_id)
            return with_reason(cycle, job) if job else None

        job: Job | None = await self._ask(ask)
        if job is None:
            job = await asyncio.to_thread(self._store.job, job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id}.", "`rmx queue --all` lists all jobs.")
        return job

    def schedule(self, job_id: int) -> Schedule | None:
        alignment = self._leader.cycle.state.alignment
        return next((s for s in alignment.schedules if s.job == job_id), None)

    async def cancel(self, job_id: int, by: str, signal: int | None) -> Job:
        job = await self.job(job_id)
        if signal is not None:
            return await self._signal(job, signal)
        if job.state.final:
            raise Conflict(f"Job {job_id} has already ended ({job.state}).")
        return await self._change(job_id, ev.CancelRequested(job_id, by))

    async def _signal(self, job: Job, signal: int) -> Job:
        placement = job.placement
        if placement is None or not job.occupies:
            raise Conflict(f"Job {job.id} is {job.state}: there is nothing to signal.")
        for host in placement.hosts:
            future = self._hosts.call(
                host,
                "signal",
                job=job.id,
                attempt=job.attempt,
                signal=signal,
                epoch=self._facts["epoch"],
            )
            await asyncio.wrap_future(future)
        return job

    async def hold(self, job_id: int, by: str) -> Job:
        return await self._change(job_id, ev.HoldRequested(job_id, by))

    async def release(self, job_id: int, by: str) -> Job:
        return await self._change(job_id, ev.ReleaseRequested(job_id, by))

    async def requeue(self, job_id: int, by: str) -> Job:
        return await self._change(job_id, ev.RequeueRequested(job_id, by))

    async def wait(self, job_id: int, timeout_s: float) -> Job:
        woken = asyncio.Event()
        entry = (asyncio.get_running_loop(), woken)
        with self._waiters_lock:
            self._waiters.setdefault(job_id, []).append(entry)
        try:
            deadline = asyncio.get_running_loop().time() + timeout_s
            while True:
                job = await self.job(job_id)
                left = deadline - asyncio.get_running_loop().time()
                if job.state.final or left <= 0:
                    return job
                woken.clear()
                try:
                    await asyncio.wait_for(woken.wait(), left)
                except TimeoutError:
                    return await self.job(job_id)
        finally:
            with self._waiters_lock:
                waiting = self._waiters.get(job_id, [])
                waiting.remove(entry)
                if not waiting:
                    self._waiters.pop(job_id, None)

    def jobs_changed(self, jobs: Sequence[Job]) -> None:
        """The leader's news; called in its thread."""
        with self._waiters_lock:
            if not self._waiters:
                return
            woken = [w for job in jobs for w in self._waiters.get(job.id, ())]
        for loop, event in woken:
            loop.call_soon_threadsafe(event.set)

    async def logs(
        self, job_id: int, rank: int, stream: str, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        attempt, gone = 0, False
        while True:
            job = await self.job(job_id)
            if attempt and job.attempt != attempt:  # requeued: what follows is another log
                offset, gone = 0, False
            attempt = job.attempt
            task = next((t for t in job.tasks if t.rank == rank), None)
            if task is None and job.tasks:
                ranks = f"0 to {len(job.tasks) - 1}" if len(job.tasks) > 1 else "only 0"
                raise NotFound(f"Job {job_id} has no task {rank}.", f"Its tasks: {ranks}.")
            home = log_path(self._logs, job_id, job.attempt, rank, stream)
            if home.exists() and not (follow and job.state is JobState.PENDING):
                data = await asyncio.to_thread(_read_from, home, offset)
                if data:
                    yield data
                return
            if task is None or (task.started_us is None and not job.state.final):
                if not follow:
                    raise Conflict(f"Job {job_id} is {job.state}: there is no log yet.")
                await self.wait_change(job_id)
                continue
            if task.started_us is None or gone:
                return
            try:
                async for data in self._logs_on_host(job, task.host, rank, stream, offset, follow):
                    offset += len(data)
                    yield data
            except Unreachable:
                if not follow or job.state.final:
                    raise
                await asyncio.sleep(FOLLOW_S)  # cut off for a while; its loss would end the job
                continue
            except AgentForgot:
                gone = True  # collected while we read: the rest is at home, unless there is none
                continue
            if not follow or (await self.job(job_id)).state.final:
                return
            await asyncio.sleep(FOLLOW_S)

    async def _logs_on_host(
        self, job: Job, host: str, rank: int, stream: str, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        while True:
            try:
                answer = await asyncio.wrap_future(
                    self._hosts.call(
                        host,
                        "logs",
                        job=job.id,
                        attempt=job.attempt,
                        rank=rank,
                        stream=stream,
                        offset=offset,
                        limit=CHUNK_BYTES,
                    )
                )
            except RmError as error:
                if getattr(error, "code", "") == "no-such-attempt":
                    raise AgentForgot from None
                raise
            data = base64.b64decode(answer["data"])
            offset = answer["offset"]
            if data:
                yield data
            elif answer["done"] or not follow:
                return
            else:
                await asyncio.sleep(FOLLOW_S)

    async def wait_change(self, job_id: int) -> None:
        await asyncio.sleep(FOLLOW_S)

    async def why(self, job_id: int) -> Mapping[str, Any]:
        job = await self.job(job_id)

        def ask(cycle: Cycle, now_us: int) -> dict[str, Any]:
            state = cycle.state
            snapshot = state.snapshot_without(job, now_us)
            answer: dict[str, Any] = {"job": job_id, "state": job.state, "alignment": None}
            _, reasons, verdicts = explain(job, snapshot, cycle.policies, cycle.tuning)
            answer["verdicts"] = verdicts
            if job.state is JobState.PENDING:
                answer["reasons"] = reasons
            else:
                answer["reasons"] = [job.reason] if job.reason else []
                answer["placement"] = job.placement
                answer["alignment"] = alignment_around(state.alignment, job_id)
            return answer

        if job.state.final:
            reasons = [job.reason] if job.reason else []
            return {
                "job": job_id,
                "state": job.state,
                "reasons": reasons,
                "verdicts": [],
                "alignment": None,
            }
        answer: Mapping[str, Any] = await self._ask(ask)
        return answer

    def iterations(self, job_id: int) -> Mapping[str, Any]:
        return self._iterations.of(job_id)

    # -- hosts and network ---------------------------------------------------------------------

    async def hosts(self) -> Sequence[tuple[Host, Free | None, Sequence[int]]]:
        def ask(cycle: Cycle, now_us: int) -> list[tuple[Host, Free | None, Sequence[int]]]:
            state = cycle.state
            return [
                (
                    shown(h, state.jobs_on.get(h.name, set())),
                    state.free.get(h.name),
                    sorted(state.jobs_on.get(h.name, ())),
                )
                for h in state.hosts.values()
            ]

        answer: Sequence[tuple[Host, Free | None, Sequence[int]]] = await self._ask(ask)
        return answer

    async def add_hosts(self, hosts: Sequence[Host], by: str) -> Sequence[Host]:
        names = [h.name for h in hosts]
        await self._request(lambda state: [ev.HostAdded(h) for h in hosts])

        def ask(cycle: Cycle, now_us: int) -> list[Host]:
            return [cycle.state.hosts[n] for n in names if n in cycle.state.hosts]

        added: list[Host] = await self._ask(ask)
        for host in added:
            self._hosts.add(host)
        return added

    async def drain(self, name: str, reason: str, by: str) -> Host:
        return await self._change_host(name, ev.HostDrained(name, by, reason))

    async def resume(self, name: str, by: str) -> Host:
        return await self._change_host(name, ev.HostResumed(name, by))

    async def remove_host(self, name: str, by: str) -> Host:
        host = await self._host(name)

        def make(state: ClusterState) -> list[ev.Event]:
            if busy := sorted(state.jobs_on.get(name, ())):
                listed = ", ".join(map(str, busy))
                raise Conflict(
                    f"Host {name} still runs job {listed}.",
                    f"Drain it first: rmx host drain {name}",
                )
            return [ev.HostRemoved(name, by)]

        await self._request(make)
        self._hosts.remove(name)
        return host

    async def present_key(self, name: str) -> Mapping[str, Any]:
        return await asyncio.to_thread(self._keys.present, await self._host(name))

    async def accept_key(self, name: str, fingerprint: str, by: str) -> Mapping[str, Any]:
        host = await self._host(name)
        answer = await asyncio.to_thread(self._keys.accept, host, fingerprint)
        self._hosts.add(host)  # try again at once
        return answer

    async def links(self) -> Sequence[Mapping[str, Any]]:
        def ask(cycle: Cycle, now_us: int) -> list[dict[str, Any]]:
            state = cycle.state
            aligned = {link.link: link for link in state.alignment.links}
            rows = []
            for host in state.hosts.values():
                link = aligned.get(host.name)
                rows.append(
                    {
                        "name": host.name,
                        "capacity_bps": host.nic_bps,
                        "jobs": sorted(state.jobs_on.get(host.name, ())),
                        "score": link.score if link else None,
                        "perimeter_us": link.perimeter_us if link else None,
                        "rotations": link.rotations if link else (),
                        "gap_us": link.gap_us if link else None,
                    }
                )
            return rows

        answer: Sequence[Mapping[str, Any]] = await self._ask(ask)
        return answer

    async def network(self) -> Sequence[Mapping[str, Any]]:
        def ask(cycle: Cycle, now_us: int) -> list[dict[str, Any]]:
            return [
                {
                    "source": source,
                    "destination": destination,
                    "loss_pct": s.loss_pct,
                    "delay_us": s.delay_us,
                    "jitter_us": s.jitter_us,
                    "bandwidth_bps": s.bandwidth_bps,
                    "age_us": now_us - s.measured_at_us if s.measured_at_us else None,
                    "failures": s.failures,
                }
                for (source, destination), s in cycle.state.network.items()
            ]

        answer: Sequence[Mapping[str, Any]] = await self._ask(ask)
        return answer

    async def measure(self, zone: str | None) -> int:
        return await asyncio.to_thread(self._measure, zone)

    async def status(self) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Any]:
            state = cycle.state
            jobs: dict[str, int] = {}
            for job in state.jobs.values():
                jobs[job.state] = jobs.get(job.state, 0) + 1
            hosts: dict[str, int] = {}
            for host in state.hosts.values():
                seen = shown(host, state.jobs_on.get(host.name, set())).state
                hosts[seen] = hosts.get(seen, 0) + 1
            policies = cycle.policies
            return {
                "daemon": {"version": __version__, "pid": os.getpid(), **self._facts},
                "jobs": jobs,
                "hosts": hosts,
                "policies": {
                    "queue": policies.queue.name,
                    "placement": policies.placement.name,
                    "comm": policies.comm.name,
                },
            }

        answer: Mapping[str, Any] = await self._ask(ask)
        return answer

    # -- within --------------------------------------------------------------------------------

    async def _ask(self, question: Callable[[Cycle, int], Any]) -> Any:
        return await asyncio.wrap_future(self._leader.ask(question))

    async def _request(
        self,
        make: Callable[[ClusterState], list[ev.Event]],
        answer: Callable[[ClusterState], Any] = lambda state: None,
    ) -> Any:
        return await asyncio.wrap_future(self._leader.request(make, answer))

    async def _change(self, job_id: int, event: ev.Event) -> Job:
        def make(state: ClusterState) -> list[ev.Event]:
            if job_id not in state.jobs:
                raise NotFound(f"There is no unfinished job {job_id}.")
            return [event]

        job: Job = await self._request(make, lambda state: state.jobs[job_id])
        return job

    async def _host(self, name: str) -> Host:
        def ask(cycle: Cycle, now_us: int) -> Host:
            return known_host(cycle.state, name)

        host: Host = await self._ask(ask)
        return host

    async def _change_host(self, name: str, event: ev.Event) -> Host:
        def make(state: ClusterState) -> list[ev.Event]:
            known_host(state, name)
            return [event]

        def answer(state: ClusterState) -> Host:
            return shown(state.hosts[name], state.jobs_on.get(name, set()))

        host: Host = await self._request(make, answer)
        return host


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


def with_reason(cycle: Cycle, job: Job) -> Job:
    """A pending job shows the engine's newest reason, which is not part of its record."""
    reason = cycle.reason_of(job) if job.state is JobState.PENDING else None
    return replace(job, reason=reason) if reason is not None else job


def known_host(state: ClusterState, name: str) -> Host:
    if name not in state.hosts:
        raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.")
    return state.hosts[name]


def shown(host: Host, jobs: set[int]) -> Host:
    """The host with the state people ask about: a drained host is DRAINING while jobs run."""
    if not host.drained_by or host.state is HostState.DOWN:
        return host
    state = HostState.DRAINING if jobs else HostState.DRAINED
    return replace(host, state=state, reason=host.drained_by)


def _read_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
