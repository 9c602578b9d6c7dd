"""What each event does to a job in each state, and to hosts; anything else raises with the story."""

from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Launch, Start, Stop
from rm.core.jobs.free import all_of
from rm.core.jobs.handlers.transitions import (
    INNOCENT_US,
    LONGEST_BACKOFF_US,
    LOSS_BACKOFF_US,
    MAX_LAUNCH_FAILURES,
)
from rm.core.jobs.lifecycle import TRANSITIONS, Changes, Rules, apply
from rm.core.jobs.state import ClusterState
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState, Placement, TaskPlacement
from rm.core.model.reasons import ReasonCode
from rm.core.scheduling.held import not_yet, why_held
from rm.errors import IllegalTransition
from rm.protocol.codes import Code
from tests import builders

S = JobState
RULES = Rules(grace_us=5, down_after_us=20)
GANG = Placement((TaskPlacement(0, "h1"), TaskPlacement(1, "h1"), TaskPlacement(2, "h2")))
ALONE = Placement((TaskPlacement(0, "h1"),))


class World:
    """A cluster of two hosts with one job, driven by events."""

    def __init__(self, placement: Placement = GANG, rules: Rules = RULES, **spec: Any) -> None:
        self.state = ClusterState()
        self.rules = rules
        self.now_us = 100
        self.placement = placement
        self.do(*(ev.HostAdded(builders.host(n, cpus=4)) for n in ("h1", "h2")))
        self.do(ev.JobSubmitted(1, builders.spec(ntasks=len(placement.tasks), **spec)))

    def do(self, *events: ev.Event) -> list[Any]:
        """The actions that follow from the events."""
        self.changes = Changes()
        for event in events:
            apply(self.state, event, self.now_us, self.rules, self.changes)
        return self.changes.actions

    @property
    def job(self) -> Job:
        return self.state.jobs[1]

    def place(self) -> list[Any]:
        return self.do(ev.JobPlaced(1, self.placement))

    def run(self) -> "World":
        self.place()
        for host in self.placement.hosts:
            self.do(ev.TasksPrepared(1, self.job.attempt, host))
        for host in self.placement.hosts:
            ranks = tuple(t.rank for t in self.placement.on(host))
            self.do(ev.TasksStarted(1, self.job.attempt, host, 200, ranks))
        assert self.job.state is S.RUNNING
        return self

    def exit(self, rank: int, code: int = 0, **more: Any) -> list[Any]:
        host = self.placement.tasks[rank].host
        signal = more.pop("signal", 0)
        return self.do(ev.TaskExited(1, self.job.attempt, host, rank, code, signal, 200, 300, **more))

    def is_at_rest(self) -> bool:
        state = self.state
        return not state.placed and state.free == {n: all_of(h) for n, h in state.hosts.items()}


def in_state(state: JobState) -> World:
    """A job that came into the state by its own story."""
    world = World(ALONE, requeue=False)
    if state is S.CONFIGURING:
        world.place()
    elif state is S.RUNNING:
        world.run()
    elif state is S.COMPLETING:
        world.run().do(ev.CancelRequested(1, "alice"))
    elif state is S.COMPLETED:
        world.run().exit(0)
    elif state is S.FAILED:
        world.run().exit(0, 3)
    elif state is S.CANCELLED:
        world.do(ev.CancelRequested(1, "alice"))
    elif state is S.TIMEOUT:
        world.run().exit(0, why="timeout")
    elif state is S.NODE_FAIL:
        world.run().do(ev.HostDown("h1", "gone"))
    elif state is S.OUT_OF_MEMORY:
        world.run().exit(0, signal=9, out_of_memory=True)
    assert world.job.state is state
    return world


REACHED = [s for s in S if s not in (S.SUSPENDED, S.PREEMPTED)]
ASKED: list[type] = [ev.CancelRequested, ev.HoldRequested, ev.ReleaseRequested, ev.RequeueRequested]


@pytest.mark.parametrize("state", REACHED)
@pytest.mark.parametrize("asked", ASKED)
def test_a_request_is_carried_out_or_refused_with_the_story(state: JobState, asked: type) -> None:
    world = in_state(state)
    before = world.job
    if (state, asked) in TRANSITIONS:
        world.do(asked(1, "bob"))
        assert world.job is not before or (state, asked) == (S.COMPLETING, ev.CancelRequested)
        return
    with pytest.raises(IllegalTransition, match=r"Job 1 is [A-Z_]+ and cannot be .*story: submitted"):
        world.do(asked(1, "bob"))
    assert world.job is before


