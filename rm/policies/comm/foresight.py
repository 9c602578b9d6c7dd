"""foresight: iterations are delayed and throttled, flows pinned to spines, so that nothing contends.

Source: FORESIGHT (Zandi, Ghobadi, Ganjali), Sec. III and IV; the algorithm is rm/policies/foresight.
`variant` is the paper's: "timing" (TS), "routing" (RO), "subflows" (SUB), "full" (FORESIGHT).
Jobs that share a leaf's uplinks or a host are planned together over one common multiple of their
periods, at most `horizon_ms` and about `iterations` iterations of all of them.

Where the paper is silent:

* The leaf-spine fabric is the snapshot's. Without one, or on hosts of no known leaf, there is
  nothing to route: host links alone are timed. Hosts' links are looked at where jobs share a host.
* `repair`: what happens when flows cannot be coloured. "local" (ours), "merged" and "paper" are
  described in rm/policies/foresight/joint.py, "accumulated" in feedback.py beside it.
* `guard`: a plan is dropped where a fluid model of the jobs (rm/policies/foresight/estimate.py)
  expects shorter iterations without it. A simulation can judge better and may be put in its place.
* A round of more than `MOST` iterations, of all jobs together, is not planned: beside a job of 20 s that is
  some jobs of less than 100 ms. They run as without a plan, until jobs come or go.
* The score of a component is the share of its speed alone that its jobs keep under the plan (or,
  without one, in that model), in percent.

Delays, throttles and routes of single iterations are in `Alignment.plans`, which the simulator and jobs
that call the iteration client carry out (rm/policies/regulate/planned.py). Where a plan comes down to one
time-shift per job, it is also given as schedules, and live hosts keep these; other jobs are `unmatched`: they
have no rotation. What a job sends from a host over one spine always keeps to it (`Alignment.paths`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import Alignment, LinkAlignment, Schedule
from rm.core.model.network.fabric import Fabric, uplink_name
from rm.core.model.network.routes import CommPlan
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.errors import ConfigError
from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.estimate import mean_iteration_us
from rm.policies.foresight.guard import guarded
from rm.policies.foresight.patterns import LogicalLink, capacity, shapes_of
from rm.policies.foresight.ring import RATES, iterations_within, links_of, ring_demand
from rm.policies.foresight.solve import REPAIRS, VARIANTS, schedule
from rm.policies.foresight.steady import steady_paths, steady_shifts

MOST = 512  # iterations in a round: planning takes some 0.3 ms for each, in the leader's turn


@dataclass(frozen=True, slots=True)
class ForesightOptions:
    """`units` a spine link is divided into for subflows; `throttling` False leaves delays alone; iterations
    are planned longer than profiled by `margin` of their periods. The rest: see the module.
    """

    variant: str = "full"
    repair: str = "local"
    units: int = 4
    throttling: bool = True
    guard: bool = True
    horizon_ms: int = 20_000
    iterations: int = 64
    margin: float = 0.0

    def __post_init__(self) -> None:
        for option, value, known in (("variant", self.variant, VARIANTS), ("repair", self.repair, REPAIRS)):
            if value not in known:
                raise ConfigError(
                    f"The option {option} of comm policy foresight is {value!r}.",
                    f"Known are: {', '.join(known)}.",
                )
        for option in ("units", "horizon_ms", "iterations"):
            if getattr(self, option) < 1:
                raise ConfigError(
                    f"The option {option} of comm policy foresight is {getattr(self, option)}.",
                    "Use 1 or more.",
                )

        if not 0 <= self.margin <= 1:
            raise ConfigError(
                f"The option margin of comm policy foresight is {self.margin}.",
                "Use 0 or more, and at most 1.",
            )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is known of one component: its plan, if any, and its score."""

    plan: CommPlan | None
    score: float


