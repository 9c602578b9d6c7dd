"""What interleaving saves jobs: known of those that are kept in a rotation, from their iterations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rm.core.jobs import events as ev
from rm.core.model.network.alignment import Alignment, LinkAlignment, Released, Rotation, Schedule
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.slowed import Slowed
from rm.core.registry import load
from rm.daemon.regulation.running import RunningJobs, View
from rm.daemon.regulation.slowed import EVERY_US
from rm.daemon.regulation.unmanaged import LINKS_A_TURN, Unmanaged
from tests import builders
from tests.regulating import TRAFFIC, House, turning_house

ITERATIONS, PERIOD_US = 20, 100_000
UNMANAGED_US = 116_000  # two jobs of 40 ms in 100 ms: by chance they lose 0.4^2 of it


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    yield from turning_house(monkeypatch)


def aligned(house: House) -> Alignment:
    """As the default policy aligns what is placed there."""
    snapshot = house.state.snapshot(house.clock.us)
    alignment: Alignment = load("comm", "metronome").align(list(snapshot.placed.values()), snapshot)
    return alignment


def known(house: House, alignment: Alignment, fabric: Fabric | None = None) -> Unmanaged:
    found = Unmanaged()
    found.see(View(alignment, RunningJobs().of(house.state), fabric))
    return found


def told(house: House, *jobs: int, took_us: int = PERIOD_US, paused_us: int = 0) -> list[Slowed]:
    """What is told of them after half a minute."""
    for job in jobs:
        items = [[0, n, n * took_us, took_us, paused_us, 40_000] for n in range(ITERATIONS)]
        house.report(job, *items)
    house.settle()
    house.clock.us += EVERY_US
    house.settle()
    return [one for event in house.posted.of(ev.JobsSlowed) for one in event.slowed]


def test_two_jobs_that_keep_their_slots_save_what_chance_would_cost(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(aligned(house))
    first, second = told(house, 1, 2)
    assert (first.job, second.job) == (1, 2)
    for one in (first, second):
        assert one.by == ()
        assert one.saved_us == pytest.approx(ITERATIONS * (UNMANAGED_US - PERIOD_US), rel=0.05)


def test_its_pauses_are_part_of_what_it_took(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(aligned(house))
    (one,) = told(house, 2, took_us=PERIOD_US + 6_000, paused_us=6_000)
    assert one.saved_us == pytest.approx(ITERATIONS * 10_000, rel=0.05)


def test_a_lone_job_saves_nothing(house: House) -> None:
    house.run(1)
    house.see(aligned(house))
    assert told(house, 1) == []


@pytest.mark.parametrize("why", ["left alone", "no rotation", "another without a profile"])
def test_who_is_in_no_rotation_saves_nothing(house: House, why: str) -> None:
    house.run(1)
    house.run(2, traffic=None if why == "another without a profile" else TRAFFIC)
    alignment = aligned(house)
    if why == "left alone":
        alignment = replace(alignment, schedules=(), released=(Released((1, 2), 1.2),))
    elif why == "no rotation":
        alignment = replace(alignment, links=tuple(replace(one, rotations=()) for one in alignment.links))
    house.see(alignment)
    assert told(house, 1, 2) == []


def test_the_estimate_is_of_the_jobs_that_are_there_now(house: House) -> None:
    house.run(1)
    house.run(2)
    found = known(house, aligned(house))
    before = found.of(1)
    assert before is not None
    assert before.alone_us == PERIOD_US
    assert before.unmanaged_us == pytest.approx(UNMANAGED_US, rel=0.01)
    longer = builders.profile(100, (0, 50, 1_000))
    house.do(ev.ProfileMeasured(2, house.state.jobs[2].attempt, longer, False))
    found.see(View(aligned(house), RunningJobs().of(house.state)))
    after = found.of(1)
    assert after is not None
    assert after.unmanaged_us == pytest.approx(PERIOD_US * (1 + 0.4 * 0.5), rel=0.01)
    house.do(ev.CancelRequested(2, "alice"))
    found.see(View(aligned(house), RunningJobs().of(house.state)))
    assert found.of(1) is None


def test_of_many_links_some_are_estimated_each_turn(house: House) -> None:
    """Pauses must not wait for them. All jobs of a link are known with it."""
    for pair in range(LINKS_A_TURN + 1):
        for host in (names := (f"l{pair}", f"r{pair}")):
            house.do(ev.HostAdded(builders.host(host, cpus=8, interface="eth0", nic_mbps=1_000)))
        for job in (2 * pair + 1, 2 * pair + 2):
            house.do(
                ev.JobSubmitted(job, builders.spec(ntasks=2, traffic=TRAFFIC)),
                ev.JobPlaced(job, builders.placement(*names)),
                *(ev.TasksPrepared(job, 1, host) for host in names),
                *(ev.TasksStarted(job, 1, host, 1_000, (n,)) for n, host in enumerate(names)),
            )
    found = known(house, aligned(house))
    jobs = range(1, 2 * LINKS_A_TURN + 3)
    told = []
    for _ in range(3):
        told.append(len([job for job in jobs if found.of(job)]))
        found.turn()
    assert told == [LINKS_A_TURN, 2 * LINKS_A_TURN, len(jobs)], "a pair of jobs meets on two links"


def test_on_an_uplink_that_is_narrower_jobs_take_longer(house: House) -> None:
    """Both cross from one leaf to the other, over half of what a host sends."""
    house.run(1)
    house.run(2)
    fabric = Fabric({"a": "l1", "b": "l2"}, spines=1, uplink_bps=500_000_000)
    links = tuple(
        LinkAlignment(f"leaf:{leaf}", 90.0, 140_000, (1, 2), tuple(Rotation(leaf, j, 0, 72) for j in (1, 2)))
        for leaf in ("l1", "l2")
    )
    schedules = tuple(Schedule(job, 1, 0, 140_000, 140_000) for job in (1, 2))
    found = known(house, Alignment(90.0, links, schedules), fabric).of(1)
    assert found is not None
    assert found.alone_us == 140_000  # 40 ms at half of the rate take 80 ms
    assert found.unmanaged_us == pytest.approx(140_000 * (1 + (80 / 140) ** 2), rel=0.03)
