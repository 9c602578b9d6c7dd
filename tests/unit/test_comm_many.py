"""Beyond the papers: many jobs on a link, and loops solved jointly, checked in continuous time."""

import itertools
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.network.alignment import Alignment, Schedule
from rm.core.model.snapshot import PlacedJob
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.policies.comm.cassini import Cassini, CassiniOptions
from rm.policies.comm.metronome import Metronome
from rm.policies.interleave.affinity import has_cycle
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from tests.builders import host, placed, profile, snapshot, spec
from tests.examples import examples

NAMES = "abcdef"
CLUSTER = snapshot(*(host(n, nic_mbps=100) for n in NAMES))


def overloaded(load: LinkLoad, at: Mapping[int, Schedule]) -> bool:
    """Does the link ever carry more than its capacity when every job keeps to its slots?

    Exact: over the least common multiple of the periods, in whole microseconds.
    """
    around = lcm(*(at[j].period_us for j in load.phases))
    steps: dict[int, int] = {}
    for job, phases in load.phases.items():
        period = at[job].period_us
        for start in range(at[job].shift_us, around + at[job].shift_us, period):
            for offset, duration, rate in phases:
                left = (start + offset) % around
                for a, b in ((left, min(left + duration, around)), (0, left + duration - around)):
                    if a < b:
                        steps[a] = steps.get(a, 0) + rate
                        steps[b] = steps.get(b, 0) - rate
    return max(itertools.accumulate(steps[t] for t in sorted(steps))) > load.capacity


def check_promises(answer: Alignment, jobs: Sequence[PlacedJob]) -> int:
    """Every link that scores 100 and whose jobs are controlled is free of contention; how many are."""
    _, links = link_loads(jobs, CLUSTER)
    at = {s.job: s for s in answer.schedules}
    kept = 0
    for link in answer.links:
        if link.score < 100 or not all(j in at for j in link.jobs):
            continue
        kept += 1
        assert not overloaded(links[link.link], at), link.link
        for a, b in itertools.combinations(link.jobs, 2):  # and by the Chinese remainder theorem, pairwise
            (pa,), (pb,) = links[link.link].phases[a], links[link.link].phases[b]
            if pa[2] + pb[2] <= links[link.link].capacity:
                continue
            common = gcd(at[a].period_us, at[b].period_us)
            apart = (at[b].shift_us + pb[0] - at[a].shift_us - pa[0]) % common
            assert pa[1] <= apart <= common - pb[1], (link.link, a, b)
    return kept


@st.composite
def loopy(draw: st.DrawFn, periods: tuple[int, ...]) -> list[PlacedJob]:
    """Three to six jobs on two or three of six hosts each, whose affinity graph has a loop."""
    jobs = [
        placed(
            i,
            *draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True)),
            traffic=profile(
                draw(st.sampled_from(periods)),
                (draw(st.integers(0, 40)), draw(st.integers(10, 45)), draw(st.sampled_from((60, 100)))),
            ),
            priority=draw(st.sampled_from((0, 100))),
        )
        for i in range(1, draw(st.integers(3, 6)) + 1)
    ]
    _, links = link_loads(jobs, CLUSTER)
    assume(has_cycle({n: load for n, load in links.items() if len(load.phases) > 1}, "cassini"))
    return jobs


MANY = settings(max_examples=examples(80))


@MANY
@given(jobs=loopy((150, 152, 200, 300, 303, 400)))
def test_metronome_keeps_every_promise_on_random_loops(jobs: list[PlacedJob]) -> None:
    check_promises(Metronome().align(jobs, CLUSTER), jobs)


@MANY
@given(jobs=loopy((150, 300, 600)))
def test_cassini_with_joint_loops_keeps_every_promise(jobs: list[PlacedJob]) -> None:
    """The paper would discard each of these placements."""
    answer = Cassini(CassiniOptions(loops="joint")).align(jobs, CLUSTER)
    assert answer.rejected is None
    check_promises(answer, jobs)
    assert Cassini().align(jobs, CLUSTER).rejected is not None


def test_a_triangle_of_equal_jobs_is_compatible_up_to_a_third_of_the_period() -> None:
    for comm_ms, compatible in ((40, True), (60, True), (66, True), (70, False)):
        traffic = profile(200, (0, comm_ms, 100))
        triangle = [placed(i, *pair, traffic=traffic) for i, pair in enumerate(("ab", "bc", "ca"), 1)]
        answer = Cassini(CassiniOptions(loops="joint", angle_deg=1)).align(triangle, CLUSTER)
        assert (answer.score == 100) == compatible
        assert (check_promises(answer, triangle) == 3) == compatible


