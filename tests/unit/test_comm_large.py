"""Large parts of a cluster, aligned link by link: every answer goes on from the one before and is never
worse."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.journal.digest import Digests
from rm.core.journal.plain import from_plain, to_plain
from rm.core.model.network.alignment import (
    NOTHING_TO_ALIGN,
    Alignment,
    Released,
    Schedule,
    combined,
    differing,
)
from rm.core.model.network.fabric import Fabric
from rm.core.model.snapshot import Aligned, PlacedJob, Snapshot
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.neighbours import FEW, Neighbourhood
from rm.policies.comm.metronome import Metronome
from rm.policies.comm.steps.known import Known, changed_links
from rm.policies.comm.steps.metronome_options import MetronomeOptions
from rm.policies.interleave.bodies import ROUNDING
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.patchwork import LARGEST
from rm.policies.interleave.score import MANY, random_phase
from tests.builders import host, placed, profile, snapshot
from tests.examples import examples
from tests.unit.test_comm_many import start

NAMES = tuple(f"h{i}" for i in range(8))
FLAT = snapshot(*(host(n, nic_mbps=100) for n in NAMES))
RACKS = replace(FLAT, fabric=Fabric({n: f"r{i // 2}" for i, n in enumerate(NAMES)}, 1, 150_000_000))
LINK_BY_LINK = Metronome(MetronomeOptions(exact_jobs=1))  # no part is small enough to be solved as a whole

Jobs = dict[int, PlacedJob]


def longest_overload(load: LinkLoad, at: Mapping[int, Schedule]) -> int:
    """The microseconds for which the link is asked for more than its capacity at a stretch."""
    around = lcm(*(at[j].period_us for j in load.phases))
    steps: dict[int, int] = {}
    for job, phases in load.phases.items():
        for begin in range(at[job].shift_us, around + at[job].shift_us, at[job].period_us):
            for offset, duration, rate in phases:
                left = (begin + offset) % around
                for a, b in ((left, min(left + duration, around)), (0, left + duration - around)):
                    if a < b:
                        steps[a] = steps.get(a, 0) + rate
                        steps[b] = steps.get(b, 0) - rate
    edges, longest, since = sorted(steps), 0, None
    for edge, level in zip(edges, itertools.accumulate(steps[t] for t in edges), strict=True):
        if level > load.capacity:
            since = edge if since is None else since
        elif since is not None:
            longest, since = max(longest, edge - since), None
    return longest


def kept_scores(before: Alignment, jobs: Jobs, same: Jobs, cluster: Snapshot) -> dict[str, float]:
    """What each contended link scores when all jobs that are the same as before keep their rotations."""
    demands, links = link_loads(jobs.values(), cluster)
    at = {s.job: s for s in before.schedules if s.job in same}
    perfect = {one.link for one in before.links if one.rotations and one.score == 100}
    found = {}
    for name, load in links.items():
        if sum(max(rate for _, _, rate in p) for p in load.phases.values()) <= load.capacity:
            continue
        known = load.phases.keys() <= at.keys() and len({at[j].component for j in load.phases}) == 1
        if known and name in perfect and longest_overload(load, at) <= ROUNDING:
            found[name] = 100.0
        else:
            chance = random_phase([(demands[j].period, p) for j, p in load.phases.items()], load.capacity)[1]
            found[name] = 100 * (1 - chance)
    return found


def check(answer: Alignment, jobs: Jobs, cluster: Snapshot) -> None:
    """What is promised holds, and what must belong together does."""
    _, links = link_loads(jobs.values(), cluster)
    at = {s.job: s for s in answer.schedules}
    bodies: dict[int, list[Schedule]] = {}
    for schedule in answer.schedules:
        bodies.setdefault(schedule.component, []).append(schedule)
    for component, body in bodies.items():
        assert component == min(s.job for s in body)
        assert 1 < len(body) <= LARGEST
        [reference] = [s for s in body if s.reference]
        assert reference.shift_us == 0
        assert not reference.gate
    for one in answer.links:
        assert set(one.jobs) == set(links[one.link].phases)
        if one.rotations:
            assert len({at[j].component for j in one.jobs}) == 1
            assert longest_overload(links[one.link], at) <= ROUNDING
    for schedule in answer.schedules:
        assert schedule.period_us >= 0.99 * schedule.base_period_us  # the noise of a measured period
        assert schedule.inject_us == max(0, schedule.period_us - schedule.base_period_us)
        assert schedule.inject_us <= 0.1 * schedule.base_period_us + 240
    assert answer.recompute == bool(answer.unsettled)


@st.composite
def histories(draw: st.DrawFn) -> list[PlacedJob | int]:
    """Jobs that come, or change, on two or three hosts each, and numbers of jobs that leave."""
    story: list[PlacedJob | int] = []
    there: set[int] = set()
    for number in range(1, draw(st.integers(4, 14))):
        if there and draw(st.integers(0, 3)) == 0:
            leaving = draw(st.sampled_from(sorted(there)))
            there.discard(leaving)
            story.append(leaving)
            continue
        job = draw(st.sampled_from(sorted(there))) if there and draw(st.integers(0, 9)) == 0 else number
        there.add(job)
        hosts = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True))
        period = draw(st.sampled_from((150, 152.3, 200, 300, 303, 400)))
        phase = (draw(st.integers(0, 40)), draw(st.integers(10, 60)), draw(st.sampled_from((60, 100))))
        high = draw(st.sampled_from((0, 0, 0, 100)))
        story.append(placed(job, *hosts, traffic=profile(period, phase), priority=high))
    return story


@settings(max_examples=examples(120))
@given(story=histories(), cluster=st.sampled_from((FLAT, RACKS)), policy=st.sampled_from((1, 4)))
def test_whoever_comes_or_goes_no_link_is_worse_than_with_the_rotations_kept(
    story: list[PlacedJob | int], cluster: Snapshot, policy: int
) -> None:
    metronome = Metronome(MetronomeOptions(exact_jobs=policy))
    jobs: Jobs = {}
    held: Aligned | None = None
    for what in story:
        jobs = {number: view for number, view in jobs.items() if number != what}
        if isinstance(what, PlacedJob):
            jobs[what.job] = what
        seen = replace(cluster, aligned=held)
        answer = metronome.align(list(jobs.values()), seen)
        check_all = policy == 1  # parts that are solved as a whole may be solved otherwise than before
        if check_all:
            check(answer, jobs, cluster)
            same = {n: view for n, view in jobs.items() if held and held.jobs.get(n) == view}
            kept = kept_scores(held.alignment if held else NOTHING_TO_ALIGN, jobs, same, cluster)
            scores = {one.link: one.score for one in answer.links}
            assert scores.keys() == kept.keys()
            worse = [name for name in kept if scores[name] < kept[name] - 1e-9]
            assert not worse, (held, answer)
            assert answer.score >= min(kept.values(), default=100) - 1e-9
        if held is not None:  # what is kept in memory is no more than what follows from the plain values
            plain = replace(seen, aligned=Aligned(replace(held.alignment, grounds=None), held.jobs))
            assert metronome.align(list(jobs.values()), plain) == answer
        assert metronome.align(list(reversed(jobs.values())), seen) == answer
        held = Aligned(answer, dict(jobs), answer.grounds)


@settings(max_examples=examples(60))
@given(story=histories(), cluster=st.sampled_from((FLAT, RACKS)))
def test_recomputations_end_and_make_no_link_worse(story: list[PlacedJob | int], cluster: Snapshot) -> None:
    jobs = {what.job: what for what in story if isinstance(what, PlacedJob)}
    views = list(jobs.values())
    answer = LINK_BY_LINK.align(views, cluster)
    for _ in range(20):
        if not answer.recompute:
            break
        held = Aligned(answer, jobs, answer.grounds)
        better = LINK_BY_LINK.align(views, replace(cluster, aligned=held), offline=True)
        check(better, jobs, cluster)
        before = {one.link: one.score for one in answer.links}
        assert all(one.score >= before[one.link] - 1e-9 for one in better.links)
        answer = better
    assert not answer.recompute
    assert (
        LINK_BY_LINK.align(views, replace(cluster, aligned=Aligned(answer, jobs, answer.grounds))) == answer
    )


@settings(max_examples=examples(60))
@given(story=histories())
def test_of_a_recomputation_only_what_differs_is_passed_on(story: list[PlacedJob | int]) -> None:
    jobs = {what.job: what for what in story if isinstance(what, PlacedJob)}
    some = {number: view for number, view in jobs.items() if number % 3}
    before = LINK_BY_LINK.align(list(some.values()), FLAT)
    after = LINK_BY_LINK.align(list(jobs.values()), FLAT)
    part, gone = differing(before, after)
    assert combined(before, part, gone) == after
    assert not {one.link for one in part.links if one in before.links}


def crowd(count: int, hosts: int, seed: int) -> Jobs:
    """Jobs of three periods, on pairs of hosts."""
    chance = random.Random(seed)
    names = [f"h{i}" for i in range(hosts)]
    return {
        number: placed(
            number,
            *chance.sample(names, 2),
            traffic=profile(chance.choice((100, 200, 400)), (0, chance.randint(10, 40), 100)),
        )
        for number in range(1, count + 1)
    }


def settled(jobs: Jobs, cluster: Snapshot, metronome: Metronome) -> Alignment:
    answer = metronome.align(list(jobs.values()), cluster)
    while answer.recompute:
        held = Aligned(answer, jobs, answer.grounds)
        answer = metronome.align(list(jobs.values()), replace(cluster, aligned=held), offline=True)
    return answer


def test_a_large_part_is_settled_where_it_can_be() -> None:
    cluster = snapshot(*(host(f"h{i}", nic_mbps=100) for i in range(100)))
    jobs = crowd(120, 100, 1)
    answer = settled(jobs, cluster, Metronome())
    check(answer, jobs, cluster)
    assert len(answer.links) > 50
    assert sum(one.score == 100 for one in answer.links) > 0.6 * len(answer.links)


def test_what_is_far_from_a_change_stays_the_very_same() -> None:
    cluster = snapshot(*(host(f"h{i}", nic_mbps=100) for i in range(100)))
    jobs = crowd(120, 100, 1)
    answer = settled(jobs, cluster, Metronome())
    gone = answer.schedules[0]
    left = {number: view for number, view in jobs.items() if number != gone.job}
    seen = replace(cluster, aligned=Aligned(answer, jobs, answer.grounds))
    after = Metronome().align(list(left.values()), seen)
    touched = {job for one in answer.links if gone.job in one.jobs for job in one.jobs}
    bodies = {s.component for s in answer.schedules if s.job in touched}
    far = [s for s in answer.schedules if s.component not in bodies]
    assert len(far) > len(answer.schedules) // 2
    assert {id(s) for s in far} <= {id(s) for s in after.schedules}


def test_large_parts_are_judged_body_by_body() -> None:
    """One slow job among hundreds must not release them all."""
    cluster = snapshot(*(host(f"h{i}", nic_mbps=100) for i in range(100)))
    answer = settled(crowd(120, 100, 1), cluster, Metronome())
    bodies: dict[int, list[int]] = {}
    for schedule in answer.schedules:
        bodies.setdefault(schedule.component, []).append(schedule.job)
    assert {tuple(sorted(body)) for body in bodies.values()} <= set(answer.together)


def test_a_small_part_is_solved_as_before_whatever_was_known() -> None:
    jobs = {n: placed(n, "h0", "h1", traffic=profile(240, (0, 60, 100))) for n in (1, 2, 3)}
    fresh = Metronome().align(list(jobs.values()), FLAT)
    two = {n: jobs[n] for n in (1, 2)}
    before = Metronome().align(list(two.values()), FLAT)
    seen = replace(FLAT, aligned=Aligned(before, two, before.grounds))
    assert Metronome().align(list(jobs.values()), seen) == fresh
    assert fresh.score == 100


def test_a_part_that_is_left_alone_is_managed_anew_when_it_is_over() -> None:
    """What was said of released jobs in the alignment is not what the policy said."""
    jobs = {n: placed(n, "h0", "h1", traffic=profile(240, (0, 60, 100))) for n in (1, 2)}
    fresh = Metronome().align(list(jobs.values()), FLAT)
    alone = replace(fresh, schedules=(), shaping=(), released=(Released((1, 2), 1.2),), grounds=None)
    for grounds in (fresh.grounds, None):
        seen = replace(FLAT, aligned=Aligned(alone, jobs, grounds, renewed=grounds is not None))
        assert Metronome().align(list(jobs.values()), seen) == fresh


def cycle_of_many(count: int) -> Cycle:
    cycle, jobs = start(count, 200 / count)
    assert len(jobs) == count
    return cycle


def test_the_cycle_goes_on_from_a_recomputation() -> None:
    cycle = cycle_of_many(4)
    state = cycle.state
    assert state.alignment.recompute
    outcome = cycle.step([ev.AlignmentRecomputed(state.placed_version, state.alignment)], 100)
    assert outcome.recompute is None  # it is the same
    wide = cycle.policies.comm.align(list(state.placed.values()), state.snapshot(100), offline=True)
    wide = replace(wide, grounds=None)
    outcome = cycle.step([ev.AlignmentRecomputed(state.placed_version, wide)], 101)
    assert state.alignment == wide
    assert outcome.recompute is None
    assert outcome.realigned


def test_an_alignment_in_the_journal_is_without_grounds() -> None:
    answer = settled(
        crowd(120, 100, 1), snapshot(*(host(f"h{i}", nic_mbps=100) for i in range(100))), Metronome()
    )
    assert answer.grounds is not None
    assert from_plain(Alignment, to_plain(answer)) == answer


@pytest.mark.parametrize("seed", [1, 2])
def test_the_digest_of_an_alignment_depends_on_nothing_but_it(seed: int) -> None:
    cycle = cycle_of_many(4)
    digests = Digests()
    for number in range(5, 8):
        outcome = cycle.step([ev.CancelRequested(number - 4, "")], 100 + number)
        assert digests.of(outcome, cycle.state.alignment) == Digests().of(outcome, cycle.state.alignment)
    assert outcome.realigned


def test_the_sum_of_many_jobs_is_nearly_what_all_of_its_values_say() -> None:
    chance = random.Random(3)
    jobs = [(200, ((0, chance.randint(20, 100), chance.choice((5, 10, 25))),)) for _ in range(MANY)]
    exact = random_phase(jobs, 150)
    idle = [*jobs, (200, ((0, 1, 0),))]  # one more, that sends nothing: now they are many
    assert random_phase(idle, 150) == pytest.approx(exact, abs=0.005)


def test_among_very_many_a_job_is_judged_by_its_own_links() -> None:
    chain = [placed(n, f"h{n}", f"h{n + 1}", traffic=profile(100, (0, 30, 100))) for n in range(1, 100)]
    cluster = snapshot(*(host(f"h{i}") for i in range(101)), placed=chain)
    near = Neighbourhood().under(cluster)
    new = placed(200, "h5", "h9", traffic=profile(100, (0, 30, 100)))
    assert len(near.of(new)) == 100
    assert [p.job for p in near.of(new, 64)] == [4, 5, 8, 9, 200]
    crowded = [placed(n, "h0", "h1", traffic=profile(100, (0, 3, 100))) for n in range(300, 301 + FEW)]
    near = Neighbourhood().under(replace(cluster, placed={p.job: p for p in [*chain, *crowded]}))
    other = placed(200, "h0", "h9", traffic=profile(100, (0, 30, 100)))
    assert [p.job for p in near.of(other, 64)] == [8, 9, 200]


def test_links_with_another_capacity_are_those_of_the_ports_the_hosts_and_the_fabric() -> None:
    assert RACKS.fabric is not None
    known = Known(capacity={"h0": 100_000_000, "h1": 100_000_000, "r0>": RACKS.fabric.capacity_bps})
    plain = replace(RACKS, links={}, hosts={name: RACKS.hosts[name] for name in ("h0", "h1")})
    assert changed_links(known, plain) == set()
    slower = replace(RACKS.hosts["h1"], nic_bps=1)
    assert changed_links(known, replace(plain, hosts={**plain.hosts, "h1": slower})) == {"h1"}
    ports = {"h0": replace(RACKS.links["h0"], capacity_bps=1)}
    assert changed_links(known, replace(plain, links=ports)) == {"h0"}
    assert changed_links(known, replace(plain, fabric=replace(RACKS.fabric, uplink_bps=1))) == {"r0>"}
    assert changed_links(Known(capacity={"gone": 1}), FLAT) == set()
