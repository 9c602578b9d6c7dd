"""Simulated jobs keep to plans: they start together, wait, throttle and take the routes as planned."""

from dataclasses import replace
from fractions import Fraction
from math import inf

import pytest

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import JobSpec, Placement, TaskPlacement
from rm.core.model.network.alignment import Alignment
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.routes import CommPlan, FlowRoute, PlannedIteration, RoutedRange
from rm.core.model.snapshot import PlacedJob
from rm.core.ports import Candidate, Proposal
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.policies.foresight.ring import RATES, ring_demand
from rm.sim.following import as_planned
from rm.sim.network.fabric import Topology, logical_spine
from rm.sim.network.fluid import Fluid
from rm.sim.network.port import Flow
from rm.sim.program import program_of
from rm.sim.workload import SimJob, hosts
from rm.sim.world import Settings, World

MS = 1_000
GBPS = 10**9
LEAVES = {"host1": "a", "host2": "a", "host3": "b", "host4": "b"}
PAIRS = {"one": ("host1", "host3"), "two": ("host2", "host4")}
PROFILE = TrafficProfile(100 * MS, (Phase(60 * MS, 40 * MS, GBPS),))


class Pairs:
    """Each job on its two hosts."""

    name = "pairs"

    def candidates(self, request, snapshot, explain=False):
        tasks = tuple(
            TaskPlacement(n, host) for n, host in enumerate(PAIRS[snapshot.jobs[request.job].spec.name])
        )
        return Proposal(iter([Candidate(Placement(tasks))]))


class Planner:
    """A communication policy that hands out plans: those of `plans[n]` to n placed jobs."""

    name = "planner"

    def __init__(self, **plans):
        self.plans = {int(n.removeprefix("jobs")): plan for n, plan in plans.items()}

    def align(self, placed, snapshot, offline=False):
        plan = self.plans.get(len(placed))
        return Alignment(100.0, plans=(plan,) if plan is not None else ())


def world(comm, spines=1, iterations=4, arrivals=(0, 0), **settings):
    fabric = Fabric(LEAVES, spines, GBPS)
    cluster = hosts(4, nic_bps=GBPS)
    jobs = []
    for name, at in zip(PAIRS, arrivals, strict=True):
        spec = JobSpec(name, "sim", "", ntasks=2, tasks_per_host=1, traffic=PROFILE)
        jobs.append(SimJob(at, spec, program_of(PROFILE, iterations)))
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}, fabric))
    policies = Policies(load("queue", "fifo"), Pairs(), comm)
    return World(cluster, jobs, policies, network, fabric=fabric, settings=Settings(record=True, **settings))


def plan(*delays_us, throttle=1.0, ranges=(), length_us=100 * MS, cycle_us=None):
    """Job n waits delays_us[n] before its first of two iterations; then they follow each other."""
    iterations = {}
    for job, delay in enumerate(delays_us, 1):
        first = PlannedIteration(delay, delay, length_us, throttle, ranges)
        iterations[job] = (first, PlannedIteration(delay + length_us, 0, length_us, throttle, ranges))
    return CommPlan(iterations, True, cycle_us or 2 * length_us)


def test_a_delay_keeps_two_jobs_apart_that_would_meet():
    met = world(Planner()).run()
    assert [j.end_us for j in met.jobs] == [4 * 140 * MS] * 2
    apart = world(Planner(jobs2=plan(0, 40 * MS), jobs1=None)).run()
    assert [j.end_us for j in apart.jobs] == [pytest.approx(400 * MS), pytest.approx(440 * MS)]
    assert sum(use.overloaded_us for use in apart.links.values()) == 0


def test_a_plan_repeats_after_its_cycle():
    result = world(Planner(jobs2=plan(0, 40 * MS, cycle_us=250 * MS))).run()
    assert result.jobs[0].durations_us == pytest.approx([100 * MS, 150 * MS, 100 * MS, 100 * MS])
    assert result.jobs[0].paused_us == pytest.approx(50 * MS)


