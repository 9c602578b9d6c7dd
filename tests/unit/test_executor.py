"""The outbox on the hosts: nothing is done twice at once, nothing is forgotten, no one believed too long."""

import asyncio
import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.adapters.store.log_directory import LogDirectory, log_path
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Action, Collect, Discard, Intent, Launch, Mail, Start, Stop
from rm.core.model.identity import ClusterIdentity
from rm.core.model.job import Task, TaskPlacement
from rm.core.model.logs import KeptLog, LogName
from rm.daemon.execution.claims import take_over
from rm.daemon.execution.executor import FOREIGN_TRIES, LAUNCH_TRIES, Executor
from rm.daemon.execution.greeting import HostReport
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome
from rm.daemon.execution.mailing import NOWHERE
from rm.daemon.execution.outbox import Open, Outbox
from rm.errors import Conflict, NotFound, Unreachable
from rm.protocol import attempts as wire
from rm.protocol.codes import Code, NotConnected
from rm.protocol.notifications import Iterations, Unasked
from tests import builders
from tests.agent_process import until
from tests.fakes import FakeHosts, Inbox, ManualClock, said

LAUNCH = Launch(1, 1, "h1", (TaskPlacement(0, "h1"),), hold=False)
SILENCE = Unreachable("h1 did not answer in time; whether it was done is unknown.")


def request_of(action: Launch) -> wire.Launch:
    return wire.Launch(
        job=action.job, attempt=action.attempt, epoch=7, user="alice", script="true", args=[], chdir="/",
        chdir_required=False, env={}, tasks=[wire.Task(rank=t.rank, gpus=[], env={}) for t in action.tasks],
        mem_bytes_per_task=0, time_limit_us=0, grace_us=0, hold=action.hold, allow_root=False, not_after_us=0,
    )  # fmt: skip


class House:
    """An executor with everything around it in the test's hands."""

    def __init__(self, logs: Path, **more: Any) -> None:
        self.hosts, self.inbox, self.deposed = FakeHosts(), Inbox(), Inbox()
        self.iterations: list[tuple[str, Iterations]] = []
        self.leads = self.may_act = True
        self.strays: set[tuple[str, int, int]] = set()
        self.tasks = {("h1", 1, 1, rank): Task(rank, "h1") for rank in range(3)}
        self.logs = logs
        place = more.pop("place", LogDirectory(logs))
        given = {
            "hosts": self.hosts,
            "post": self.inbox,
            "clock": ManualClock(9_000_000),
            "leadership": Leadership(7, lambda: self.leads, self.deposed, lambda: self.may_act),
            "launch_of": request_of,
            "home": LogHome(self.hosts, place, logs, 1_000),
            "placed": lambda host, job, attempt, rank: self.tasks.get((host, job, attempt, rank)),
            "is_stray": lambda host, job, attempt: (host, job, attempt) in self.strays,
            "launch_within_us": 10_000_000,
            "on_iterations": lambda host, message: self.iterations.append((host, message)),
            "owner_of": lambda job: "",
            "delivery_of": lambda action: None,
            "repeat_s": 0.01,
        }
        self.executor = Executor(**given | more)

    def connect(self, host: str = "h1", tasks: tuple[dict[str, Any], ...] = ()) -> HostReport:
        self.executor.on_state(host, True, "")
        self.hosts.take("facts", host).answer(boot_id="boot", cpus=4)
        self.hosts.take("tasks", host).answer(tasks=list(tasks))
        report: HostReport = self.inbox.wait(
            lambda i: isinstance(i, HostReport) and i.up.host == host and self.executor.is_current(i)
        )
        self.executor.repeat_open(host)
        return report

    def reconnected(self, host: str, cluster: str) -> None:
        """The channel that the executor wants to be opened anew, is."""
        until(lambda: host in self.hosts.reconnected, "the channel is opened anew")
        self.hosts.clusters[host] = cluster
        self.executor.on_state(host, False, "closed")
        self.inbox.wait(ev.HostSilent)
        self.inbox.items.clear()
        self.executor.on_state(host, True, "")

    def submit(self, *actions: Action, first: int = 1) -> None:
        self.executor.submit([Intent(first + i, a) for i, a in enumerate(actions)])

    def settled(self, number: int) -> None:
        self.outcome(number)

    def outcome(self, number: int) -> tuple[KeptLog, ...]:
        """What became of the logs of an action that has settled."""
        settled: ev.ActionSettled = self.inbox.wait(
            lambda i: isinstance(i, ev.ActionSettled) and i.action == number
        )
        return settled.logs

    def open(self, host: str = "h1") -> list[int]:
        return [i.id for i in self.executor.open_intents(host)]


