"""The use cases over a real leader: waiting misses nothing, logs end, refusals say why."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from copy import copy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm.adapters.store.log_directory import LogDirectory, log_path
from rm.adapters.store.memory import MemoryStore
from rm.config import LimitsConfig
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.model.described import Described
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState
from rm.core.model.logs import LogName, LogPiece
from rm.core.model.reasons import ReasonCode
from rm.core.model.replacing import replace
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.sharing.accounts import Accounts, Partition
from rm.core.store import START, STEP, Batch, Entry
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import Leader
from rm.daemon.leading.listeners import Listeners
from rm.daemon.leading.prune import prune, prune_journal
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.services import daemon_status, job_reading
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.service import make_service
from rm.errors import Conflict, IllegalTransition, ImpossibleRequest, NotFound
from tests import builders
from tests.fakes import PATIENCE_S, FakeHosts, ManualClock
from tests.rows import read_rows
from tests.unit.test_leader import FakeExecutor

ENDED = ev.TaskExited(1, 1, "h1", 0, 0, 0, 5, 6)


class OnlyTheLeaders(ClusterState):
    """Notes which threads touch it beside the leader's, as soon as there is one."""

    led = False
    touched: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        thread = threading.current_thread().name
        if OnlyTheLeaders.led and thread not in ("leader", "offline"):
            OnlyTheLeaders.touched.append(f"{thread}: {name}")
        return super().__getattribute__(name)


COMPARED = [field.name for field in fields(ClusterState) if field.compare]


def content(state: ClusterState) -> dict[str, Any]:
    """All that the state holds, apart from it, but what only remembers what it found."""
    found = {name: getattr(state, name) for name in COMPARED}
    return {
        name: {key: each if is_frozen(each) else copy(each) for key, each in value.items()}
        if isinstance(value, dict)
        else value
        for name, value in found.items()
    }


def is_frozen(value: Any) -> bool:
    """As jobs and hosts are, whose copies took most of these tests' time."""
    return is_dataclass(value) and value.__dataclass_params__.frozen


def changed(state: ClusterState, before: dict[str, Any]) -> list[str]:
    return [name for name, value in before.items() if value != getattr(state, name)]


class House:
    def __init__(
        self,
        folder: Path,
        comm: str = "none",
        pending_jobs: int = 0,
        pending_bytes: int = 0,
        pending_demands: int = 0,
    ) -> None:
        self.folder, self.store, self.hosts = folder, MemoryStore(), FakeHosts()
        clock = self.clock = ManualClock(100_000_000_000)
        assert self.store.acquire_lease("here", clock.us, 10**12)
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", comm))
        OnlyTheLeaders.led, OnlyTheLeaders.touched = False, []
        self.cycle = Cycle(OnlyTheLeaders(), policies)
        anything: Any = None
        executor: Any = FakeExecutor()
        limits = LimitsConfig()
        backlog = Backlog(
            pending_jobs or limits.pending_jobs,
            pending_bytes or limits.pending_bytes,
            pending_demands or limits.pending_demands,
        )
        waiters = self.waiters = JobWaiters()
        self.leader = Leader(
            inbox=Inbox(), cycle=self.cycle, store=self.store, version=0, clock=clock, executor=executor,
            listeners=Listeners(on_jobs=(backlog.changed, waiters.changed)),
        )  # fmt: skip
        self.service = make_service(
            leader=self.leader, store=self.store, hosts=self.hosts, keys=anything, iterations=anything,
            measure=lambda zone: Measured(0), clock=clock,
            logs=LogDirectory(folder), again=lambda cron, after_us, lasts_us, number: [],
            recent_us=10**9, facts={"epoch": 7, "agents": "0a1b"},
            policies=policies,
            backlog=backlog, waiters=waiters, collecting=lambda job, attempt: (), policy_faults={},
        )  # fmt: skip
        self.written: list[str] = []  # what requests and questions wrote of the state
        ask = self.leader.request

        def request(make: Any, *more: Any, **named: Any) -> Any:
            def watched(state: ClusterState) -> Any:
                before = content(state)
                events = make(state)
                self.written += changed(state, before)
                return events

            return ask(watched, *more, **named)

        self.leader.request = request  # type: ignore[method-assign]
        look = self.ask = self.leader.ask

        def asked(question: Any) -> Any:
            def watched(cycle: Cycle, now_us: int) -> Any:
                before = content(cycle.state)
                answer = question(cycle, now_us)
                self.written += changed(cycle.state, before)
                return answer

            return look(watched)

        self.leader.ask = asked  # type: ignore[method-assign]
        self.leader.start(())
        OnlyTheLeaders.led = True

    def do(self, *events: ev.Event) -> None:
        self.leader.request(lambda state: list(events)).result(PATIENCE_S)

    def run(self) -> None:
        """Job 1 runs on h1."""
        self.do(ev.HostAdded(builders.host("h1")))
        self.do(ev.JobSubmitted(1, builders.spec()))
        self.do(ev.TasksStarted(1, 1, "h1", 5, (0,)))


