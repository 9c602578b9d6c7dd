"""What happens outside reaches the cycle of a simulated world at its instant."""

from rm.core.jobs import events as ev
from rm.core.model.asked.traffic import on_off
from rm.core.model.job import JobSpec
from rm.core.model.network.links import LinkStats
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.program import program_of
from rm.sim.workload import SimJob, hosts
from rm.sim.world import World


def test_jobs_avoid_a_host_from_when_its_delay_was_measured():
    cluster = hosts(3, nic_bps=10**9, gpus=4)
    profile = on_off(200_000, 0.1, 10**9)
    spec = JobSpec("job", "sim", "", ntasks=2, tasks_per_host=1, traffic=profile)
    jobs = [SimJob(at_us, spec, program_of(profile, 1)) for at_us in (0, 2_000_000)]
    policies = Policies(load("queue", "fifo"), load("placement", "metronome"), load("comm", "none"))
    pairs = [("host1", "host2"), ("host1", "host3"), ("host2", "host3")]
    near, far = LinkStats(delay_us=100), LinkStats(delay_us=9_000)
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}))
    world = World(cluster, jobs, policies, network, measured=[(a, b, near) for a, b in pairs])
    for a, b in pairs[:2]:
        world.tell(1_000_000, ev.Measured(a, b, far))
    first, second = world.run().jobs
    assert first.hosts == ("host1", "host2")
    assert second.hosts == ("host2", "host3")
