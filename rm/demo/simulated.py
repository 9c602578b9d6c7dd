"""The jobs of a live run in the simulator: with their profiles alone, where they ran and when they began."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rm.core.model.asked.demand import PRIORITY_HIGH
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.job import PRIORITY_LOW, JobSpec
from rm.core.model.network.fabric import Fabric
from rm.core.scheduling.engine import Policies
from rm.demo.scenario import Training
from rm.demo.training import JobRun
from rm.lab import Lab
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.unfairness import FAIR, Unfairness
from rm.sim.program import program_of
from rm.sim.workload import Noise, SimJob, hosts
from rm.sim.world import Settings, World

CPUS = 64
# of TCP's flows, see bench fidelity
MEASURED = Unfairness(newcomer=0.78, head_start_us=60_000, luck=0.2, loss=0.05)


@dataclass(frozen=True, slots=True)
class Ran:
    """A live job: `hosts` by its ranks; `begin_us` counts from the first iteration of the first job.

    `machine` is how it waited for the machine, as measured; without such waits it sends as `sends` says.
    """

    training: Training
    profile: TrafficProfile
    hosts: tuple[str, ...]
    begin_us: int
    iterations: int
    sends: TrafficProfile | None = None
    machine: Noise | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """The hosts' links in bit/s, by host in inventory order, and the fabric above them."""

    host_bps: dict[str, int]
    fabric: Fabric | None = None


@dataclass(frozen=True, slots=True)
class Times:
    mean_ms: float
    p99_ms: float


def links_of(lab: Lab, dscp: Sequence[int] = ()) -> Links:
    """Those that a lab's hosts really have; `dscp` as rm.toml's [fabric] has it."""
    spec = lab.spec
    host_bps = {host.name: round(host.rate_mbps * 1e6) for host in lab.hosts}
    if not spec.leaves:
        return Links(host_bps)
    below = {host.name: host.leaf for host in lab.hosts}
    return Links(host_bps, Fabric(below, spec.spines, round(spec.uplink_rate_mbps * 1e6), tuple(dscp)))


def simulated(
    jobs: Sequence[Ran], policies: Policies, links: Links, *, jitter: float, left_out_s: float, seed: int,
    unfair: Unfairness = FAIR,
) -> tuple[list[float], ...]:  # fmt: skip
    """Each job's iterations in the simulator, microseconds, over the span that live ones are looked at.

    `jitter` is the standard deviation of the computing of jobs whose `machine` was not measured, as a share;
    the jobs run where they ran.
    """
    cluster = tuple(
        replace(one, name=name, address=name, nic_bps=bps)
        for one, (name, bps) in zip(
            hosts(len(links.host_bps), gpus=len(jobs), nic_bps=1, cpus=CPUS),
            links.host_bps.items(),
            strict=True,
        )
    )
    network = Fluid(
        Topology({host: float(bps) for host, bps in links.host_bps.items()}, links.fabric, seed=seed),
        lockstep=True,
        unfair=unfair,
    )
    running = Settings(seed=seed, noise=Noise(jitter=jitter), record=True)
    world = World(
        cluster, [_sim_job(job) for job in jobs], policies, network, fabric=links.fabric, settings=running
    )
    result = world.run()
    most = max(job.iterations for job in jobs)
    ends_us = [r.end_us or 0.0 for r, job in zip(result.jobs, jobs, strict=True) if job.iterations == most]
    found = []
    for one in result.jobs:
        begin_us, own = one.start_us or 0.0, []
        for took_us in one.durations_us:
            own.append((begin_us, took_us))
            begin_us += took_us
        found.append(within(own, max(job.begin_us for job in jobs) + 1e6 * left_out_s, min(ends_us)))
    return tuple(found)


def within(own: Sequence[tuple[float, float]], from_us: float, until_us: float) -> list[float]:
    """How long the iterations, (begin, duration), took that lie within the span; all where it holds none."""
    kept = [took for begin, took in own if begin >= from_us and begin + took <= until_us]
    return kept or [took for _, took in own]


def pooled(every: Iterable[Sequence[Sequence[float]]]) -> tuple[Times, ...]:
    """Of each job over all of its iterations in several runs. The 99th percentile of one short run is its
    longest iteration: chance."""
    return tuple(_times([took for run in each for took in run]) for each in zip(*every, strict=True))


def _times(took_us: Sequence[float]) -> Times:
    ordered = sorted(took_us)
    return Times(statistics.fmean(ordered) / 1000, ordered[max(0, -(-99 * len(ordered) // 100) - 1)] / 1000)


def jitter_of(runs: Sequence[JobRun]) -> float:
    """The standard deviation of what the jobs computed, as a share, without the slowest hundredth."""
    found = []
    for run in runs:
        computed = sorted(i.duration_us - i.comm_us - i.paused_us for i in run.iterations)
        calm = computed[: -(-99 * len(computed) // 100)]
        found.append(statistics.pstdev(calm) / statistics.fmean(calm))
    return statistics.fmean(found)


def _sim_job(ran: Ran) -> SimJob:
    """With as many tasks on each host as live."""
    spread = tuple(dict.fromkeys(ran.hosts))
    spec = JobSpec(
        ran.training.name,
        "sim",
        "",
        ntasks=len(ran.hosts),
        tasks_per_host=len(ran.hosts) // len(spread),
        gpus_per_task=1,
        traffic=ran.profile,
        priority=PRIORITY_HIGH if ran.training.priority == "high" else PRIORITY_LOW,
        hosts_only=spread,
        hosts_min=len(spread),
    )
    return SimJob(ran.begin_us, spec, program_of(ran.sends or ran.profile, ran.iterations), ran.machine)
