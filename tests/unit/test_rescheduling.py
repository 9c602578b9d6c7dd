"""A running job moves when a new profile makes it incompatible, if it may and if it helps."""

from dataclasses import dataclass, field

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Stop
from rm.core.jobs.state import ClusterState
from rm.core.journal.journal import taken
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies
from rm.units import MINUTE_US
from tests.builders import host, profile, spec

CALM = profile(200, (0, 60, 1_000))
LOUD = profile(200, (0, 170, 1_000))


@dataclass
class World:
    """Hosts with room for two tasks each; jobs of two tasks on two hosts, started as they are placed."""

    hosts: str = "abcd"
    options: dict[str, object] = field(default_factory=lambda: {"reschedule": True})
    now_us: int = 0

    def __post_init__(self) -> None:
        policies = Policies(
            load("queue", "fifo"), load("placement", "first-fit"), load("comm", "metronome", self.options)
        )
        self.cycle = Cycle(ClusterState(), policies)
        self.do(*(ev.HostAdded(host(n, cpus=2)) for n in self.hosts))
        self.do(*(ev.HostUp(n, "boot", "1") for n in self.hosts))

    def do(self, *events: ev.Event) -> Outcome:
        self.now_us += 1
        out = self.cycle.step(events, self.now_us)
        assert not out.refused
        return out

    def job(self, id: int) -> Job:
        return self.cycle.state.jobs[id]

    def run(self, id: int, traffic: TrafficProfile = CALM, **fields: object) -> None:
        fields = {"ntasks": 2, "tasks_per_host": 1, "traffic": traffic, **fields}
        self.do(ev.JobSubmitted(id, spec(f"j{id}", **fields)))
        self.started(id)

    def started(self, id: int) -> None:
        job = self.job(id)
        for task in job.tasks:
            self.do(ev.TasksPrepared(id, job.attempt, task.host))
        for task in job.tasks:
            self.do(ev.TasksStarted(id, job.attempt, task.host, self.now_us, (task.rank,)))

    def measure(self, id: int, traffic: TrafficProfile = LOUD) -> list[ev.JobMoved]:
        out = self.do(ev.ProfileMeasured(id, self.job(id).attempt, traffic, True))
        return [e for e in out.recorded if isinstance(e, ev.JobMoved)]

    def hosts_of(self, id: int) -> tuple[str, ...]:
        placement = self.job(id).placement
        return placement.hosts if placement else ()


def meeting(**options: object) -> World:
    """A high and a low job meet on a and b; c and d are idle."""
    world = World(options={"reschedule": True, **options})
    world.run(1, priority=100)
    world.run(2)
    assert world.hosts_of(1) == world.hosts_of(2) == ("a", "b")
    assert world.cycle.state.alignment.score == 100
    return world


def test_the_low_job_goes_where_it_is_compatible() -> None:
    world = meeting()
    (moved,) = world.measure(1)
    assert moved.job == 2
    assert moved.reason.code is ReasonCode.CONTENTION
    assert dict(moved.reason.numbers)["score_elsewhere"] == 100
    job = world.job(2)
    assert (job.state, job.ending, job.reason) == (JobState.COMPLETING, JobState.PENDING, moved.reason)
    assert job.history[-1][1].startswith("moved: link a scores")
    for task in job.tasks:
        world.do(ev.TaskExited(2, job.attempt, task.host, task.rank, 0, 15, 1, 2))
    assert world.hosts_of(2) == ("c", "d")
    assert world.job(2).attempt == 2
    assert world.job(1).state is JobState.RUNNING


def test_its_tasks_are_stopped_once() -> None:
    world = meeting()
    out = world.do(ev.ProfileMeasured(1, 1, LOUD, True))
    stops = [i.action for i in out.intents if isinstance(i.action, Stop)]
    assert {(s.job, s.host) for s in stops} == {(2, "a"), (2, "b")}
    assert world.measure(1, profile(200, (0, 190, 1_000))) == []


def test_the_journal_tells_a_move_as_a_decision() -> None:
    world = meeting()
    measured = ev.ProfileMeasured(1, 1, LOUD, True)
    given, decided = taken([measured], world.do(measured))
    assert given == [measured]
    assert [type(e) for e in decided] == [ev.JobMoved]
    again = restore_state(dump_state(world.cycle.state, world.now_us), world.now_us)
    assert again.rescheduled_us == world.cycle.state.rescheduled_us == world.now_us


def test_it_is_off_by_default() -> None:
    assert meeting(reschedule=False).measure(1) == []


def test_nobody_moves_while_a_rotation_is_found_or_the_score_is_good_enough() -> None:
    assert meeting().measure(1, profile(200, (0, 120, 1_000))) == []  # 120 + 60 of 200 ms
    assert meeting(reschedule_below=50.0).measure(1, profile(200, (0, 160, 1_000))) == []


def test_nobody_moves_where_nothing_is_better() -> None:
    world = World(hosts="ab")
    world.run(1, priority=100)
    world.run(2)
    assert world.measure(1) == []


def test_jobs_that_must_not_be_requeued_and_high_ones_stay() -> None:
    world = World()
    world.run(1, priority=100)
    world.run(2, requeue=False)
    assert world.measure(1) == []
    both_high = World()
    both_high.run(1, priority=100)
    both_high.run(2, priority=100)
    assert both_high.measure(1) == []


def test_the_lowest_ranked_job_that_has_a_place_goes() -> None:
    """The job whose traffic grew would be incompatible nowhere else; the last deployed one moves."""
    world = World(hosts="abcd")
    for n in "ab":
        world.do(ev.HostAdded(host(n, cpus=3)))
    world.run(1)
    world.run(2)
    world.run(3)
    assert {world.hosts_of(i) for i in (1, 2, 3)} == {("a", "b")}
    (moved,) = world.measure(1, profile(200, (0, 100, 1_000)))
    assert moved.job == 3


def test_only_one_job_moves_in_so_many_minutes() -> None:
    world = World(hosts="abcdefgh", options={"reschedule": True, "reschedule_every_min": 10.0})
    for first in (1, 3):
        world.run(first, priority=100)
        world.run(first + 1)
    assert world.hosts_of(3) == world.hosts_of(4) == ("c", "d")
    assert len(world.measure(1)) == 1
    assert world.measure(3) == []
    world.now_us += 10 * MINUTE_US
    (moved,) = world.measure(3, profile(200, (0, 190, 1_000)))
    assert moved.job == 4


def test_a_job_placed_without_a_profile_is_moved_once_it_is_known() -> None:
    world = World()
    world.run(1, LOUD, priority=100)
    world.do(ev.JobSubmitted(2, spec("j2", ntasks=2, tasks_per_host=1)))
    world.started(2)
    assert world.hosts_of(2) == ("a", "b")
    (moved,) = world.measure(2)
    assert moved.job == 2


@pytest.mark.parametrize("comm", ["none", "cassini"])
def test_policies_that_know_no_rescheduling_never_move_jobs(comm: str) -> None:
    assert getattr(load("comm", comm), "rescheduling", None) is None
