"""Speed of the simulator's networks: events per second, where an event is a transfer's begin or end.

    python -m bench simulator

Jobs on hosts drawn from a fixed seed compute and communicate in turns, each in a rhythm of its own, so
that rates change at nearly every event. The figures are those of the whole loop with its timers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from bench.figure import Figure, Settings
from rm.core.model.network.fabric import Fabric
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.penalty import Penalty
from rm.sim.network.port import Flow, Network, Transfer

FLUID_TARGET, PENALTY_TARGET = 30_000.0, 200_000.0
LINK_BPS = 50e9
PERIODS_US = (80_000.0, 400_000.0)
# seconds and seconds per byte as printed for 10 Gbit/s Ethernet; eta as in the authors' program
A_US, B_US_PER_BYTE, ETA_US_PER_BYTE = 669.0, 8.53e-4, 2.35e-4


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A job: so long it computes, and this is what it then has to say."""

    hosts: tuple[str, ...]
    flows: tuple[Flow, ...]
    compute_us: float
    size_bytes: float


def ring(hosts: Sequence[str], bits: float) -> tuple[Flow, ...]:
    return tuple(Flow(a, b, bits) for a, b in zip(hosts, (*hosts[1:], hosts[0]), strict=True))


def draw(jobs: int, names: Sequence[str], sizes: tuple[int, int], chance: random.Random) -> list[Rhythm]:
    """Jobs on hosts drawn at random, which communicate for a fifth to a half of their time."""
    drawn = []
    for _ in range(jobs):
        hosts = tuple(chance.sample(names, chance.randint(*sizes)))
        period = chance.uniform(*PERIODS_US)
        busy = period * chance.uniform(0.2, 0.5)
        bits = busy * LINK_BPS / 1e6
        size = busy / B_US_PER_BYTE
        drawn.append(Rhythm(hosts, ring(hosts, bits), period - busy, size))
    return drawn


def play(network: Network, jobs: Sequence[Rhythm], events: int) -> float:
    """Events per second over so many of them."""
    timers = [(job.compute_us * number / len(jobs), number) for number, job in enumerate(jobs)]
    timers.sort()
    owner: dict[int, int] = {}
    done = transfers = 0
    since = time.perf_counter()
    while done < events:
        end = network.next_us()
        if timers and (end is None or timers[0][0] < end):
            now, number = heappop(timers)
            job = jobs[number]
            transfers += 1
            owner[transfers] = number
            network.begin(Transfer(transfers, number, job.hosts, job.flows, job.size_bytes), now)
            done += 1
        else:
            assert end is not None
            for transfer in network.advance(end):
                number = owner.pop(transfer)
                heappush(timers, (end + jobs[number].compute_us, number))
                done += 1
    return done / (time.perf_counter() - since)


def fluid(settings: Settings) -> list[Figure]:
    many = [f"h{i:03}" for i in range(128)]
    names = many[:24]
    links = dict.fromkeys(many, LINK_BPS)
    leaves = Fabric({name: f"leaf{i // 4}" for i, name in enumerate(names)}, 2, int(LINK_BPS))
    cases = (
        ("12 jobs of 2 of 24 hosts", 12, names, (2, 2), None, FLUID_TARGET),
        ("15 jobs of 2 to 8 of 24 hosts", 15, names, (2, 8), None, FLUID_TARGET),
        ("15 such jobs over 6 leaves and 2 spines", 15, names, (2, 8), leaves, None),
        ("60 jobs of 2 to 8 of 128 hosts", 60, many, (2, 8), None, None),
    )
    figures = []
    events = 10_000 if settings.quick else 30_000
    for what, jobs, hosts, sizes, fabric, target in cases:
        for lockstep in (True, False):
            drawn = draw(jobs, hosts, sizes, random.Random(jobs))
            speed = play(Fluid(Topology(links, fabric), lockstep=lockstep), drawn, events)
            how = "flows of a ring in step" if lockstep else "each flow by itself"
            goal = target if lockstep else None
            figures.append(Figure(f"fluid, {what}", speed, "ev/s", how, goal, at_least=True))
    return figures


def penalty(settings: Settings) -> list[Figure]:
    names = [f"h{i:02}" for i in range(64)]
    jobs = draw(32, names, (2, 8), random.Random(64))
    network = Penalty(A_US, B_US_PER_BYTE, ETA_US_PER_BYTE)
    speed = play(network, jobs, 100_000 if settings.quick else 400_000)
    what = "contention penalty, 32 jobs of 2 to 8 of 64 hosts"
    return [Figure(what, speed, "ev/s", "", PENALTY_TARGET, at_least=True)]


def run(settings: Settings) -> list[Figure]:
    return [*fluid(settings), *penalty(settings)]
