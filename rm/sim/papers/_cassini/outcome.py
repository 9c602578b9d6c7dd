"""One trace under one scheduler: iteration times, completion times, congestion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from rm.sim.papers._cassini.schedulers import Scheduler
from rm.sim.papers._cassini.testbed import Testbed
from rm.sim.papers.frame.parameters import parameters
from rm.sim.workload import Noise, SimJob
from rm.sim.world import Settings, World

TAIL = 99  # percentile


@dataclass(frozen=True, slots=True)
class Outcome:
    """Every iteration of every job, in ms, and the same as multiples of the iteration alone.

    `congestion` is the demand above the links' capacity, in Mbit for each iteration: it stands for ECN
    marks, which a switch sets while more comes than a link carries.
    """

    iterations_ms: NDArray[np.float64]
    slowdowns: NDArray[np.float64]
    jct_s: float
    congestion: float

    @property
    def mean_ms(self) -> float:
        return float(self.iterations_ms.mean())

    @property
    def tail_ms(self) -> float:
        return float(np.percentile(self.iterations_ms, TAIL))


def run(
    bed: Testbed,
    jobs: Sequence[SimJob],
    scheduler: Scheduler,
    seed: int,
    epoch_us: int,
    after_us: float = 0.0,
    shared_loss: float = 0.0,
) -> Outcome:
    """Until all jobs have ended; at the end of each epoch all running ones are placed anew.

    Iterations that began before `after_us` do not count. `shared_loss`: of an uplink that several jobs use.
    With one seed jobs and noise are the same under every scheduler.
    """
    settings = Settings(
        seed=seed, noise=Noise(jitter=parameters("cassini")["jitter"]), lease_us=epoch_us, record=True
    )
    world = World(
        bed.hosts,
        jobs,
        scheduler.policies(seed),
        bed.network(scheduler.ideal, shared_loss),
        tuning=scheduler.tuning,
        fabric=bed.fabric,
        settings=settings,
    )
    result = world.run()
    lasted, slower = [], []
    for job, sim in zip(result.jobs, jobs, strict=True):
        durations = np.array(job.durations_us)
        began = (job.start_us or 0.0) + np.cumsum(durations) - durations
        counted = durations[began >= after_us]
        lasted.append(counted / 1000)
        slower.append(counted / sim.program.alone_us)
    excess = sum(link.excess_bits for link in result.links.values())
    return Outcome(
        np.concatenate(lasted),
        np.concatenate(slower),
        fmean(job.jct_us or 0.0 for job in result.jobs) / 1e6,
        excess / sum(job.iterations for job in result.jobs) / 1e6,
    )
