"""What a simulation measured: per job, per link, and of the run itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from rm.sim.network.port import LinkUsage


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job's story in microseconds since the start of the simulation; None = not reached.

    `mean_us` is the mean iteration, from origin to origin and so with every wait in it; `paused_us`
    the waiting for slots in all of them, of which `waits` had any; `alone_us` the iteration of an
    undisturbed job. `hosts` are those of the last attempt.
    """

    job: int
    name: str
    arrival_us: float
    start_us: float | None
    end_us: float | None
    iterations: int
    mean_us: float
    alone_us: float
    paused_us: float
    hosts: tuple[str, ...]
    attempts: int = 1
    high: bool = False
    durations_us: tuple[float, ...] = field(default=(), repr=False)  # each iteration, if recorded
    waits: int = 0

    @property
    def jct_us(self) -> float | None:
        """Job completion time: from its arrival to its end."""
        return None if self.end_us is None else self.end_us - self.arrival_us

    @property
    def wait_us(self) -> float | None:
        return None if self.start_us is None else self.start_us - self.arrival_us


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run. `span_us` is the simulated time; `links` what each link saw in it; `gpu_busy_us`
    how long GPUs computed, all of them together.

    `worst_score` is the least compatibility score of any alignment in force; `pauses` counts the
    controller's, `moved` the jobs that were taken off their hosts to run elsewhere, `released` how often
    jobs that share links were left alone.
    """

    jobs: tuple[JobResult, ...]
    span_us: float
    links: Mapping[str, LinkUsage]
    events: int
    gpu_busy_us: float = 0.0
    alignments: int = 0
    worst_score: float = 100.0
    pauses: int = 0
    inspections: int = 0
    moved: int = 0
    released: int = 0

    @property
    def finished(self) -> tuple[JobResult, ...]:
        return tuple(j for j in self.jobs if j.end_us is not None)

    @property
    def mean_jct_us(self) -> float:
        times = [j.jct_us for j in self.jobs if j.jct_us is not None]
        return fmean(times) if times else 0.0

    @property
    def makespan_us(self) -> float:
        """From the first arrival to the last end."""
        ended = [j.end_us for j in self.jobs if j.end_us is not None]
        return max(ended, default=0.0) - min((j.arrival_us for j in self.jobs), default=0.0)