@pytest.fixture
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(tmp_path, *([request.param] if hasattr(request, "param") else []))
    yield made
    made.leader.stop()
    OnlyTheLeaders.led = False
    assert OnlyTheLeaders.touched == [], "the state is the leader's: ask it, or make a request"
    assert made.written == [], "the lifecycle alone changes the state, by the events of requests"


def test_the_status_names_the_hosts_whose_agents_are_not_this_rms(house: House) -> None:
    for name, version in (("h1", "0a1b"), ("h2", ""), ("h3", "0.1.0+12345678")):
        house.do(ev.HostAdded(builders.host(name, agent_version=version)))
    status = asyncio.run(house.service.daemon_status.status())
    assert (status["daemon"]["agents"], status["other_agents"]) == ("0a1b", ["h3"])


def test_whoever_waits_hears_of_an_end_that_comes_while_he_looks(house: House) -> None:
    house.run()
    look = house.service.reading.described

    async def slow_look(job_id: int, array_tasks: str = "") -> Described:
        """The job ends after the answer was given and before it is read."""
        found = await look(job_id, array_tasks)
        if not found.job.state.final:
            await asyncio.to_thread(house.do, ENDED)
            await asyncio.sleep(0)  # its news is in the loop's hands
            await asyncio.sleep(0)
        return found

    house.service.reading.described = slow_look  # type: ignore[method-assign]

    async def wait() -> Job:
        return await asyncio.wait_for(house.service.reading.wait(1, 10 * PATIENCE_S), PATIENCE_S)

    assert asyncio.run(wait()).state is JobState.COMPLETED


def test_a_wait_ends_with_its_time_and_leaves_nothing(house: House) -> None:
    house.run()
    assert asyncio.run(house.service.reading.wait(1, 0.01)).state is JobState.RUNNING
    assert house.waiters._by_end == {}


def test_who_waits_for_an_arrays_end_is_not_woken_by_each_of_its_elements(house: House) -> None:
    house.run()
    job = asyncio.run(house.service.reading.described(1)).job

    async def woken(job: Job) -> tuple[bool, bool]:
        with house.waiters.waiting(1) as by_all, house.waiters.waiting(1, for_end=True) as by_end:
            house.waiters.changed([job])
            await asyncio.sleep(0)
            return by_all.is_set(), by_end.is_set()

    assert asyncio.run(woken(job)) == (True, False)
    assert asyncio.run(woken(replace(job, state=JobState.COMPLETED))) == (True, True)


