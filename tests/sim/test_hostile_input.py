"""Links of unknown speed, and profiles that no training has: whole cycles decide, and jobs run."""

from __future__ import annotations

import itertools

import pytest

from rm.core import registry
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobState
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from tests.builders import full_mesh, host, placed, profile, snapshot, spec
from tests.examples import try_each

LOUD = profile(200, (0, 80, 1_000))
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def cycle_of(comm: str, placement: str, *mbps: int) -> Cycle:
    """Hosts that are up, the speeds of whose links are given; 0: their drivers do not say."""
    policies = Policies(
        registry.load("queue", "fifo"), registry.load("placement", placement), registry.load("comm", comm)
    )
    cycle = Cycle(ClusterState(), policies)
    hosts = [host(f"h{n}", cpus=8, nic_mbps=speed) for n, speed in enumerate(mbps)]
    cycle.step([ev.HostAdded(one) for one in hosts], 1)
    cycle.step([ev.HostUp(one.name, "boot", "1") for one in hosts], 2)
    return cycle


@pytest.mark.parametrize("comm", registry.names("comm"))
@pytest.mark.parametrize("placement", ["first-fit", "metronome"])
def test_jobs_run_over_links_of_unknown_speed_which_nobody_shapes(comm: str, placement: str) -> None:
    cycle = cycle_of(comm, placement, 0, 0)
    jobs = [spec(f"j{n}", ntasks=2, tasks_per_host=1, traffic=LOUD) for n in (1, 2, 3)]
    cycle.step([ev.JobSubmitted(n, one) for n, one in enumerate(jobs, 1)], 3)
    states = {cycle.state.jobs[n].state for n in (1, 2, 3)}
    assert states == {JobState.CONFIGURING}
    assert cycle.state.alignment.shaping == (), "a class without a rate would let nothing through"
    assert cycle.state.alignment.links == ()


@pytest.mark.parametrize("comm", ["metronome", "first-come", "crux"])
def test_beside_a_link_of_unknown_speed_the_known_one_is_kept(comm: str) -> None:
    hosts = [host("a", nic_mbps=0), host("b", nic_mbps=1_000)]
    running = [placed(n, "a", "b", traffic=LOUD) for n in (1, 2)]
    alignment = registry.load("comm", comm).align(running, snapshot(*hosts, placed=running))
    assert {rule.host for rule in alignment.shaping} == {"b"}


def test_a_slow_link_is_refused_and_one_of_unknown_speed_is_not() -> None:
    cycle = cycle_of("metronome", "metronome", 100, 100, 0)
    cycle.step([ev.JobSubmitted(1, spec("j1", ntasks=2, tasks_per_host=1, traffic=LOUD))], 3)
    assert "2 have slower links (at most 100 Mbit/s)" in str(cycle.reason_of(cycle.state.jobs[1]))
    cycle = cycle_of("metronome", "metronome", 100, 0, 0)
    cycle.step([ev.JobSubmitted(1, spec("j1", ntasks=2, tasks_per_host=1, traffic=LOUD))], 3)
    assert cycle.state.jobs[1].placement is not None
    assert set(cycle.state.jobs[1].placement.hosts) == {"h1", "h2"}


EXTREME = {
    "a microsecond": profile(0.001, (0, 0.001, 1_000)),
    "always": profile(200, (0, 200, 1_000)),
    "an instant": profile(200, (199.999, 0.001, 1_000)),
    "an hour": profile(HOUR_MS, (0, HOUR_MS / 2, 1_000)),
    "a day": profile(DAY_MS, (DAY_MS - 1, 1, 1_000)),
    "far beyond the link": profile(200, (0, 100, 9_000_000_000)),
    "one bit a second": profile(199.999, (0, 100, 0.000001)),
    "no common period": profile(999.983, (0, 400, 1_000), (500, 300, 700)),
}


@pytest.mark.parametrize("comm", registry.names("comm"))
def test_any_two_profiles_that_are_accepted_are_aligned(comm: str) -> None:
    """Who plays or plans all iterations of a microsecond that there are in a day, never ends."""
    pairs = itertools.combinations(EXTREME, 2)
    try_each(pairs, lambda pair: are_aligned(comm, pair), " beside ".join)


def are_aligned(comm: str, pair: tuple[str, str]) -> None:
    running = [
        placed(n, "a", "b", traffic=EXTREME[name], priority=100 * (n == 3))
        for n, name in enumerate((*pair, pair[0]), 1)
    ]
    snap = snapshot(host("a"), host("b"), net=full_mesh("ab"), placed=running)
    alignment = registry.load("comm", comm).align(running, snap)
    assert alignment.score <= 100
    assert all(0 <= one.shift_us < one.period_us for one in alignment.schedules)
    assert sum(len(made) for plan in alignment.plans for made in plan.iterations.values()) <= 4_000