@pytest.mark.parametrize("state", REACHED)
def test_news_of_any_attempt_never_breaks_a_job(state: JobState) -> None:
    def news(attempt: int) -> list[ev.Event]:
        return [
            ev.TasksPrepared(1, attempt, "h1"),
            ev.TasksStarted(1, attempt, "h1", 5, (0,)),
            ev.TaskExited(1, attempt, "h1", 0, 0, 0, 5, 6),
            ev.LaunchFailed(1, attempt, "h1", "died", "no"),
            ev.TasksLost(1, attempt, "h1", (0,)),
        ]

    for index in range(5):
        world = in_state(state)
        before, attempt = world.job, world.job.attempt
        world.do(news(attempt + 7)[index])
        assert world.job is before
        world.do(news(attempt)[index])
        assert before.occupies or world.job is before


@pytest.mark.parametrize("state", [s for s in REACHED if not s.final])
def test_a_cancelled_job_comes_to_rest_from_any_state(state: JobState) -> None:
    world = in_state(state)
    world.now_us = 300
    world.do(ev.CancelRequested(1, "bob"))
    if world.job.occupies:
        world.exit(0, signal=15, why="cancel")
    assert world.job.state is S.CANCELLED
    assert world.job.ended_us == world.now_us
    assert world.is_at_rest()


def test_a_gang_starts_when_every_host_is_ready_and_only_once() -> None:
    world = World()
    assert world.place() == [
        Launch(1, 1, "h1", GANG.on("h1"), hold=True),
        Launch(1, 1, "h2", GANG.on("h2"), hold=True),
    ]
    port = 20_017  # chosen by the first host, told to all
    assert world.do(ev.TasksPrepared(1, 1, "h1", ((0, "used /tmp"),), port, (4, 5))) == []
    starts = [Start(1, 1, "h1", port), Start(1, 1, "h2", port)]
    assert world.do(ev.TasksPrepared(1, 1, "h2", master_port=1)) == starts  # another host may not choose
    assert [task.cores for task in world.job.tasks] == [(4, 5), (4, 5), ()]
    assert world.do(ev.TasksPrepared(1, 1, "h2")) == []
    world.do(ev.TasksStarted(1, 1, "h1", 200, (0, 1)))
    assert world.job.state is S.RUNNING
    assert [t.note for t in world.job.tasks] == ["used /tmp", "", ""]


def test_each_host_collects_its_own_logs_when_the_last_task_has_ended() -> None:
    world = World().run()
    assert world.exit(0) == []
    assert world.exit(2) == []
    assert world.exit(2) == []  # said twice
    assert world.exit(1) == [
        Collect(1, 1, "h1", (0, 1), errors=False),
        Collect(1, 1, "h2", (2,), errors=False),
    ]
    assert (world.job.state, world.job.exit_code) == (S.COMPLETED, 0)
    assert world.is_at_rest()


def test_a_host_is_asked_for_standard_error_where_the_job_named_a_file_for_it() -> None:
    world = World(ALONE, error="%j.err").run()
    assert world.exit(0) == [Collect(1, 1, "h1", (0,), errors=True)]


def test_a_note_of_the_launch_outlives_a_plain_end() -> None:
    world = World(ALONE)
    world.place()
    world.do(ev.TasksStarted(1, 1, "h1", 200, (0,), ((0, "used /tmp"),)))
    world.exit(0)
    assert world.job.tasks[0].note == "used /tmp"


def test_the_first_failure_stops_the_rest_once_and_names_the_end() -> None:
    world = World().run()
    assert world.exit(1, 3) == [Stop(1, 1, "h1", 5, "abort"), Stop(1, 1, "h2", 5, "abort")]
    assert world.exit(0, signal=15, why="abort") == []
    assert world.do(ev.TasksLost(1, 1, "h2", (2,)))[0] == Collect(1, 1, "h1", (0, 1), errors=False)
    assert (world.job.state, world.job.exit_code) == (S.FAILED, 3)
    assert world.job.reason is not None
    assert world.job.reason.code is ReasonCode.EXIT_CODE


