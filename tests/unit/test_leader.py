"""The leader's loop: one turn, one commit; whoever asks is answered, whatever happens."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.adapters.store.opening import open_store
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Discard, Intent
from rm.core.jobs.reconcile import Reported, ReportedTask
from rm.core.jobs.state import ClusterState
from rm.core.journal.journal import Step
from rm.core.model.host import HostState
from rm.core.model.job import JobState
from rm.core.model.network.links import LinkStats
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.store import Batch, Store
from rm.daemon.execution.greeting import HostReport
from rm.daemon.leading import inbox, patience
from rm.daemon.leading.leader import Leader
from rm.daemon.leading.listeners import Listeners
from rm.daemon.leading.outbox import revivable, revive, stored
from rm.errors import Conflict, IllegalTransition, RmError, StoreError, StoreUnavailable, Unreachable
from rm.sim.replay import records, verify
from tests import builders
from tests.fakes import PATIENCE_S, Inbox, ManualClock


class FakeExecutor:
    """Notes what it is told; every report is by an open channel."""

    def __init__(self) -> None:
        self.submitted: list[Intent] = []
        self.forgotten: list[str] = []
        self.worn_out = False

    def submit(self, intents: list[Intent]) -> None:
        self.submitted += intents

    def forget(self, host: str) -> None:
        self.forgotten.append(host)

    def is_current(self, report: HostReport) -> bool:
        return report.connection == 1

    def open_intents(self, host: str) -> list[Intent]:
        return [i for i in self.submitted if i.action.host == host]

    def repeat_open(self, host: str) -> None: ...
    def drop(self, intent: Intent) -> None: ...
    def is_worn_out(self, intent: Intent) -> bool:
        return self.worn_out


class FailingStore(MemoryStore):
    failing = False

    def commit(self, batch: Batch, expected_version: int) -> int:
        if self.failing:
            raise StoreError("The disk is full.")
        return super().commit(batch, expected_version)


class BlinkingStore(MemoryStore):
    """Takes no commit while it is `away`."""

    def __init__(self, db: MemoryDatabase) -> None:
        super().__init__(db)
        self.away = False
        self.asked = Inbox()

    def commit(self, batch: Batch, expected_version: int) -> int:
        if self.away:
            self.asked("commit")
            raise StoreUnavailable("The database is away.", "Is it running?")
        return super().commit(batch, expected_version)


class House:
    def __init__(
        self, store: type[MemoryStore] = FailingStore, over: Store | None = None, **listeners: Any
    ) -> None:
        self.db = MemoryDatabase()
        self.store: Any = over or store(self.db)
        self.clock = ManualClock()
        assert self.store.acquire_lease("here", self.clock.us, 10**12)
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies)
        self.executor: Any = FakeExecutor()
        self.fatal, self.aligned = Inbox(), Inbox()
        heard: dict[str, Any] = {
            "on_fatal": self.fatal,
            "on_alignment": lambda alignment, state: self.aligned(alignment),
        }
        self.leader = Leader(
            inbox=inbox.Inbox(),
            cycle=self.cycle,
            store=self.store,
            version=self.store.load().version,
            clock=self.clock,
            executor=self.executor,
            listeners=Listeners(**heard | listeners),
        )

    def start(self) -> None:
        self.leader.start(())

    def request(self, *events: ev.Event) -> Future[Any]:
        return self.leader.request(lambda state: list(events))

    def state(self) -> ClusterState:
        state: ClusterState = self.leader.ask(lambda cycle, now_us: cycle.state).result(PATIENCE_S)
        return state


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.leader.stop()


def host_up(name: str) -> HostReport:
    return HostReport(ev.HostUp(name, "boot", "1"), Reported([]), 1)


def test_an_answer_comes_after_the_commit_and_the_intents_are_in_it(house: House) -> None:
    house.start()
    house.request(ev.HostAdded(builders.host("h1"))).result(PATIENCE_S)
    done = house.leader.request(
        lambda state: [ev.JobSubmitted(1, builders.spec())], lambda state: dict(house.db.jobs)
    )
    assert done.result(PATIENCE_S)[1].state is JobState.CONFIGURING
    assert house.state().jobs[1].state is JobState.CONFIGURING
    assert [i.action.kind for i in house.executor.submitted] == ["launch"]
    assert [revive(a) for a in house.db.actions.values()] == house.executor.submitted


def test_what_a_leader_journals_replays(house: House) -> None:
    house.start()
    for name in ("h1", "h2"):
        up = ev.HostUp(name, "boot", "1")
        house.request(ev.HostAdded(builders.host(name)), up).result(PATIENCE_S)
    house.request(*(ev.JobSubmitted(n, builders.spec(cpus_per_task=6)) for n in (1, 2, 3))).result(PATIENCE_S)
    house.request(ev.CancelRequested(9, "alice")).exception(PATIENCE_S)
    house.clock.us += 24 * 3_600_000_000
    house.leader.post(ev.Measured("h1", "h2", LinkStats(0.1, 90, measured_at_us=house.clock.us)))
    house.leader.post(ev.TaskExited(1, 1, "h1", 0, 0, 0, None, house.clock.us))
    assert house.state().jobs[3].state is JobState.CONFIGURING
    house.leader.stop()
    verdict = verify(house.db.journal)
    assert verdict.difference is None
    assert (verdict.starts, verdict.placed) == (2, 3)  # one at the beginning, one after a day
    told = [type(e).__name__ for _, r in records(house.db.journal) if isinstance(r, Step) for e in r.events]
    assert told.count("Measured") == 1
    assert "CancelRequested" not in told  # it was refused


def test_what_waits_together_is_one_transaction_and_a_refusal_is_alone(house: House) -> None:
    first = [house.request(ev.JobSubmitted(n, builders.spec())) for n in (1, 2)]
    unknown = house.request(ev.CancelRequested(9, "alice"))

    def refuse(state: ClusterState) -> list[ev.Event]:
        raise Conflict("not now")

    def break_down(state: ClusterState) -> list[ev.Event]:
        raise KeyError("a defect")

    refused, broken = house.leader.request(refuse), house.leader.request(break_down)
    unanswerable = house.leader.request(lambda state: [], lambda state: state.hosts["gone"])
    last = house.request(ev.JobSubmitted(3, builders.spec()))
    house.start()
    for future in (*first, last):
        assert future.result(PATIENCE_S) is None
    for bad, error in ((unknown, IllegalTransition), (refused, Conflict)):
        with pytest.raises(error):
            bad.result(PATIENCE_S)
    for bad in (broken, unanswerable):
        with pytest.raises(KeyError):
            bad.result(PATIENCE_S)
    assert (house.db.version, set(house.db.jobs)) == (1, {1, 2, 3})
    assert house.fatal.items == []


def test_why_a_job_waits_is_known_before_a_host_says_hello(house: House) -> None:
    state = house.cycle.state
    for job, held in ((1, True), (2, False)):
        state.jobs[job] = replace(builders.job(job), held=held)
        state.enqueue(job)
    state.fresh.clear()  # as after a load
    house.start()
    told = house.leader.ask(lambda cycle, now_us: [cycle.reason_of(cycle.state.jobs[n]) for n in (1, 2)])
    assert [reason.code.value for reason in told.result(PATIENCE_S)] == ["JobHeldUser", "ReqNodeNotAvail"]


def test_a_failed_commit_answers_everybody_and_stops(house: House) -> None:
    house.store.failing = True
    waiting = [house.request(ev.JobSubmitted(n, builders.spec())) for n in (1, 2)]
    question = house.leader.ask(lambda cycle, now_us: len(cycle.state.jobs))
    house.start()
    for future in (*waiting, question):
        with pytest.raises(StoreError, match="disk is full"):
            future.result(PATIENCE_S)
    assert "disk is full" in house.fatal.wait(str)
    house.leader.stop()
    with pytest.raises(Unreachable, match="stopping"):
        house.request(ev.Tick()).result(PATIENCE_S)
    assert house.executor.submitted == []


def test_a_database_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_S", 0.01)
    house = House(BlinkingStore)
    house.start()
    house.request(ev.HostAdded(builders.host("h1"))).result(PATIENCE_S)
    house.store.away = True
    first = house.request(ev.JobSubmitted(1, builders.spec()))
    house.store.asked.wait(str)
    while house.leader.waiting() is None:  # it was asked; in a moment it says so
        house.store.asked.wait(str)
    for late in (house.request(ev.JobSubmitted(2, builders.spec())), house.leader.ask(lambda c, n: 1)):
        with pytest.raises(StoreUnavailable, match=r"has waited .* The database is away. Is it running"):
            late.result(PATIENCE_S)
    house.leader.post(ev.HostSilent("h1", "its cable was pulled"))
    assert not first.done()
    assert house.executor.submitted == []
    house.store.away = False
    first.result(PATIENCE_S)
    assert house.leader.waiting() is None
    assert house.state().hosts["h1"].reason == "its cable was pulled"  # news is kept
    assert set(house.db.jobs) == {1}
    assert house.fatal.items == []
    house.leader.stop()


def test_a_daemon_that_is_stopped_waits_no_longer_for_its_database() -> None:
    house = House(BlinkingStore)
    house.store.away = True
    house.start()
    waiting = house.request(ev.JobSubmitted(1, builders.spec()))
    house.store.asked.wait(str)
    house.leader.stop()
    with pytest.raises(StoreUnavailable):
        waiting.result(PATIENCE_S)
    assert house.db.jobs == {}
    assert house.fatal.items == []  # it was told to end, or another leads: that is the cause


class BrokenQueue:
    """A policy that fails whatever it is asked."""

    name = "broken"

    def order(self, *args: Any) -> Any:
        raise ZeroDivisionError


def test_a_defect_that_no_item_brings_answers_everybody_and_stops(house: House) -> None:
    house.start()
    house.request(ev.JobSubmitted(1, builders.spec())).result(PATIENCE_S)
    house.cycle.policies = replace(house.cycle.policies, queue=BrokenQueue())
    waiting = house.request(ev.JobSubmitted(2, builders.spec()))
    with pytest.raises(ZeroDivisionError):
        waiting.result(PATIENCE_S)
    assert "internal error" in house.fatal.wait(str)
    assert set(house.db.jobs) == {1}


def test_a_defect_of_those_who_hear_of_a_step_ends_nothing() -> None:
    def hear(*args: Any) -> None:
        raise ZeroDivisionError

    house = House(on_jobs=(hear,), on_alignment=hear)
    house.start()
    for job in (1, 2):
        house.request(ev.JobSubmitted(job, builders.spec())).result(PATIENCE_S)
    assert (house.fatal.items, set(house.db.jobs)) == ([], {1, 2})
    house.leader.stop()


BAD: list[Any] = [
    ev.TaskExited(1, 1, "h1", 0, 0, 0, 1 << 70, 1 << 70),
    ev.TasksLost(1, 1, "h1", None),  # type: ignore[arg-type]
    ev.TasksStarted(1, 1, "h1", 5, 3),  # type: ignore[arg-type]
    ev.HostSilent([], "x"),  # type: ignore[arg-type]
    ev.Noted(1, object()),  # type: ignore[arg-type]
    ev.ActionSettled(1 << 70),
    HostReport(ev.HostUp("h1", "boot", "1"), [3], 1),  # type: ignore[arg-type]
    object(),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_a_clock_that_is_set_counts_beside_what_cannot_be_taken(bad: Any) -> None:
    house = House()
    house.start()
    house.request(ev.HostAdded(builders.host("h1", cpus=8))).result(PATIENCE_S)
    house.leader.post(host_up("h1"))
    house.request(ev.JobSubmitted(1, builders.spec())).result(PATIENCE_S)
    house.request(ev.TasksStarted(1, 1, "h1", house.clock.us, (0,))).result(PATIENCE_S)
    house.request(ev.HostSilent("h1", "cut")).result(PATIENCE_S)
    begun_us = house.state().jobs[1].started_us
    looking, held = threading.Event(), threading.Event()
    house.leader.ask(lambda cycle, now_us: (looking.set(), held.wait(PATIENCE_S)))  # what follows is one turn
    assert looking.wait(PATIENCE_S)
    house.clock.step(3_600_000_000)
    house.leader.post(bad)
    last = house.request(ev.JobSubmitted(2, builders.spec()))
    held.set()
    last.result(PATIENCE_S)
    state = house.state()
    assert state.hosts["h1"].state is HostState.UNKNOWN
    assert state.jobs[1].started_us == (begun_us or 0) + 3_600_000_000
    house.leader.stop()


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_what_cannot_be_taken_is_left_out_and_all_else_counts(
    tmp_path: Path, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'rm.db'}")
    house = House(over=store)
    house.start()
    house.request(ev.HostAdded(builders.host("h1", cpus=8))).result(PATIENCE_S)
    house.leader.post(host_up("h1"))
    house.request(ev.JobSubmitted(1, builders.spec())).result(PATIENCE_S)
    held = threading.Event()
    house.leader.ask(lambda cycle, now_us: held.wait(PATIENCE_S))  # what follows is one turn
    first = house.request(ev.JobSubmitted(2, builders.spec()))
    house.leader.post(bad)
    house.leader.post(ev.HostDrained("h1", "alice", ""))
    last = house.request(ev.JobSubmitted(3, builders.spec()))
    held.set()
    for future in (first, last):
        future.result(PATIENCE_S)
    state = house.state()
    assert (set(state.jobs), state.hosts["h1"].drained_by) == ({1, 2, 3}, "drained by alice")
    assert state.hosts["h1"].state is HostState.UP
    assert state.jobs[1].state is JobState.CONFIGURING
    assert "left out" in caplog.text
    house.leader.stop()
    loaded = store.load()
    assert {j.id: j for j in loaded.jobs} == state.jobs
    assert {h.name: h for h in loaded.hosts} == state.hosts
    assert house.fatal.items == []
    store.close()


def test_an_asker_who_gives_up_harms_nobody(house: House) -> None:
    gone = house.request(ev.JobSubmitted(1, builders.spec()))
    asked = house.leader.ask(lambda cycle, now_us: 1)
    assert gone.cancel()
    assert asked.cancel()
    house.start()
    assert house.state().jobs == {}
    with pytest.raises(CancelledError):
        gone.result(PATIENCE_S)
    assert house.fatal.items == []


def test_a_question_that_breaks_is_its_askers_alone(house: House) -> None:
    house.start()
    with pytest.raises(ZeroDivisionError):
        house.leader.ask(lambda cycle, now_us: 1 // 0).result(PATIENCE_S)
    assert house.state().jobs == {}


def test_stopping_answers_what_comes_too_late(house: House) -> None:
    house.start()
    house.leader.stop()
    for late in (house.request(ev.Tick()), house.leader.ask(lambda cycle, now_us: 1)):
        with pytest.raises(RmError, match="stopping"):
            late.result(PATIENCE_S)


def test_what_is_put_in_before_the_end_is_made_durable(house: House) -> None:
    """As the last words of an alert's channel, for which nobody waits: otherwise they are said twice."""

    def end(cycle: Cycle, now_us: int) -> Future[Any]:
        kept = house.leader.keep((("alert", {"told": True}),))
        house.leader.stop()
        return kept

    house.start()
    house.leader.ask(end).result(PATIENCE_S).result(PATIENCE_S)
    assert house.db.documents == {"alert": {"told": True}}


