"""Is any job slower under the defaults than unmanaged where jobs share several links? Simulated.

    python -m bench several_links

Jobs of one priority on two or three hosts: rings over three hosts, chains, and hosts drawn by chance below
leaves whose uplinks are contended, too. They come at different times, and end at different times. Two seeds
each; a case that seems slower is played with eight. Then every third job is of high priority: what low and
high jobs lose, also under classes alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.figure import Figure, Settings
from bench.modes import DEFAULT, LINK_BPS, MODES, NOISE_PCT, PROFILED, UNMANAGED
from rm.core.model.asked.demand import PRIORITY_HIGH
from rm.core.model.asked.traffic import TrafficProfile, on_off
from rm.core.model.job import PRIORITY_LOW, JobSpec
from rm.core.model.network.fabric import Fabric
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.policies.regulate.controller import ControllerOptions
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.program import program_of
from rm.sim.workload import Noise, SimJob, hosts
from rm.sim.world import Settings as Running
from rm.sim.world import World

HOSTS = tuple(f"host{number}" for number in range(1, 7))
KINDS = ("ring", "chain", "scattered")
PERIODS_US = (100_000, 120_000, 150_000, 200_000, 300_000)
CASES, QUICK = 120, 30
HIGH_CASES, HIGH_EVERY = 60, 3
CLASSES = "classes alone"
SEEDS, MORE_SEEDS = (1, 2), tuple(range(1, 9))


@dataclass(frozen=True, slots=True)
class Case:
    """`jitter`: the standard deviation of a computation. `uplinks` of a leaf of two hosts; 0: one switch."""

    kind: str
    jobs: tuple[SimJob, ...]
    jitter: float
    uplinks: int

    @property
    def fabric(self) -> Fabric | None:
        leaf_of = {host: f"leaf{number // 2}" for number, host in enumerate(HOSTS)}
        return Fabric(leaf_of, self.uplinks, LINK_BPS) if self.uplinks else None


def drawn(number: int, high: bool = False) -> Iterator[Case]:
    """The same cases each time, of each kind in turn; `high`: with some jobs of high priority."""
    for at in range(number):
        chance, kind = random.Random(f"several links/{at}"), KINDS[at % len(KINDS)]
        base_us, equal = chance.choice(PERIODS_US), chance.random() < 0.5
        fill, jobs = chance.uniform(0.5, 1.1), []
        for index in range({"ring": 3, "chain": 5, "scattered": 6}[kind]):
            if kind == "scattered":
                on = tuple(sorted(chance.sample(HOSTS, chance.choice((2, 2, 3)))))
            else:
                on = (HOSTS[index], HOSTS[(index + 1) % 3 if kind == "ring" else index + 1])
            period_us = base_us if equal else round(base_us * chance.choice((0.5, 0.95, 1, 1.03, 2)))
            profile = on_off(period_us, fill / 2, LINK_BPS)
            at_us, runs_us = chance.uniform(0, 3e6), chance.uniform(8e6, 18e6)
            jobs.append(job(index, on, profile, at_us, runs_us, high and index % HIGH_EVERY == 0))
        jitter = chance.choice((0.0, 0.01, 0.03, 0.06))
        yield Case(kind, tuple(jobs), jitter, chance.choice((1, 2)) if kind == "scattered" else 0)


def job(
    index: int, on: tuple[str, ...], profile: TrafficProfile, at_us: float, runs_us: float, high: bool = False
) -> SimJob:
    """With one task on each of those hosts; it comes at that time, and would run so long alone."""
    spec = JobSpec(
        f"job{index + 1}",
        "sim",
        "",
        ntasks=len(on),
        tasks_per_host=1,
        gpus_per_task=1,
        hosts_only=on,
        traffic=profile,
        priority=PRIORITY_HIGH if high else PRIORITY_LOW,
    )
    return SimJob(round(at_us), spec, program_of(profile, max(10, round(runs_us / profile.period_us))))


def lost(case: Case, mode: str, seeds: Sequence[int] = SEEDS) -> list[float]:
    """By how many per cent each job's iterations take longer than its own, in the mean of the seeds."""
    return [fmean(of_job) for of_job in zip(*(_lost(case, mode, seed) for seed in seeds), strict=True)]


def _lost(case: Case, mode: str, seed: int) -> list[float]:
    policy, options = MODES[mode]
    cluster = hosts(len(HOSTS), gpus=len(case.jobs), nic_bps=LINK_BPS)
    network = Fluid(
        Topology({h.name: float(h.nic_bps) for h in cluster}, case.fabric, seed=seed), lockstep=True
    )
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", policy, options))
    noise = Noise(jitter=case.jitter, drift=case.jitter / PROFILED**0.5)
    running = Running(seed=seed, noise=noise, controller=ControllerOptions(verify=True))
    world = World(cluster, case.jobs, policies, network, fabric=case.fabric, settings=running)
    return [100 * (j.mean_us / j.alone_us - 1) for j in world.run().jobs]


def compare(case: Case) -> tuple[float, float]:
    """What the slowest job loses under the defaults and unmanaged; with more seeds where it seems slower."""
    managed, unmanaged = (max(lost(case, mode)) for mode in (DEFAULT, UNMANAGED))
    if managed - unmanaged > NOISE_PCT:
        managed, unmanaged = (max(lost(case, mode, MORE_SEEDS)) for mode in (DEFAULT, UNMANAGED))
    return managed, unmanaged


def run(settings: Settings) -> list[Figure]:
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for case in drawn(QUICK if settings.quick else CASES):
        found[case.kind].append(compare(case))
    figures = []
    for kind, pairs in found.items():
        managed, unmanaged = (fmean(of_mode) for of_mode in zip(*pairs, strict=True))
        worse = [ours - bare for ours, bare in pairs if ours - bare > NOISE_PCT]
        figures.append(
            Figure(
                f"slowest job, {kind}", managed, "%",
                f"unmanaged {unmanaged:.1f} %; more than {NOISE_PCT:g} points slower in {len(worse)} of "
                f"{len(pairs)} cases, at most by {max(worse, default=0.0):.1f}", target=unmanaged,
            )
        )  # fmt: skip
    return [*figures, *beside_high(QUICK if settings.quick else HIGH_CASES)]


def beside_high(number: int) -> Iterator[Figure]:
    """What the slowest low and the slowest high job of a case lose."""
    slowest: dict[tuple[str, bool], list[float]] = {}
    for case in drawn(number, high=True):
        for mode in (DEFAULT, UNMANAGED, CLASSES):
            lost_pct = lost(case, mode)
            for high in (False, True):
                these = [
                    pct for pct, one in zip(lost_pct, case.jobs, strict=True) if one.spec.is_high is high
                ]
                slowest.setdefault((mode, high), []).append(max(these))
    for high, name in ((False, "low"), (True, "high")):
        means = {mode: fmean(slowest[mode, high]) for mode in (DEFAULT, UNMANAGED, CLASSES)}
        yield Figure(
            f"slowest {name} job, a third of high priority", means[DEFAULT], "%",
            f"unmanaged {means[UNMANAGED]:.1f} %; classes alone {means[CLASSES]:.1f} %",
        )  # fmt: skip
