"""What a host says it runs, against what the state believes."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Launch, Start
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.reconcile import RANKS_MAX, STRAYS_MAX, Reported, ReportedTask, reconcile, worth_repeating
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held
from rm.core.model.host import Gpu
from rm.core.model.job import JobState, Placement, TaskPlacement
from tests import builders

GANG = Placement((TaskPlacement(0, "h1"), TaskPlacement(1, "h1"), TaskPlacement(2, "h2")))
UP = ev.HostUp("h1", "boot", "1")


def cluster(*events: ev.Event) -> ClusterState:
    """Two hosts and job 1, placed on both, after these events."""
    state = ClusterState()
    first = [ev.HostAdded(builders.host(n, boot_id="boot")) for n in ("h1", "h2")]
    for event in (*first, ev.JobSubmitted(1, builders.spec(ntasks=3)), ev.JobPlaced(1, GANG), *events):
        apply(state, event, 100, Rules(), Changes())
    return state


def told(rank: int, state: str = "running", job: int = 1, attempt: int = 1, **more: Any) -> ReportedTask:
    return ReportedTask(job, attempt, rank, state, **more)


STARTED = (
    ev.TasksPrepared(1, 1, "h1"),
    ev.TasksPrepared(1, 1, "h2"),
    ev.TasksStarted(1, 1, "h1", 50, (0, 1)),
    ev.TasksStarted(1, 1, "h2", 50, (2,)),
)
RANK_0_ENDED = ev.TaskExited(1, 1, "h1", 0, 0, 0, 50, 60)


def difference(state: ClusterState, *tasks: ReportedTask, **open: Any) -> list[ev.Event]:
    return reconcile(state, "h1", Reported(tasks), open.get("launches", ()), open.get("ends", ()), 100)


def test_a_host_that_agrees_changes_nothing() -> None:
    assert difference(cluster(*STARTED), told(0), told(1)) == []


def test_news_that_were_missed_become_events() -> None:
    state = cluster()
    assert difference(state, told(0, "prepared"), told(1, "prepared"))[0] == ev.TasksPrepared(1, 1, "h1")
    assert difference(state, told(0, started_us=70), told(1)) == [
        ev.TasksStarted(1, 1, "h1", 70, (0,)),
        ev.TasksStarted(1, 1, "h1", 100, (1,)),
    ]
    state = cluster(*STARTED)
    ended = told(1, "exited", started_us=50, ended_us=80, code=3, why="abort", ran_us=29)
    lost = told(0, "lost", why="killed")
    assert difference(state, lost, ended) == [
        ev.TasksLost(1, 1, "h1", (0,), "killed"),
        ev.TaskExited(1, 1, "h1", 1, 3, 0, 50, 80, False, "abort", 29),
    ]


def test_what_a_host_forgot_is_lost_unless_it_will_be_launched() -> None:
    state = cluster()
    assert difference(state) == [ev.TasksLost(1, 1, "h1", (0, 1))]
    assert difference(state, launches={(1, 1)}) == []


def test_an_ended_task_of_a_job_that_goes_on_elsewhere_keeps_its_log() -> None:
    state = cluster(*STARTED, RANK_0_ENDED)
    assert difference(state, told(0, "exited"), told(1)) == []


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_attempt_that_is_over_is_stopped_or_forgotten_but_not_before_its_collection(attempt: int) -> None:
    state = ClusterState()
    stray = told(0, "exited", attempt=attempt)
    assert difference(state, stray) == [ev.StrayFound(1, attempt, "h1", False)]
    assert difference(state, stray, ends={(1, attempt)}) == []
    still = [told(0, "exited", attempt=attempt), told(1, attempt=attempt)]
    running = ev.StrayFound(1, attempt, "h1", True, Held((1,)))
    assert difference(state, *still, ends={(1, attempt)}) == [running]
    # nothing else would let the host forget it, and a restored database may give its number to a job again
    assert difference(state, *still) == [running, ev.StrayFound(1, attempt, "h1", False)]


def test_what_runs_where_it_was_given_up_is_stopped() -> None:
    state = cluster(*STARTED, ev.HostDown("h1", "silent"))
    assert state.jobs[1].state is JobState.COMPLETING
    given: dict[str, Any] = {"cpus": 2, "mem_bytes": 5}
    known = [told(0, **given, gpus=("GPU-a",)), told(1, **given, gpus=("GPU-b", "GPU-a"))]
    held = Held((0, 1), 4, 10, ("GPU-a", "GPU-b"))
    assert difference(state, *known) == [ev.StrayFound(1, 1, "h1", True, held)]
    assert difference(state, told(0), told(1)) == [ev.StrayFound(1, 1, "h1", True, Held((0, 1)))]


def test_of_very_many_strays_those_that_run_come_first_and_the_jobs_own_news_before_them() -> None:
    state = cluster(*STARTED)
    others = [told(0, "exited", job=10 + i) for i in range(2 * STRAYS_MAX)]
    running = [told(0, job=10_000), told(0, job=10_001)]
    found = difference(state, *others, *running, told(0, "lost"), told(1))
    assert found[:3] == [
        ev.TasksLost(1, 1, "h1", (0,)),
        ev.StrayFound(10_000, 1, "h1", True, Held((0,))),
        ev.StrayFound(10_001, 1, "h1", True, Held((0,))),
    ]
    others_left = [ev.StrayFound(10 + i, 1, "h1", False) for i in range(STRAYS_MAX - 2)]
    assert found[3:] == [*others_left, *(ev.StrayFound(job, 1, "h1", False) for job in (10_000, 10_001))]


@pytest.mark.parametrize(
    ("cpus", "gpus", "fits"),
    [(6, (), True), (7, (), False), (0, ("0",), True), (0, ("2",), False), (0, None, False)],
)
def test_a_launch_is_withheld_where_what_was_given_up_still_holds_its_place(
    cpus: int, gpus: tuple[str, ...] | None, fits: bool
) -> None:
    """Such a job borrowed its place from one that was lost before it, and that runs still."""
    state = ClusterState()
    host = builders.host("h1", cpus=8, gpus=3, boot_id="boot")
    first = Placement((TaskPlacement(0, "h1", (2,)),))
    spec = builders.spec(ntasks=1, cpus_per_task=2, gpus_per_task=1)
    for event in (ev.HostAdded(host), ev.JobSubmitted(1, spec), ev.JobPlaced(1, first)):
        apply(state, event, 100, Rules(), Changes())
    stray = told(0, job=9, cpus=cpus, gpus=gpus)
    found = difference(state, stray, launches={(1, 1)})
    kept_back = [e for e in found if isinstance(e, ev.LaunchWithheld)]
    assert kept_back == ([] if fits else [ev.LaunchWithheld(1, 1, "h1")])
    if fits:
        return
    known = difference(state, stray, told(0, "launching"), launches={(1, 1)})
    assert not any(isinstance(e, ev.LaunchWithheld) for e in known), "its host has it already"
    for event in found:
        apply(state, event, 100, Rules(), Changes())
    job = state.jobs[1]
    assert (job.state, job.launch_failures, job.restarts) == (JobState.PENDING, 0, 0)
    assert "its place on h1 is held by what was given up there" in "".join(what for _, what in job.history)


def test_launches_are_not_withheld_for_what_others_hold() -> None:
    """Two jobs have a GPU each; a stray holds one of these, and another GPU with a third job, which runs."""
    state = ClusterState()
    host = builders.host("h1", cpus=8, gpus=3, boot_id="boot")
    apply(state, ev.HostAdded(host), 100, Rules(), Changes())
    for job in (1, 2, 3):
        place = Placement((TaskPlacement(0, "h1", (job - 1,)),))
        spec = builders.spec(ntasks=1, cpus_per_task=1, gpus_per_task=1)
        for event in (ev.JobSubmitted(job, spec), ev.JobPlaced(job, place)):
            apply(state, event, 100, Rules(), Changes())
    told_of_3 = told(0, "running", job=3, started_us=50)
    strays = told(0, job=9, cpus=1, gpus=("0", "2"))
    found = difference(state, told_of_3, strays, launches={(1, 1), (2, 1)})
    kept_back = [e for e in found if isinstance(e, ev.LaunchWithheld)]
    assert kept_back == [ev.LaunchWithheld(1, 1, "h1")]


def test_of_several_launches_only_those_are_withheld_that_have_no_room() -> None:
    state = ClusterState()
    apply(state, ev.HostAdded(builders.host("h1", cpus=8, boot_id="boot")), 100, Rules(), Changes())
    for job in (1, 2, 3):
        place = Placement((TaskPlacement(0, "h1"),))
        for event in (
            ev.JobSubmitted(job, builders.spec(ntasks=1, cpus_per_task=2)),
            ev.JobPlaced(job, place),
        ):
            apply(state, event, 100, Rules(), Changes())
    found = difference(state, told(0, job=9, cpus=5, gpus=()), launches={(1, 1), (2, 1), (3, 1)})
    kept_back = [e for e in found if isinstance(e, ev.LaunchWithheld)]
    assert kept_back == [ev.LaunchWithheld(2, 1, "h1"), ev.LaunchWithheld(3, 1, "h1")]


LAUNCH = Launch(1, 1, "h1", GANG.on("h1"), hold=True)
START = Start(1, 1, "h1")


def test_a_launch_is_repeated_when_the_host_never_saw_it() -> None:
    state = cluster()
    assert worth_repeating(state, UP, Reported([]), LAUNCH)
    assert not worth_repeating(state, UP, Reported([told(0, "prepared")]), LAUNCH)
    assert worth_repeating(state, UP, Reported([told(0, "launching")]), LAUNCH)  # then its outcome is told
    assert worth_repeating(state, UP, Reported([told(0, "prepared")]), START)
    assert not worth_repeating(state, UP, Reported([told(0)]), START)
    assert not worth_repeating(state, UP, Reported([]), START)


def test_nothing_is_repeated_after_a_reboot_or_for_an_attempt_that_is_over() -> None:
    state = cluster()
    assert not worth_repeating(state, ev.HostUp("h1", "another", "1"), Reported([]), LAUNCH)
    assert not worth_repeating(state, UP, Reported([]), replace(LAUNCH, attempt=2))
    assert not worth_repeating(state, UP, Reported([]), replace(LAUNCH, job=9))
    given_up = cluster(ev.CancelRequested(1, "alice"))
    assert not worth_repeating(given_up, UP, Reported([]), LAUNCH)
    lost_there = cluster(*STARTED[:2], STARTED[3], ev.HostDown("h1", "silent"))
    assert lost_there.jobs[1].state is JobState.COMPLETING
    assert not worth_repeating(lost_there, UP, Reported([told(0, "prepared"), told(1, "prepared")]), START)


@pytest.mark.parametrize("known", [False, True])
def test_as_many_strays_and_gpus_as_a_host_can_claim_are_gone_over_few_enough_times(known: bool) -> None:
    looked_up = count(1)

    class Index(int):
        def __hash__(self) -> int:
            assert next(looked_up) < 1_000_000  # all GPUs for each stray at each event would be 80 times that
            return super().__hash__()

    class Word(str):
        def __hash__(self) -> int:
            assert next(looked_up) < 1_000_000
            return super().__hash__()

    state = cluster()
    state.hosts["h1"] = replace(state.hosts["h1"], gpus=tuple(Gpu(Index(i), f"u{i}") for i in range(1_024)))
    gpus = tuple(Word(i) for i in range(1_024)) if known else None
    strays = [told(0, job=1_000 + n, gpus=gpus) for n in range(STRAYS_MAX)]
    found = difference(state, *strays)
    for event in (*found, *(ev.StrayEnded(1_000 + n, 1, "h1", 0) for n in range(STRAYS_MAX - 1))):
        apply(state, event, 100, Rules(), Changes())
    assert state.free["h1"].gpus == ()
    apply(state, ev.StrayEnded(1_000 + STRAYS_MAX - 1, 1, "h1", 0), 100, Rules(), Changes())
    assert len(state.free["h1"].gpus) == 1_024


def test_of_a_stray_with_very_many_ranks_few_enough_are_waited_for() -> None:
    """Each that ends has all of them gone over."""
    found = difference(cluster(), *(told(rank, job=9) for rank in range(RANKS_MAX + 5)))
    (held,) = [e.held for e in found if isinstance(e, ev.StrayFound) and e.held is not None]
    assert held.ranks == tuple(range(5, RANKS_MAX + 5))
