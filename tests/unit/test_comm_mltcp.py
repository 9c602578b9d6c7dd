"""mltcp: F of the paper, and jobs that slide apart by it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.errors import ConfigError
from rm.policies.comm.mltcp import Mltcp, MltcpOptions
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.program import program_of
from rm.sim.workload import SimJob, hosts
from rm.sim.world import Settings, World
from tests.builders import MBPS, spec

LINK = 100 * MBPS
MS = 1000


def test_f_is_the_papers_line() -> None:
    policy = Mltcp()
    assert [policy.weight(ratio) for ratio in (0.0, 0.5, 1.0, 1.5)] == [0.25, 1.125, 2.0, 2.0]
    # one that begins beside one that is half done: 0.25 / (0.25 + 1.125) of the link
    shares = [policy.weight(0.0), policy.weight(0.5)]
    assert shares[0] / sum(shares) == pytest.approx(0.1818, abs=1e-4)


@given(slope=st.floats(0, 10), intercept=st.floats(0.01, 10), at=st.floats(0, 1), more=st.floats(0, 1))
def test_who_has_sent_more_never_counts_less(slope, intercept, at, more) -> None:
    policy = Mltcp(MltcpOptions(slope, intercept))
    assert 0 < policy.weight(at) <= policy.weight(at + more)


@pytest.mark.parametrize("wrong", [{"slope": -1.0}, {"intercept": 0.0}, {"parts": 0}, {"parts": 1001}])
def test_options_that_make_no_sense_are_refused(wrong) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        MltcpOptions(**wrong)


def iterations_ms(comm: str, options=None, *, count: int = 60, sends_ms: int = 40) -> list[tuple[float, ...]]:
    """Of two equal jobs on the same hosts, the second of which begins 4 ms later: period 100 ms."""
    traffic = TrafficProfile(100 * MS, (Phase((100 - sends_ms) * MS, sends_ms * MS, LINK),))
    jobs = [
        SimJob(at, spec(f"j{at}", ntasks=2, tasks_per_host=1, traffic=traffic), program_of(traffic, count))
        for at in (0, 4 * MS)
    ]
    two = hosts(2, nic_bps=LINK)
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", comm, options))
    network = Fluid(Topology({host.name: host.nic_bps for host in two}), lockstep=True)
    result = World(two, jobs, policies, network, settings=Settings(record=True)).run()
    return [tuple(one / MS for one in job.durations_us) for job in result.jobs]


def test_jobs_that_meet_slide_apart_within_some_iterations() -> None:
    """HotNets '24, Fig. 2: equal flows converge to an interleaved schedule; sharing fairly they never do."""
    fair = iterations_ms("none")
    assert min(max(times[:-1]) for times in fair) > 130
    assert fair[0][10] == pytest.approx(fair[0][50], abs=1e-3)
    mltcp = iterations_ms("mltcp")
    assert mltcp[0][0] > 105  # they meet
    for times in mltcp:
        assert times[40:] == pytest.approx([100.0] * len(times[40:]), abs=0.5)


def test_without_a_slope_it_shares_as_fairly_as_without_a_policy() -> None:
    flat = {"slope": 0.0, "intercept": 1.0}
    for mine, fair in zip(iterations_ms("mltcp", flat), iterations_ms("none"), strict=True):
        assert mine == pytest.approx(fair, abs=1e-3)


def test_a_job_alone_is_as_fast_as_without_it() -> None:
    assert iterations_ms("mltcp", {"parts": 3}, count=1)[0][0] >= 100
    apart = iterations_ms("mltcp", count=5, sends_ms=2)
    assert all(times == pytest.approx([100.0] * 5, abs=1e-3) for times in apart)
