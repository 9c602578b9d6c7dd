"""What a joint solve makes of the loops that CASSINI discards.

    python -m bench loops

Jobs of one of three periods (150, 300, 600 ms) are put on two or three of six hosts each, at random
from a fixed seed, with one phase at the full rate of a link. CASSINI takes no placement whose affinity
graph has a loop (Algorithm 2, line 13); `loops = "joint"` looks for one rotation per job that suits
every link at once; `loops = "leave"` is what such a placement is worth when nobody shifts its jobs.
"""

from __future__ import annotations

import random
import statistics
import time

from bench.figure import Figure, Settings
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.host import Host, HostState
from rm.core.model.job import Placement, TaskPlacement
from rm.core.model.network.links import Link, NetworkView
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.policies.comm.cassini import Cassini, CassiniOptions

RATE_BPS = 10**10
PERIODS_US = (150_000, 300_000, 600_000)
HOSTS = tuple("abcdef")
LIGHT_MS, HEAVY_MS = (10, 30), (30, 60)


def cluster() -> Snapshot:
    hosts = {n: Host(n, "z", n, nic_bps=RATE_BPS, state=HostState.UP) for n in HOSTS}
    links = {n: Link(n, RATE_BPS) for n in HOSTS}
    return Snapshot(0, hosts, {}, links, NetworkView(), {}, {})


def draw(chance: random.Random, jobs: int, comm_ms: tuple[int, int]) -> list[PlacedJob]:
    made = []
    for job in range(1, jobs + 1):
        hosts = chance.sample(HOSTS, chance.choice((2, 3)))
        phase = Phase(chance.randint(0, 40) * 1000, chance.randint(*comm_ms) * 1000, RATE_BPS)
        traffic = TrafficProfile(chance.choice(PERIODS_US), (phase,))
        placement = Placement(tuple(TaskPlacement(i, h) for i, h in enumerate(hosts)))
        made.append(PlacedJob(job, f"job{job}", False, 0, job, placement, traffic, False))
    return made


def run(settings: Settings) -> list[Figure]:
    cases = 60 if settings.quick else 200
    paper, joint = Cassini(), Cassini(CassiniOptions(loops="joint"))
    alone = Cassini(CassiniOptions(loops="leave"))
    snapshot, figures = cluster(), []
    for comm_ms in (LIGHT_MS, HEAVY_MS):
        for jobs in (3, 4, 5, 6):
            chance = random.Random(jobs)
            looped = [
                p
                for p in (draw(chance, jobs, comm_ms) for _ in range(cases))
                if paper.align(p, snapshot).rejected
            ]
            times, found = [], []
            for placement in looped:
                start = time.perf_counter()
                found.append(joint.align(placement, snapshot))
                times.append(1000 * (time.perf_counter() - start))
            perfect = sum(answer.score == 100 for answer in found)
            unshifted = statistics.mean(alone.align(p, snapshot).score for p in looped)
            shifted = statistics.mean(answer.score for answer in found)
            figures.append(
                Figure(
                    f"{jobs} jobs, phases of {comm_ms[0]}-{comm_ms[1]} ms: loops compatible jointly",
                    100 * perfect / len(looped),
                    "%",
                    f"{len(looped)} of {cases} placements have a loop; mean score {shifted:.2f} "
                    f"jointly, {unshifted:.2f} unshifted; {statistics.median(times):.1f} ms, worst "
                    f"{max(times):.0f} ms",
                )
            )
    return figures
