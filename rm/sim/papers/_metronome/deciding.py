"""Fig. 16: how long a decision takes here, measured by the clock of this machine.

The paper counts from a pod's submission to its address, so with all of Kubernetes' own work; this is
the scheduler alone: one turn of the daemon's cycle for a job that arrives when others share links.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.scheduling.cycle import Cycle
from rm.sim.papers._metronome import testbed
from rm.sim.papers._metronome.schedulers import DEFAULT, DIKTYO, METRONOME, OURS, Scheduler
from rm.sim.papers._metronome.snapshots import Member, snapshot, spec
from rm.sim.papers.frame.paper import Sample, Series
from rm.sim.papers.frame.parameters import parameters

WHO = {"Default": DEFAULT, "Diktyo": DIKTYO, "Metronome": METRONOME, "ours": OURS}


def decided(seed: int) -> Iterator[Sample | Series]:
    """Mean times over the repetitions; each with periods of its own, so that nothing is remembered."""
    known = parameters("metronome")
    most: int = known["jobs_there"]
    for who, how in WHO.items():
        means: list[float] = []
        for there in range(most + 1):
            took = [_timed(how, seed, there, again) for again in range(known["repetitions"])]
            means.append(1e3 * fmean(decision for decision, _ in took))
            if who in ("Metronome", "ours") and there == most - 1:
                yield Sample(
                    "Fig. 16", f"{who}, controller", "largest cushion, longest", max(c for _, c in took)
                )
        yield Sample("Fig. 16", f"{who}, scheduler", "decision, longest of the means", max(means))
        yield Series("Fig. 16", who, tuple(range(most + 1)), tuple(means))


def _timed(scheduler: Scheduler, seed: int, there: int, again: int) -> tuple[float, float]:
    """Seconds to place one more job beside those that are there, and to find the largest cushion."""
    hosts = testbed.hosts(seed)
    cycle = Cycle(ClusterState(), scheduler.policies(), tuning=scheduler.tuning)
    first: list[ev.Event] = [
        *(ev.HostAdded(h) for h in hosts),
        *(ev.HostUp(h.name, "boot", "sim") for h in hosts),
        *(ev.Measured(a, b, stats) for a, b, stats in testbed.delays(hosts, congested=False)),
    ]
    jobs = [spec(_job(there, 1_000 * seed + again), 1) for _ in range(there + 1)]
    first += [ev.JobSubmitted(i + 1, job) for i, job in enumerate(jobs[:-1])]
    cycle.step(first, 1)
    began = time.perf_counter()
    outcome = cycle.step([ev.JobSubmitted(len(jobs), jobs[-1])], 2)
    decision = time.perf_counter() - began
    if outcome.recompute is None:
        return decision, 0.0
    began = time.perf_counter()
    outcome.recompute.run()
    return decision, time.perf_counter() - began


def _job(there: int, number: int) -> Member:
    """One of this many equal jobs and one more that fit on a link together; no two numbers are alike."""
    pattern = snapshot("S1")[1]
    comm = round(parameters("metronome")["fill"] * pattern.period_us / (there + 1))
    return replace(pattern, compute_us=pattern.period_us - comm + number, comm_us=comm)
