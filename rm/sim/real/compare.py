"""Real workloads under several systems; the result does not depend on the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

from rm.core.registry import names as policy_names
from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.real.clusters import CLUSTERS, NIC_BPS
from rm.sim.real.systems import SYSTEMS
from rm.sim.real.workloads import Terms, submitted, workload
from rm.sim.result import Result
from rm.sim.summary import quantile
from rm.sim.workers import workers
from rm.sim.workload import Noise, SimJob
from rm.sim.world import Settings, World

JITTER = 0.01  # of computing, its standard deviation
P99 = 0.99
EQUAL = 1e-3  # relative: two job times that differ by less are taken as equal
CHANCE = 2.0  # standard errors of the difference, over the seeds, within which two are taken as equal


@dataclass(frozen=True, slots=True)
class Unit:
    system: str
    workload: str
    cluster: str
    terms: Terms
    seed: int
    queue: str = ""  # the queue policy; "": the system's own


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one run, times as long as in reality. A job's time is from its submission to its end. `utilisation`:
    the part of the GPU time that jobs held in which they computed. `slowdown`: of the jobs that exchange, the
    mean iteration over an undisturbed one; in the mean of all, and what 99 % do not exceed."""

    mean_s: float
    p99_s: float
    makespan_s: float
    utilisation: float
    slowdown: float
    p99_slowdown: float


Found = Mapping[Unit, Measured]


def checked(names: Sequence[str], known: Sequence[str], what: str) -> Sequence[str]:
    """The names; raises UsageError for one that is not known."""
    for name in names:
        if name not in known:
            raise UsageError(f"There is no {what} '{name}'.", did_you_mean(name, tuple(known)))
    return names


def compare(
    units: Sequence[Unit], processes: int, done: Callable[[Unit, Measured], None], known: Found | None = None
) -> Found:
    """Each unit's result, in the order of the units; `done` is called after each that is not known."""
    found: dict[Unit, Measured] = dict(known or {})
    open_ = [unit for unit in units if unit not in found]
    if min(processes, len(open_)) <= 1:
        for unit in open_:
            found[unit] = measure(unit)
            done(unit, found[unit])
    else:
        with workers(min(processes, len(open_))) as pool:
            running = {pool.submit(measure, unit): unit for unit in open_}
            try:
                for future in as_completed(running):
                    unit = running[future]
                    found[unit] = future.result()
                    done(unit, found[unit])
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    return {unit: found[unit] for unit in units}


def measure(unit: Unit) -> Measured:
    """Play it."""
    cluster, system = CLUSTERS[unit.cluster](), SYSTEMS[unit.system]
    jobs = submitted(unit.workload, cluster.gpus, NIC_BPS, unit.terms)
    topology = Topology({h.name: h.nic_bps for h in cluster.hosts}, cluster.fabric, seed=unit.seed)
    world = World(
        cluster.hosts,
        jobs,
        system.policies(unit.queue),
        Ideal(topology) if system.ideal else Fluid(topology, lockstep=True),
        tuning=system.tuning,
        fabric=cluster.fabric,
        settings=Settings(seed=unit.seed, noise=Noise(jitter=JITTER), controller=system.controller),
    )
    return measured(world.run(), jobs, unit.terms.speed)


def measured(result: Result, jobs: Sequence[SimJob], speed: float) -> Measured:
    times = [job.jct_us * speed / 1e6 for job in result.jobs if job.jct_us is not None]
    slow = [job.mean_us / job.alone_us for job in result.jobs if len(job.hosts) > 1]
    held_us = sum(
        (done.end_us - done.start_us) * job.spec.ntasks
        for done, job in zip(result.jobs, jobs, strict=True)
        if done.end_us is not None and done.start_us is not None
    )
    return Measured(
        fmean(times),
        quantile(times, P99),
        result.makespan_us * speed / 1e6,
        result.gpu_busy_us / max(1.0, held_us),
        fmean(slow) if slow else 1.0,
        quantile(slow, P99) or 1.0,
    )


def units_of(
    systems: Sequence[str], workloads: Sequence[str], cluster: str, terms: Terms, seeds: int, queue: str = ""
) -> list[Unit]:
    """All of them; raises UsageError for names that are not known."""
    checked(systems, tuple(SYSTEMS), "system")
    checked([cluster], tuple(CLUSTERS), "cluster")
    if queue:
        checked([queue], policy_names("queue"), "queue policy")
    for name in workloads:
        workload(name)
    return [
        Unit(system, name, cluster, terms, seed, queue)
        for system in systems
        for name in workloads
        for seed in range(1, seeds + 1)
    ]


def over_seeds(found: Found, field: str) -> dict[tuple[str, str], float]:
    """By system and workload the mean of one figure."""
    return {key: fmean(some) for key, some in _by_seed(found, field).items()}


def ahead(found: Found, ours: str, other: str, field: str) -> tuple[int, int, int]:
    """In how many workloads one system has less than another, as much, and more. As much is also what
    differs by no more than chance explains, where there are several seeds to tell it from."""
    values = _by_seed(found, field)
    counts = [0, 0, 0]
    for name in dict.fromkeys(unit.workload for unit in found):
        mine, its = values[ours, name], values[other, name]
        less = fmean(its) - fmean(mine)
        same = abs(less) <= max(EQUAL * fmean(its), CHANCE * _standard_error(mine, its))
        counts[1 if same else 0 if less > 0 else 2] += 1
    return counts[0], counts[1], counts[2]


def _by_seed(found: Found, field: str) -> dict[tuple[str, str], list[float]]:
    values: dict[tuple[str, str], list[float]] = {}
    for unit, one in found.items():
        values.setdefault((unit.system, unit.workload), []).append(getattr(one, field))
    return values


def _standard_error(mine: Sequence[float], its: Sequence[float]) -> float:
    """Of the difference of two means; 0 where one seed tells nothing of it."""
    if min(len(mine), len(its)) < 2:
        return 0.0
    return sqrt(variance(mine) / len(mine) + variance(its) / len(its))
