"""A job that begins goes to its slot at once: Metronome's initial rotation (Sec. III-C)."""

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

MS = 1_000
GBPS = 10**9


def literal() -> Policies:
    """Metronome to the letter: no traffic classes, no gates."""
    comm = load("comm", "metronome", {"mode": "paper", "shaping": False})
    return Policies(load("queue", "fifo"), load("placement", "first-fit"), comm)


def periodic(name: str, at_ms: int, priority: int = 0) -> SimJob:
    profile = on_off(200 * MS, 0.4, GBPS)
    spec = JobSpec(name, "sim", "", ntasks=2, tasks_per_host=1, traffic=profile, priority=priority)
    return SimJob(at_ms * MS, spec, program_of(profile, 100))


@pytest.mark.parametrize("regulation", [True, False])
@pytest.mark.parametrize("at_ms", range(1_000, 1_200, 40))
def test_the_second_job_never_meets_the_first(regulation, at_ms):
    cluster = hosts(2, nic_bps=GBPS)
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}), lockstep=True)
    jobs = [periodic("first", 0), periodic("second", at_ms)]
    result = World(cluster, jobs, literal(), network, settings=Settings(regulation=regulation)).run()
    assert result.links["host1:out"].overloaded_us == 0
    assert [j.paused_us for j in result.jobs] == [0, 0], "the wait before the first iteration is in none"
    assert all(job.mean_us == pytest.approx(200 * MS) for job in result.jobs)


def test_a_high_priority_newcomer_is_not_held_up_but_moves_the_other():
    cluster = hosts(2, nic_bps=GBPS)
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}), lockstep=True)
    jobs = [periodic("low", 0), periodic("high", 1_010, priority=100)]
    result = World(cluster, jobs, literal(), network).run()
    low, high = result.jobs
    assert high.start_us == 1_010 * MS
    assert high.paused_us == 0
    assert low.paused_us > 0
    assert high.mean_us == pytest.approx(200 * MS, rel=0.02)
