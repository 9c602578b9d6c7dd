"""One run of some jobs under one scheduler."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric
from rm.sim.network.fluid import Fluid
from rm.sim.papers._metronome import testbed
from rm.sim.papers._metronome.schedulers import Scheduler
from rm.sim.papers._metronome.snapshots import WORKERS, Member, enough, sim_job
from rm.sim.papers.frame.parameters import parameters
from rm.sim.result import JobResult, Result
from rm.sim.workload import Noise, SimJob
from rm.sim.world import Settings, World


@dataclass(frozen=True, slots=True)
class Outcome:
    """Mean iterations in microseconds, pauses for 1,000 iterations of a job, and utilisation.

    `utilisation` is Metronome's eq. 5 over all host links, each direction a link, of the jobs' traffic.
    `shared` counts the links (directions) that more than one job uses.
    """

    high_us: float
    low_us: float
    utilisation: float
    readjusted: float
    shared: int


def noise(jitter: float | None = None) -> Noise:
    """Jitter of the compute time, and the error that it leaves in a profile over this many iterations."""
    known = parameters("metronome")
    each = known["jitter"] if jitter is None else jitter
    return Noise(jitter=each, drift=each / known["profiled_iterations"] ** 0.5)


def world(
    hosts: Sequence[Host],
    jobs: Iterable[SimJob],
    scheduler: Scheduler,
    network: Fluid,
    seed: int,
    *,
    congested: bool = False,
    jitter: float | None = None,
    span_us: float | None = None,
    fabric: Fabric | None = None,
) -> World:
    """A world in which the jobs run, until all are done or the span is over."""
    return World(
        hosts,
        jobs,
        scheduler.policies(),
        network,
        tuning=scheduler.tuning,
        fabric=fabric,
        measured=testbed.delays(hosts, congested),
        settings=Settings(
            seed=seed,
            noise=noise(jitter),
            controller=scheduler.controller,
            restart_us=round(1e6 * parameters("metronome")["restart_s"]),
            until_us=None if span_us is None else round(span_us),
        ),
    )


def arriving(members: Sequence[Member], seed: int, span_us: float) -> list[SimJob]:
    """The members in their order, each within the second after the one before, for longer than the span."""
    chance = random.Random(f"arrivals/{seed}")
    return [sim_job(m, round(1e6 * (i + chance.random())), enough(m, span_us)) for i, m in enumerate(members)]


def run(
    members: Sequence[Member],
    scheduler: Scheduler,
    seed: int,
    *,
    congested: bool = False,
    jitter: float | None = None,
    span_s: float | None = None,
    newcomer: float = 1.0,
) -> Outcome:
    """A snapshot on the testbed. With one seed arrivals, jitter and the order of the hosts are the same
    under every scheduler."""
    span_us = 1e6 * (parameters("metronome")["span_s"] if span_s is None else span_s)
    hosts = testbed.hosts(seed)
    network = testbed.network(hosts, scheduler.ideal, newcomer)
    if congested and not scheduler.ideal:
        testbed.congest(network)
    result = world(
        hosts,
        arriving(members, seed, span_us),
        scheduler,
        network,
        seed,
        congested=congested,
        jitter=jitter,
        span_us=span_us,
    ).run()
    return outcome(members, result, hosts)


def outcome(members: Sequence[Member], result: Result, hosts: Sequence[Host]) -> Outcome:
    high = [j.mean_us for j in result.jobs if j.high]
    low = [j.mean_us for j in result.jobs if not j.high]
    widest, links = max(h.nic_bps for h in hosts), 2 * len(hosts)
    uses = [h for j in result.jobs for h in j.hosts]
    return Outcome(
        fmean(high) if high else 0.0,
        fmean(low) if low else 0.0,
        carried_bps(members, result.jobs) / (widest * links),
        1000 * result.pauses / sum(j.iterations for j in result.jobs),
        2 * sum(uses.count(h) > 1 for h in set(uses)),
    )


def carried_bps(members: Sequence[Member], jobs: Sequence[JobResult]) -> float:
    """Of all host links together: each worker sends and receives."""
    return sum(2 * WORKERS * m.bits / j.mean_us * 1e6 for m, j in zip(members, jobs, strict=True))