def test_the_code_of_the_first_failure_is_the_jobs_whatever_the_ended_others_say() -> None:
    world = World().run()
    world.exit(1, 3)
    world.exit(0, 143, why="abort")  # it caught SIGTERM
    world.exit(2, 0, signal=15, why="abort")
    assert (world.job.state, world.job.exit_code, world.job.exit_signal) == (S.FAILED, 3, 0)


@pytest.mark.parametrize(("code", "says"), [(127, "a program was not found"), (126, "may not be executed")])
def test_what_a_shell_means_by_a_code_is_said(code: int, says: str) -> None:
    world = World(ALONE).run()
    world.do(ev.TaskExited(1, 1, "h1", 0, code, 0, 5, 6))
    assert world.job.reason is not None
    assert world.job.reason.message.startswith(f"task 0 on h1 exited with code {code} (")
    assert says in world.job.reason.message


def test_a_task_that_could_not_be_started_is_told_and_its_attempt_collected() -> None:
    world = World(ALONE)
    world.place()
    actions = world.do(ev.TaskExited(1, 1, "h1", 0, 1, 0, None, 300, why="there is no /bin/sh"))
    assert actions == [Collect(1, 1, "h1", (0,), errors=False)]
    assert world.job.state is S.FAILED
    assert "there is no /bin/sh" in str(world.job.reason)
    assert world.job.started_us is None


def test_a_launch_that_failed_is_tried_elsewhere_and_every_host_forgets_it() -> None:
    world = World()
    world.place()
    world.do(ev.TasksPrepared(1, 1, "h2"))
    assert world.do(ev.LaunchFailed(1, 1, "h1", "died", "no answer")) == [
        Discard(1, 1, "h1"),
        Discard(1, 1, "h2"),
    ]
    assert (world.job.state, world.job.avoid, world.job.attempt) == (S.PENDING, ("h1",), 1)
    assert world.is_at_rest()
    for attempt in range(2, MAX_LAUNCH_FAILURES + 1):
        world.place()
        world.do(ev.LaunchFailed(1, attempt, "h1", "died", "no answer"))
    assert world.job.state is S.FAILED


@pytest.mark.parametrize("code", ["root-refused", "bad-request"])
def test_a_launch_that_no_host_would_take_fails_at_once(code: str) -> None:
    world = World(ALONE)
    world.place()
    world.do(ev.LaunchFailed(1, 1, "h1", code, "no"))
    assert world.job.state is S.FAILED


def test_an_account_that_one_host_lacks_is_looked_for_on_others() -> None:
    world = World(ALONE)
    world.place()
    world.do(ev.LaunchFailed(1, 1, "h1", "no-such-user", "There is no user 'ann' on h1."))
    assert (world.job.state, world.job.avoid) == (S.PENDING, ("h1",))


@pytest.mark.parametrize("code", ["no-space", "spool"])
def test_a_host_that_can_launch_nothing_is_drained_and_the_job_not_blamed(code: str) -> None:
    world = World(ALONE)
    world.place()
    world.do(ev.LaunchFailed(1, 1, "h1", code, "the disk is full"))
    assert (world.job.state, world.job.launch_failures) == (S.PENDING, 0)
    assert world.state.hosts["h1"].drained_by == "could not launch job 1: the disk is full (rm)"
    world.do(ev.SpoolWritable("h1"))
    assert world.state.hosts["h1"].schedulable


def test_only_the_drain_of_a_full_host_ends_with_room_on_its_disk() -> None:
    world = World(ALONE)

    def drained(*events: ev.Event) -> bool:
        world.do(*events)
        return bool(world.state.hosts["h1"].drained_by)

    assert drained(ev.HostUp("h1", "boot", "1", writable=False))
    assert world.state.hosts["h1"].drained_by.endswith(" (rm)")
    assert not world.state.hosts["h1"].schedulable
    assert not drained(ev.HostUp("h1", "boot", "1"))
    assert drained(ev.HostUp("h1", "boot", "1", writable=False), ev.HostDrained("h1", "root", "new disks"))
    assert drained(ev.SpoolWritable("h1"), ev.HostUp("h1", "boot", "1"))
    assert not drained(ev.HostResumed("h1", "root"))