class Foresight:
    name = "foresight"

    def __init__(self, options: ForesightOptions | None = None) -> None:
        self.options = options or ForesightOptions()

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Plan all jobs that communicate; independent of the order of `placed`."""
        jobs = {p.job: _longer(p, self.options.margin) for p in placed if p.communicates}
        plans: list[CommPlan] = []
        links: list[LinkAlignment] = []
        schedules: list[Schedule] = []
        for group in _components(jobs, snapshot.fabric):
            demands, view, few = self._demands([jobs[j] for j in group], snapshot)
            if not any(shapes_of(demand, view)[0].patterns for demand in demands):
                continue  # a job below one leaf, on hosts of its own
            answer = self._answer(demands, view, few)
            crowded = _crowded(demands, view)
            links += [
                LinkAlignment(name, answer.score, answer.plan.cycle_us if answer.plan else 0, there)
                for name, there in crowded.items()
            ]
            if answer.plan is None:
                continue
            plans.append(answer.plan)
            if crowded:
                schedules += _schedules(group, jobs, demands, view, answer.plan)
        scheduled = {s.job for s in schedules}
        return Alignment(
            score=min((link.score for link in links), default=100.0),
            links=tuple(sorted(links, key=lambda link: link.link)),
            schedules=tuple(sorted(schedules, key=lambda s: s.job)),
            unmatched=tuple(sorted({j for link in links for j in link.jobs} - scheduled)),
            plans=tuple(plans),
            paths=tuple(path for plan in plans for path in steady_paths(plan)),
        )

    def _demands(self, group: Sequence[PlacedJob], snapshot: Snapshot) -> tuple[list[JobDemand], Links, bool]:
        """The component's demands, the links that its jobs may be short of, and whether its iterations are
        few enough to be planned; of more, the demands have a part."""
        hosts = sorted({h for job in group for h in job.placement.hosts})
        host_bps = {h: bps for h in hosts if (bps := _host_bps(h, snapshot))}
        rates = RATES if self.options.throttling else RATES[:1]
        alone = [ring_demand(job, snapshot.fabric, host_bps, rates[:1]) for job in group]
        counts = iterations_within(
            {d.job: d.period_us for d in alone}, self.options.horizon_ms * 1_000, self.options.iterations
        )
        whole, most = sum(counts.values()), max(MOST, self.options.iterations)
        if whole > most:
            counts = {job: -(-count * most // whole) for job, count in counts.items()}
        demands = [ring_demand(job, snapshot.fabric, host_bps, rates, counts[job.job]) for job in group]
        users = Counter(h for job in group for h in job.placement.hosts)
        shared = {h: bps for h, bps in host_bps.items() if users[h] > 1}
        return demands, Links(_part(snapshot.fabric, hosts), self.options.units, shared), whole <= most

    def _answer(self, demands: Sequence[JobDemand], links: Links, few: bool) -> _Answer:
        fabric = links.fabric
        return _solve(
            tuple(demands),
            (tuple(fabric.leaf_of.items()), fabric.spines, fabric.uplink_bps) if fabric is not None else None,
            links.units,
            tuple(links.host_bps.items()),
            (self.options.variant, self.options.repair, self.options.guard) if few else None,
        )


@lru_cache(maxsize=512)
def _solve(
    demands: tuple[JobDemand, ...],
    fabric: tuple[tuple[tuple[str, str], ...], int, int] | None,
    units: int,
    host_bps: tuple[tuple[str, int], ...],
    how: tuple[str, str, bool] | None,
) -> _Answer:
    """Equal questions are answered from memory: the answer depends on nothing else. `how` None: no plan."""
    leaves = Fabric(dict(fabric[0]), fabric[1], fabric[2]) if fabric is not None else None
    links = Links(leaves, units, dict(host_bps))

    def mean_us(plan: CommPlan | None) -> float:
        if plan is not None and plan.contention_free:
            return float(plan.repeated_mean_us)
        return mean_iteration_us(demands, links, plan)

    if how is None:
        plan, takes_us = None, mean_us(None)
    else:
        variant, repair, guard = how
        plan = schedule(demands, links, variant, repair)
        plan, takes_us = guarded(plan, mean_us, None) if guard else (plan, mean_us(plan))
    alone_us = sum(d.period_us * d.iterations for d in demands) / sum(d.iterations for d in demands)
    return _Answer(plan, min(100.0, 100 * alone_us / takes_us))


def _components(jobs: Mapping[int, PlacedJob], fabric: Fabric | None) -> list[list[int]]:
    """Jobs in groups that are connected by shared links, each sorted, by their lowest number."""
    groups: list[tuple[set[LogicalLink], list[int]]] = []
    for job in sorted(jobs):
        links, members = links_of(jobs[job], fabric), [job]
        apart = []
        for other, there in groups:
            if other & links:
                links |= other
                members += there
            else:
                apart.append((other, there))
        groups = [*apart, (links, members)]
    return sorted(sorted(members) for _, members in groups)


def _crowded(demands: Sequence[JobDemand], links: Links) -> dict[str, tuple[int, ...]]:
    """The links whose jobs' peaks together exceed their capacity, by the names of the core."""
    peaks: dict[LogicalLink, dict[int, int]] = {}
    for demand in demands:
        for pattern in shapes_of(demand, links)[0].patterns:
            for link, load in pattern.loads:
                there = peaks.setdefault(link, {})
                there[demand.job] = max(load, there.get(demand.job, 0))
    found: dict[str, set[int]] = {}
    for link, there in peaks.items():
        if len(there) > 1 and sum(there.values()) > capacity(link, links):
            found.setdefault(uplink_name(link.name) if link.leaf else link.name, set()).update(there)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def _schedules(
    group: Sequence[int],
    jobs: Mapping[int, PlacedJob],
    demands: Sequence[JobDemand],
    links: Links,
    plan: CommPlan,
) -> list[Schedule]:
    """One time-shift per job where the plan comes down to that; the reference never waits."""
    shifts = steady_shifts(demands, links, plan)
    if shifts is None:
        return []
    reference = min(group, key=lambda job: (shifts[job] > 0, not jobs[job].high, jobs[job].sequence, job))
    first_us = shifts[reference]
    mixed = not all(jobs[job].high for job in group)
    return [
        Schedule(
            job=demand.job,
            component=group[0],
            shift_us=(shifts[demand.job] - first_us) % demand.period_us,
            period_us=demand.period_us,
            base_period_us=demand.period_us,
            reference=demand.job == reference,
            high=jobs[demand.job].high,
            gate=demand.job != reference and not (jobs[demand.job].high and mixed),
        )
        for demand in demands
    ]


def _longer(job: PlacedJob, margin: float) -> PlacedJob:
    """With time for what varies: the last phase of an iteration may end so much later."""
    traffic = job.traffic
    if not margin or traffic is None or not traffic.phases:
        return job
    more_us = int(margin * traffic.period_us)
    *before, last = sorted(traffic.phases, key=lambda phase: phase.offset_us)
    phases = (*before, replace(last, duration_us=last.duration_us + more_us))
    return replace(job, traffic=TrafficProfile(traffic.period_us + more_us, phases))


def _host_bps(host: str, snapshot: Snapshot) -> int:
    """The capacity of a host's link; 0 = not known."""
    if host in snapshot.links:
        return snapshot.links[host].capacity_bps
    return snapshot.hosts[host].nic_bps if host in snapshot.hosts else 0


def _part(fabric: Fabric | None, hosts: Sequence[str]) -> Fabric | None:
    """The fabric as these hosts see it; None where none of them is below a known leaf."""
    if fabric is None:
        return None
    leaf_of = {h: fabric.leaf_of[h] for h in hosts if h in fabric.leaf_of}
    return Fabric(leaf_of, fabric.spines, fabric.uplink_bps) if leaf_of else None


OPTIONS = ForesightOptions
POLICY = Foresight
