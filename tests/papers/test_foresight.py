"""FORESIGHT's scenario: jobs and placements are what they are said to be, and plans are kept."""

import random

import pytest

from rm.sim.papers._foresight.colourings import count
from rm.sim.papers._foresight.run import Case, alone_us, simulate
from rm.sim.papers._foresight.workload import scene
from rm.sim.papers.foresight import CASES, ECMP, FORESIGHT
from rm.sim.papers.frame.parameters import parameters

SEED = 2


def drawn(spines, *args, seed=SEED, **more):
    return scene(random.Random(f"foresight/{seed}"), spines, *args, **more)


def test_jobs_fill_the_machines_and_have_the_published_sizes():
    known = parameters("foresight")
    for seed in range(5):
        place = drawn(4, seed=seed)
        machines = [host for ring in place.rings for host in ring]
        assert len(machines) == len(set(machines)) == sum(m.machines for m in place.models)
        assert known["machines"] - len(machines) <= 1
        assert all(4 <= m.machines <= 16 for m in place.models[:-1])
        assert all(m.comm_us == m.stages * m.message_us // m.machines for m in place.models)
    assert drawn(4) == drawn(4) != drawn(4, seed=SEED + 1)


@pytest.mark.parametrize("wished", [0.0, 0.3, 0.7])
def test_placements_are_as_fragmented_as_wished_and_no_job_overruns_a_rack(wished):
    place = drawn(4, wished)
    crossings = [place.fabric(4).crossings(ring) for ring in place.rings]
    assert wished <= place.fragmentation <= max(wished + 0.1, 0.3)
    assert max(max(c.values(), default=0) for c in crossings) <= 4
    leaving = sum(sum(c.values()) for c in crossings)
    assert place.fragmentation == pytest.approx(leaving / sum(map(len, place.rings)))


def test_the_mean_intensity_is_within_its_bounds():
    place = drawn(4, intensity=(1.2, 1.6))
    assert 1.2 <= sum(m.intensity for m in place.models) / len(place.models) <= 1.6


def test_alone_a_job_has_its_declared_period():
    place = drawn(4)
    assert alone_us(place, 4) == pytest.approx([m.period_us for m in place.models])


def test_the_variants_come_in_the_papers_order():
    """One seed at oversubscription 2; the averages are the paper's page."""
    place = drawn(4)
    times = {name: simulate(place, 4, case, SEED, 4_000).mean_us for name, case in CASES.items()}
    assert times["FORESIGHT"] < times["SUB"] < times["RO"] < times["TS"]
    assert times["FORESIGHT"] < 0.9 * simulate(place, 4, ECMP, SEED, 4_000).mean_us


@pytest.mark.parametrize("spines", [8, 4, 2])
def test_a_plan_is_carried_out_without_contention(spines):
    found = simulate(drawn(spines), spines, Case({"variant": "full", "guard": False}), SEED, 4_000)
    assert found.overloaded_us == 0


def test_with_a_spine_for_every_machine_of_a_rack_the_plan_is_perfect():
    place = drawn(8)
    found = simulate(place, 8, FORESIGHT, SEED, 4_000)
    assert found.iteration_us == pytest.approx(found.alone_us, rel=1e-5)


def test_with_one_spine_ecmp_has_no_choice():
    place = drawn(1)
    assert simulate(place, 1, CASES["perfect"], SEED, 4_000).mean_us == pytest.approx(
        simulate(place, 1, ECMP, SEED, 4_000).mean_us
    )


def test_edge_colourings_need_no_more_than_the_maximum_degree():
    found = count(drawn(4), 4, units=4, iterations=10)
    assert found.colourings > 20
    assert (found.beyond, found.improper) == (0, 0)