def test_since_when_a_host_is_drained_is_kept_apart_from_its_agents_hello() -> None:
    world = World(ALONE)

    def since(*events: ev.Event) -> tuple[int, int]:
        world.now_us += 7
        world.do(*events)
        host = world.state.hosts["h1"]
        return host.drained_us and world.now_us - host.drained_us, world.now_us - host.since_us

    world.do(ev.HostUp("h1", "boot", "1"))
    assert since(ev.HostDrained("h1", "ann", "disk")) == (0, 7)
    assert since(ev.HostDrained("h1", "ann", "disk")) == (7, 14)
    assert since(ev.HostDrained("h1", "ann", "fan")) == (0, 21)
    assert since(ev.HostUp("h1", "boot", "1")) == (7, 0)
    assert since(ev.HostAdded(builders.host("h1"))) == (14, 7)
    assert since(ev.HostDown("h1", "silent")) == (21, 0)
    assert since(ev.HostResumed("h1", "ann")) == (0, 7)
    assert world.state.hosts["h1"].drained_us == 0


def test_a_job_that_fills_one_host_after_the_other_waits_longer_each_time_and_says_why() -> None:
    world = World(ALONE)
    waits = []
    for attempt in range(1, 5):
        world.place()
        world.do(ev.LaunchFailed(1, attempt, "h1", "no-space", "The disk of host h1 is full"))
        waits.append(max(0, world.job.not_before_us - world.now_us))
        why = not_yet(world.job, world.now_us)
        assert attempt == 1 or "The disk of host h1 is full" in str(why)
        world.now_us = world.job.not_before_us
    assert waits == [0, LOSS_BACKOFF_US, 4 * LOSS_BACKOFF_US, 16 * LOSS_BACKOFF_US]
    world.run()
    assert world.job.host_faults == 0


@pytest.mark.parametrize(("requeue", "state"), [(True, S.PENDING), (False, S.NODE_FAIL)])
def test_a_lost_host_loses_its_jobs_and_the_others_are_stopped(requeue: bool, state: JobState) -> None:
    world = World(requeue=requeue).run()
    assert world.do(ev.HostDown("h2", "silent")) == [Stop(1, 1, "h1", 5, "abort")]
    world.exit(0, signal=15, why="abort")
    assert Collect(1, 1, "h2", (2,), errors=False) in world.exit(1, signal=15, why="abort")
    assert world.job.state is state
    assert world.is_at_rest()


def lose_its_host(world: World, after_us: int = 1) -> None:
    """The job runs again, and then its host is gone."""
    world.now_us = max(world.now_us, world.job.not_before_us)
    world.run()
    assert world.job.started_us is not None
    world.now_us = world.job.started_us + after_us
    world.do(ev.HostUp("h1", "boot", "1"), ev.HostDown("h1", "silent"))


def test_a_job_that_loses_one_host_after_the_other_is_held() -> None:
    world = World(ALONE)
    lose_its_host(world)
    assert not_yet(world.job, world.now_us) is None  # one loss is nobody's fault
    lose_its_host(world)
    assert world.job.state is S.PENDING
    reason = not_yet(world.job, world.now_us + (1 << 60))
    assert reason is not None
    assert reason.code is ReasonCode.HOST_LOST
    assert "lost 2 times" in reason.message
    world.do(ev.ReleaseRequested(1, "alice"))
    assert not_yet(world.job, world.now_us) is None
    lose_its_host(world)
    assert not world.job.held


def test_losses_after_long_runs_are_not_held_against_a_job() -> None:
    world = World(ALONE)
    for _ in range(4):
        lose_its_host(world, after_us=INNOCENT_US)
        assert (world.job.held, world.job.losses) == (False, 1)


def test_without_a_limit_a_job_waits_longer_from_loss_to_loss() -> None:
    world = World(ALONE, rules=replace(RULES, max_losses=0))
    waits = []
    for _ in range(9):
        lose_its_host(world)
        waits.append(max(0, world.job.not_before_us - world.now_us))
    assert waits[:3] == [0, LOSS_BACKOFF_US, 4 * LOSS_BACKOFF_US]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_BACKOFF_US
    assert not world.job.held


def test_a_gang_that_never_began_is_tried_again_whatever_it_asked() -> None:
    world = World(requeue=False)
    world.place()
    actions = world.do(ev.HostDown("h2", "silent"))
    assert actions == [Discard(1, 1, "h1"), Discard(1, 1, "h2")]
    assert world.job.state is S.PENDING