def test_who_waits_for_an_element_is_woken_by_what_becomes_of_it_alone(house: House) -> None:
    """However many wait for the last element of an array, the others' ends wake nobody."""
    house.do(ev.JobSubmitted(1, builders.spec(array="0-9")))
    array = asyncio.run(house.service.reading.described(1)).job

    async def woken() -> list[tuple[bool, bool]]:
        said, record = [], array
        assert record.array is not None
        with house.waiters.element(1, 9) as last, house.waiters.element(1, 3) as third:
            for index, to in ((0, "running"), (0, "completed"), (3, "dropped")):
                record = replace(record, array=record.array.moved(1 << index, to))
                assert record.array is not None
                house.waiters.changed([record])
                await asyncio.sleep(0)
                said.append((third.is_set(), last.is_set()))
            house.waiters.changed([replace(record, state=JobState.CANCELLED)])
            await asyncio.sleep(0)
            return [*said, (third.is_set(), last.is_set())]

    assert asyncio.run(woken()) == [(False, False), (False, False), (True, False), (True, True)]
    assert house.waiters._elements == {}


def test_however_many_are_woken_the_leader_interrupts_the_loop_once(house: House) -> None:
    house.run()
    job = replace(asyncio.run(house.service.reading.described(1)).job, state=JobState.COMPLETED)

    async def interrupted() -> tuple[int, int]:
        loop, calls = asyncio.get_running_loop(), 0
        call = loop.call_soon_threadsafe

        def counted(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            return call(*given, **named)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        with ExitStack() as all_of_them:
            events = [
                all_of_them.enter_context(house.waiters.waiting(1, for_end=bool(n % 2))) for n in range(100)
            ]
            house.waiters.changed([job])
            await asyncio.sleep(0)
            return calls, sum(event.is_set() for event in events)

    assert asyncio.run(interrupted()) == (1, 100)


@pytest.mark.parametrize("end", [JobState.COMPLETED, JobState.CANCELLED])
def test_a_wait_for_an_element_ends_with_it(house: House, end: JobState) -> None:
    house.do(ev.JobSubmitted(1, builders.spec(array="0-1")))
    reading = house.service.reading

    async def wait() -> Job:
        waiting = asyncio.ensure_future(reading.wait(1, 10 * PATIENCE_S, "1"))
        while not house.waiters._elements:
            await asyncio.sleep(0)
        if end is JobState.CANCELLED:  # it never has a job of its own
            await asyncio.to_thread(house.do, ev.CancelRequested(1, "alice", "1"))
        else:
            await asyncio.to_thread(house.do, ev.HostAdded(builders.host("h1")))
            own = (await reading.described(1, "1")).job.id
            await asyncio.to_thread(house.do, ev.TaskExited(own, 1, "h1", 0, 0, 0, 5, 6))
        return await asyncio.wait_for(waiting, PATIENCE_S)

    ended = asyncio.run(wait())
    assert (ended.state, ended.array_task) == (end, 1)
    assert (house.waiters._elements, house.waiters._by_end) == ({}, {})


async def text_of(pieces: AsyncIterator[LogPiece]) -> bytes:
    return b"".join([piece.data async for piece in pieces])


@pytest.mark.parametrize("follow", [True, False])
def test_the_log_of_a_job_that_never_ran_is_refused_not_awaited(house: House, follow: bool) -> None:
    house.do(ev.JobSubmitted(1, builders.spec()))
    house.do(ev.CancelRequested(1, "alice"))
    with pytest.raises(Conflict, match="never ran"):
        asyncio.run(text_of(house.service.job_logs.read(1, 0, "out", 0, follow)))


def test_a_collected_log_is_read_at_home_from_where_the_reader_is(house: House) -> None:
    house.run()
    house.do(ENDED)
    path = log_path(house.folder, LogName(1, 1, 0, "out"))
    path.parent.mkdir()
    path.write_bytes(b"one\ntwo\n")
    assert asyncio.run(text_of(house.service.job_logs.read(1, 0, "out", 4, True))) == b"two\n"
    assert asyncio.run(text_of(house.service.job_logs.read(1, 0, "out", -4, True))) == b"two\n"
    assert asyncio.run(text_of(house.service.job_logs.read(1, 0, "out", -400, False))) == b"one\ntwo\n"
    with pytest.raises(NotFound, match="no task 5"):
        asyncio.run(text_of(house.service.job_logs.read(1, 5, "out", 0, False)))


def test_a_signal_goes_only_where_something_runs(house: House) -> None:
    house.run()

    async def send() -> Job:
        sending = asyncio.ensure_future(house.service.changes.cancel(1, "alice", 10))
        call = await asyncio.to_thread(house.hosts.take, "signal")
        call.refuse("no-such-attempt")
        assert (call.host, call.args["signal"], call.args["epoch"]) == ("h1", 10, 7)
        return await sending

    with pytest.raises(Conflict, match="nothing to signal"):
        asyncio.run(send())
    house.do(ENDED)
    with pytest.raises(Conflict, match="nothing to signal"):
        asyncio.run(house.service.changes.cancel(1, "alice", 10))


def test_refusals_say_what_the_job_is(house: House) -> None:
    with pytest.raises(NotFound, match="no job 9"):
        asyncio.run(house.service.changes.hold(9, "alice"))
    house.run()
    with pytest.raises(Exception, match="RUNNING and cannot be held"):
        asyncio.run(house.service.changes.hold(1, "alice"))
    house.do(ENDED)
    with pytest.raises(Conflict, match="already ended"):
        asyncio.run(house.service.changes.cancel(1, "alice", None))
    house.ask(lambda cycle, now_us: cycle.state.jobs.clear()).result(PATIENCE_S)
    with pytest.raises(Conflict, match="too long ago"):
        asyncio.run(house.service.changes.hold(1, "alice"))


def test_who_holds_a_job_decides_who_releases_it(house: House) -> None:
    asyncio.run(house.service.submissions.submit([builders.spec(user="alice", hold=True)]))
    changes = house.service.changes
    asyncio.run(changes.hold(1, "alice", as_admin=True))  # her own
    assert not asyncio.run(changes.release(1, "alice")).held
    asyncio.run(changes.hold(1, "boss", as_admin=True))
    with pytest.raises(IllegalTransition, match=r"Job 1 cannot be released: an administrator holds it\."):
        asyncio.run(changes.release(1, "alice"))
    assert not asyncio.run(changes.release(1, "boss", as_admin=True)).held


def test_a_job_that_has_left_the_memory_can_be_requeued(house: House) -> None:
    house.run()
    house.do(ENDED)
    house.ask(lambda cycle, now_us: cycle.state.jobs.clear()).result(PATIENCE_S)
    assert asyncio.run(house.service.changes.requeue(1, "alice")).state is JobState.CONFIGURING


def test_a_zone_that_is_none_is_not_measured(house: House) -> None:
    house.run()
    assert asyncio.run(house.service.network_service.measure("z1")) == {"measured": 0, "left_out": []}
    with pytest.raises(NotFound, match="no zone 'z9'"):
        asyncio.run(house.service.network_service.measure("z9"))


def test_the_leader_goes_over_few_jobs_for_a_list_or_the_status(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100,000 waiting each list in which few are found, and each status, kept the leader for 20 ms."""
    house.do(*(ev.JobSubmitted(n, builders.spec(name=f"n{n % 10}", user=f"u{n % 2}")) for n in range(1, 41)))
    reading, status = house.service.reading, house.service.daemon_status.status
    looked: Counter[str] = Counter()
    is_final = JobState.final.fget  # type: ignore[attr-defined]

    def watched(state: JobState) -> bool:
        looked[threading.current_thread().name] += 1
        return bool(is_final(state))

    async def asked() -> list[list[int]]:
        return [
            [job.id for job in await reading.jobs(states=frozenset(), everything=False, **query)]
            for query in (
                {"user": "u1", "name": "n3", "limit": 0},
                {"user": "", "name": "n3", "limit": 2},
                {"user": "", "name": "", "limit": 3},
                {"user": "", "name": "", "limit": 3, "before": 5},
                {"user": "nobody", "name": "", "limit": 3},
            )
        ]

    there, told = asyncio.run(asked()), asyncio.run(status())["jobs"]
    assert there == [[3, 13, 23, 33], [23, 33], [38, 39, 40], [2, 3, 4], []]
    monkeypatch.setattr(job_reading, "SCANNED", 5)
    monkeypatch.setattr(daemon_status, "SCANNED", 5)
    monkeypatch.setattr(JobState, "final", property(watched))
    assert (asyncio.run(asked()), asyncio.run(status())["jobs"]) == (there, {JobState.PENDING: 40})
    assert looked["leader"] <= 5 * 5  # of more than 200
    assert told == {JobState.PENDING: 40}


@pytest.mark.parametrize("everything", [False, True])
def test_jobs_are_read_by_pages_from_the_newest(house: House, everything: bool) -> None:
    for job in (1, 2, 3, 4, 5):
        house.do(ev.JobSubmitted(job, builders.spec(hold=True)))
    none: frozenset[JobState] = frozenset()

    def page(before: int, limit: int = 2) -> list[int]:
        found = house.service.reading.jobs(
            states=none, user="", name="", limit=limit, everything=everything, before=before
        )
        return [job.id for job in asyncio.run(found)]

    assert [page(0), page(4), page(2), page(1), page(3, 0)] == [[4, 5], [2, 3], [1], [], [1, 2]]


@pytest.mark.parametrize("everything", [False, True])
def test_pending_jobs_are_listed_with_why_they_wait(house: House, everything: bool) -> None:
    house.run()
    house.do(ev.JobSubmitted(2, builders.spec(exclusive=True)), ev.JobSubmitted(3, builders.spec(hold=True)))
    asked = house.service.reading.jobs_and_reasons(
        states=frozenset(), user="", name="", limit=0, everything=everything
    )
    found, newest = asyncio.run(asked)
    reasons = {job.id: reason and reason.code for job in found for reason in [newest.of_job(job)]}
    assert reasons == {1: None, 2: ReasonCode.RESOURCES, 3: ReasonCode.HELD_USER}


@pytest.mark.parametrize("everything", [False, True])
def test_lists_name_the_one_of_several_partitions_that_a_job_runs_in(house: House, everything: bool) -> None:
    asked = builders.spec(partition="a,b")
    house.do(ev.HostAdded(builders.host("h1", cpus=1, partitions=("b",))), ev.JobSubmitted(1, asked))
    house.do(ev.JobSubmitted(2, asked), ev.JobSubmitted(3, builders.spec(partition="b")))
    looked = house.service.reading.jobs_and_reasons(
        states=frozenset(), user="", name="", limit=0, everything=everything
    )
    found, beside = asyncio.run(looked)
    rows = read_rows((job, None, beside.partitions.get(job.id, "")) for job in found)
    assert [(row.id, row.state, row.partition) for row in rows] == [
        (1, "CONFIGURING", "b"),
        (2, "PENDING", "a,b"),
        (3, "PENDING", "b"),
    ]


def test_pruning_keeps_those_that_ended_last_and_takes_the_logs_of_the_others(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1")))
    clock = house.leader._clock
    assert isinstance(clock, ManualClock)
    for job in (1, 2, 3, 4):
        house.do(ev.JobSubmitted(job, builders.spec()))
    for job in (4, 2, 3, 1):  # the oldest ends last
        clock.us += 1_000
        house.do(ev.TaskExited(job, 1, "h1", 0, 0, 0, 5, clock.us))
        log_path(house.folder, LogName(job, 1, 0, "out")).parent.mkdir()
    house.do(*(ev.ActionSettled(n) for n in range(1, 20)))  # as the executor would
    house.do(ev.JobSubmitted(5, builders.spec(hold=True)))
    (house.folder / "notes").mkdir()

    def pruned(most: int, keep_days: float = 30) -> int:
        return prune(house.store, LogDirectory(house.folder), clock, keep_days, most, 1 << 30)

    assert pruned(4) == 0
    assert pruned(2) == 2
    assert [j.id for j in house.store.jobs()] == [1, 3, 5]
    assert sorted(p.name for p in house.folder.iterdir()) == ["1.1", "3.1", "notes"]
    assert asyncio.run(house.service.daemon_status.status())["jobs"] == {"PENDING": 1, "COMPLETED": 2}
    clock.us += 1_000_000
    assert pruned(9, keep_days=1.0005 / 86_400) == 1  # the last one ended a second ago
    assert [j.id for j in house.store.jobs()] == [1, 5]
    assert pruned(0) == 1
    assert [j.id for j in house.store.jobs()] == [5]


def test_the_journal_reaches_back_as_many_days_as_asked() -> None:
    store, clock, day_us = MemoryStore(), ManualClock(), 24 * 3_600_000_000
    assert store.acquire_lease("here", clock.us, 1)
    clock.us = 10 * day_us
    entries = [Entry(day * day_us, kind) for day in range(10) for kind in (START, STEP)]
    store.commit(Batch(events=tuple(entries)), 0)
    assert prune_journal(store, clock, 3.0) == 2 * 7
    assert [e.at_us // day_us for _, e in store.journal()] == [7, 7, 8, 8, 9, 9]
    assert prune_journal(store, clock, 3.0) == 0
    assert prune_journal(store, clock, 0) == 4  # what began last stays: the daemon that runs goes on from it


@pytest.mark.parametrize("house", ["foresight"], indirect=True)
def test_a_dry_run_tells_the_score_of_a_placement_but_no_plan_of_single_iterations(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1")), ev.HostAdded(builders.host("h2")))
    wide = builders.spec(ntasks=2, tasks_per_host=1, traffic=builders.profile(100, (0, 30, 1_000)))
    house.do(ev.JobSubmitted(1, wide))
    score = house.leader.ask(lambda cycle, now_us: cycle.state.alignment.score)
    assert score.result(PATIENCE_S) == 100
    alignment = asyncio.run(house.service.submissions.plan(wide))["alignment"]
    assert alignment.links[0].perimeter_us > 0  # there is a plan
    assert alignment.plans == ()


def test_a_dry_run_of_a_job_that_would_be_held_starts_nowhere(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1")), ev.HostUp("h1", "b", "a"))
    plan = house.service.submissions.plan
    assert asyncio.run(plan(builders.spec()))["placement"] is not None
    told = asyncio.run(plan(builders.spec(hold=True)))
    assert told["placement"] is None
    assert told["reasons"][0].message == "held; release it with rmx release"


def test_a_submission_that_comes_again_is_the_same_jobs_also_after_a_restart(house: House) -> None:
    def submit(*names: str, key: str = "k") -> list[int]:
        return list(
            asyncio.run(house.service.submissions.submit([builders.spec(name=n) for n in names], key))
        )

    first = submit("a", "b")
    assert submit("a", "b") == first
    assert submit("a", key="other") == [3]
    assert submit("a", key="") == [4] != submit("a", key="")
    with pytest.raises(Conflict, match="idempotency key"):
        submit("a", "c")
    loaded = house.store.load()
    state = rebuild(loaded.jobs, (), (), {}, loaded.next_job_id, loaded.next_action_id, 0)
    assert state.submissions == {("alice", "k"): first, ("alice", "other"): [3]}
    assert len(loaded.jobs) == 5


@pytest.mark.parametrize("ask", ["submit", "plan"])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"hosts_excluded": ("h9",)}, "there is no host h9"),
        ({"gpus_per_host": 1, "gpu_type": "h100"}, "there is no GPU of type h100; there are: A100"),
        ({"gpus_per_host": 3}, "each host of the job needs 3 GPUs, 2 free of 2"),
        ({"partition": "long,short", "hosts_min": 2, "ntasks": 2}, "needs 2 hosts, 1 have room for a task"),
        ({"hosts_min": 9, "ntasks": 9, "cpus_per_task": 8}, "needs 9 hosts, 2 have room for a task"),
        ({"partition": "big"}, "there is no host in partition big; partitions with hosts: long, short"),
    ],
)
def test_what_can_never_run_is_told_so_also_by_a_dry_run(
    house: House, ask: str, asked: Any, said: str
) -> None:
    house.do(
        ev.HostAdded(builders.host("h1", gpus=2, partitions=("long",))),
        ev.HostAdded(builders.host("h2", gpus=2, partitions=("short",))),
        ev.AccountsSet(Accounts(partitions=(Partition("big"),)), "root"),
    )
    spec = builders.spec(**asked)
    with pytest.raises(ImpossibleRequest, match=f"could never run on this cluster: .*{said}"):
        asyncio.run(
            house.service.submissions.submit([spec])
            if ask == "submit"
            else house.service.submissions.plan(spec)
        )


def test_a_job_of_several_partitions_tells_in_which_it_runs(house: House) -> None:
    house.do(
        ev.HostAdded(builders.host("h1", partitions=("long",))),
        ev.HostAdded(builders.host("h2", partitions=("short", "long"))),
        ev.HostAdded(builders.host("h3", partitions=("short",))),
        ev.JobSubmitted(1, builders.spec(partition="none,long,short")),
        ev.JobSubmitted(2, builders.spec(partition="none,short")),
        ev.JobSubmitted(3, builders.spec(partition="short")),
        ev.JobSubmitted(4, builders.spec(partition="long,short", ntasks=99)),
    )
    told = [asyncio.run(house.service.reading.described(job)).partition for job in (1, 2, 3, 4)]
    assert told == ["long", "short", "", ""]  # one partition is no news, and the last waits


def test_why_says_for_whose_lease_a_fenced_job_waits_and_how_long(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1")))
    house.do(ev.HostUp("h1", "boot", "1"))
    house.do(ev.JobSubmitted(1, builders.spec(fence_us=60_000_000)))
    house.do(ev.TasksStarted(1, 1, "h1", 5, (0,)))
    assert asyncio.run(house.service.reading.why(1))["reasons"] == []
    house.do(ev.HostSilent("h1", "cut"), ev.HostDown("h1", "cut"))
    (reason,) = asyncio.run(house.service.reading.why(1))["reasons"]
    assert reason.message.startswith("waits until the lease of host h1 has run out (96 s)")
    job = asyncio.run(house.service.reading.job(1))
    assert job.reason is not None
    assert job.reason.message.startswith("host h1 is lost, and may run the job until")


@pytest.mark.parametrize("by_s", [7_200, -7_200])
def test_a_clock_that_is_set_gives_no_silent_host_up(house: House, by_s: int) -> None:
    house.run()
    house.do(ev.HostUp("h1", "boot", "1"), ev.HostSilent("h1", "cut"))
    house.clock.step(by_s * 1_000_000)
    house.do(ev.Tick())
    house.do(ev.Tick())
    look = house.leader.ask(
        lambda cycle, now_us: (cycle.state.hosts["h1"].state, cycle.next_due_us(), now_us)
    )
    state, due_us, now_us = look.result(PATIENCE_S)
    assert (state, due_us - now_us) == (HostState.UNKNOWN, 20_000_000)
    house.clock.us += 20_000_000
    house.do(ev.Tick())
    assert (
        house.leader.ask(lambda cycle, now_us: cycle.state.hosts["h1"].state).result(PATIENCE_S)
        is HostState.DOWN
    )
