"""The service's port, faked: jobs in a dictionary, behind the real HTTP API on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from rm.config import Config, JobsConfig
from rm.core.jobs.elements import shown_element
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.choice import Choice, Compared
from rm.core.model.described import Described
from rm.core.model.host import Host, Nic
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job, JobSpec, JobState, Placement, Task, TaskPlacement
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import LogPiece
from rm.core.model.network.alignment import Alignment, Schedule
from rm.core.model.priority_parts import PriorityParts
from rm.core.model.progress import Progress
from rm.core.model.reasons import HostVerdict, Reason, ReasonCode
from rm.core.model.snapshot import Free
from rm.core.model.step_used import StepUsed
from rm.core.scheduling.foreseen import Foreseen, Start
from rm.core.scheduling.queue_position import QueuePosition
from rm.core.sharing import requests
from rm.core.sharing.accounts import (
    NO_ACCOUNTS,
    Accounts,
    without_account,
)
from rm.core.sharing.ended import Ended, Heap, Sums, added_up
from rm.core.sharing.ledger import Ledger
from rm.core.sharing.partitions import without_partition
from rm.core.sharing.qos import without_qos
from rm.core.sharing.shares import Listed, Shares
from rm.core.sharing.usage_query import Asked, answer, asked
from rm.daemon.services.reasons import NO_REASONS, Reasons
from rm.daemon.services.usage_totals import UsageTotals
from rm.errors import Conflict, IllegalTransition, ImpossibleRequest, NotFound, Refusal, RmError
from rm.web.api import serve
from tests import builders
from tests.fakes import PATIENCE_S

CARD = Nic("eth0", "10.0.0.1", 10**9, 9_000, 1, "mlx5_0", 1)
CHOICE = Choice(
    1_000_000, "zone", (HostVerdict("h1", None, (("tasks", 1.0),)),), 1, (), 4, 2,
    (Compared(("h1",), 1, 87.5, None, "zone z1: all 1 tasks on one host", True),), 3,
)  # fmt: skip
POSITION: QueuePosition | None = None
NO_ROOM = Reason(ReasonCode.RESOURCES, "No host has 9 free processors.", (("wanted", 9), ("free", 8)))


class FakeService:
    """`log` tells what was asked; `finish(id)` ends a job; sync and async methods are mixed on purpose."""

    def __init__(self) -> None:
        self.newest: dict[int, Reason] = {}  # why jobs wait, by the newest pass
        self.table: dict[int, Job] = {}
        self.reserved: dict[str, HostReservation] = {}
        self.shared, self.ledger = NO_ACCOUNTS, Ledger()
        self.ended: list[Ended] = []
        self.forgotten_us = 0  # what ended before
        self.inventory: dict[str, Host] = {
            "h1": builders.host("h1", gpus=2, interface="eth0", nics=(CARD,)),
            "h2": builders.host("h2", "z2"),
        }
        self.output = {"out": b"hello\nworld\n", "err": b"oops\n"}
        self.notes: dict[int, str] = {}  # of an attempt's log
        self.log: list[tuple[Any, ...]] = []
        self.pinned: str | None = None
        self.changed = asyncio.Event()
        self.waiting = 0
        self.keys: list[str] = []  # of the submissions that were taken
        self.refuses: RmError | None = None  # any submission
        self.monitoring: Any = None
        self.alerting: Any = None
        self.steps: Any = None
        self.playbooks: Any = None
        self.sessions: Any = None
        self.job_step_table: list[JobStep] = []
        self.using: dict[int, list[tuple[int, StepUsed]]] = {}  # what jobs use now, by step
        self.silent: list[str] = []
        self.queue_policy = "priority"
        self.tokens: Any = None
        self.audit: Any = None

    @property
    def _itself(self) -> Self:
        return self

    reading = submissions = changes = job_logs = host_service = network_service = daemon_status = _itself
    used_now = reservation_service = foresight = priorities = _itself

    def parts(self, job: int | None = None) -> dict[int, tuple[PriorityParts, str]]:
        if self.queue_policy != "multifactor":
            return {}
        found = {}
        for one in (one for one in self.table.values() if one.ended_us is None):
            spec, names = one.spec, one.spec.partition.split(",")
            several = {name: 100.0 * place for place, name in enumerate(names)} if len(names) > 1 else {}
            highest = max(several.values(), default=0.0)
            parts = PriorityParts(spec.priority, 1.5, 5_000.0, 0.25, 0.0, spec.nice, highest, several)
            found[one.id] = parts, spec.user
        return found if job is None else {job: found[job]} if job in found else {}

    def weights(self) -> PriorityParts:
        if self.queue_policy != "multifactor":
            return PriorityParts(site=1.0)
        return PriorityParts(1.0, 1_000.0, 10_000.0, 0.5, 0.0, 0.0, 10_000.0)

    def starts(self) -> tuple[Foreseen, dict[int, str]]:
        waiting = [job for job in self.table.values() if job.state is JobState.PENDING and not job.held]
        found = {
            job.id: Start(
                job.id, 2 * 10**15, 19 * 10**14, ("h1",), 1_950_000_000_000_000, 1_970_000_000_000_000
            )
            for job in waiting
        }
        return Foreseen(found, None), {job.id: job.spec.user for job in waiting}

    def start_of_new(self, spec: JobSpec) -> Foreseen | None:
        start = Start(0, 2 * 10**15, 2 * 10**15, ("h1",), 2 * 10**15, 2 * 10**15)
        return None if spec.dependency else Foreseen({} if spec.hold else {0: start}, None)

    reservation_service = account_service = usage_service = _itself

    def usage(
        self, by: Sequence[str], since_us: int, until_us: int, only: Sequence[tuple[str, str]]
    ) -> tuple[Asked, list[tuple[Heap, Sums]]]:
        what = asked(by, since_us, until_us or 2_000_000_000_000_000, only, 0, self.forgotten_us)
        return what, answer(what, added_up(self.ended))

    def totals(self) -> Mapping[str, Sums]:
        counted = UsageTotals()
        counted.add(self.ended)
        return counted.now()

    def accounts(self) -> Accounts:
        return self.shared

    def shares(self) -> list[Listed]:
        return Shares(self.shared, self.ledger).listed()

    def add_account(self, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.add_account(self.shared, wanted))

    def set_account(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.set_account(self.shared, name, wanted))

    def remove_account(self, name: str, by: str) -> Accounts:
        return self._shared(without_account(self.shared, name))

    def put_members(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.put_members(self.shared, name, wanted))

    def remove_members(self, name: str, users: Sequence[str], by: str) -> Accounts:
        return self._shared(requests.remove_members(self.shared, name, users))

    def add_qos(self, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.add_qos(self.shared, wanted))

    def set_qos(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.set_qos(self.shared, name, wanted))

    def remove_qos(self, name: str, by: str) -> Accounts:
        return self._shared(without_qos(self.shared, name))

    def add_partition(self, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.add_partition(self.shared, wanted))

    def set_partition(self, name: str, wanted: Mapping[str, Any], by: str) -> Accounts:
        return self._shared(requests.set_partition(self.shared, name, wanted))

    def remove_partition(self, name: str, by: str) -> Accounts:
        return self._shared(without_partition(self.shared, name))

    def import_accounts(self, wanted: Accounts, by: str) -> Accounts:
        return self._shared(requests.import_all(wanted))

    def _shared(self, made: Accounts) -> Accounts:
        self.shared = made
        return made

    def reservations(self) -> list[HostReservation]:
        return list(self.reserved.values())

    async def create(self, wanted: Mapping[str, Any], by: str, any_file: bool = False) -> HostReservation:
        begins_us = wanted.get("start_us") or 0
        ends_us = wanted.get("end_us") or begins_us + wanted.get("lasts_us", 0)
        made = HostReservation(
            wanted["name"], tuple(wanted.get("hosts", ("h1",))), ((begins_us, ends_us),),
            tuple(wanted.get("users", ())), lasts_us=ends_us - begins_us, maint=wanted.get("maint", False),
            comment=wanted.get("comment", ""), by=by,
        )  # fmt: skip
        self.reserved[made.name] = made
        return made

    async def change(
        self, name: str, wanted: Mapping[str, Any], by: str, may_play: bool = False, any_file: bool = False
    ) -> HostReservation:
        made = dataclasses.replace(self._reserved(name), users=tuple(wanted.get("users", ())))
        self.reserved[name] = made
        return made

    async def delete(self, name: str, by: str) -> HostReservation:
        self._reserved(name)
        return self.reserved.pop(name)

    def _reserved(self, name: str) -> HostReservation:
        if name not in self.reserved:
            raise NotFound(f"There is no reservation '{name}'.")
        return self.reserved[name]

    async def submit(
        self, specs: Sequence[JobSpec], key: str = "", may_know: Callable[[str], bool] = lambda user: True
    ) -> list[int]:
        if self.refuses is not None:
            raise self.refuses
        if any(spec.ntasks > 100 for spec in specs):
            raise ImpossibleRequest("The cluster has 2 hosts.", "Ask for less.")
        self.keys.append(key)
        first = len(self.table) + 1
        for number, spec in enumerate(specs, first):
            self.table[number] = Job(number, spec, submitted_us=1_000_000 * number, held=spec.hold)
        return list(range(first, first + len(specs)))

    def plan(self, spec: JobSpec, may_know: Callable[[str], bool] = lambda user: True) -> dict[str, Any]:
        fits = spec.cpus_per_task <= 8
        return {
            "placement": Placement((TaskPlacement(0, "h1", (0,)),)) if fits else None,
            "alignment": Alignment(100.0) if fits else None,
            "reasons": () if fits else (NO_ROOM,),
            "verdicts": (HostVerdict("h1", None if fits else NO_ROOM, (("latency", 97.5),) if fits else ()),),
        }

    def jobs(
        self,
        *,
        states: frozenset[JobState],
        user: str,
        name: str,
        limit: int,
        everything: bool,
        before: int = 0,
        by_rests: bool = False,
    ) -> list[Job]:
        self.log.append(("jobs", states, user, name, limit, everything))
        rests = by_rests and JobState.CANCELLED in states
        found = [
            job
            for job in self.table.values()
            if (not states or job.state in states or (rests and job.array and job.array.dropped))
            and (not before or job.id < before)
            and user in ("", job.spec.user)
            and name in ("", job.spec.name)
        ]
        return found[-limit:] if limit else found

    def jobs_and_reasons(self, **asked: Any) -> tuple[list[Job], Reasons]:
        return self.jobs(**asked), Reasons(self.newest, NO_REASONS.of_shapes)

    def queue(self, *, user: str, limit: int) -> list[Job]:
        """By priority."""
        self.log.append(("queue", user, limit))
        waiting = (
            j for j in self.table.values() if j.state is JobState.PENDING and user in ("", j.spec.user)
        )
        found = sorted(waiting, key=lambda j: (-j.spec.priority, j.id))
        return found[:limit] if limit else found

    def job_steps(
        self, jobs: Sequence[int], after: StepName | None, limit: int
    ) -> tuple[list[JobStep], frozenset[int]]:
        mine = [step for step in self.job_step_table if step.name.job in jobs]
        return [step for step in mine if after is None or step.name > after][:limit], frozenset()

    def of(self, job_id: int) -> tuple[int, list[tuple[int, StepUsed]], list[str]]:
        self.log.append(("used_now", job_id))
        job = self.table[job_id]
        return job.attempt, self.using.get(job_id, []), self.silent

    async def job(self, job_id: int) -> Job:
        if job_id not in self.table:
            raise NotFound(f"There is no job {job_id}.", "`rmx queue --all` lists them.", Refusal.UNKNOWN_JOB)
        return self.table[job_id]

    async def described(self, job_id: int, array_tasks: str = "") -> Described:
        job = await self.job(job_id)
        if array_tasks:
            of_it = (one for one in self.table.values() if one.array_job == job_id)
            own = next((one for one in of_it if str(one.array_task) == array_tasks), None)
            shown = own or shown_element(job, int(array_tasks))
            assert shown is not None
            return Described(shown)
        if job_id != 2:
            return Described(job)
        schedule = Schedule(job_id, 1, 40_000, 200_000, 196_000, inject_us=4_000)
        return Described(job, schedule, self.progress([job_id])[job_id])

    def progress(self, job_ids: Sequence[int]) -> dict[int, Progress]:
        return {i: Progress(i, 1, 60_000_000, 3_540_000_000) for i in job_ids if i == 2}

    def put(self, job_id: int, **changes: Any) -> Job:
        self.table[job_id] = dataclasses.replace(self.table[job_id], **changes)
        self.changed.set()
        self.changed = asyncio.Event()
        return self.table[job_id]

    def run(self, job_id: int, host: str = "h1") -> Job:
        task = Task(0, host, (0,), started_us=5_000_000)
        return self.put(job_id, state=JobState.RUNNING, tasks=(task,), started_us=5_000_000, attempt=1)

    def finish(self, job_id: int, code: int = 0, signal: int = 0) -> Job:
        state = JobState.FAILED if code or signal else JobState.COMPLETED
        return self.put(job_id, state=state, ended_us=9_000_000, exit_code=code, exit_signal=signal)

    async def cancel(
        self, job_id: int, by: str, signal: int | None, array_tasks: str = "", signal_to: str = "steps"
    ) -> Job:
        job = await self.job(job_id)
        self.log.append(("cancel", job_id, by, signal, signal_to))
        if job.state.final:
            raise Conflict(f"Job {job_id} has already ended.", refusal=Refusal.ENDED)
        return job if signal else self.put(job_id, state=JobState.CANCELLED, ended_us=9_000_000)

    async def cancel_all(
        self, job_ids: Sequence[int], by: str, states: frozenset[JobState] = frozenset()
    ) -> list[Job]:
        self.log.append(("cancel_all", tuple(job_ids), by))
        return [await self.cancel(job_id, by, None) for job_id in job_ids]

    async def hold(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Job:
        await self.job(job_id)
        return self.put(job_id, held=True)

    async def release(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Job:
        await self.job(job_id)
        return self.put(job_id, held=False)

    async def requeue(
        self, job_id: int, by: str, array_tasks: str = "", failed: bool = False, hold: bool = False
    ) -> Job:
        held = (await self.job(job_id)).held or hold
        return self.put(job_id, state=JobState.PENDING, tasks=(), held=held)

    async def suspend(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        if (await self.job(job_id)).state is JobState.SUSPENDED:
            raise IllegalTransition(f"Job {job_id} is SUSPENDED and cannot be suspended.")
        return self.put(job_id, state=JobState.SUSPENDED)

    async def resume_job(self, job_id: int, by: str, array_tasks: str = "") -> Job:
        await self.job(job_id)
        return self.put(job_id, state=JobState.RUNNING)

    async def limit_array(self, job_id: int, by: str, limit: int) -> Job:
        job = await self.job(job_id)
        if job.array is None:
            raise Conflict(f"Job {job_id} is no job array.")
        return self.put(job_id, array=dataclasses.replace(job.array, limit=limit))

    async def update(
        self,
        job_id: int,
        by: str,
        update: JobUpdate,
        may_know: Callable[[str], bool],
        may_raise: bool,
        array_tasks: str = "",
    ) -> Job:
        job = await self.job(job_id)
        named = (array_tasks,) if array_tasks else ()
        self.log.append(("update", job_id, by, str(update), may_raise, *named))
        return self.put(job_id, spec=update.applied(job.spec))

    async def _change(self) -> None:
        self.waiting += 1
        try:
            await self.changed.wait()
        finally:
            self.waiting -= 1

    async def wait(self, job_id: int, timeout_s: float, array_tasks: str = "") -> Job:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (await self.job(job_id)).state.final:
                    await self._change()
        return await self.job(job_id)

    def note(self, job_id: int, rank: int, stream: str, attempt: int = 0) -> str:
        return self.notes.get(attempt, "")

    async def read(
        self,
        job_id: int,
        rank: int,
        stream: str,
        offset: int,
        follow: bool,
        lines: int = 0,
        attempt: int = 0,
        from_attempt: int = 0,
    ) -> AsyncIterator[LogPiece]:
        """Each rank and attempt says the same; rank 3 is lost."""
        job = await self.job(job_id)
        if job.array is not None:
            raise Conflict(f"Job {job_id} is a job array.")
        self.log.append(("logs", job_id, rank, stream, offset, follow, lines, attempt))
        if rank >= job.spec.ntasks:
            raise NotFound(f"Job {job_id} has no task {rank}.")
        if rank == 3:
            raise NotFound(f"The log of task {rank} of job {job_id}, attempt 1 is lost: a fire.")
        output = self.output[stream]
        end = len(output)
        begin = max(0, end + offset) if offset < 0 else min(offset, end)
        if lines:
            begin = end - len(b"".join(output.splitlines(True)[-lines:]))
        yield LogPiece(1, begin, output[begin:])
        while follow and not (await self.job(job_id)).state.final:
            await self._change()
            yield LogPiece(1, max(end, offset), b"more\n")
            end = max(end, offset) + 5

    async def why(self, job_id: int, array_tasks: str = "") -> dict[str, Any]:
        job = (await self.described(job_id, array_tasks)).job
        verdict = HostVerdict("h1", NO_ROOM, ())
        return {
            "job": job_id,
            "state": job.state,
            "reasons": (NO_ROOM,),
            "verdicts": (verdict,),
            "alignment": None,
            "queue_position": POSITION if job.state is JobState.PENDING else None,
            "choice": None if job.state is JobState.PENDING else CHOICE,
        }

    def iterations(self, job_id: int) -> dict[str, Any]:
        return {
            "baseline_us": 200_000, "mean_us": 201_000.5, "p90_us": 203_000, "p99_us": None,
            "count": 7, "pauses": 1, "items": [],
        }  # fmt: skip

    def hosts(self) -> list[tuple[Host, Free | None, Sequence[int]]]:
        return [(host, Free(6, host.mem_bytes, (1,)), (1,)) for host in self.inventory.values()]

    def add_hosts(self, hosts: Sequence[Host], by: str, may_steer: bool = False) -> list[Host]:
        self.inventory |= {host.name: host for host in hosts}
        return list(hosts)

    def _host(self, name: str) -> Host:
        if name not in self.inventory:
            raise NotFound(f"There is no host {name}.")
        return self.inventory[name]

    async def drain(self, name: str, reason: str, by: str) -> Host:
        self.inventory[name] = dataclasses.replace(self._host(name), drained_by=f"{reason} ({by})")
        return self.inventory[name]

    async def resume(self, name: str, by: str) -> Host:
        self.inventory[name] = dataclasses.replace(self._host(name), drained_by="")
        return self.inventory[name]

    async def adopt(self, name: str, stop_jobs: bool, by: str) -> Host:
        return self._host(name)

    async def remove_host(self, name: str, by: str) -> Host:
        self._host(name)
        return self.inventory.pop(name)

    async def present_key(self, name: str) -> dict[str, Any]:
        self._host(name)
        pinned = {"type": "ssh-ed25519", "fingerprint": self.pinned} if self.pinned else None
        return {"presented": {"type": "ssh-ed25519", "fingerprint": "SHA256:abc"}, "pinned": pinned}

    async def accept_key(self, name: str, fingerprint: str, by: str) -> Mapping[str, Any]:
        if fingerprint != "SHA256:abc":
            raise Conflict(f"Host {name} presents another key: SHA256:abc.")
        self.pinned = fingerprint
        return await self.present_key(name)

    def links(self) -> list[dict[str, Any]]:
        rotation = {"link": "h1", "job": 2, "slots": 14, "circle_slots": 72}
        return [
            {
                "name": "h1", "capacity_bps": 10**8, "jobs": (1, 2), "score": 100.0, "perimeter_us": 200_000,
                "rotations": [rotation], "gap_us": 12_500,
            },
            {
                "name": "h2", "capacity_bps": 10**9, "jobs": (), "score": None, "perimeter_us": 0,
                "rotations": [], "gap_us": None,
            },
        ]  # fmt: skip

    def pairs(self) -> list[dict[str, Any]]:
        never = {"loss_pct": None, "delay_us": None, "bandwidth_bps": None, "age_us": None}
        good = {"loss_pct": 0.5, "delay_us": 350, "bandwidth_bps": 94_000_000, "age_us": 61_000_000}
        return [{"source": "h1", "destination": "h2", **good}, {"source": "h2", "destination": "h1", **never}]

    async def measure(self, zone: str | None) -> Mapping[str, Any]:
        self.log.append(("measure", zone))
        return {"measured": 1, "left_out": [{"host": "h3", "why": "UNKNOWN: its agent has not answered yet"}]}

    def status(self) -> dict[str, Any]:
        daemon = {"version": "0.1.0", "agents": "0a1b", "pid": 7, "started_us": 1_000_000, "epoch": 3}
        told = {"jobs": {"PENDING": 2}, "hosts": {}, "policies": {"queue": self.queue_policy}}
        licenses = [{"name": "ansys", "total": 2, "used": 0}, {"name": "matlab", "total": 10, "used": 4}]
        return {"daemon": daemon, **told, "other_agents": ["h2", "h3"], "licenses": licenses}


class Daemon:
    """A FakeService served from a thread; `call` runs something on its loop."""

    def __init__(
        self,
        service: FakeService,
        socket_path: Path,
        loop: asyncio.AbstractEventLoop,
        runner: web.AppRunner,
    ) -> None:
        self.service = service
        self.runner = runner
        self.socket = str(socket_path)
        self.loop = loop
        self.stop = asyncio.Event()

    def call(self, function: Any, *arguments: Any, waiting: int = 0) -> None:
        """As soon as so many clients wait for a change."""

        async def soon() -> None:
            while self.service.waiting < waiting:
                await asyncio.sleep(0.005)
            function(*arguments)

        asyncio.run_coroutine_threadsafe(soon(), self.loop)


@contextlib.contextmanager
def serving(
    socket_path: Path, config: Config | None = None, kind: type[FakeService] = FakeService
) -> Iterator[Daemon]:
    started = threading.Event()
    box: list[Daemon] = []

    async def main() -> None:
        service = kind()
        jobs = JobsConfig(run_root_as="rmjob", keep_days=100_000)  # the fake's jobs are of 1970
        runner = await serve(service, str(socket_path), config or Config(jobs=jobs))
        box.append(Daemon(service, socket_path, asyncio.get_running_loop(), runner))
        started.set()
        await box[0].stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        if not started.wait(PATIENCE_S):
            raise RuntimeError("the API did not start")
        yield box[0]
    finally:
        box[0].loop.call_soon_threadsafe(box[0].stop.set)
        thread.join()