def test_a_requeued_job_runs_as_another_attempt() -> None:
    world = World(ALONE).run()
    world.exit(0, 1)
    world.do(ev.RequeueRequested(1, "root"))
    assert (world.job.state, world.job.reason, world.job.exit_code) == (S.PENDING, None, None)
    assert world.job.restarts == 1
    assert world.place()[0].attempt == 2
    assert world.job.restarts == 1
    assert world.do(ev.TasksStarted(1, 1, "h1", 5, (0,))) == [Stop(1, 1, "h1", 5, "abort")]
    assert world.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 5, 6)) == [Discard(1, 1, "h1")]
    assert world.job.state is S.CONFIGURING


def test_a_job_that_is_requeued_and_held_waits_for_its_release() -> None:
    world = World(ALONE).run()
    world.do(ev.RequeueRequested(1, "root", hold=True))
    world.exit(0, 1)
    assert (world.job.state, world.job.held) == (S.PENDING, True)
    assert "requeued and held by root" in [what for _, what in world.job.history]
    world.do(ev.ReleaseRequested(1, "root"))
    assert not world.job.held
    ended = World(ALONE).run()
    ended.exit(0, 1)
    ended.do(ev.RequeueRequested(1, "root", hold=True))
    assert (ended.job.state, ended.job.held) == (S.PENDING, True)


def test_a_job_is_requeued_when_one_of_its_tasks_asks_for_it() -> None:
    world = World().run()
    world.exit(2, 1)  # the others may fail of it before it is heard
    assert world.job.ending is S.FAILED
    stopped = world.exit(0, 143, why="requeue")
    assert (world.job.ending, stopped) == (S.PENDING, [])
    world.exit(1, 0, signal=15, why="abort")
    assert (world.job.state, world.job.requeues, world.job.held) == (S.PENDING, 1, False)
    assert world.job.earlier[-1].exit_code == 143
    assert world.job.reason is None  # it waits for its turn, not for what failed
    assert world.job.earlier[-1].why == "requeued by its own task 0 on h1"


def test_a_job_that_is_requeued_too_often_is_held() -> None:
    world = World(ALONE, rules=replace(RULES, max_requeues=2))
    for _ in range(2):
        world.run().exit(0, 0, why="requeue")
        assert not world.job.held
    world.run().exit(0, 0)
    world.do(ev.RequeueRequested(1, "ann"))
    waits = not_yet(world.job, world.now_us)
    assert waits is not None
    assert (waits.code, "after 3 requeues" in waits.message) == (ReasonCode.HELD_USER, True)
    world.do(ev.ReleaseRequested(1, "ann"))
    assert (world.job.requeues, not_yet(world.job, world.now_us)) == (0, None)


def test_the_service_of_earlier_attempts_is_kept() -> None:
    world = World().run()  # started at 200
    world.exit(0, 1)
    world.exit(1, signal=15, why="abort")
    world.exit(2, signal=15, why="abort")
    assert world.job.served_us == 0  # the attempt is the current one still
    world.do(ev.RequeueRequested(1, "root"))
    assert world.job.served_us == 100
    world.place()
    world.do(ev.LaunchFailed(1, 2, "h1", "died", "no answer"))
    assert (world.job.state, world.job.served_us) == (S.PENDING, 100)  # it never started


def test_a_job_that_will_be_requeued_can_still_be_cancelled() -> None:
    world = World(ALONE).run()
    world.do(ev.RequeueRequested(1, "root"))
    world.do(ev.CancelRequested(1, "alice"))
    world.exit(0, signal=15, why="abort")
    assert world.job.state is S.CANCELLED


def test_a_held_job_waits_and_is_looked_at_again_when_released() -> None:
    world = World(hold=True)
    world.state.fresh.clear()
    world.do(ev.ReleaseRequested(1, "alice"))
    assert not world.job.held
    assert list(world.state.fresh) == [1]


def test_what_an_administrator_held_its_owner_does_not_release() -> None:
    world = World()
    world.do(ev.HoldRequested(1, "op", as_admin=True), ev.HoldRequested(1, "alice"))
    with pytest.raises(IllegalTransition, match=r"Job 1 cannot be released: an administrator holds it\."):
        world.do(ev.ReleaseRequested(1, "alice"))
    assert why_held(world.job).code is ReasonCode.HELD_ADMIN
    world.do(ev.ReleaseRequested(1, "op", as_admin=True), ev.HoldRequested(1, "alice"))
    assert why_held(world.job).code is ReasonCode.HELD_USER
    world.do(ev.ReleaseRequested(1, "alice"))
    assert not world.job.held


