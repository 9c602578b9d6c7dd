"""What threads beside the leader's know of its state."""

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Changes, Rules
from rm.core.jobs.lifecycle import apply
from rm.core.jobs.published import Published
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held
from rm.core.model.job import Task
from tests import builders


class House:
    def __init__(self) -> None:
        self.state = ClusterState()
        self.published = Published(self.state)
        self.do(ev.HostAdded(builders.host("a")), ev.HostAdded(builders.host("b")))
        self.do(ev.HostUp("a", "boot", "1"))

    def do(self, *events: ev.Event, renewed: bool = True) -> None:
        changes = Changes()
        for event in events:
            apply(self.state, event, 1_000, Rules(), changes)
        if renewed:
            self.published.renew(self.state, changes)


def test_tasks_are_known_by_host_attempt_and_rank() -> None:
    house = House()
    house.do(ev.JobSubmitted(1, builders.spec(ntasks=2)))
    assert house.published.task("a", 1, 1, 0) is None
    house.do(ev.JobPlaced(1, builders.placement("a", "b")))
    assert house.published.task("b", 1, 1, 1) == Task(1, "b")
    for wrong in (("a", 1, 1, 1), ("b", 1, 2, 1), ("b", 2, 1, 1), ("b", 1, 1, 7)):
        assert house.published.task(*wrong) is None
    house.do(ev.TasksStarted(1, 1, "b", 1_005, (1,)))
    started = house.published.task("b", 1, 1, 1)
    assert started is not None
    assert started.started_us == 1_005


def test_a_job_has_its_user_on_its_hosts_alone_while_this_attempt_is_there() -> None:
    house = House()
    house.do(ev.JobSubmitted(1, builders.spec(user="ann")), ev.JobPlaced(1, builders.placement("a")))
    assert house.published.user_of("a", 1, 1) == "ann"
    for wrong in (("b", 1, 1), ("a", 1, 2), ("a", 1, 0), ("a", 2, 1)):
        assert house.published.user_of(*wrong) == ""
    house.do(ev.TaskExited(1, 1, "a", 0, 0, 0, 5, 9))
    assert house.published.user_of("a", 1, 1) == ""


def test_nothing_is_seen_of_a_step_before_it_is_published() -> None:
    house = House()
    assert (house.published.is_heard("a"), house.published.is_heard("b")) == (True, False)
    house.do(ev.HostSilent("a", "cut"), renewed=False)
    assert house.published.is_heard("a")
    house.published.renew(house.state, Changes())
    assert not house.published.is_heard("a")


def test_a_host_that_was_removed_is_not_heard() -> None:
    house = House()
    house.do(ev.HostRemoved("a", "root"))
    assert not house.published.is_heard("a")


def test_strays_are_known_until_they_end() -> None:
    house = House()
    house.do(ev.StrayFound(7, 1, "a", True, Held((0,))))
    assert house.published.is_stray("a", 7, 1)
    assert not house.published.is_stray("b", 7, 1)
    house.do(ev.StrayEnded(7, 1, "a", 0))
    assert not house.published.is_stray("a", 7, 1)


def test_jobs_that_the_state_forgets_are_forgotten() -> None:
    house = House()
    house.do(
        ev.JobSubmitted(1, builders.spec()),
        ev.JobPlaced(1, builders.placement("a")),
        ev.TasksStarted(1, 1, "a", 5, (0,)),
        ev.TaskExited(1, 1, "a", 0, 0, 0, 5, 6),
    )
    assert house.published.task("a", 1, 1, 0) is not None
    house.state.forget_finished(over=0)
    house.published.renew(house.state, Changes())
    assert house.published.task("a", 1, 1, 0) is not None  # of a few, half stays
    del house.state.jobs[1]
    house.published.renew(house.state, Changes())
    assert house.published.task("a", 1, 1, 0) is None


def test_ended_jobs_leave_memory_by_their_size_too() -> None:
    """A user who submits and cancels jobs with scripts of megabytes filled the daemon's memory: 4,000 of them
    stayed, whatever they weighed."""
    house = House()
    script = "#!/bin/sh\n" + "#" * 100_000
    for number in range(1, 9):
        house.do(ev.JobSubmitted(number, builders.spec(script=script)), ev.CancelRequested(number, "alice"))
    array = builders.spec(script=script, array="0-1")
    house.do(ev.JobSubmitted(9, array), ev.CancelRequested(9, "alice"))
    assert 900_000 < house.state.ended.size_bytes < 950_000
    house.do(ev.RequeueRequested(1, "alice"))
    assert 800_000 < house.state.ended.size_bytes < 850_000
    house.state.forget_finished(over_bytes=1_000_000)
    assert len(house.state.jobs) == 9
    house.state.forget_finished(over_bytes=500_000)
    assert [*house.state.jobs] == [1, 8, 9]
    assert 200_000 < house.state.ended.size_bytes <= 250_000
    house.state.forget_finished(over_bytes=0)
    assert ([*house.state.jobs], house.state.ended.size_bytes) == ([1], 0)


def test_of_ended_jobs_those_of_the_user_who_has_most_leave_memory() -> None:
    """A user who submits and cancels without end took others' jobs from lists, and their keys, by which a
    submission that is sent again is known."""
    house = House()

    def end(number: int, user: str, size: int) -> None:
        spec = builders.spec(user=user, script="#!/bin/sh\n" + "#" * size)
        house.do(ev.JobSubmitted(number, spec, key=f"k{number}"), ev.CancelRequested(number, user))

    end(1, "light", 1_000)
    for number in range(2, 12):
        end(number, "heavy", 100_000)
    end(12, "light", 1_000)
    house.state.forget_finished(over_bytes=900_000)
    assert [*house.state.jobs] == [1, 8, 9, 10, 11, 12]
    assert {user for user, _ in house.state.submissions} == {"light", "heavy"}
    assert ("light", "k1") in house.state.submissions
    for number in range(13, 23):
        end(number, "light", 10)  # many, that weigh little
    house.state.forget_finished(over=16)
    assert [*house.state.jobs] == [8, 9, 10, 11, 19, 20, 21, 22]
