"""Seeded schedules of failures, what must hold after each, and the shortest list of events that breaks it.

python -m tests.sim.schedules --count 100000  plays that many seeds on all cores, as before a release
python -m tests.sim.schedules --seed 7        plays one seed, and shrinks it if it fails (--jobs 10: of 10)
python -m tests.sim.schedules --events LIST   plays a list of events that was printed
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from rm.arrays import each
from rm.arrays import parse as parse_array
from rm.core.jobs.free import all_of
from rm.core.model.asked.array import Array
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.sharing.ended import SPANS_US
from rm.dependencies import Condition, parse
from tests.sim.choices import Choices, Event, Played, shrunk
from tests.sim.world import World

# How many jobs a schedule has, by its seed: smaller ones find as many defects in a second. These are nine, so
# that the schedules of which each state is validated (`modelled.leader.VALIDATED`) are of all sizes, too.
JOBS = (10, 3, 7, 4, 8, 5, 4, 3, 6)
SCHEDULES = int(os.environ.get("RM_TEST_SCHEDULES", "10000"))  # of every run of the tests
PARTS = 8  # test files, which the test runner spreads over the cores
CHUNKS = 25  # of each part
SHRINK_STEPS = 400  # a schedule that is shrunk must come to rest within these
FAULTS = (  # what each part's schedules meet, or they try less than they seem to
    "the daemon dies before commit #",
    "the daemon dies after commit #",
    "the daemon dies before action #",
    "the daemon dies between steps",
    "the request of action # is lost",
    "the answer to action # is lost",
    "the launch of # on # fails",
    "# says an exit twice",
    "# is switched off and on",
    "# is cut off",
    "# freezes",
    "# has room",
    "# ranks # fail",
    "# takes so long to end on #",
    "hosts are given up",
    "dependents are judged in parts",
    "inbox",
    "it is fenced",
    "it may be requeued",
    "it waits for another job",
    "it waits for an element",
    "somebody cancels",
    "one element is cancelled",
    "somebody limits an array",
    "somebody changes a job",
    "one element alone is changed",
    "somebody suspends or resumes",
    "jobs preempt others",
    "somebody is mailed of it",
    "it has a deadline",
)
NUMBERED = re.compile(r"\([\d, ]*\)|\bh?\d+\b")  # attempts, ranks, hosts and actions in the name of an event
ENDS_TOLD = ("Ended", "Failed", "Invalid dependency")  # by Slurm's subjects
SUBMITS = "somebody submits a job"


def check(world: World) -> None:
    """Nothing acknowledged is lost, nothing starts twice or late, all resources return."""
    jobs = world.db.jobs
    assert not world.to_submit, f"{world.to_submit} jobs were never acknowledged"
    submitted = sorted(number for number, job in jobs.items() if job.array_task is None)
    assert sorted(world.acknowledged) == submitted, "a job was lost, or made twice"
    elements = [(job.array_job, job.array_task) for job in jobs.values() if job.array_task is not None]
    assert len(elements) == len(set(elements)), "an element of an array became two jobs"
    assert len(world.acknowledged) == len(set(world.acknowledged)), "an id was given out twice"
    for job_id in world.acknowledged:
        assert jobs[job_id].state.final, f"never ended: {jobs[job_id]}"
    assert len(world.starts) == len(set(world.starts)), "a task was started twice"
    assert not world.begun, f"attempts began after they were given up: {world.begun}"
    assert not world.called_back, f"attempts began by what was sent after their end: {world.called_back}"
    assert not world.beyond, f"elements began beside more than their array's limit: {world.beyond}"
    assert not world.crowded, f"attempts were given processors that others still used: {world.crowded}"
    assert not world.twice, f"fenced attempts ran beside others of their job: {world.twice}"
    assert not world.early, f"jobs began before those that they waited for had come so far: {world.early}"
    told = {job for job, said in world.mails if any(f" {end}" in said for end in ENDS_TOLD)}
    untold = {job for job in world.acknowledged if jobs[job].spec.mail_events} - told
    assert not untold, f"nobody was mailed of the end of jobs {untold}"
    for job in jobs.values():
        if job.array is None:
            check_end(world, job)
        else:
            check_array(world, job, job.array)
    check_usage(world)
    state = world.cycle.state
    assert not state.placed, "a job holds resources"
    assert not state.ledger.rates, "usage grows without a job"
    assert {n: all_of(h) for n, h in state.hosts.items()} == state.free, "resources did not come back"
    assert all(not h.attempts for h in world.hosts.values()), "a host remembers"
    assert not world.db.actions, "the outbox is not empty"


def check_usage(world: World) -> None:
    """Each attempt that ran was counted once, by day and by hour, for its account and for its hosts."""
    ran = [job for job in world.db.jobs.values() if job.array is None and job.started_us is not None]
    again = sum(one.started_us is not None for job in world.db.jobs.values() for one in job.earlier)
    for span_us in SPANS_US:
        for of_hosts in (False, True):
            found = [
                s for h, s in world.db.usage.items() if h.span_us == span_us and bool(h.host) == of_hosts
            ]
            counted = sum(sums.jobs for sums in found), sum(sums.requeued for sums in found)
            assert counted == (len(ran), again), f"usage counts {counted} attempts, not {(len(ran), again)}"


def check_array(world: World, job: Job, array: Array) -> None:
    """Each element has ended as its own job has, or had no job, since it was cancelled before it started."""
    own = {j.array_task: j for j in world.db.jobs.values() if j.array_job == job.id}
    assert not array.unfinished, f"elements never ended: {job}"
    for task in each(parse_array(job.spec.array).mask):
        element = own.get(task)
        if element is None:
            assert array.set_of(task) == "dropped", f"element {task} was lost: {job}"
            asked = [*_asked(job), *_asked(job, world.waited.get(job.id, ""))]
            unmet = any(not world.met(replace(job, array_task=task), one) for one in asked)
            cancelled = world.was_cancelled(replace(job, array_job=job.id, array_task=task))
            assert unmet or cancelled or world.missed(job), f"nobody cancelled element {task}: {job}"
            continue
        ended = {JobState.COMPLETED: "completed", JobState.CANCELLED: "cancelled"}
        assert array.set_of(task) == ended.get(element.state, "failed"), f"{element} is in {array}"


def _asked(job: Job, dependency: str | None = None) -> list[Condition]:
    return [one for one in parse(job.spec.dependency if dependency is None else dependency).of if one.job]


def check_end(world: World, job: Job) -> None:
    if job.state is JobState.COMPLETED:
        ran = {rank for j, attempt, rank in world.starts if (j, attempt) == (job.id, job.attempt)}
        assert ran == set(range(job.spec.ntasks)), f"a part of the gang never ran: {job}"
        assert all(t.exit_code == 0 for t in job.tasks), f"{job}"
    unmet = [one for one in _asked(job) if not world.met(job, one)]
    if unmet:
        assert job.state is JobState.CANCELLED, f"{unmet} were never fulfilled: {job}"
    elif job.state is JobState.CANCELLED:
        # an element shares its array's specification, also one that had ended when that was changed
        before = _asked(job, world.waited.get(job.array_job, ""))
        failed = any(not world.met(job, one) for one in before)
        assert failed or world.was_cancelled(job) or world.missed(job), f"nobody cancelled it: {job}"
    elif job.reason is not None:
        assert job.reason.code is not ReasonCode.DEADLINE, f"it was to be cancelled: {job}"
    if job.state is JobState.NODE_FAIL:
        assert not job.spec.requeue, f"it may be requeued: {job}"


def problem(choices: Choices, jobs: int | None = None, max_steps: int = 2_000) -> str:
    """What a schedule breaks, with as many jobs as its seed has; "" when everything held."""
    try:
        world = World(choices, jobs=JOBS[choices.seed % len(JOBS)] if jobs is None else jobs)
        world.run(max_steps)
        check(world)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def of_events(events: Sequence[Event]) -> str:
    submitted = sum(what == SUBMITS for _, what, _ in events)
    return problem(Played(events), submitted, SHRINK_STEPS)


def play(seed: int, jobs: int | None = None) -> set[str]:
    """The kinds of events that the schedule met, named as in FAULTS.

    Raises:
        AssertionError: with the shortest list of events that still fails, and how to play it.
    """
    choices = Choices(seed)
    if found := problem(choices, jobs):
        raise AssertionError(report(seed, found, choices.events()))
    return {NUMBERED.sub("#", what) for _, what, _ in choices.events()}


def report(seed: int, found: str, events: list[Event]) -> str:
    if not of_events(events):
        return f"seed {seed}: {found}\n(its events alone do not show it: play the seed)"
    least = shrunk(events, lambda some: bool(of_events(some)))
    lines = [f"seed {seed}: {of_events(least)}", f"{len(least)} of its {len(events)} events are enough:"]
    lines += [f"  step {step}: {what} ({outcome})" for step, what, outcome in least]
    lines.append(f"Play them: python -m tests.sim.schedules --events '{json.dumps(least)}'")
    return "\n".join(lines)


def seeds(part: int, chunk: int) -> range:
    number, count = part * CHUNKS + chunk, PARTS * CHUNKS
    return range(number * SCHEDULES // count, (number + 1) * SCHEDULES // count)


def told(seed: int, jobs: int | None = None) -> str:
    """What to print of a seed; "" when everything held."""
    choices = Choices(seed)
    found = problem(choices, jobs)
    return report(seed, found, choices.events()) if found else ""


def play_many(count: int) -> str:
    with ProcessPoolExecutor(initializer=collect_seldom) as pool:
        return "\n".join(filter(None, pool.map(told, range(count), chunksize=50)))


def collect_seldom() -> None:
    """As tests do; and never what was imported."""
    gc.set_threshold(20_000, 10, 10)
    gc.freeze()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.schedules", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--count", type=int)
    what.add_argument("--seed", type=int)
    what.add_argument("--events", type=json.loads)
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args(words)
    if given.events is not None:
        found = of_events([(step, what, outcome) for step, what, outcome in given.events])
    else:
        found = told(given.seed, given.jobs) if given.count is None else play_many(given.count)
    print(found or "everything held")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
