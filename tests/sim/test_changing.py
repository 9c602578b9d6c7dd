"""A simulated job that changes while it runs: measured anew, aligned anew, moved where that is allowed."""

from dataclasses import replace

import pytest

from rm.core.model.asked.traffic import on_off
from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.program import program_of
from rm.sim.workload import SimJob, hosts
from rm.sim.world import Settings, World

MS, S = 1_000, 1_000_000
GBPS = 10**9


def job(name: str, period_ms: int, duty: float, iterations: int, priority: int = 0) -> SimJob:
    profile = on_off(period_ms * MS, duty, GBPS)
    spec = JobSpec(name, "sim", "", ntasks=2, tasks_per_host=1, priority=priority, traffic=profile)
    return SimJob(0, spec, program_of(profile, iterations))


def world(count: int, *, reschedule: bool, jobs: list[SimJob]) -> World:
    cluster = hosts(count, nic_bps=GBPS)
    comm = load("comm", "metronome", {"reschedule": reschedule, "shaping": False})
    policies = Policies(load("queue", "fifo"), load("placement", "metronome"), comm)
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}), lockstep=True)
    return World(cluster, jobs, policies, network, settings=Settings(restart_us=5 * S))


def test_a_job_takes_its_new_time_from_the_next_iteration_on():
    before, after = job("a", 200, 0.4, 100), job("a", 120, 0.4, 100)
    one = world(2, reschedule=False, jobs=[before])
    one.change(10 * S, 0, after)
    (result,) = one.run().jobs
    assert result.end_us == pytest.approx(10 * S + 50 * 120 * MS)


@pytest.mark.parametrize("reschedule", [True, False])
def test_a_job_that_turns_incompatible_is_moved_where_that_is_switched_on(reschedule):
    high, low = job("high", 200, 0.45, 1_000, priority=100), job("low", 200, 0.45, 1_000)
    one = world(4, reschedule=reschedule, jobs=[high, low])
    one.change(50 * S, 1, replace(job("low", 150, 0.6, 1_000), arrival_us=0))  # half the batch
    result = one.run()
    moved = result.jobs[1]
    assert moved.attempts == (2 if reschedule else 1)
    assert (set(moved.hosts) & set(result.jobs[0].hosts) == set()) == reschedule
    assert moved.iterations == 1_000
    ideal_us = 50 * S + (1_000 - 250) * 150 * MS + 5 * S
    assert (moved.end_us < 1.05 * ideal_us) == reschedule
