"""What each way of keeping jobs apart costs them, simulated over a grid of loads.

    python -m bench modes

Two to eight jobs share the links of two hosts; all have one priority, or the first a higher one. Their
phases fill from half of a link's time to more than all of it, their computation varies, and their periods
are equal, `near` (the first has the longest, the last one 2 % less), `rising` (the first has 5 % less than
the last, which so cannot keep its pace), `parts` (every second is half of the others) or `unlike`. Lost is
by how much an iteration takes longer than the job's own, in per cent. With one seed all modes meet the same
arrivals and the same variation.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from bench.figure import Figure, Settings
from rm.core.model.acceptance import accept
from rm.core.model.asked.demand import PRIORITY_HIGH
from rm.core.model.asked.traffic import on_off
from rm.core.model.job import PRIORITY_LOW, JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.policies.regulate.controller import ControllerOptions
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.program import program_of
from rm.sim.workload import Noise, SimJob, hosts
from rm.sim.world import Settings as Running
from rm.sim.world import World

LINK_BPS = 10**9
SPAN_US = 20_000_000
PERIOD_US = 200_000
UNLIKE_US = (
    200_000, 167_300, 143_900, 181_700, 127_100, 191_300,
    153_700, 109_900, 173_900, 119_300, 137_300, 187_700,
)  # fmt: skip
ARRIVAL_US, ARRIVED_US = 250_000, 3_000_000  # between two jobs; when the last has come at the latest
PROFILED = 100  # iterations, whose mean is the profile: it is off by the jitter over this root
SEEDS = 3  # one after the other over the cases
NOISE_PCT = 3.0  # between runs of a case that differ in nothing but the seed
NOISE_OF_MEANS_PCT = 1.0  # between means over many cases
DEFAULT, UNMANAGED = "default", "unmanaged"
MODES: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # the communication policy, and its options
    DEFAULT: ("metronome", {}),
    UNMANAGED: ("none", {}),
    "classes alone": ("metronome", {"rotation": False}),
    "gates alone": ("metronome", {"shaping": False}),
    "both": ("metronome", {"combine": True}),
    "first come": ("first-come", {}),
}
LIVE = tuple(mode for mode in MODES if mode != "first come")
JOBS = (2, 3, 4, 6, 8)
FILLS = (0.5, 0.75, 0.9, 1.1, 1.3)
JITTERS = (0.0, 0.01, 0.04)
PERIODS = ("equal", "near", "rising", "parts", "unlike")


@dataclass(frozen=True, slots=True)
class Case:
    """`fill` is the sum of all jobs' shares of a link, `jitter` the standard deviation of a computation."""

    jobs: int
    fill: float
    jitter: float
    periods: str
    high: bool  # has the first job a higher priority than the others?

    def period_us(self, index: int) -> int:
        if self.periods == "near":
            return round(PERIOD_US * (1 - 0.02 * index / (self.jobs - 1)))
        if self.periods == "rising":
            return round(PERIOD_US * (1 - 0.05 * (1 - index / (self.jobs - 1))))
        if self.periods == "parts":
            return PERIOD_US // 2 if index % 2 else PERIOD_US
        return UNLIKE_US[index % len(UNLIKE_US)] if self.periods == "unlike" else PERIOD_US


@dataclass(frozen=True, slots=True)
class Lost:
    """In per cent of the jobs' own iterations; `first` is the high job's where there is one."""

    slowest: float
    mean: float
    first: float


def play(case: Case, mode: str, seed: int, verify: bool = False) -> Lost:
    """`verify`: what is slower managed is left alone after it was measured, which takes half of the span."""
    found = lost(case, mode, seed, verify)
    return Lost(max(found), fmean(found), found[0])


def lost(case: Case, mode: str, seed: int, verify: bool = False) -> list[float]:
    """By how many per cent each job's iterations take longer than its own."""
    policy, options = MODES[mode]
    comm = load("comm", policy, options) if options else load("comm", policy)
    cluster = hosts(2, gpus=case.jobs, nic_bps=LINK_BPS)
    network = Fluid(Topology({h.name: float(h.nic_bps) for h in cluster}), lockstep=True)
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), comm)
    noise = Noise(jitter=case.jitter, drift=case.jitter / PROFILED**0.5)
    controller = ControllerOptions(verify=verify)
    running = Running(seed=seed, noise=noise, controller=controller, until_us=SPAN_US)
    jobs = World(cluster, arriving(case, seed), policies, network, settings=running).run().jobs
    return [100 * (j.mean_us / j.alone_us - 1) for j in jobs]


