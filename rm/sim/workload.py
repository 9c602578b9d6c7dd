"""Simulated jobs: what is submitted, when, and what it then does."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rm.core.model.host import Gpu, Host, HostState
from rm.core.model.job import JobSpec
from rm.sim.program import Program
from rm.units import GIB


@dataclass(frozen=True, slots=True)
class SimJob:
    """A job of a workload. `arrival_us` counts from the start of the simulation; without a `noise` of its
    own it has the simulation's."""

    arrival_us: int
    spec: JobSpec
    program: Program
    noise: Noise | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """How real iterations differ from the program; shares of the compute time.

    `jitter` is the standard deviation of each compute stage, `drift` the one of a factor which each
    job keeps, `straggle` the chance that an iteration's compute takes `straggle_factor` as long. Where
    a machine was measured, one of `factors` is drawn for each compute stage, and one of `late_us` for
    each communication, before which its processes wait so long.
    """

    jitter: float = 0.0
    drift: float = 0.0
    straggle: float = 0.0
    straggle_factor: float = 2.0
    factors: tuple[float, ...] = ()
    late_us: tuple[float, ...] = ()


class Chance:
    """One job's own random numbers: the same under any policy and any other events."""

    __slots__ = ("_factor", "_noise", "_random", "_straggles")

    def __init__(self, seed: int, index: int, noise: Noise) -> None:
        self._noise = noise
        self._random = random.Random(f"{seed}/{index}")
        self._factor = max(0.1, self._random.gauss(1.0, noise.drift)) if noise.drift else 1.0
        self._straggles = False

    def next_iteration(self) -> None:
        noise = self._noise
        self._straggles = bool(noise.straggle) and self._random.random() < noise.straggle

    def compute_us(self, nominal_us: float) -> float:
        """How long a compute part really takes."""
        noise, factor = self._noise, self._factor
        if noise.jitter:
            factor *= max(0.0, self._random.gauss(1.0, noise.jitter))
        if noise.factors:
            factor *= self._random.choice(noise.factors)
        if self._straggles:
            factor *= noise.straggle_factor
        return nominal_us * factor

    def late_us(self) -> float:
        """For how long a communication waits for the machine before it begins."""
        return self._random.choice(self._noise.late_us) if self._noise.late_us else 0.0


def poisson(jobs: Iterable[SimJob], mean_gap_us: float, seed: int) -> list[SimJob]:
    """The same jobs in the same order, arriving as a Poisson process from time 0."""
    chance = random.Random(seed)
    at, arrived = 0.0, []
    for job in jobs:
        arrived.append(replace(job, arrival_us=int(at)))
        at += chance.expovariate(1.0 / mean_gap_us)
    return arrived


def hosts(
    count: int,
    *,
    gpus: int = 1,
    gpu_mem_bytes: int = 0,
    nic_bps: int,
    cpus: int = 64,
    mem_bytes: int = 512 * GIB,
    zones: Sequence[str] = ("zone1",),
    name: str = "host",
) -> tuple[Host, ...]:
    """Equal hosts that are up, in zones of equal size; names are numbered from 1 with leading zeros."""
    width = len(str(count))
    made = []
    for i in range(count):
        made.append(
            Host(
                name=f"{name}{i + 1:0{width}}",
                zone=zones[i * len(zones) // count],
                address=f"{name}{i + 1:0{width}}",
                cpus=cpus,
                mem_bytes=mem_bytes,
                gpus=tuple(Gpu(g, mem_bytes=gpu_mem_bytes) for g in range(gpus)),
                nic_bps=nic_bps,
                state=HostState.UP,
            )
        )
    return tuple(made)
