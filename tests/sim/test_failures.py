"""The modelled world itself: it replays, it finds defects of the core, and shortens what shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import dependents
from rm.core.jobs import events as ev
from rm.core.jobs.dependents import Dependents
from rm.core.jobs.handlers import cluster_events, dependency
from rm.core.jobs.handlers import transitions as job_transitions
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.job import JobState
from tests.sim import schedules
from tests.sim.choices import Choices, Event, Played, shrunk
from tests.sim.modelled import agents, leader
from tests.sim.world import World

TRIED = range(60)  # seeds among which every kind of event must be
JOBS, FEW, TRIES = 6, 25, 300  # of a list that is shortened: events at most, and lists played


def test_a_run_replays_from_its_seed_and_from_its_events() -> None:
    first, second = World(7), World(7)
    assert first.run() == second.run()
    assert first.daemons == second.daemons > 1, "the daemon should have died at least once"
    again = World(Played(first.choices.events()))
    assert again.run() == first.db.jobs


def test_without_failures_every_gang_completes_on_its_first_attempt() -> None:
    calm = World(1, faults=0.0)
    ran = calm.run().items()
    jobs = {i: job for i, job in ran if job.array is None and job.depends is not Standing.FAILED}
    assert {j.restarts for j in jobs.values()} == {0}, "beside what a host gives back of a slice"
    assert {j.state for j in jobs.values()} <= {JobState.COMPLETED, JobState.FAILED}


def test_every_kind_of_event_is_among_those_of_some_seeds() -> None:
    missing = {
        "dies before commit", "dies after commit", "dies before action", "dies between", "request of action",
        "answer to action", "launch of", "switched off", "cut off", "freezes", "exit twice", "cancels",
        "inbox", "may be requeued", "fail", "is fenced", "takes so long to end",
        "waits for another job", "it waits for", "that job is", "it is", "it waits for an element",
        "that element is", "one element is cancelled",
    }  # fmt: skip
    for seed in TRIED:
        drawn = " ".join(what for _, what, _ in _events(seed))
        missing = {kind for kind in missing if kind not in drawn}
        if not missing:
            return
    raise AssertionError(f"no seed has {missing}")


def _events(seed: int) -> list[Any]:
    choices = Choices(seed)
    assert schedules.problem(choices) == ""
    return choices.events()


def _accept_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(agents, "LATE_US", 1 << 60)


def _repeat_after_reboot(patch: pytest.MonkeyPatch) -> None:
    def always(state: Any, up: Any, reported: Any, action: Any) -> bool:
        job = state.jobs.get(action.job)
        return job is not None and job.attempt == action.attempt and job.occupies

    patch.setattr(agents, "worth_repeating", always)


def _forget_the_key(patch: pytest.MonkeyPatch) -> None:
    rebuild = leader.rebuild

    def without_keys(*args: Any) -> ClusterState:
        state = rebuild(*args)
        state.submissions.clear()
        return state

    patch.setattr(leader, "rebuild", without_keys)


def _keep_resources(patch: pytest.MonkeyPatch) -> None:
    vacate = ClusterState.vacate

    def leaking(self: ClusterState, job: Any) -> None:
        if job.attempt == 1:
            vacate(self, job)
        else:
            self.placed.pop(job.id, None)

    patch.setattr(ClusterState, "vacate", leaking)


def _overlook_losses(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(job_transitions.TRANSITIONS, (JobState.RUNNING, ev.TasksLost), lambda c, j, e: None)


def _wait_for_no_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cluster_events, "ended_after_us", lambda job: 0)


def _tell_no_dependents(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dependents, "judge_all", lambda self, awaited: None)


def _take_any_end_for_a_good_one(patch: pytest.MonkeyPatch) -> None:
    def judged(one: Dependency, named: Any, now_us: int) -> Dependency:
        found = dependents.judged(one, named, now_us)
        return replace(found, standing=Standing.FULFILLED) if found.standing is Standing.FAILED else found

    patch.setattr(dependency, "judged", judged)


# and the seed from which on one that shows it is looked for: most lists are long, and slow to be shortened
DEFECTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], int]] = {
    "a late launch is taken": (_accept_late, 48),
    "a launch is repeated after a reboot": (_repeat_after_reboot, 111),
    "keys are forgotten by a restart": (_forget_the_key, 0),
    "resources of second attempts stay taken": (_keep_resources, 0),
    "a fenced job is given up with its host": (_wait_for_no_lease, 235),
    "lost tasks are not noticed": (_overlook_losses, 463),
    "those that wait for a job do not hear of its end": (_tell_no_dependents, 7),
    "a job starts after any end": (_take_any_end_for_a_good_one, 0),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_and_shown_by_few_events(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is shortened event by event only: where the first seed's stays long, another one's does not."""
    make, first = DEFECTS[defect]
    make(monkeypatch)
    for seed in (*range(first, 500), *range(first)):
        choices = Choices(seed)
        if not schedules.problem(choices, JOBS):
            continue
        events = choices.events()
        if not schedules.of_events(events):
            continue
        tries = iter(range(TRIES))
        least = shrunk(events, lambda some, left=tries: next(left, None) is not None and _fails(some))
        assert schedules.of_events(least)
        if len(least) <= FEW:
            assert 2 * len(least) <= len(events)
            return
    raise AssertionError("no seed shows it by few events")


def _fails(events: Sequence[Event]) -> bool:
    return bool(schedules.of_events(events))


LOST = [(1, "the request of action 1 is lost", 1), (1, "h0 needs so long to greet", 5)]


def test_a_job_that_is_cancelled_while_its_launch_is_under_way_never_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its host did not hear the launch, and says hello after the cancellation."""
    events = [(1, schedules.SUBMITS, 1), *LOST, (2, "somebody cancels", 1)]
    assert schedules.of_events(events) == ""
    monkeypatch.setattr(leader, "before_its_end", lambda action: action)
    assert "by what was sent after their end: [(1, 1)]" in schedules.of_events(events)


@pytest.mark.parametrize(
    ("seed", "jobs"), [(26, 10), (237, 10), (3974, 10), (4504, 9), (5608, 10), (7684, 10)]
)
def test_what_once_found_a_defect_finds_none(seed: int, jobs: int) -> None:
    """Each with as many jobs as when it did."""
    schedules.play(seed, jobs)


EVENTS = [(1, schedules.SUBMITS, 1), (3, "h0 is cut off", 1)]


WAYS = [["--events", json.dumps(EVENTS)], ["--seed=7"], ["--seed=7", "--jobs=12"]]


@pytest.mark.parametrize("words", WAYS)
def test_schedules_are_played_by_one_command(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert schedules.main(words) == 0
    assert capfd.readouterr() == ("everything held\n", "")


def test_schedules_are_played_by_one_program() -> None:
    argv = [sys.executable, "-m", "tests.sim.schedules", "--count=4"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "everything held\n", "")
