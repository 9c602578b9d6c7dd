"""The leader's longest turns: processor time in which nobody else is served, for the largest things asked.

The real leader, executor and use cases over SQLite, with hosts that say what they are told to say.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings
from rm.adapters.clock import SystemClock
from rm.adapters.store.log_directory import LogDirectory
from rm.adapters.store.opening import open_store
from rm.bootstrap.choices import PLACEMENTS, REFUSALS
from rm.collector import pass_over_survivors
from rm.config import FenceConfig, LimitsConfig
from rm.core.jobs.published import Published
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host, HostState
from rm.core.model.identity import NO_CLUSTER
from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.fence import fence_of
from rm.daemon.execution.launch import LaunchRules, launch_request
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import Leader
from rm.daemon.leading.listeners import Listeners
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.service import make_service
from rm.errors import Unreachable
from rm.protocol.attempts import TaskReport, TaskReports, Tasks
from rm.protocol.hosts import Facts, HostFacts
from rm.protocol.notifications import Hello
from rm.protocol.request import Request

TARGET_MS = 50.0
HOSTS, ZONES, CPUS = 1_000, 20, 64
AT_ONCE, QUEUED = 1_000, 50_000  # jobs of one submission, and of a long queue
CANCELLED = 6_000
ELEMENTS = 6_000  # of an array, on hosts
DEPENDENT = 100_000  # jobs that wait for one
ALIKE = 10_000  # jobs of one name, one of which may start
REPORTED = 60_000  # tasks in one answer of a host, about as many as fit a line
PATIENCE_S = 300.0
USER = "ann"


class Timed(Leader):
    """Knows the longest of its turns since it was last asked."""

    longest_s = 0.0

    def _turn(self, items: list[Any]) -> None:
        since = time.thread_time()
        super()._turn(items)
        self.longest_s = max(self.longest_s, time.thread_time() - since)


class Hosts:
    """The agents of hosts that take every order and answer none; what they have and run, they tell."""

    cluster = NO_CLUSTER

    def __init__(self) -> None:
        self.runs: dict[str, list[TaskReport]] = {}

    def call(self, name: str, request: Request[Any], timeout_s: float = 10.0) -> Future[Any]:
        answer: Future[Any] = Future()
        if isinstance(request, Facts):
            answer.set_result(HostFacts(boot_id="1", cpus=CPUS, mem_bytes=1 << 38))
        elif isinstance(request, Tasks):
            answer.set_result(TaskReports(tasks=self.runs.get(name, [])))
        return answer

    def hello(self, name: str) -> Hello:
        return Hello(version="1", protocol=1)

    def add(self, host: Host) -> None: ...
    def remove(self, name: str) -> None: ...
    def raise_epoch(self, name: str, epoch: int) -> None: ...
    def reconnect(self, name: str) -> None: ...
    def peers(self, name: str) -> list[str]:
        return []

    def clock_offset_us(self, name: str) -> int:
        return 0


class House:
    """A leader with everything that works in its thread."""

    def __init__(self, directory: Path) -> None:
        clock, state, self.hosts = SystemClock(), ClusterState(), Hosts()
        self.store = open_store(f"sqlite:///{directory}/rm.db")
        epoch = self.store.acquire_lease("bench", clock.now_us(), 10**12)
        assert epoch is not None
        deciding, thinking = (
            Policies(load("queue", "priority"), load("placement", "metronome"), load("comm", "metronome"))
            for _ in range(2)
        )
        version = self.store.load().version
        cycle = Cycle(state, deciding, tuning=Tuning(placements=PLACEMENTS, refusals=REFUSALS))
        inbox, published, waiters = Inbox(), Published(state), JobWaiters()
        logs = LogDirectory(directory / "logs")
        rules = LaunchRules(30_000_000, False, "nobody", "rm", False, "/usr/lib/rm", fence_of(FenceConfig()),
                            64 << 20, 512 << 20, lambda user: None)  # fmt: skip
        self.executor = Executor(
            hosts=self.hosts, post=inbox.post, clock=clock,
            leadership=Leadership(epoch, lambda: True, lambda why: None),
            launch_of=launch_request(state, rules, epoch),
            home=LogHome(self.hosts, logs, directory, 64 << 20),
            placed=published.task, is_stray=published.is_stray, launch_within_us=30_000_000,
            on_iterations=lambda host, message: None, owner_of=lambda job: "",
            delivery_of=lambda action: None,
        )  # fmt: skip
        limits, nothing = LimitsConfig(), None  # type: LimitsConfig, Any
        backlog = Backlog(limits.pending_jobs, limits.pending_bytes, limits.pending_demands)
        self.leader = leader = Timed(
            inbox=inbox, cycle=cycle, store=self.store, version=version, clock=clock, executor=self.executor,
            listeners=Listeners(on_jobs=(backlog.changed, waiters.changed)), published=published,
        )  # fmt: skip
        self.service = make_service(
            leader=leader, store=self.store, hosts=self.hosts, keys=nothing, iterations=nothing,
            measure=lambda zone: Measured(0), clock=clock, logs=logs,
            again=lambda cron, after_us, lasts_us, number: [],
            recent_us=10**12, facts={"epoch": epoch, "agents": "1"}, policies=thinking,
            backlog=backlog, waiters=waiters, collecting=lambda job, attempt: (), policy_faults={},
        )  # fmt: skip
        leader.start(())

    def close(self) -> None:
        self.leader.stop()
        self.executor.close()
        self.service.close()
        self.store.close()

    async def longest_ms(self, work: Coroutine[Any, Any, Any]) -> float:
        """The longest turn of the leader from now until the work is done."""
        self.leader.longest_s = 0.0
        await work
        await self.quiet()
        return 1000 * self.leader.longest_s

    async def quiet(self) -> None:
        """Until nothing is left in the inbox."""
        until = time.monotonic() + PATIENCE_S
        await asyncio.wrap_future(self.leader.ask(lambda cycle, now_us: None))
        while self.leader.is_busy():
            if time.monotonic() > until:
                raise Unreachable("The leader is still busy.")
            await asyncio.sleep(0.01)

    async def connect(self, names: list[str]) -> None:
        for name in names:
            self.executor.on_state(name, True, "")
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = await self.service.host_service.hosts()
            if all(host.state is HostState.UP for host, _, _ in found if host.name in names):
                return
            await asyncio.sleep(0.05)
        raise Unreachable("The hosts did not come up.")


def hosts() -> list[Host]:
    return [Host(f"h{i:04}", f"z{i % ZONES:02}", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(HOSTS)]


def specs(count: int, user: str = USER, name: str = "job", **more: Any) -> list[JobSpec]:
    names = [name] if name != "job" else [f"job{i}" for i in range(50)]
    return [JobSpec(names[i % len(names)], user, "#!/bin/sh\ntrue\n", **more) for i in range(count)]


async def measured(house: House) -> dict[str, float]:
    """What was asked -> milliseconds of the longest turn that it took."""
    service, names = house.service, [host.name for host in hosts()]
    found: dict[str, float] = {}

    async def queue(count: int, **more: Any) -> None:
        for _ in range(0, count, 10_000):
            await service.submissions.submit(specs(10_000, hold=True, **more))

    async def placed(array: int) -> None:
        while (await service.reading.job(array)).array.waiting:  # type: ignore[union-attr]
            await asyncio.sleep(0.1)

    async def released(first: int) -> None:
        await service.changes.cancel(first, USER, None)
        while await asyncio.wrap_future(house.leader.ask(lambda cycle, _: cycle.next_due_us())) == 0:
            await asyncio.sleep(0.01)

    async def listed(limit: int) -> None:
        await service.reading.jobs(states=frozenset(), user="", name="", limit=limit, everything=False)

    found[f"an inventory of {HOSTS:,} hosts"] = await house.longest_ms(
        service.host_service.add_hosts(hosts(), USER)
    )
    found[f"{HOSTS:,} hosts that come up"] = await house.longest_ms(house.connect(names))
    one = "liar"
    await service.host_service.add_hosts([Host(one, "z00", "10.1.0.1")], USER)
    house.hosts.runs[one] = [
        TaskReport(job=10**6 + i, attempt=1, rank=0, state="running", cpus=1) for i in range(REPORTED)
    ]
    found[f"a host that reports {REPORTED:,} tasks"] = await house.longest_ms(house.connect([one]))
    await service.host_service.remove_host(one, USER)
    found[f"{AT_ONCE:,} jobs in one call, all of which can start"] = await house.longest_ms(
        service.submissions.submit(specs(AT_ONCE))
    )
    [array] = await service.submissions.submit(specs(1, "bob", array=f"0-{ELEMENTS - 1}"))
    found[f"an array of {ELEMENTS:,} that all can start"] = await house.longest_ms(placed(array))
    found[f"a cancellation of all of a user's, {ELEMENTS:,} elements on hosts"] = await house.longest_ms(
        service.changes.cancel_all([array], "bob")
    )
    found[f"{QUEUED:,} jobs in calls of 10,000"] = await house.longest_ms(queue(QUEUED))
    found[f"a list of {QUEUED:,} jobs"] = await house.longest_ms(listed(0))
    found["the queue, ordered"] = await house.longest_ms(service.reading.queue(user="", limit=0))
    newest: int = await asyncio.wrap_future(house.leader.ask(lambda cycle, now_us: cycle.state.next_job - 1))
    found["why one of them waits"] = await house.longest_ms(service.reading.why(newest))
    found["a dry run"] = await house.longest_ms(service.submissions.plan(specs(1)[0]))
    some = list(range(newest - CANCELLED, newest))
    found[f"a cancellation of {CANCELLED:,} jobs"] = await house.longest_ms(
        service.changes.cancel_all(some, USER)
    )
    [first] = await service.submissions.submit(specs(1, hold=True))
    await queue(DEPENDENT, user="carol", dependency=f"afterany:{first}")
    found[f"an end that releases {DEPENDENT:,} jobs"] = await house.longest_ms(released(first))
    alike: dict[str, Any] = {"user": "dave", "name": "alike", "dependency": "singleton"}
    [oldest] = await service.submissions.submit(specs(1, hold=True, **alike))
    await queue(ALIKE, **alike)
    await house.quiet()
    found[f"the end of the first of {ALIKE:,} singletons of one name"] = await house.longest_ms(
        released(oldest)
    )
    return found


def run(settings: Settings) -> list[Figure]:
    pass_over_survivors()  # as the daemon does
    with tempfile.TemporaryDirectory(prefix="rm-bench-", dir="/var/tmp") as directory:
        house = House(Path(directory))
        try:
            found = asyncio.run(measured(house))
        finally:
            house.close()
    worst = max(found, key=lambda what: found[what])
    return [
        Figure("the leader's longest turn", found[worst], "ms", f"of processor: {worst}", TARGET_MS),
        *[Figure(f"longest turn: {what}", ms, "ms") for what, ms in found.items()],
    ]
