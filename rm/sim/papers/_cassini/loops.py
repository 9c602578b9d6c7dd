"""Beyond the paper: placements whose affinity graph has a loop, discarded or solved jointly.

Random placements on the 24 servers. The paper's rule gives a placement with a loop up (Algorithm 2,
line 13); the joint solve gives its jobs one rotation on all links of the loop. Whether the shifts that come
out suit every link is checked against the links' demand over time, not against the policy's own word.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from statistics import fmean

from rm.core.model.job import Placement, TaskPlacement
from rm.core.model.network.alignment import PERFECT, Alignment, LinkAlignment, Schedule
from rm.core.model.network.links import NetworkView
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.profile import Phases
from rm.sim.papers._cassini.models import DATA_PARALLEL, Shape, sim_job
from rm.sim.papers._cassini.testbed import Testbed, single_gpu
from rm.sim.papers.frame.paper import Sample
from rm.sim.papers.frame.parameters import parameters
from rm.sim.workload import Noise
from rm.sim.world import Settings, World

FIGURE = "beyond: loops"
PAPERS, OURS = "discard", "joint"
ROUNDING_US = 1  # a schedule's shift is a whole number of microseconds


@dataclass(frozen=True, slots=True)
class Case:
    """A random placement: its jobs, and the snapshot in which they are placed."""

    shapes: tuple[Shape, ...]
    placed: tuple[PlacedJob, ...]
    snapshot: Snapshot


def drawn(bed: Testbed, chance: random.Random) -> Case:
    """Jobs of random models on random servers; nobody shares a server, but leaves are shared."""
    known = parameters("cassini")
    free = [host.name for host in bed.hosts]
    chance.shuffle(free)
    shapes, placed = [], []
    for number in range(known["loop_jobs"]):
        shape = Shape(chance.choice(DATA_PARALLEL), chance.randint(*known["loop_workers"]))
        hosts, free = sorted(free[: shape.workers]), free[shape.workers :]
        tasks = tuple(TaskPlacement(rank, host, (0,)) for rank, host in enumerate(hosts))
        name = f"{shape.model}-{number + 1}"
        shapes.append(shape)
        placed.append(
            PlacedJob(number + 1, name, False, 0, number, Placement(tasks), shape.profile, low_comm=False)
        )
    snapshot = Snapshot(
        now_us=0,
        hosts={host.name: host for host in bed.hosts},
        zones={},
        links={},
        network=NetworkView(),
        free={},
        placed={p.job: p for p in placed},
        fabric=bed.fabric,
    )
    return Case(tuple(shapes), tuple(placed), snapshot)


def overloaded_us(demand: Sequence[tuple[int, int, Phases]], capacity: int) -> int:
    """How long a link is asked for more than it has, in the least common multiple of the periods.

    `demand` are (period, shift, phases) of its jobs, whole microseconds.
    """
    around = math.lcm(*(period for period, _, _ in demand))
    steps: dict[int, int] = {0: 0}
    for period, shift, phases in demand:
        for offset, duration, bps in phases:
            for first in range(shift + offset, shift + offset + around, period):
                start, end = first % around, first % around + duration
                for left, right in ((start, min(end, around)), (0, end - around)):
                    if left < right:
                        steps[left] = steps.get(left, 0) + bps
                        steps[right] = steps.get(right, 0) - bps
    level = over = 0
    marks = sorted(steps)
    for left, right in zip(marks, [*marks[1:], around], strict=True):
        level += steps[left]
        over += right - left if level > capacity else 0
    return over


def violations(case: Case, alignment: Alignment) -> int:
    """Links where the jobs' shifts are not what was promised, beyond the rounding of shifts.

    On a link of score 100 they overload it; or two jobs are not apart by the difference of their rotations
    modulo the greatest common divisor of their periods (the Chinese remainder theorem).
    """
    schedule = {s.job: s for s in alignment.schedules}
    _, links = link_loads(case.placed, case.snapshot)
    found = 0
    for link in alignment.links:
        if not link.rotations:
            continue
        load = links[link.link]
        demand = [(schedule[j].period_us, schedule[j].shift_us, load.phases[j]) for j in load.phases]
        edges = sum(math.lcm(*(t for t, _, _ in demand)) // t * len(phases) for t, _, phases in demand)
        over = link.score >= PERFECT and overloaded_us(demand, load.capacity) > edges * ROUNDING_US
        found += over or _out_of_step(link, schedule)
    return found


def _out_of_step(link: LinkAlignment, schedule: Mapping[int, Schedule]) -> bool:
    for a, b in combinations(link.rotations, 2):
        one, other = schedule[a.job], schedule[b.job]
        wanted = Fraction((a.slots - b.slots) * link.perimeter_us, a.circle_slots)
        common = math.gcd(one.period_us, other.period_us)
        off = (one.shift_us - other.shift_us - wanted) % common
        if min(off, common - off) > 2 * ROUNDING_US:
            return True
    return False


def measure(seed: int) -> Iterator[Sample]:
    known = parameters("cassini")
    chance, bed = random.Random(f"loops/{seed}"), single_gpu()
    paper, joint, leave = (load("comm", "cassini", {"loops": loops}) for loops in (PAPERS, OURS, "leave"))
    cases = [drawn(bed, chance) for _ in range(known["loop_placements"])]
    looped: list[tuple[Case, Alignment, Alignment]] = []
    for case in cases:
        if paper.align(case.placed, case.snapshot).rejected is not None:
            ours = joint.align(case.placed, case.snapshot)
            looped.append((case, leave.align(case.placed, case.snapshot), ours))
    yield Sample(FIGURE, PAPERS, "placements discarded", 100 * len(looped) / len(cases))
    kept = [ours for _, _, ours in looped if ours.rejected is None]
    yield Sample(FIGURE, OURS, "placements discarded", 100 * (len(looped) - len(kept)) / len(cases))
    whole = [all(link.score >= PERFECT for link in ours.links) for _, _, ours in looped]
    yield Sample(FIGURE, OURS, "compatible on every link", 100 * fmean(whole))
    yield Sample(
        FIGURE, OURS, "links that the shifts violate", sum(violations(c, ours) for c, _, ours in looped)
    )
    times: dict[str, list[float]] = {}
    for name, loops, which in ((PAPERS, "leave", 1), (OURS, OURS, 2)):
        scores = [_contended(case, found[which - 1]) for case, *found in looped]
        yield Sample(FIGURE, name, "compatibility score", fmean(scores) / 100)
        times[name] = [slowdown(bed, case, loops, seed) for case, _, _ in looped]
        yield Sample(FIGURE, name, "iteration times over alone", fmean(times[name]))
        apart = [time for time, compatible in zip(times[name], whole, strict=True) if compatible]
        yield Sample(FIGURE, name, "the same, where joint is compatible on every link", fmean(apart))
    yield Sample(FIGURE, f"{OURS} over {PAPERS}", "gain, mean", fmean(times[PAPERS]) / fmean(times[OURS]))


def _contended(case: Case, alignment: Alignment) -> float:
    """The mean over the links on which jobs can get into each other's way, whichever policy names more."""
    _, links = link_loads(case.placed, case.snapshot)
    scores = [
        link.score
        for link in alignment.links
        if sum(max(bps for _, _, bps in p) for p in links[link.link].phases.values())
        > links[link.link].capacity
    ]
    return fmean(scores) if scores else PERFECT


def slowdown(bed: Testbed, case: Case, loops: str, seed: int) -> float:
    """The jobs of the case on their hosts: their mean iterations as multiples of those alone."""
    known = parameters("cassini")
    chance = random.Random(f"loops/begin/{seed}")
    jobs = [
        sim_job(
            placed.name,
            shape,
            known["loop_iterations"],
            round(chance.random() * known["grid_us"]),
            placed.placement.hosts,
        )
        for shape, placed in zip(case.shapes, case.placed, strict=True)
    ]
    policies = Policies(
        load("queue", "fifo"), load("placement", "first-fit"), load("comm", "cassini", {"loops": loops})
    )
    settings = Settings(seed=seed, noise=Noise(jitter=known["jitter"]))
    result = World(bed.hosts, jobs, policies, bed.network(), fabric=bed.fabric, settings=settings).run()
    return fmean(job.mean_us / job.alone_us for job in result.jobs)
