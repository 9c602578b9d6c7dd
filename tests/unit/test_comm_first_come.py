"""first-come: which jobs' bursts are ordered on which hosts."""

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Bursts, ShapingRule
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.errors import ConfigError
from rm.policies.comm.first_come import FirstCome, FirstComeOptions
from tests.builders import MBPS, host, placed, profile, snapshot, spec

CLUSTER = snapshot(*(host(name, nic_mbps=100) for name in "abc"))
USUAL = Bursts(10_000, 1_000_000)


def test_bursts_are_ordered_on_links_that_several_jobs_use_and_high_jobs_come_first() -> None:
    jobs = [
        placed(1, "a", "b", priority=100, traffic=profile(200, (0, 60, 100))),
        placed(2, "a", "b"),
        placed(3, "b", "c"),
        placed(4, "c", "c"),
        placed(5, "c", "a", low_comm=True),
    ]
    rules = FirstCome().align(jobs, CLUSTER).shaping
    on = [("a", 1, 0), ("a", 2, 1), ("b", 1, 0), ("b", 2, 1), ("b", 3, 1)]
    share, link = MBPS, 100 * MBPS
    assert rules == tuple(ShapingRule(job, where, first, share, link, USUAL) for where, job, first in on)
    assert FirstCome().align(jobs[3:], CLUSTER) == NOTHING_TO_ALIGN


def test_jobs_without_a_profile_are_ordered_as_soon_as_they_are_placed() -> None:
    options = {"gap_ms": 2.5, "longest_ms": 300.0}
    comm = load("comm", "first-come", options)
    cycle = Cycle(ClusterState(), Policies(load("queue", "fifo"), load("placement", "first-fit"), comm))
    hosts = [host(name, cpus=8, nic_mbps=100) for name in "ab"]
    cycle.step([ev.HostAdded(one) for one in hosts], 1)
    cycle.step([ev.HostUp(one.name, "boot", "1") for one in hosts], 2)
    cycle.step([ev.JobSubmitted(n, spec(f"j{n}", ntasks=2, tasks_per_host=1)) for n in (1, 2)], 3)
    rules = cycle.state.alignment.shaping
    assert {(rule.job, rule.host) for rule in rules} == {(1, "a"), (1, "b"), (2, "a"), (2, "b")}
    assert {rule.bursts for rule in rules} == {Bursts(2_500, 300_000)}


@pytest.mark.parametrize("wrong", [{"gap_ms": 0.0}, {"longest_ms": 2001.0}, {"gap_ms": -1.0}])
def test_times_that_the_hosts_cannot_keep_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FirstComeOptions(**wrong)