def arriving(case: Case, seed: int) -> list[SimJob]:
    chance = random.Random(f"arrivals/{seed}")
    apart_us = min(ARRIVAL_US, ARRIVED_US // case.jobs)
    jobs = []
    for index in range(case.jobs):
        profile = on_off(case.period_us(index), case.fill / case.jobs, LINK_BPS)
        spec = JobSpec(
            f"job{index + 1}",
            "sim",
            "",
            ntasks=2,
            tasks_per_host=1,
            gpus_per_task=1,
            traffic=profile,
            priority=PRIORITY_HIGH if case.high and not index else PRIORITY_LOW,
        )
        accept(spec, runs=False)  # what no daemon takes measures nothing
        enough = 2 * SPAN_US // profile.period_us
        jobs.append(SimJob(round(apart_us * (index + chance.random())), spec, program_of(profile, enough)))
    return jobs


def mean(found: Iterable[Lost]) -> Lost:
    all_of = list(found)
    return Lost(
        fmean(f.slowest for f in all_of), fmean(f.mean for f in all_of), fmean(f.first for f in all_of)
    )


def run(settings: Settings) -> list[Figure]:
    counts, jitters = ((2, 3, 6), JITTERS[1:]) if settings.quick else (JOBS, JITTERS)
    found: dict[Case, dict[str, Lost]] = {}
    for number, at in enumerate(product(counts, FILLS, jitters, PERIODS)):
        for high in (False, True):
            case = Case(*at, high)
            found[case] = {mode: play(case, mode, 1 + number % SEEDS) for mode in MODES}
    figures = []
    for many, high in product((False, True), (False, True)):
        chosen = [case for case in found if (case.jobs > 2, case.high) == (many, high)]
        what = f"{f'3-{max(counts)}' if many else 2} jobs, {'the first high' if high else 'one priority'}"
        parts = [(f"fill {fill:.0%}", [c for c in chosen if c.fill == fill]) for fill in FILLS]
        parts += [(f"{kind} periods", [c for c in chosen if c.periods == kind]) for kind in PERIODS]
        parts += [(f"jitter {jitter:.0%}", [c for c in chosen if c.jitter == jitter]) for jitter in jitters]
        figures += [_figure(f"{what}, {part}", cases, found) for part, cases in parts]
        figures += [_summary(f"{what}: {mode}", mode, chosen, found) for mode in MODES]
    return figures


def _figure(what: str, cases: Sequence[Case], found: Mapping[Case, Mapping[str, Lost]]) -> Figure:
    """The default's slowest job, beside the slowest under each other mode."""
    over = {mode: mean(found[case][mode] for case in cases) for mode in MODES}
    others = ", ".join(f"{mode} {over[mode].slowest:.1f}" for mode in MODES if mode != DEFAULT)
    return Figure(f"slowest job, {what}", over[DEFAULT].slowest, "%", others)


def _summary(what: str, mode: str, cases: Sequence[Case], found: Mapping[Case, Mapping[str, Lost]]) -> Figure:
    """One mode over all these cases. The target of the default is what the best mode loses that protects a
    high job as it does."""
    over = mean(found[case][mode] for case in cases)
    worse = [
        sum(getattr(found[c][mode], whose) > getattr(found[c][UNMANAGED], whose) + NOISE_PCT for c in cases)
        for whose in ("slowest", "first")
    ]
    high = cases[0].high
    rivals = ("classes alone", "both") if high else tuple(mode for mode in LIVE if mode != DEFAULT)
    least = min(mean(found[case][rival] for case in cases).slowest for rival in rivals)
    return Figure(
        f"slowest job, {what}",
        over.slowest,
        "%",
        f"all jobs {over.mean:.1f} %, the first {over.first:.1f} %; more than {NOISE_PCT:.0f} points slower "
        f"than unmanaged in {worse[0]} of {len(cases)} cases, the first job in {worse[1]}",
        target=least + NOISE_OF_MEANS_PCT if mode == DEFAULT else None,
    )
