"""Fig. 10: the total completion time of a trace of about four hours.

The paper's trace comes from Gavel's generator and is not published. This one has the jobs of the
snapshots in their order, one quiet job for each model that is in no snapshot, and run times drawn from
the printed range; what comes next arrives as soon as the GPUs in use stay, undisturbed, within the
printed load. Everything is `trace_scale` times as short, and reported as long as it would be.

Sec. IV-B2 has another reading: it estimates each job's end as its start in the ideal trace plus its
iterations times their mean time, which it prints for the snapshots alone. Then nobody waits for hosts, and
jobs meet nobody but their partners of Table IV (`by_snapshots`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import fmean

from rm.core.jobs import events as ev
from rm.sim.papers._metronome import run, testbed
from rm.sim.papers._metronome.schedulers import DEFAULT, DIKTYO, IDEAL, METRONOME, OURS, Scheduler
from rm.sim.papers._metronome.snapshots import CONGESTED, NAMES, WORKERS, Member, sim_job, snapshot
from rm.sim.papers.frame.paper import Sample, Series
from rm.sim.papers.frame.parameters import parameters
from rm.sim.result import Result
from rm.sim.statistics import reduction_pct
from rm.sim.workload import SimJob

HOUR_US = 3600e6
MINUTE_US = 60e6
READ = "Fig. 10, read from the snapshots"
BY_SNAPSHOTS = {"Metronome": METRONOME, "ours": OURS}


def total_times(seed: int) -> Iterator[Sample | Series]:
    known = parameters("metronome")
    scale: int = known["trace_scale"]
    who = {"Default": DEFAULT, "Diktyo": DIKTYO, "Ideal": IDEAL, "Metronome": METRONOME, "ours": OURS}
    found = {name: simulated(how, seed, scale) for name, how in who.items()}
    minutes = {name: scale * result.makespan_us / MINUTE_US for name, result in found.items()}
    for name in ("Metronome", "ours"):
        for other in ("Default", "Diktyo"):
            yield Sample("Fig. 10", name, f"earlier than {other}", minutes[other] - minutes[name])
        yield Sample("Fig. 10", name, "later than Ideal", minutes[name] - minutes["Ideal"])
        yield Sample("Fig. 10", name, "JCT saved of Default", _saved_jct(found["Default"], found[name]))
        longer_us = _mean_wait_us(found[name]) - _mean_wait_us(found["Default"])
        yield Sample("Fig. 10", name, "wait for hosts, longer than Default", scale * longer_us / MINUTE_US)
    yield Sample("Fig. 10", "Ideal", "total completion time", minutes["Ideal"])
    longer = {name: simulated(who[name], seed, scale // 2) for name in ("Default", "Metronome")}
    saved = _saved_jct(longer["Default"], longer["Metronome"])
    saved -= _saved_jct(found["Default"], found["Metronome"])
    yield Sample("Fig. 10", "Metronome, half the scale", "JCT saved of Default, more", saved)
    alone = {name: simulated(who[name], seed, scale, apart=True) for name in ("Default", "Metronome", "ours")}
    for name in ("Metronome", "ours"):
        case, default, each = f"{name}, only partners meet", alone["Default"], alone[name]
        yield Sample(
            "Fig. 10", case, "TCT saved of Default", reduction_pct(default.makespan_us, each.makespan_us)
        )
        yield Sample("Fig. 10", case, "JCT saved of Default", _saved_jct(default, each))
    yield from by_snapshots(seed, scale, found["Ideal"])
    for name, result in found.items():
        ends = sorted(scale * (job.end_us or 0.0) / MINUTE_US for job in result.jobs)
        yield Series("Fig. 10", name, tuple(ends), tuple(float(i + 1) for i in range(len(ends))))


def by_snapshots(seed: int, scale: int, ideal: Result) -> Iterator[Sample]:
    """Total completion times as the paper estimates them, in minutes."""
    minutes = {}
    for name, how in {"Default": DEFAULT, "Diktyo": DIKTYO, "Ideal": IDEAL, **BY_SNAPSHOTS}.items():
        takes_us: dict[tuple[str, bool], float] = {}
        for shot in ("S0", *NAMES):
            outcome = run.run(snapshot(shot), how, seed, congested=shot in CONGESTED)
            takes_us[shot, True], takes_us[shot, False] = outcome.high_us, outcome.low_us
        ends_us = [
            (done.start_us or 0.0)
            + done.iterations * (takes_us[shot, member.high] if shot else done.alone_us)
            for (shot, member, _), done in zip(_drawn(seed, scale), ideal.jobs, strict=True)
        ]
        minutes[name] = scale * max(ends_us) / MINUTE_US
    for name in BY_SNAPSHOTS:
        for other in ("Default", "Diktyo"):
            yield Sample(READ, name, f"earlier than {other}", minutes[other] - minutes[name])
        yield Sample(READ, name, "later than Ideal", minutes[name] - minutes["Ideal"])


def simulated(scheduler: Scheduler, seed: int, scale: int, apart: bool = False) -> Result:
    known = parameters("metronome")
    hosts = testbed.hosts(seed)
    network = testbed.network(hosts, scheduler.ideal)
    world = run.world(hosts, workload(seed, scale, apart), scheduler, network, seed)
    if not scheduler.ideal:
        at_us = known["congested_from_h"] * HOUR_US / scale
        world.at(at_us, lambda _a, _b: testbed.congest(network, world.now_us))
        for a, b, stats in testbed.delays(hosts, congested=True):
            world.tell(at_us, ev.Measured(a, b, stats))
    return world.run()


def workload(seed: int, scale: int, apart: bool = False) -> list[SimJob]:
    """The jobs by arrival; with one seed the same at any scale.

    `apart`: each snapshot waits for the one before to end, so that only Table IV's partners meet.
    """
    return [job for _, _, job in _drawn(seed, scale, apart)]


def _drawn(seed: int, scale: int, apart: bool = False) -> list[tuple[str, Member, SimJob]]:
    """With the snapshot that each belongs to, "" for the quiet ones."""
    known = parameters("metronome")
    chance = random.Random(f"trace/{seed}")
    gpus = known["a30_hosts"] * known["a30_slices"] + 1
    together = int(known["most_load"] * gpus / WORKERS)  # jobs that the printed load allows at a time
    at_h, ends_h, jobs = 0.0, list[float](), list[tuple[str, Member, SimJob]]()
    for name, members in _sequence(chance, apart):
        at_h += chance.uniform(0, known["gap_h"])
        if apart:
            at_h = max([at_h, *ends_h]) + known["gap_h"]
        while sum(end > at_h for end in ends_h) + len(members) > together:
            at_h = min(end for end in ends_h if end > at_h)
        for member in members:
            run_h = chance.uniform(*known["run_h"])
            ends_h.append(at_h + run_h)
            iterations = max(1, round(run_h * HOUR_US / scale / member.period_us))
            jobs.append((name, member, sim_job(member, round(at_h * HOUR_US / scale), iterations)))
    return jobs


def _sequence(chance: random.Random, apart: bool) -> list[tuple[str, tuple[Member, ...]]]:
    """What arrives together: the snapshots in order, the quiet jobs anywhere between them.

    S2 and S3 share one fine-tuned VGG19, which WideResNet101 joins; if they are apart they cannot.
    """
    known = parameters("metronome")
    found = [(name, snapshot(name)) for name in ("S0", *NAMES)]
    if not apart:
        found[3] = ("S3", found[3][1][:1])
    for _ in range(known["low_comm_jobs"]):
        found.insert(chance.randint(0, len(found)), ("", (Member("quiet", known["s1_period_us"], 0, 0),)))
    return found


def _mean_wait_us(result: Result) -> float:
    return fmean(job.wait_us or 0.0 for job in result.jobs)


def _saved_jct(before: Result, after: Result) -> float:
    return reduction_pct(before.mean_jct_us, after.mean_jct_us)