def test_a_plan_begins_when_the_last_of_its_jobs_is_between_two_iterations():
    """Job two is there from 130 ms on, and waits for the end of job one's iteration at 200 ms."""
    result = world(Planner(jobs2=plan(0, 40 * MS)), arrivals=(0, 130 * MS), iterations=3).run()
    one, two = result.jobs
    assert one.end_us == pytest.approx(300 * MS)
    assert two.start_us == 130 * MS
    assert two.end_us == pytest.approx((200 + 40 + 300) * MS)


def test_who_waits_for_a_plan_that_is_withdrawn_goes_on():
    """Job two waits for job one, which ends instead: then nothing is planned any more."""
    result = world(Planner(jobs2=plan(0, 0)), arrivals=(0, 130 * MS), iterations=2).run()
    assert [j.end_us for j in result.jobs] == [pytest.approx(200 * MS), pytest.approx(400 * MS)]


def test_routes_are_taken_and_bound_the_rate():
    """Both flows of each job are pinned to spine 1 of 2 at half of the link."""
    routes = tuple(FlowRoute(a, b, GBPS // 2, ((1, 2),)) for p in PAIRS.values() for a, b in (p, p[::-1]))
    pinned = plan(0, 0, ranges=(RoutedRange(0, 0, routes),), length_us=140 * MS)
    result = world(Planner(jobs2=pinned), spines=2, keep_running=True).run()
    assert [j.end_us for j in result.jobs] == [pytest.approx(4 * 140 * MS)] * 2
    carried = {name: use.carried_bits for name, use in result.links.items() if "->" in name}
    assert all((bits > 0) == ("spine1" in name) for name, bits in carried.items())
    assert sum(use.overloaded_us for use in result.links.values()) == 0


def test_throttle_and_route_bound_a_flow_together():
    flow = Flow("host1", "host3", 1.0)
    route = FlowRoute("host1", "host3", 300, ((0, 1), (1, 3)))
    planned = PlannedIteration(0, 0, 1, 0.5, (RoutedRange(1, 1, (route,)),))
    (free,) = as_planned([flow], planned, 0, {"host1": 1000.0})
    assert (free.cap_bps, free.route) == (500.0, ())
    (there,) = as_planned([flow], planned, 1, {"host1": 1000.0})
    assert (there.cap_bps, there.route) == (300.0, ((0, 0.25), (1, 0.75)))
    (slow,) = as_planned([replace(flow, cap_bps=400.0)], planned, 1, {"host1": 1000.0})
    assert slow.cap_bps == 200.0
    (whole,) = as_planned([flow], replace(planned, throttle=1.0), 0, {})
    assert whole.cap_bps == inf


@pytest.mark.parametrize("rate", RATES)
def test_the_profile_that_is_planned_with_is_what_the_job_does_alone(rate: Fraction):
    """On a logical single spine, at each throttle (FORESIGHT Sec. III)."""
    fabric = Fabric(LEAVES, 3, GBPS // 5)
    cluster = hosts(4, nic_bps=GBPS)
    placement = Placement(tuple(TaskPlacement(n, h) for n, h in enumerate(PAIRS["one"])))
    placed = PlacedJob(1, "one", False, 0, 1, placement, PROFILE, False)
    demand = ring_demand(placed, fabric, {h.name: h.nic_bps for h in cluster}, (rate,))
    length_us = demand.profiles[0].length_us
    throttled = CommPlan({1: (PlannedIteration(0, 0, length_us, float(rate)),)}, True, length_us)
    spec = JobSpec("one", "sim", "", ntasks=2, tasks_per_host=1, traffic=PROFILE)
    policies = Policies(load("queue", "fifo"), Pairs(), Planner(jobs1=throttled))
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}, logical_spine(fabric)))
    result = World(cluster, [SimJob(0, spec, program_of(PROFILE, 1))], policies, network, fabric=fabric).run()
    assert result.jobs[0].end_us == pytest.approx(length_us, abs=1)


def test_jobs_that_keep_running_are_measured_no_longer():
    """Job one is done first and stays: job two meets it to the end."""
    one = world(Planner(), keep_running=True)
    one.change(0, 1, replace(one._stories[1].sim, program=program_of(PROFILE, 8)))
    result = one.run()
    assert [j.iterations for j in result.jobs] == [4, 8]
    assert [j.mean_us for j in result.jobs] == [pytest.approx(140 * MS)] * 2
    assert len(result.jobs[0].durations_us) == 4
