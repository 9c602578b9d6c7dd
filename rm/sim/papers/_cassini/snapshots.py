"""The right half of Table 2, Figs. 2 and 17: jobs that share one link, with time-shifts and without."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.sim.papers._cassini.circles import SNAPSHOTS, members
from rm.sim.papers._cassini.models import all_reduce_us
from rm.sim.papers._cassini.testbed import one_link
from rm.sim.papers.frame.paper import Sample
from rm.sim.papers.frame.parameters import parameters
from rm.sim.program import program_of
from rm.sim.result import JobResult, Result
from rm.sim.workload import Noise, SimJob
from rm.sim.world import Settings, World

SCHEDULERS = {"Themis": "none", "Th+CASSINI": "cassini"}
ADJUSTED = (1, 2, 3)  # the snapshots of Fig. 17
MINUTE_US = 60e6


def run(
    jobs: Sequence[tuple[str, TrafficProfile]],
    comm: str,
    iterations: int,
    seed: int,
    together: bool = False,
    jitter: float | None = None,
) -> Result:
    """`iterations` of the longest job. Jobs begin `together`, or anywhere in an iteration."""
    chance = random.Random(f"snapshot/{seed}")
    bed, pairs = one_link(len(jobs))
    longest_us = iterations * max(profile.period_us for _, profile in jobs)
    made = []
    for i, (name, profile) in enumerate(jobs):
        count = round(longest_us / profile.period_us)
        arrival_us = 0 if together else round(chance.random() * profile.period_us)
        spec = JobSpec(name, "sim", "", ntasks=2, tasks_per_host=1, gpus_per_task=1, hosts_only=pairs[i],
                       iterations=count, traffic=profile)  # fmt: skip
        made.append(SimJob(arrival_us, spec, program_of(profile, count)))
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", comm))
    noise = Noise(jitter=parameters("cassini")["jitter"] if jitter is None else jitter)
    settings = Settings(seed=seed, noise=noise, record=True)
    return World(bed.hosts, made, policies, bed.network(), fabric=bed.fabric, settings=settings).run()


def table_2(seed: int) -> Iterator[Sample]:
    """Communication times under both schedulers."""
    for number in SNAPSHOTS:
        jobs = members(number)
        for scheduler, comm in SCHEDULERS.items():
            result = run(jobs, comm, parameters("cassini")["snapshot_iterations"], seed)
            for (name, profile), job in zip(jobs, result.jobs, strict=True):
                case = f"snapshot {number}, {name}"
                yield Sample("Table 2", case, f"communication, {scheduler}", communication_ms(job, profile))


def fig_17(seed: int) -> Iterator[Sample]:
    """How often a job waits for its slot again."""
    known = parameters("cassini")
    for jitter in known["fig_17_jitters"]:
        for number in ADJUSTED:
            result = run(members(number), "cassini", known["snapshot_iterations"], seed, jitter=jitter)
            often = fmean(job.waits for job in result.jobs) / (result.span_us / MINUTE_US)
            yield Sample("Fig. 17", f"snapshot {number}, jitter {100 * jitter:g} %", "adjustments", often)


def communication_ms(job: JobResult, profile: TrafficProfile) -> float:
    """The mean: what an iteration lasts beyond its compute time and its wait for the slot."""
    waited_us = job.paused_us / job.iterations
    return (job.mean_us - waited_us - (profile.period_us - profile.comm_us)) / 1000


def fig_2(seed: int) -> Iterator[Sample]:
    """Two VGG19 that start together, and the same with a time-shift."""
    known = parameters("cassini")
    up_us, period_us = all_reduce_us("VGG19", known["fig_2_workers"]), known["fig_2_period_us"]
    profile = TrafficProfile(period_us, (Phase(period_us - up_us, up_us, int(known["nic_bps"])),))
    jobs = [("j1", profile), ("j2", profile)]
    tail = {}
    for scheduler, comm in SCHEDULERS.items():
        result = run(jobs, comm, known["fig_2_iterations"], seed, together=True)
        lasted = np.concatenate([job.durations_us for job in result.jobs])
        tail[scheduler] = float(np.percentile(lasted, 90))
    gain = tail["Themis"] / tail["Th+CASSINI"]
    yield Sample("Fig. 2", "two VGG19 that start together", "gain, 90th percentile", gain)