def test_a_hosts_hello_is_told_to_the_regulator(house: House) -> None:
    house.start()
    house.request(ev.HostAdded(builders.host("h1"))).result(PATIENCE_S)
    house.state()  # answered in a later turn: what the request's own turn has to tell is told
    before = len(house.aligned.items)
    house.clock.us += 5
    house.leader.post(host_up("h1"))
    assert house.state().hosts["h1"].since_us == house.clock.us
    assert len(house.aligned.items) == before + 1


def test_a_removed_host_is_forgotten_with_what_is_open_for_it(house: House) -> None:
    house.start()
    house.request(ev.HostAdded(builders.host("h1"))).result(PATIENCE_S)
    house.request(ev.HostRemoved("h1", "root")).result(PATIENCE_S)
    assert house.state().hosts == {}
    assert house.executor.forgotten == ["h1"]
    house.leader.post(host_up("h1"))
    assert house.state().hosts == {}
    assert house.db.hosts == {}


def test_a_report_by_a_lost_channel_changes_nothing(house: House) -> None:
    house.start()
    house.request(ev.HostAdded(builders.host("h1"))).result(PATIENCE_S)
    house.leader.post(HostReport(ev.HostUp("h1", "other", "1"), Reported([]), 99))
    assert house.state().hosts["h1"].boot_id == ""