def test_most_loops_that_the_paper_discards_have_common_rotations() -> None:
    """Four jobs drawn at random, each communicating for up to 45 of at least 150 ms."""
    draw, loops, perfect = random.Random(4), 0, 0
    for _ in range(60):
        jobs = [
            placed(
                i,
                *draw.sample(NAMES, draw.choice((2, 3))),
                traffic=profile(
                    draw.choice((150, 300, 600)), (draw.randint(0, 40), draw.randint(10, 45), 100)
                ),
            )
            for i in range(1, 5)
        ]
        if Cassini().align(jobs, CLUSTER).rejected is None:
            continue
        loops += 1
        answer = Cassini(CassiniOptions(loops="joint")).align(jobs, CLUSTER)
        perfect += answer.score == 100
        if answer.score == 100:
            assert check_promises(answer, jobs) == sum(len(link.rotations) > 0 for link in answer.links)
    assert loops >= 50
    assert perfect >= 0.9 * loops


# -- many jobs on one link -------------------------------------------------------------------------


def start(count: int, comm_ms: float, periods: Sequence[float] = (240,)) -> tuple[Cycle, list[PlacedJob]]:
    """Jobs submitted to a cluster of two hosts, the first one of high priority."""
    policies = Policies(load("queue", "fifo"), load("placement", "metronome"), load("comm", "metronome"))
    cycle = Cycle(ClusterState(), policies)
    hosts = [host(n, cpus=8, nic_mbps=100) for n in "ab"]
    cycle.step([ev.HostAdded(h) for h in hosts], 1)
    cycle.step([ev.HostUp(h.name, "boot", "1") for h in hosts], 2)
    for i in range(1, count + 1):
        one = spec(
            f"j{i}",
            ntasks=2,
            tasks_per_host=1,
            priority=100 if i == 1 else 0,
            traffic=profile(periods[i % len(periods)], (0, comm_ms, 100)),
        )
        cycle.step([ev.JobSubmitted(i, one)], 2 + i)
    return cycle, list(cycle.state.placed.values())


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8])
def test_many_equal_jobs_share_a_link_from_submission_to_the_widest_cushions(count: int) -> None:
    comm_ms = 240 / count - 6
    cycle, jobs = start(count, comm_ms)
    assert len(jobs) == count
    quick = cycle.state.alignment
    assert quick.score == 100
    assert len(quick.schedules) == count
    assert check_promises(quick, jobs) == 2
    # stage 3 comes back as an event and is installed
    version = cycle.state.placed_version
    offline = cycle.policies.comm.align(jobs, cycle.state.snapshot(100), offline=True)
    cycle.step([ev.AlignmentRecomputed(version, offline)], 101)
    wide = cycle.state.alignment
    assert wide == offline
    assert check_promises(wide, jobs) == 2
    cushion = min(s.cushion_us for s in wide.schedules)
    slot = Fraction(240_000, 72)
    assert cushion >= 6_000 - slot
    assert cushion >= min(s.cushion_us for s in quick.schedules)
    assert len(wide.shaping) == 2 * count
    assert [r.priority for r in wide.shaping if r.host == "a"] == [0] + [1] * (count - 1)
    assert all(r.bursts for r in wide.shaping)


@pytest.mark.parametrize("count", [4, 6, 8])
def test_many_jobs_of_two_periods_share_a_link(count: int) -> None:
    """Every second job takes two of the others' iterations, less 1 ms that it is given as idle time."""
    cycle, jobs = start(count, 20, periods=(240, 479))
    answer = cycle.state.alignment
    assert answer.score == 100
    assert check_promises(answer, jobs) == 2
    assert {s.period_us for s in answer.schedules} <= {239_500, 240_000, 479_000, 480_000}


def test_a_job_too_many_lowers_the_score_and_says_so() -> None:
    cycle, jobs = start(5, 60)
    answer = cycle.state.alignment
    beyond = 5 / 4 - 1 + (3 / 4) ** 5  # what five phases of a quarter ask for in vain, meeting by chance
    assert answer.score == pytest.approx(100 * (1 - beyond))
    assert (answer.schedules, answer.unmatched) == ((), (1, 2, 3, 4, 5)), "pauses would bring them nothing"
    assert len(jobs) == 5
