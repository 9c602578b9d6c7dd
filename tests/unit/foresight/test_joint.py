"""Plans in time and space: what they promise, over random jobs."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.network.routes import CommPlan, PlannedIteration
from rm.policies.foresight import JobDemand, Links, schedule
from tests.examples import examples
from tests.unit.foresight.demands import UPLINK, demand, links, parallel

SETTINGS = settings(max_examples=examples(60))
RATES = (Fraction(1), Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[JobDemand], Links]:
    """Up to five jobs, each a ring over its own hosts in up to four racks, with one or two bursts."""
    free = [f"{rack}{i}" for rack in "abcd" for i in range(5)]
    free = draw(st.permutations(free))
    jobs = []
    for job in range(1, draw(st.integers(2, 5)) + 1):
        hosts = [free.pop() for _ in range(draw(st.integers(2, 4)))]
        ring = list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
        compute, send = draw(st.integers(1, 12)), draw(st.integers(1, 9))
        bursts = [(compute, compute + send)]
        if draw(st.booleans()):
            again = bursts[0][1] + draw(st.integers(0, 5))
            bursts.append((again, again + draw(st.integers(1, 5))))
        jobs.append(
            demand(
                job,
                bursts[-1][1] + draw(st.integers(0, 3)),
                bursts,
                ring,
                iterations=draw(st.integers(1, 4)),
                rate=draw(st.sampled_from((UPLINK, 2 * UPLINK // 3, UPLINK // 2, UPLINK // 4))),
                throttles=RATES[: draw(st.integers(1, 4))],
            )
        )
    return jobs, links(draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 3, 4))))


def sending(
    plan: CommPlan, jobs: Sequence[JobDemand]
) -> list[tuple[int, int, PlannedIteration, int, tuple[str, str], int]]:
    """(start, end, iteration, op, ends, rate) of all that is sent, where the plan puts it."""
    found = []
    for job in jobs:
        for one in plan.iterations[job.job]:
            profile = next(p for p in job.profiles if float(p.throttle) == one.throttle)
            for p in profile.pieces:
                start, end = one.start_us + p.start_us, one.start_us + p.end_us
                found.append((start, end, one, p.op, job.flows[p.flow], p.rate_bps))
    return found


def peaks(changes: dict[object, dict[int, Fraction]]) -> dict[object, Fraction]:
    result = {}
    for link, steps in changes.items():
        level = top = Fraction(0)
        for at in sorted(steps):
            level += steps[at]
            top = max(top, level)
        result[link] = top
    return result


def logical_peaks(plan: CommPlan, jobs: Sequence[JobDemand]) -> dict[object, Fraction]:
    changes: dict[object, dict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for start, end, _, _, (a, b), rate in sending(plan, jobs):
        if a[0] != b[0]:
            for link in ((a[0], "up"), (b[0], "down")):
                changes[link][start] += rate
                changes[link][end] -= rate
    return peaks(changes)


def spine_peaks(plan: CommPlan, jobs: Sequence[JobDemand]) -> dict[object, Fraction]:
    changes: dict[object, dict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for start, end, one, op, (a, b), rate in sending(plan, jobs):
        if a[0] == b[0]:
            continue
        routes = one.range_of(op)
        assert routes is not None
        route = routes.route(a, b)
        assert route is not None
        assert rate <= route.cap_bps
        total = sum(parts for _, parts in route.spines)
        for spine, parts in route.spines:
            for link in ((a[0], "up", spine), (b[0], "down", spine)):
                changes[link][start] += Fraction(rate * parts, total)
                changes[link][end] -= Fraction(rate * parts, total)
    return peaks(changes)


def has_room(jobs: Sequence[JobDemand], where: Links, whole: bool = False) -> bool:
    """Would all fit if each flow sent all the time? Then nothing can collide: the flows between racks are a
    graph with two sides, whose edges take as many colours as meet at a rack (König). `whole`: a flow takes a
    whole spine link."""
    assert where.fabric is not None
    units: dict[object, int] = defaultdict(int)
    for job in jobs:
        for piece in job.profiles[0].pieces:
            a, b = job.flows[piece.flow]
            if a[0] != b[0] and piece.op == 0:  # a job's operations follow each other, and are alike
                taken = where.units if whole else -(-piece.rate_bps * where.units // UPLINK)
                units[a[0], "up"] += taken
                units[b[0], "down"] += taken
    return max(units.values(), default=0) <= where.fabric.spines * where.units


def check_order(plan: CommPlan, jobs: Sequence[JobDemand]) -> None:
    for job in jobs:
        planned = plan.iterations[job.job]
        assert len(planned) == job.iterations
        ready = 0
        for one in planned:
            assert one.delay_us >= 0
            assert one.start_us == ready + one.delay_us
            ready = one.end_us


@SETTINGS
@given(clusters())
def test_timing_never_overloads_a_logical_link(given_: tuple[list[JobDemand], Links]) -> None:
    jobs, where = given_
    plan = schedule(jobs, where, "timing")
    check_order(plan, jobs)
    assert where.fabric is not None
    if all(has_room([job], where) for job in jobs):
        assert max(logical_peaks(plan, jobs).values(), default=0) <= where.fabric.capacity_bps


@pytest.mark.parametrize("repair", ["local", "merged"])
@SETTINGS
@given(given_=clusters())
def test_the_full_variant_overloads_no_spine_link(repair: str, given_: tuple[list[JobDemand], Links]) -> None:
    jobs, where = given_
    plan = schedule(jobs, where, "full", repair)
    check_order(plan, jobs)
    fits = all(schedule([job], where).contention_free for job in jobs)
    assert plan.contention_free == fits, "what can be routed alone can be routed in turns"
    assert fits or not all(has_room([job], where) for job in jobs)
    if fits:
        assert max(spine_peaks(plan, jobs).values(), default=0) <= UPLINK


@pytest.mark.parametrize("repair", ["paper", "accumulated"])
@settings(SETTINGS, max_examples=examples(15))
@given(given_=clusters())
def test_the_papers_rounds_say_truly_whether_they_came_to_an_end(
    repair: str, given_: tuple[list[JobDemand], Links]
) -> None:
    jobs, where = given_
    plan = schedule(jobs, where, "full", repair)
    check_order(plan, jobs)
    assert plan.contention_free or not has_room(jobs, where)
    if plan.contention_free:
        assert max(spine_peaks(plan, jobs).values(), default=0) <= UPLINK


@pytest.mark.parametrize("variant", ["routing", "subflows"])
@SETTINGS
@given(given_=clusters())
def test_the_lesser_variants_say_truly_whether_flows_collide(
    variant: str, given_: tuple[list[JobDemand], Links]
) -> None:
    jobs, where = given_
    plan = schedule(jobs, where, variant)
    check_order(plan, jobs)
    timed = schedule(jobs, where, "timing")
    for job, planned in plan.iterations.items():
        assert [i.start_us for i in planned] == [i.start_us for i in timed.iterations[job]]
    assert plan.contention_free or not has_room(jobs, where, whole=variant == "routing")
    if plan.contention_free:
        assert max(spine_peaks(plan, jobs).values(), default=0) <= UPLINK


@SETTINGS
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(
    given_: tuple[list[JobDemand], Links], chance: random.Random
) -> None:
    jobs, where = given_
    shuffled = list(jobs)
    chance.shuffle(shuffled)
    assert schedule(shuffled, where) == schedule(jobs, where)


def test_a_chain_is_routed_where_merging_it_fails() -> None:
    """1, 2 and 3 in a chain over two spines: at any time two send, but as one range three do.

    Merged, job 3 has to wait for the end of job 2; coloured in time, it takes job 1's spine.
    """
    jobs = [
        demand(1, 20, [(0, 4)], parallel(1)),
        demand(2, 20, [(2, 8)], parallel(1, first=1)),
        demand(3, 20, [(5, 9)], parallel(1, first=2)),
    ]
    ours, merged = (schedule(jobs, links(2), "full", repair) for repair in ("local", "merged"))
    assert [ours.iterations[j][0].delay_us for j in (1, 2, 3)] == [0, 0, 0]
    assert [merged.iterations[j][0].delay_us for j in (1, 2, 3)] == [0, 0, 3]
    assert ours.contention_free
    assert merged.contention_free
    assert not schedule(jobs, links(2), "subflows").contention_free


def test_flows_that_were_placed_make_room_by_exchanging_spines() -> None:
    """a>b, then c>d, then a>d at the same time: both spines are free for each of the first two, but
    the third needs one that is free at a and at d, so they must take the same one."""
    jobs = [
        demand(1, 20, [(0, 9)], [("a0", "b0")]),
        demand(2, 20, [(0, 9)], [("c0", "b1")]),
        demand(3, 20, [(0, 9)], [("c1", "d0")]),
        demand(4, 20, [(0, 9)], [("a1", "d1")]),
    ]
    plan = schedule(jobs, links(2))
    assert plan.contention_free
    assert {p[0].delay_us for p in plan.iterations.values()} == {0}


def test_a_plan_repeats_as_soon_as_its_end_leaves_room() -> None:
    """Two jobs that take turns go on taking turns: the next round does not wait for the later one."""
    jobs = [demand(j, 4, [(2, 4)], parallel(1), iterations=2) for j in (1, 2)]
    plan = schedule(jobs, links(1))
    assert (plan.end_us, plan.cycle_us) == (10, 8)
    assert (plan.mean_iteration_us, plan.repeated_mean_us) == (Fraction(18, 4), 4)
    later = {(j, k): one for j in (1, 2) for k in range(6) if (one := plan.at(j, k)) is not None}
    assert [later[1, k].start_us for k in range(6)] == [0, 4, 8, 12, 16, 20]
    assert [later[2, k].start_us for k in range(6)] == [2, 6, 10, 14, 18, 22]
    assert [later[2, k].delay_us for k in range(6)] == [2, 0, 0, 0, 0, 0]
    assert plan.at(3, 0) is None


@SETTINGS
@given(clusters())
def test_a_repeated_plan_overloads_nothing_either(given_: tuple[list[JobDemand], Links]) -> None:
    jobs, where = given_
    plan = schedule(jobs, where)
    rounds = {
        job.job: tuple(one for k in range(3 * job.iterations) if (one := plan.at(job.job, k)) is not None)
        for job in jobs
    }
    thrice = CommPlan(rounds, plan.contention_free, plan.cycle_us)
    check_order(thrice, [replace(job, iterations=3 * job.iterations) for job in jobs])
    assert plan.contention_free or not all(has_room([job], where) for job in jobs)
    if plan.contention_free:
        assert max(spine_peaks(thrice, jobs).values(), default=0) <= UPLINK


@pytest.mark.parametrize("spines", [2, 3, 4])
def test_crowded_racks_are_routed_at_every_moment(spines: int) -> None:
    """Forty hosts in five racks, jobs scattered over them, subflows of a quarter link."""
    chance = random.Random(spines)
    hosts = [f"{rack}{i}" for rack in "abcde" for i in range(8)]
    chance.shuffle(hosts)
    jobs = []
    for job in range(1, 9):
        mine = [hosts.pop() for _ in range(chance.choice((3, 5, 5)))]
        ring = list(zip(mine, [*mine[1:], mine[0]], strict=True))
        compute, send = chance.randint(20, 90), chance.randint(20, 60)
        rate = chance.choice((UPLINK, UPLINK // 2, 3 * UPLINK // 4))
        jobs.append(
            demand(job, compute + send + 1, [(compute, compute + send)], ring, 12, rate, throttles=RATES)
        )
    where = links(spines, units=4)
    ours, merged = (schedule(jobs, where, "full", repair) for repair in ("local", "merged"))
    for plan in (ours, merged):
        check_order(plan, jobs)
        assert plan.contention_free
        assert 0 < max(spine_peaks(plan, jobs).values()) <= UPLINK
    assert ours.mean_iteration_us < merged.mean_iteration_us