def test_a_removed_host_takes_its_measurements_along() -> None:
    world = World()
    world.do(ev.Measured("h1", "h2", builders.linkstats()), ev.HostRemoved("h2", "root"))
    assert world.state.network == {}
    world.do(ev.Measured("h1", "h2", builders.linkstats()))
    assert world.state.network == {}
    assert world.changes.measured == []
    assert "h2" not in world.state.free


def test_the_inventory_declares_and_discovery_fills_the_gaps() -> None:
    world = World()
    world.do(ev.HostAdded(builders.host("h3", cpus=0, mem_gib=0, nic_mbps=0, state=HostState.UNKNOWN)))
    assert world.state.silent_since["h3"] == world.now_us
    world.do(ev.HostUp("h3", "boot", "1", cpus=16, mem_bytes=5, nic_bps=7, interface="eth0"))
    host = world.state.hosts["h3"]
    assert (host.state, host.cpus, host.nic_bps, host.interface) == (HostState.UP, 16, 7, "eth0")
    assert world.state.free["h3"].cpus == 16
    world.do(ev.HostAdded(builders.host("h3", cpus=2, nic_mbps=0)))
    host = world.state.hosts["h3"]
    assert (host.state, host.cpus, host.nic_bps) == (HostState.UP, 2, 7)


def test_each_hello_renews_what_was_found_and_nothing_that_was_declared() -> None:
    world = World()
    world.do(ev.HostAdded(builders.host("h3", cpus=8, mem_gib=0, nic_mbps=0, state=HostState.UNKNOWN)))
    world.do(ev.HostUp("h3", "boot", "1", cpus=16, mem_bytes=5, nic_bps=7, interface="eth0"))
    world.do(ev.HostUp("h3", "boot", "2", cpus=32, mem_bytes=6, nic_bps=9, interface="ib0"))
    host = world.state.hosts["h3"]
    assert (host.cpus, host.mem_bytes, host.nic_bps, host.interface) == (8, 6, 9, "ib0")
    world.do(ev.HostUp("h3", "boot", "2"))  # finds nothing today
    assert world.state.hosts["h3"].interface == "ib0"
    world.do(ev.HostAdded(builders.host("h3", cpus=0, mem_gib=1, nic_mbps=0)))
    assert world.state.hosts["h3"].cpus == 8  # until the agent finds the number again
    world.do(ev.HostUp("h3", "boot", "2", cpus=32, mem_bytes=6, nic_bps=10))
    host = world.state.hosts["h3"]
    assert (host.cpus, host.mem_bytes, host.nic_bps) == (32, 1 << 30, 10)


def test_a_silent_host_takes_nothing_until_it_answers() -> None:
    world = World()
    world.do(ev.HostSilent("h1", "cut"))
    assert not world.state.hosts["h1"].schedulable
    world.do(ev.HostUp("h1", "boot", "1"))
    assert world.state.hosts["h1"].schedulable
    assert "h1" not in world.state.silent_since


def test_a_measured_profile_may_let_others_fit() -> None:
    world = World().run()
    before = world.state.capacity_version
    traffic = builders.profile(100, (0, 50, 500))
    world.do(ev.ProfileMeasured(1, 1, traffic, True))
    assert world.state.placed[1].traffic == traffic
    assert world.job.cooperative
    assert world.state.capacity_version > before


def test_a_requeued_job_remembers_its_attempts() -> None:
    world = World().run()
    world.do(ev.RequeueRequested(1, "bob"))
    for rank in range(3):
        world.exit(rank, signal=15, why="abort")
    (first,) = world.job.earlier
    assert (first.attempt, first.hosts, first.started_us, first.ended_us) == (1, ("h1", "h2"), 200, 300)
    assert (first.exit_code, first.exit_signal, first.why) == (0, 15, "requeued by bob")
    world.place()
    world.do(ev.LaunchFailed(1, 2, "h1", Code.NO_SPACE, "full"))
    second = world.job.earlier[-1]
    assert (second.attempt, second.started_us) == (2, None)
    assert second.why == "host h1 could not launch it: full"
    world.run()
    for rank in range(3):
        world.exit(rank)
    world.do(ev.RequeueRequested(1, "bob"))
    assert [(one.attempt, one.why) for one in world.job.earlier[2:]] == [(3, "ended COMPLETED")]