def test_a_mail_needs_no_host_and_what_became_of_it_is_told(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.submit(Mail(4, 1, "", "ann", "Job_id=4 Ended"))
    house.settled(1)
    noted = house.inbox.wait(ev.Noted)
    assert (noted.job, noted.what) == (4, f"ann was not mailed: {NOWHERE}")
    house.executor.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.executor.close()


def test_what_is_submitted_before_hello_is_sent_in_order_after_it(house: House) -> None:
    house.submit(LAUNCH, Stop(1, 1, "h1", 0, "cancel"))
    assert house.hosts.made == []
    house.connect()
    sent = [c.op for c in house.hosts.made if c.op in ("launch", "stop")]
    assert sent == ["launch", "stop"]
    launch = house.hosts.take("launch")
    assert (launch.args["script"], launch.args["job"], launch.args["hold"]) == ("true", 1, True)


def test_a_launch_tells_the_state_what_started_and_its_note(house: House) -> None:
    house.hosts.offsets_us["h1"] = 100
    house.connect()
    house.submit(LAUNCH)
    tasks = [{"rank": 0, "started_us": 5_100}, {"rank": 1, "started_us": None}]
    house.hosts.take("launch").answer(tasks=tasks, note="used /tmp", cores=[2, 3])
    house.settled(1)
    notes = ((0, "used /tmp"), (1, "used /tmp"))
    assert house.inbox.of(ev.TasksStarted) == [ev.TasksStarted(1, 1, "h1", 5_000, (0,), notes, (2, 3))]
    assert house.open() == []


def test_a_launch_that_started_nothing_claims_no_start(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    house.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": None}], note="")
    house.settled(1)
    assert house.inbox.of(ev.TasksStarted) == []


def test_a_refused_launch_is_an_event_and_done(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    house.hosts.take("launch").refuse("no-such-user")
    house.settled(1)
    assert house.inbox.of(ev.LaunchFailed) == [ev.LaunchFailed(1, 1, "h1", Code.NO_SUCH_USER, "no")]


def test_a_launch_that_an_old_agent_does_not_understand_says_what_to_deploy(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    house.hosts.take("launch").refuse("bad-request")
    house.settled(1)
    (failure,) = house.inbox.of(ev.LaunchFailed)
    assert "rmx playbook run agents --limit h1" in failure.message
    assert "does not understand the launch" in failure.message
    assert failure.message.endswith("(It said: no)")


def test_a_request_whose_answer_never_came_is_repeated_until_it_does(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    for _ in range(3):
        house.hosts.take("launch").refuse(SILENCE)
    house.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": 5}])
    house.settled(1)
    assert len(house.inbox.of(ev.TasksStarted)) == 1


def test_an_open_intent_waits_for_the_next_hello_when_the_channel_is_lost(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    first = house.hosts.take("launch")
    house.executor.on_state("h1", False, "cut")
    first.refuse(SILENCE)
    assert house.inbox.of(ev.HostSilent) == [ev.HostSilent("h1", "cut")]
    assert house.open() == [1]
    house.connect()
    house.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": 5}])
    house.settled(1)


def test_a_stop_that_overtook_its_launch_is_repeated_after_it(house: House) -> None:
    house.connect()
    house.submit(LAUNCH, Stop(1, 1, "h1", 0, "cancel"))
    house.hosts.take("launch").refuse(SILENCE)
    house.hosts.take("stop").refuse("no-such-attempt")
    house.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": 5}])
    house.hosts.take("stop").answer()
    house.settled(2)


def test_a_launch_with_its_end_behind_it_begins_nothing(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    first = house.hosts.take("launch")
    assert first.args["hold"] is False
    house.executor.on_state("h1", False, "cut")
    first.refuse(SILENCE)
    house.submit(Stop(1, 1, "h1", 0, "cancel"), first=2)
    house.connect()
    launch = house.hosts.take("launch")
    assert launch.args["hold"] is True
    launch.answer(tasks=[{"rank": 0, "state": "prepared"}])
    house.hosts.take("stop").answer()
    house.settled(1)
    house.settled(2)
    assert house.inbox.of(ev.TasksStarted) == house.inbox.of(ev.TasksPrepared) == []


def test_a_start_with_its_end_behind_it_is_not_sent(house: House) -> None:
    house.submit(Start(1, 1, "h1"), Stop(1, 1, "h1", 0, "cancel"), Start(2, 1, "h1"))
    house.connect()
    house.hosts.take("stop").answer()
    house.settled(1)
    house.hosts.take("start").answer(tasks=[])
    assert [c.args["job"] for c in house.hosts.made if c.op == "start"] == [2]


def test_the_end_of_an_earlier_attempt_and_the_giving_back_of_an_element_let_launches_begin(
    house: House,
) -> None:
    house.submit(replace(LAUNCH, attempt=2), Stop(1, 1, "h1", 0, "cancel"), Stop(1, 2, "h1", 0, "hold"))
    house.connect()
    assert house.hosts.take("launch").args["hold"] is False


def test_a_stop_of_what_is_not_there_is_done(house: House) -> None:
    house.connect()
    house.submit(Stop(1, 1, "h1", 0, "cancel"))
    house.hosts.take("stop").refuse("no-such-attempt")
    house.settled(1)


def test_a_stale_epoch_deposes_and_settles_nothing(house: House) -> None:
    house.connect()
    house.leads = False
    house.submit(Start(1, 1, "h1"))
    house.hosts.take("start").refuse("stale-epoch")
    house.deposed.wait(lambda said: said == "no")
    assert house.open() == [1]
    assert house.inbox.of(ev.ActionSettled) == []


@pytest.mark.parametrize("action", [Start(1, 1, "h1"), Collect(1, 1, "h1", ())])
def test_a_stale_epoch_that_the_database_does_not_know_is_the_hosts_fault(
    house: House, action: Action
) -> None:
    house.connect()
    house.submit(action)
    op = "start" if isinstance(action, Start) else "discard"
    house.hosts.take(op).refuse("stale-epoch")
    assert "does not know" in house.inbox.wait(ev.HostMisbehaved).what
    until(lambda: house.hosts.reconnected, "the channel is opened anew")
    assert (house.deposed.items, house.hosts.reconnected) == ([], ["h1"])
    house.hosts.epochs["h1"] = 1_000_000  # as its next hello says
    house.connect()
    assert house.hosts.raised == {"h1": 1_000_001}
    house.hosts.take(op).answer(**({"tasks": []} if op == "start" else {}))
    house.settled(1)
    assert house.deposed.items == []


def test_an_epoch_that_only_a_host_knows_is_told_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Its next hello names the epoch that our own orders carried since."""
    for epoch in (1_000_000, 1_000_000, 1_000_001, 1_000_002):
        house.hosts.epochs["h1"] = epoch
        house.connect()
        assert house.hosts.raised == {"h1": epoch + 1}
    assert caplog.text.count("was an older copy of the database restored?") == 1
    house.hosts.epochs["h1"] = 2_000_000
    house.connect()
    assert caplog.text.count("was an older copy of the database restored?") == 2


def test_a_hello_with_a_later_epoch_deposes_where_the_database_says_so(house: House) -> None:
    house.leads = False
    house.hosts.epochs["h1"] = 8
    house.executor.on_state("h1", True, "")
    assert "epoch 8" in house.deposed.wait(str)
    assert (house.hosts.raised, house.hosts.untaken("facts")) == ({}, [])


def test_a_launch_may_be_under_way_for_so_long_and_a_late_one_is_sent_again(house: House) -> None:
    house.hosts.offsets_us["h1"] = 500
    house.connect()
    house.submit(LAUNCH)
    launch = house.hosts.take("launch")
    assert launch.args["not_after_us"] == 9_000_000 + 10_000_000 + 500
    launch.refuse("too-late")
    house.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": 600}])
    house.settled(1)
    assert house.inbox.of(ev.LaunchFailed) == []


def leased(action: Launch) -> wire.Launch:
    return msgspec.structs.replace(request_of(action), lease_us=60_000_000)


def test_a_fenced_launch_counts_from_what_the_host_says_of_its_clock(tmp_path: Path) -> None:
    house = House(tmp_path, launch_of=leased)
    house.connect()
    house.submit(LAUNCH)
    assert house.hosts.untaken("launch") == []
    house.hosts.take("renew").refuse(SILENCE)
    asked = house.hosts.take("renew")
    assert asked.args == {"epoch": 7, "cluster": "", "heard_us": 0}
    asked.answer(alive_us=5_000)
    launch = house.hosts.take("launch")
    assert (launch.args["lease_us"], launch.args["heard_us"]) == (60_000_000, 5_000)
    launch.answer(tasks=[{"rank": 0, "started_us": 5}])
    house.settled(1)
    house.executor.close()


def test_an_agent_that_knows_no_leases_gets_no_fenced_job(tmp_path: Path) -> None:
    house = House(tmp_path, launch_of=leased)
    house.connect()
    house.submit(LAUNCH)
    house.hosts.take("renew").refuse("no-such-op")
    house.settled(1)
    (failed,) = house.inbox.of(ev.LaunchFailed)
    assert (failed.code, "Deploy this one" in failed.message) == (Code.NOT_ENFORCED, True)
    assert house.hosts.untaken("launch") == []
    house.executor.close()


def test_a_launch_without_an_answer_is_worn_out_after_some_tries(house: House) -> None:
    house.connect()
    house.submit(LAUNCH)
    (intent,) = house.executor.open_intents("h1")
    house.hosts.take("launch").refuse(NotConnected("nothing was sent"))
    for _ in range(LAUNCH_TRIES):
        assert not house.executor.is_worn_out(intent)
        house.hosts.take("launch").refuse(SILENCE)
    assert house.executor.is_worn_out(intent)


def test_news_of_tasks_that_are_placed_elsewhere_do_not_count(house: House) -> None:
    house.tasks[("h1", 1, 1, 2)] = Task(2, "h1", started_us=1, ended_us=2)  # has ended
    for host, job, attempt, rank in (("h2", 1, 1, 0), ("h1", 2, 1, 0), ("h1", 1, 2, 0), ("h1", 1, 1, 7)):
        who = {"job": job, "attempt": attempt, "rank": rank}
        house.executor.on_event(host, said("started", **who, started_us=5))
        house.executor.on_event(host, said("exit", **who, code=None, signal=None, why="forged"))
        items = [[rank, 0, 0, 100, 0, None]]
        house.executor.on_event(host, said("iterations", job=job, attempt=attempt, items=items))
    house.executor.on_event("h1", exit_of(1, rank=2))
    assert (house.inbox.items, house.iterations) == ([], [])
    items = [[1, 0, 0, 100, 0, None], [7, 0, 0, 100, 0, None]]
    house.executor.on_event("h1", said("iterations", job=1, attempt=1, items=items))
    ((_, counted),) = house.iterations
    assert [item[0] for item in counted.items] == [1]


def test_nothing_that_a_host_tells_is_still_to_come(house: House) -> None:
    house.executor.on_event("h1", exit_of(1, started_us=1 << 53, ended_us=1 << 53))
    assert house.inbox.items == [ev.TaskExited(1, 1, "h1", 0, 0, 0, 9_000_000, 9_000_000)]


def test_a_host_that_does_not_keep_to_the_protocol_is_named(house: House) -> None:
    house.executor.on_misfit("h1", "its line is not a JSON object")
    assert house.inbox.items == [
        ev.HostMisbehaved("h1", "it does not keep to the agent protocol: its line is not a JSON object")
    ]


def test_a_launch_that_cannot_be_built_fails_the_job_and_nothing_else(tmp_path: Path) -> None:
    def build(action: Launch) -> wire.Launch:
        if action.job == 1:
            raise NotFound("Job 1 has no attempt 1 to launch.")
        if action.job == 2:
            raise ValueError("a defect")
        return request_of(action)

    house = House(tmp_path, launch_of=build)
    house.connect()
    for job in (1, 2, 3):
        house.submit(Launch(job, 1, "h1", (TaskPlacement(0, "h1"),), hold=False), first=job)
    assert [e.job for e in house.inbox.of(ev.LaunchFailed)] == [1, 2]
    assert house.hosts.take("launch").args["job"] == 3
    house.executor.close()


def test_a_report_by_a_lost_channel_is_not_used(house: House) -> None:
    house.executor.on_state("h1", True, "")
    house.hosts.take("facts").answer(boot_id="boot")
    late = house.hosts.take("tasks")
    house.executor.on_state("h1", False, "cut")
    late.answer(tasks=[])
    house.connect("h2")  # the greeters have worked on
    assert [r.up.host for r in house.inbox.of(HostReport)] == ["h2"]
    report = house.connect("h1")
    house.executor.on_state("h1", False, "cut")
    assert not house.executor.is_current(report)
    house.executor.repeat_open("h1")
    house.submit(LAUNCH)
    assert house.hosts.untaken("launch") == []


def test_a_host_that_says_hello_and_no_more_is_asked_again(house: House) -> None:
    house.executor.on_state("h1", True, "")
    house.hosts.take("facts").refuse(SILENCE)
    house.hosts.take("facts").answer(boot_id="boot", cpus=4)
    house.hosts.take("tasks").answer(tasks=[])
    report = house.inbox.wait(HostReport)
    assert (report.up.cpus, report.up.agent_version) == (4, "0.1.0")


def test_a_removed_host_leaves_nothing_open(house: House) -> None:
    house.submit(LAUNCH, Discard(2, 1, "h1"))
    house.executor.forget("h1")
    house.settled(1)
    house.settled(2)
    assert house.open() == []


def text(data: str, size: int | None = None, offset: int | None = None) -> dict[str, Any]:
    whole = len(data) if size is None else size
    return {
        "data": base64.b64encode(data.encode()).decode(),
        "offset": len(data) if offset is None else offset,
        "size": whole,
        "done": True,
    }


def test_a_host_that_cannot_take_note_of_the_end_is_asked_again(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 2, "h1", (0,), errors=False))
    house.hosts.take("logs").answer(**text("hello\n"))
    house.hosts.take("discard").refuse("no-space")
    house.hosts.take("discard").answer()
    house.settled(1)


def test_logs_come_home_before_the_host_forgets(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 2, "h1", (0, 1)))
    for rank, data in ((0, "hello\n"), (1, "")):
        out = house.hosts.take("logs")
        assert (out.args["rank"], out.args["stream"], out.args["offset"]) == (rank, "out", 0)
        out.answer(**text(data))
        house.hosts.take("logs").refuse("no-log")  # the user's own file for errors is gone
    assert house.inbox.of(ev.ActionSettled) == []
    house.hosts.take("discard").answer()
    house.settled(1)
    assert log_path(house.logs, LogName(1, 2, 0, "out")).read_text() == "hello\n"
    assert [p.name for p in (house.logs / "1.2").iterdir()] == ["0.out"]


def test_a_host_is_not_asked_for_files_that_the_job_cannot_have(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,), errors=False))
    house.hosts.take("logs").answer(**text("hello\n"))
    house.hosts.take("discard").answer()
    house.settled(1)
    assert log_path(house.logs, LogName(1, 1, 0, "out")).read_text() == "hello\n"


def test_only_the_newest_part_of_a_long_log_comes_home(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,)))
    house.hosts.take("logs").answer(**text("x" * 10, size=5_000))
    tail = house.hosts.take("logs")
    assert tail.args["offset"] == 4_000
    tail.answer(**text("tail", 5_000, 5_000))
    house.hosts.take("logs").answer(**text("", 5_000, 5_000))
    house.hosts.take("logs").answer(**text(""))
    house.hosts.take("discard").answer()
    house.settled(1)
    assert log_path(house.logs, LogName(1, 1, 0, "out")).read_text() == "tail"


def exit_of(job: int, **more: Any) -> Unasked:
    how = {"code": 0, "signal": 0, "started_us": 1, "ended_us": 2, "oom": False, "why": ""}
    return said("exit", **{"job": job, "attempt": 1, "rank": 0, **how, **more})


@pytest.mark.parametrize("exit_first", [True, False])
def test_a_collection_waits_for_the_exit_of_what_still_runs(house: House, exit_first: bool) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", ()))
    discard = house.hosts.take("discard")
    if exit_first:  # the exit comes between the agent's refusal and our hearing of it
        house.executor.on_event("h1", exit_of(1))
        discard.refuse("still-running")
    else:
        discard.refuse("still-running")
        house.executor.on_event("h1", exit_of(2))  # another job's
        house.executor.on_event("h1", exit_of(1))
    house.hosts.take("discard").answer()
    house.settled(1)


@pytest.mark.parametrize("code", ["still-running", "no-space", "spool"])
def test_a_discard_that_cannot_be_now_is_repeated(house: House, code: str) -> None:
    house.connect()
    house.submit(Discard(1, 1, "h1"))
    house.hosts.take("discard").refuse(code)
    house.hosts.take("discard").answer()
    house.settled(1)


def test_a_collection_is_never_under_way_twice(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,)))
    log = house.hosts.take("logs")
    house.executor.repeat_open("h1")
    house.executor.on_event("h1", exit_of(1))
    log.refuse("no-log")
    house.hosts.take("logs").refuse("no-log")
    house.hosts.take("discard").answer()
    house.settled(1)
    assert [c.op for c in house.hosts.made].count("logs") == 2


def test_an_exit_without_a_record_is_a_loss(house: House) -> None:
    house.executor.on_event("h1", exit_of(1, code=None, signal=None, ended_us=None, why="killed"))
    house.executor.on_event("h1", exit_of(1, code=3))
    assert house.inbox.items[0] == ev.TasksLost(1, 1, "h1", (0,), "killed")
    assert house.inbox.items[1] == ev.TaskExited(1, 1, "h1", 0, 3, 0, 1, 2)


def test_times_of_a_host_are_told_on_our_clock(house: House) -> None:
    house.hosts.offsets_us["h1"] = 1_000_000
    house.executor.on_event("h1", said("started", job=1, attempt=1, rank=2, pid=9, started_us=1_000_005))
    items = [[2, 0, 0, 100, 0, None]]
    house.executor.on_event("h1", said("iterations", job=1, attempt=1, items=items))
    assert house.inbox.items == [ev.TasksStarted(1, 1, "h1", 5, (2,))]
    assert len(house.iterations) == 1


def test_a_host_that_belongs_to_nobody_is_made_this_clusters_first(house: House) -> None:
    house.hosts.cluster = ClusterIdentity("c1", "here:/run/rm.sock")
    house.hosts.names["h1"] = ""
    house.executor.on_state("h1", True, "")
    adopt = house.hosts.take("adopt", "h1")
    assert adopt.args == {
        "cluster": "c1",
        "led_at": "here:/run/rm.sock",
        "instead_of": "",
        "stop_jobs": False,
        "host": "h1",
        "renamed_from": "",
    }
    assert house.hosts.untaken("facts") == []
    adopt.answer()
    house.hosts.take("facts", "h1")


@pytest.mark.parametrize("told", ["by its hello", "just then"])
def test_a_machine_has_one_name_until_that_is_removed(house: House, told: str) -> None:
    hosts = house.hosts
    hosts.cluster, hosts.clusters["h1"] = ClusterIdentity("c1"), "c1"
    hosts.boots.update(h1="boot", h2="boot")
    hosts.added["h2"] = builders.host("h2")
    hosts.names["h1"] = "h2" if told == "by its hello" else ""
    house.executor.on_state("h1", True, "")
    if told == "just then":
        hosts.take("adopt").answer(known_as="h2")
    assert "h1 is the machine that this cluster knows as h2" in house.inbox.wait(ev.HostSilent).reason
    assert hosts.untaken("facts") == []
    del hosts.added["h2"]
    asked = hosts.take("adopt")
    assert (asked.args["host"], asked.args["renamed_from"]) == ("h1", hosts.names["h1"])
    asked.answer(known_as="h1")
    hosts.take("facts", "h1")
    assert len(house.inbox.of(ev.HostSilent)) == 1


def test_a_name_that_another_machine_answers_for_by_now_is_given_anew(house: House) -> None:
    hosts = house.hosts
    hosts.cluster, hosts.clusters["h1"] = ClusterIdentity("c1"), "c1"
    hosts.added["h2"], hosts.names["h1"] = builders.host("h2"), "h2"
    house.executor.on_state("h1", True, "")
    hosts.take("adopt").answer(known_as="h1")
    hosts.take("facts", "h1")


@pytest.mark.parametrize("when", ["at its hello", "just then", "by an order"])
def test_nothing_is_asked_of_another_clusters_host(house: House, when: str) -> None:
    house.hosts.cluster = ClusterIdentity("c1")
    if when == "at its hello":
        house.hosts.clusters["h1"] = "c2"
        house.executor.on_state("h1", True, "")
    elif when == "just then":
        house.executor.on_state("h1", True, "")
        house.hosts.take("adopt").refuse("foreign-cluster")
    else:
        house.hosts.clusters["h1"] = "c1"
        house.connect()
        house.submit(LAUNCH)
        house.hosts.take("launch").refuse("foreign-cluster")
        house.reconnected("h1", "c2")
    silent = house.inbox.wait(ev.HostSilent)
    assert "rmx host adopt h1" in silent.reason
    assert [c.op for c in house.hosts.made if c.op in ("facts", "tasks")] == (
        ["facts", "tasks"] if when == "by an order" else []
    )
    assert house.inbox.of(ev.LaunchFailed) == []


def test_a_host_that_says_it_is_ours_and_refuses_our_orders_fails_its_launches(house: House) -> None:
    house.hosts.cluster, house.hosts.clusters["h1"] = ClusterIdentity("c1"), "c1"
    house.connect()
    house.submit(LAUNCH)
    for _ in range(FOREIGN_TRIES + 1):
        assert house.inbox.of(ev.HostMisbehaved) == []
        house.hosts.take("launch").refuse("foreign-cluster")
    house.settled(1)
    assert house.hosts.reconnected == ["h1"] * FOREIGN_TRIES
    assert "refuses its orders" in house.inbox.wait(ev.HostMisbehaved).what
    (failed,) = house.inbox.of(ev.LaunchFailed)
    assert failed.code is Code.FOREIGN_CLUSTER


def test_a_host_is_taken_over_when_the_others_jobs_have_ended(house: House) -> None:
    house.hosts.cluster, house.hosts.clusters["h1"] = ClusterIdentity("c1"), "c2"
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(asyncio.run, take_over(house.hosts, "h1", stop_jobs=False))
        house.hosts.take("adopt").answer(running=[4, 5])
        with pytest.raises(Conflict, match="4, 5") as error:
            refused.result()
        assert "--stop-jobs h1" in error.value.hint
        done = pool.submit(asyncio.run, take_over(house.hosts, "h1", stop_jobs=True))
        house.hosts.take("adopt").answer(running=[4])
        assert house.hosts.reconnected == []
        last = house.hosts.take("adopt")
        assert (last.args["instead_of"], last.args["stop_jobs"]) == ("c2", True)
        last.answer()
        done.result()
    assert house.hosts.reconnected == ["h1"]
    house.hosts.clusters["h1"] = "c1"
    with pytest.raises(Conflict, match="no other cluster"):
        asyncio.run(take_over(house.hosts, "h1", stop_jobs=False))


SLICE = [Launch(job, 1, "h1", (TaskPlacement(0, "h1"),), hold=False, slice_of=1) for job in (1, 2, 3)]


def element_of(action: Launch) -> wire.Launch:
    """What differs between elements, and what only some have."""
    task = wire.Task(rank=0, gpus=[], env={}, output=f"/out/{action.job}")
    env = {"ID": str(action.job), "SAME": "x"} | ({"FIRST": "1"} if action.job == 1 else {})
    return msgspec.structs.replace(request_of(action), env=env, tasks=[task])


@pytest.fixture
def slicing(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, launch_of=element_of, slice_us=900_000)
    made.tasks |= {("h1", job, 1, 0): Task(0, "h1") for job in (1, 2, 3)}
    yield made
    made.executor.close()


def test_a_slice_is_one_message_with_what_differs(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.submit(Stop(2, 1, "h1", 0, "cancel"), first=4)
    asked = slicing.hosts.take("slice")
    assert [c.op for c in slicing.hosts.made if c.op in ("launch", "slice", "stop")] == ["slice", "stop"]
    assert (asked.args["job"], asked.args["within_us"]) == (1, 900_000)
    assert asked.args["first"]["not_after_us"] == 9_000_000 + 10_000_000
    files = {"error": "", "input": ""}
    assert asked.args["followers"] == [
        {"job": 2, "attempt": 1, "env": {"ID": "2", "FIRST": None}, "output": "/out/2", **files},
        {"job": 3, "attempt": 1, "env": {"ID": "3", "FIRST": None}, "output": "/out/3", **files},
    ]
    asked.answer(refused=[[3, 1]])
    for number in (1, 2, 3):
        slicing.settled(number)
    (refused,) = slicing.inbox.of(ev.LaunchFailed)
    assert (refused.job, refused.code) == (3, Code.DISCARDED)
    assert slicing.inbox.of(ev.TasksStarted) == []


def test_an_element_that_is_to_end_is_launched_by_itself_and_begins_nothing(slicing: House) -> None:
    slicing.submit(*SLICE, Stop(2, 1, "h1", 0, "cancel"))
    slicing.connect()
    asked = slicing.hosts.take("slice")
    assert [follower["job"] for follower in asked.args["followers"]] == [3]
    launch = slicing.hosts.take("launch")
    assert (launch.args["job"], launch.args["hold"]) == (2, True)


def test_a_slice_whose_answer_is_lost_is_sent_again_together(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse(SILENCE)
    again = slicing.hosts.take("slice")
    again.answer(refused=[])
    slicing.settled(3)
    assert slicing.open() == []


def test_no_repetition_sends_a_part_of_a_slice(slicing: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts would run side by side, in the place of one."""
    rest, repeat = Outbox.rest, slicing.executor._dispatch._repeat

    def rest_late(outbox: Outbox, entry: Open) -> None:
        if entry.intent.id == 2:  # what failed with the first is due while the second is heard
            repeat("h1")
        rest(outbox, entry)

    monkeypatch.setattr(Outbox, "rest", rest_late)
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse(SILENCE)
    again = slicing.hosts.take("slice")
    assert [follower["job"] for follower in again.args["followers"]] == [2, 3]
    again.answer(refused=[])
    slicing.settled(3)
    assert slicing.open() == []


def test_a_slice_that_is_being_put_in_is_repeated_as_a_whole(tmp_path: Path) -> None:
    def build(action: Launch) -> wire.Launch:
        if action.job == 2:  # what failed before is due while the slice is put in
            house.executor._dispatch._repeat("h1")
        return element_of(action)

    house = House(tmp_path, launch_of=build, slice_us=900_000)
    house.connect()
    house.submit(*SLICE)
    assert [follower["job"] for follower in house.hosts.take("slice").args["followers"]] == [2, 3]
    assert (house.hosts.untaken("slice"), house.hosts.untaken("launch")) == ([], [])
    house.executor.close()


def test_a_refused_slice_has_failed_for_each(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse("no-space")
    slicing.settled(3)
    assert [(e.job, e.code) for e in slicing.inbox.of(ev.LaunchFailed)] == [
        (j, Code.NO_SPACE) for j in (1, 2, 3)
    ]


def test_an_agent_without_slices_gets_the_first_and_the_others_wait_as_before(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse("no-such-op")
    slicing.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": 5_000}], note="")
    slicing.settled(1)
    back = slicing.inbox.of(ev.TaskExited)
    assert [(e.job, e.why, e.started_us) for e in back] == [(2, "unstarted", None), (3, "unstarted", None)]
    assert slicing.open() == []


DISCARDS = [Discard(job, 1, "h1") for job in (1, 2, 3)]


def test_discards_are_one_message_and_those_that_have_not_ended_are_asked_for_by_themselves(
    house: House,
) -> None:
    house.connect()
    house.submit(*DISCARDS)
    house.hosts.take("forget").answer(left=[[2, 1]])
    house.hosts.take("discard").answer()
    for number in (1, 2, 3):
        house.settled(number)
    assert [c.args["attempts"] for c in house.hosts.made if c.op == "forget"] == [[[1, 1], [2, 1], [3, 1]]]
    assert house.open() == []


def test_discards_go_to_an_older_agent_one_by_one(house: House) -> None:
    house.connect()
    house.submit(*DISCARDS)
    house.hosts.take("forget").refuse("no-such-op")
    for _ in DISCARDS:
        house.hosts.take("discard").answer()
    house.settled(3)
    assert house.open() == []
