"""Jobs that management slows down are left alone, after it was measured: through the simulator's world."""

import pytest

from bench.modes import LINK_BPS, Case, arriving
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.policies.regulate.controller import ControllerOptions
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.result import Result
from rm.sim.workload import Noise, hosts
from rm.sim.world import Settings, World


def run(case: Case, comm: str, seconds: int = 40, verify: bool = True, **options) -> Result:
    cluster = hosts(2, gpus=case.jobs, nic_bps=LINK_BPS)
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", comm, options))
    settings = Settings(
        noise=Noise(jitter=case.jitter),
        controller=ControllerOptions(verify=verify),
        until_us=seconds * 1_000_000,
    )
    network = Fluid(Topology({h.name: float(h.nic_bps) for h in cluster}), lockstep=True)
    return World(cluster, arriving(case, 1), policies, network, settings=settings).run()


def slowest(result: Result) -> float:
    return max(job.mean_us / job.alone_us for job in result.jobs)


@pytest.mark.parametrize(
    ("case", "comm", "options"),
    [
        (Case(4, 1.3, 0.04, "equal", False), "metronome", {"combine": True}),
        (Case(4, 0.9, 0.01, "unlike", False), "first-come", {}),
    ],
    ids=("classes and gates on an overloaded link", "first come, first served with unlike periods"),
)
def test_jobs_that_are_slower_managed_are_left_alone(case, comm, options):
    alone = slowest(run(case, "none"))
    without = run(case, comm, verify=False, **options)
    verified = run(case, comm, **options)
    assert without.released == 0
    assert verified.released == 2  # to measure, and then for good
    # a third of the time goes by until it is known
    assert slowest(verified) - alone < 0.6 * (slowest(without) - alone)


def test_jobs_that_are_slower_unmanaged_stay_managed():
    case = Case(3, 1.1, 0.01, "equal", False)
    assert 1.05 < slowest(run(case, "metronome")) < slowest(run(case, "none")) - 0.05
    assert run(case, "metronome").released == 1  # only to measure
