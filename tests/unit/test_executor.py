"""The outbox on the hosts: nothing is done twice at once, nothing is forgotten, no one believed too long."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Action, Collect, Discard, Launch, Mail, Start, Stop
from rm.core.model.job import Task, TaskPlacement
from rm.daemon.execution.executor import LAUNCH_TRIES
from rm.daemon.execution.greeting import HostReport
from rm.daemon.execution.mailing import NOWHERE
from rm.errors import NotFound
from rm.protocol import attempts as wire
from rm.protocol.codes import Code, NotConnected
from tests.agent_process import until
from tests.executing import LAUNCH, SILENCE, House, executing, exit_of, request_of
from tests.fakes import said


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    yield from executing(tmp_path)


def test_a_mail_needs_no_host_and_what_became_of_it_is_told(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.submit(Mail(4, 1, "", "ann", "Job_id=4 Ended"))
    house.settled(1)
    noted = house.inbox.wait(ev.Noted)
    assert (noted.job, noted.what) == (4, f"ann was not mailed: {NOWHERE}")
    house.executor.close()


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
