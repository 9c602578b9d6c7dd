"""Seeded failure runs: nothing acknowledged is lost, nothing starts twice, all resources return."""

import pytest

from rm.core.job import JobState
from rm.core.state import all_of
from tests.sim.world import World

CHUNKS = 20
SEEDS_PER_CHUNK = 25


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_no_job_is_lost_or_started_twice(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        world = World(seed)
        jobs = world.run()
        story = f"seed {seed}"
        assert len(world.acknowledged) == len(set(world.acknowledged)) == 12, story
        for job_id in world.acknowledged:
            assert jobs[job_id].state.final, f"{story}: {jobs[job_id]}"
        assert len(world.starts) == len(set(world.starts)), f"{story}: a task was started twice"
        for job_id in world.acknowledged:
            check_end(world, job_id, story)
        state = world.cycle.state
        assert not state.placed, story
        assert {n: all_of(h) for n, h in state.hosts.items()} == state.free, story
        assert all(not h.attempts for h in world.hosts.values()), f"{story}: a host remembers"
        assert not world.db.actions, f"{story}: the outbox is not empty"


def check_end(world: World, job_id: int, story: str) -> None:
    job = world.db.jobs[job_id]
    if job.state is JobState.COMPLETED:
        ran = {rank for j, attempt, rank in world.starts if (j, attempt) == (job_id, job.attempt)}
        assert ran == set(range(job.spec.ntasks)), f"{story}: a part of the gang never ran: {job}"
        assert all(t.exit_code == 0 for t in job.tasks), f"{story}: {job}"
    if job.state is JobState.CANCELLED:
        assert job_id in world.cancelled, story
    if job.state is JobState.NODE_FAIL:
        assert not job.spec.requeue, story


def test_a_run_replays_from_its_seed() -> None:
    first, second = World(7), World(7)
    assert first.run() == second.run()
    assert first.daemons == second.daemons > 1, "the daemon should have died at least once"


def test_without_failures_every_gang_completes_on_its_first_attempt() -> None:
    world = World(1, faults=0.0)
    jobs = world.run()
    assert {j.attempt for j in jobs.values()} == {1}
    assert {j.state for j in jobs.values()} <= {JobState.COMPLETED, JobState.FAILED}
