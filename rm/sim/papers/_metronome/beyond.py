"""Metronome's own list of limits (Sec. V), beside what rm does about them.

Rescheduling when deployed jobs turn incompatible; more jobs on a link; links of the fabric, which the
paper leaves out (Sec. II-C). "Metronome" is the paper's version throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rm.core.model.host import Host
from rm.core.model.job import JobSpec
from rm.core.model.network.fabric import Fabric
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.papers._metronome.run import arriving, carried_bps, world
from rm.sim.papers._metronome.schedulers import CLASSES, DEFAULT, GATES, IDEAL, METRONOME, OURS, Scheduler
from rm.sim.papers._metronome.snapshots import Member, half_batch, sim_job, snapshot
from rm.sim.papers._metronome.snapshots_compared import change_pct
from rm.sim.papers.frame.paper import Sample
from rm.sim.papers.frame.parameters import parameters
from rm.sim.program import Compute, Program
from rm.sim.result import Result
from rm.sim.statistics import reduction_pct
from rm.sim.workload import SimJob, hosts

FIGURE = "Beyond the paper"
SHARING = {
    "Default": DEFAULT,
    "Metronome": METRONOME,
    "ours without classes": GATES,
    "classes alone": CLASSES,
    "ours": OURS,
}
MOVING = OURS.aligned(reschedule=True)


def beyond(seed: int) -> Iterator[Sample]:
    yield from turned_incompatible(seed)
    yield from many_jobs(seed)
    yield from fabric_link(seed)


def turned_incompatible(seed: int) -> Iterator[Sample]:
    """Two jobs share two hosts, another has two; it ends, and then one of the two halves its batch.

    What they had been compatible by is gone, and there is room elsewhere.
    """
    known = parameters("metronome")
    span_us = 1e6 * known["paper_span_s"]
    pair = _alike(2)
    cluster = _hosts(4, known["a30_slices"])
    who = {"Metronome": METRONOME, "ours, not moving": OURS, "ours": MOVING, "Ideal": IDEAL}
    done: dict[str, Result] = {}
    for name, how in who.items():
        jobs = [_elsewhere(cluster, span_us / 4), *arriving(pair, seed, 2 * span_us)]
        there = world(cluster, jobs, how, _network(cluster, how), seed, span_us=span_us)
        (after,) = half_batch(pair[1:])
        there.change(span_us / 3, 2, sim_job(after, 0, jobs[2].program.iterations))
        done[name] = there.run()
    for name in ("Metronome", "ours, not moving", "ours"):
        lost = reduction_pct(_iterations(done["Ideal"]), _iterations(done[name]))
        yield Sample(FIGURE, f"turned incompatible: {name}", "iterations below Ideal", lost)
        yield Sample(FIGURE, f"turned incompatible: {name}", "moved", done[name].jobs[2].attempts - 1)


def _elsewhere(cluster: Sequence[Host], until_us: float) -> SimJob:
    """A quiet job that takes the last two hosts until then."""
    slices = len(cluster[0].gpus)
    spec = JobSpec(
        "elsewhere",
        "sim",
        "",
        ntasks=2 * slices,
        gpus_per_task=1,
        hosts_only=tuple(h.name for h in cluster[2:]),
        low_comm=True,
    )
    return SimJob(0, spec, Program(1, (Compute((until_us,)),), until_us))


def _iterations(result: Result) -> int:
    return sum(job.iterations for job in result.jobs[1:])


def many_jobs(seed: int) -> Iterator[Sample]:
    """Two, and more, equal jobs on the same two hosts; together they leave a tenth of the links free."""
    known = parameters("metronome")
    for count in known["many_jobs"]:
        members, cluster = _alike(count), _hosts(2, count)
        found = {name: _shared(members, how, seed, cluster) for name, how in SHARING.items()}
        default_bps = carried_bps(members, found["Default"].jobs)
        for name in list(SHARING)[1:]:
            case, jobs = f"{count} jobs on a link: {name}", found[name].jobs
            gained = change_pct(default_bps, carried_bps(members, jobs))
            yield Sample(FIGURE, case, "utilisation over Default", gained)
            slowest = max(change_pct(j.alone_us, j.mean_us) for j in jobs)
            yield Sample(FIGURE, case, "slowest job above its own time", slowest)


def fabric_link(seed: int) -> Iterator[Sample]:
    """Two jobs on hosts of their own, in the same two racks: they meet on the racks' uplinks alone."""
    cluster = _hosts(4, parameters("metronome")["a30_slices"])
    leaf_of = {h.name: f"leaf{i % 2 + 1}" for i, h in enumerate(cluster)}
    fabric = Fabric(leaf_of, 1, cluster[0].nic_bps)
    members = _alike(2)
    carried = {}
    for name, how in {"Default": DEFAULT, "Metronome": METRONOME, "ours": OURS}.items():
        known = fabric if name == "ours" else None
        result = _shared(members, how, seed, cluster, fabric, known, apart=True)
        carried[name] = carried_bps(members, result.jobs)
    for name in ("Metronome", "ours"):
        gained = change_pct(carried["Default"], carried[name])
        yield Sample(FIGURE, f"fabric link: {name}", "utilisation over Default", gained)


def _shared(
    members: Sequence[Member],
    scheduler: Scheduler,
    seed: int,
    cluster: Sequence[Host],
    fabric: Fabric | None = None,
    known: Fabric | None = None,
    apart: bool = False,
) -> Result:
    """The members on the cluster; `known` is what the scheduler knows of the fabric, and `apart` gives
    each job two hosts of its own."""
    span_us = 1e6 * parameters("metronome")["span_s"]
    jobs = arriving(members, seed, span_us)
    if apart:
        jobs = [
            replace(j, spec=replace(j.spec, hosts_only=tuple(h.name for h in cluster[2 * i : 2 * i + 2])))
            for i, j in enumerate(jobs)
        ]
    network = _network(cluster, scheduler, fabric)
    return world(cluster, jobs, scheduler, network, seed, span_us=span_us, fabric=known).run()


def _alike(count: int) -> tuple[Member, ...]:
    """`count` equal jobs whose phases together take `fill` of their period; the first has high priority."""
    known = parameters("metronome")
    pattern = snapshot("S1")[1]
    comm = round(known["fill"] * pattern.period_us / count)
    one = replace(pattern, compute_us=pattern.period_us - comm, comm_us=comm, gpu_type="")
    return (replace(one, high=True), *(one for _ in range(count - 1)))


def _hosts(count: int, gpus: int) -> tuple[Host, ...]:
    return hosts(count, gpus=gpus, nic_bps=int(parameters("metronome")["a30_bps"]))


def _network(cluster: Sequence[Host], scheduler: Scheduler, fabric: Fabric | None = None) -> Fluid:
    topology = Topology({h.name: float(h.nic_bps) for h in cluster}, fabric)
    return (Ideal if scheduler.ideal else Fluid)(topology, lockstep=True)