def test_what_a_host_runs_beyond_the_database_is_named_in_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.start()
    house.request(ev.HostAdded(builders.host("h1"))).result(PATIENCE_S)
    tasks = [ReportedTask(job, 1, 0, "running") for job in range(41, 48)]
    ended = ReportedTask(40, 1, 0, "exited", ended_us=5)
    house.leader.post(HostReport(ev.HostUp("h1", "boot", "1"), Reported([ended, *tasks]), 1))
    assert house.state().hosts["h1"].boot_id == "boot"
    (line,) = [record.getMessage() for record in caplog.records if "still runs" in record.getMessage()]
    assert line.startswith("h1 still runs attempt 1 of job 41, ")
    assert "attempt 1 of job 45 and 2 more: these the database has given up, or does not have" in line


def test_actions_of_which_nobody_knows_what_they_ask_are_not_carried_out() -> None:
    good = stored(Intent(1, Discard(1, 1, "h1")))
    strange = [replace(good, id=2, kind="dance"), replace(good, id=3, body={"job": "x"})]
    kept, damaged = revivable([good, *strange])
    assert kept == (good,)
    assert [one.key for one in damaged] == [("2",), ("3",)]


def test_a_launch_that_was_sent_in_vain_too_often_has_failed(house: House) -> None:
    house.start()
    house.request(ev.HostAdded(builders.host("h1", cpus=8))).result(PATIENCE_S)
    house.leader.post(host_up("h1"))
    house.request(ev.JobSubmitted(1, builders.spec())).result(PATIENCE_S)
    house.executor.worn_out = True
    house.leader.post(host_up("h1"))  # it connects again, and knows nothing of the attempt
    job = house.state().jobs[1]
    assert job.avoid == ("h1",)
    assert any("did not answer this launch" in what for _, what in job.history)
