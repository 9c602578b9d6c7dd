"""What the links' jobs put on them, for the circles."""

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.regulation.demands import link_demands
from tests.builders import MBPS, host, profile, spec


def test_aligned_links_tell_what_each_job_puts_on_them() -> None:
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "metronome"))
    cycle = Cycle(ClusterState(), policies)
    cycle.step([ev.HostAdded(host(n, nic_mbps=100, cpus=2)) for n in ("h1", "h2")], 1)
    assert link_demands(cycle, 1) == {}
    wide = {"ntasks": 2, "tasks_per_host": 1, "hosts_min": 2, "traffic": profile(200, (0, 80, 90))}
    cycle.step([ev.JobSubmitted(i, spec(**wide)) for i in (1, 2)], 2)
    phase = {"offset_us": 0, "duration_us": 80_000, "rate_bps": 90 * MBPS}
    both = [{"job": job, "period_us": 200_000, "phases": [phase]} for job in (1, 2)]
    assert link_demands(cycle, 3) == {"h1": both, "h2": both}
