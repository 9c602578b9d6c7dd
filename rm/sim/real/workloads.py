"""The workloads: who came when, what it trains, and how long a step and its exchange take.

Measured by Pollux and Microsoft, see data/SOURCES.md. A job computes and then exchanges its gradients: for
the time measured, if it has its links to itself. What is exchanged while a job still computes was not
measured and is not there. A job on one host exchanges nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import JobSpec
from rm.errors import UsageError
from rm.sim.program import Compute, Program, program_of
from rm.sim.workload import SimJob

DATA = Path(__file__).parent / "data"
POLLUX = tuple(f"pollux-{n}" for n in range(1, 9))
PHILLY = tuple(f"philly-{n}" for n in range(1, 4))
SINGLE_STEPS = 20  # of a job that never exchanges: these long steps compute as long
LEAST_ITERATIONS = 10


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything is `speed` times as short: each job makes that many times fewer iterations of the same
    length, and jobs come that many times sooner. GPUs compute `faster` than those measured, by that factor.
    """

    speed: float = 40.0
    faster: float = 1.0
    load: float = 0.9


@dataclass(frozen=True, slots=True)
class Kind:
    """`compute_us` and `exchange_us` of an iteration on the fewest hosts of 4 GPUs; `iterations` until such a
    job of Pollux ends."""

    application: str
    gpus: int
    compute_us: int
    exchange_us: int
    iterations: int

    @property
    def period_us(self) -> int:
        return self.compute_us + self.exchange_us


@dataclass(frozen=True, slots=True)
class Real:
    """A job of a workload; `runs_s` None: until it has trained."""

    at_s: float
    kind: Kind
    runs_s: float | None

    @property
    def iterations(self) -> int:
        if self.runs_s is None:
            return self.kind.iterations
        return max(1, round(self.runs_s * 1e6 / self.kind.period_us))

    def on_faster_gpus(self, times: float) -> Real:
        """It computes `times` times as fast, exchanges as before, and makes as many iterations."""
        kind = replace(self.kind, compute_us=max(1, round(self.kind.compute_us / times)))
        runs_s = self.iterations * kind.period_us / 1e6
        return replace(self, kind=kind, runs_s=None if self.runs_s is None else runs_s)

    @property
    def gpu_s(self) -> float:
        return self.iterations * self.kind.period_us * self.kind.gpus / 1e6


@cache
def kinds() -> Mapping[tuple[str, int, int], Kind]:
    """By application, GPUs and batch size."""
    return {
        (row["application"], int(row["gpus"]), int(row["batch"])): Kind(
            row["application"],
            int(row["gpus"]),
            int(row["compute_us"]),
            int(row["exchange_us"]),
            int(row["iterations"]),
        )
        for row in rows("profiles.csv")
    }


@cache
def workload(name: str) -> tuple[Real, ...]:
    """In the order of arrival.

    Raises:
        UsageError: there is no such workload.
    """
    if name not in POLLUX + PHILLY:
        raise UsageError(f"There is no workload '{name}'.", f"Known are {', '.join(POLLUX + PHILLY)}.")
    found = [
        Real(
            float(row["at_s"]),
            kinds()[row["application"], int(row["gpus"]), int(row["batch"])],
            float(row["runs_s"]) if row["runs_s"] else None,
        )
        for row in rows("jobs.csv")
        if row["workload"] == name
    ]
    return tuple(sorted(found, key=lambda one: one.at_s))


def submitted(name: str, gpus: int, nic_bps: int, terms: Terms) -> list[SimJob]:
    """A workload as the simulator takes it.

    Philly's jobs come as soon as they ask for `load` of the GPUs, from the first to the last; those of Pollux
    when they came.
    """
    jobs = [one.on_faster_gpus(terms.faster) for one in workload(name)]
    stretch = 1.0 / terms.speed
    if name in PHILLY:
        asked_s = sum(one.gpu_s for one in jobs) / (terms.load * gpus)
        stretch *= asked_s / max(1.0, jobs[-1].at_s)
    return [_sim_job(one, n, stretch, nic_bps, terms.speed) for n, one in enumerate(jobs)]


def _sim_job(one: Real, number: int, stretch: float, nic_bps: int, speed: float) -> SimJob:
    kind = one.kind
    iterations = max(LEAST_ITERATIONS, round(one.iterations / speed))
    traffic = None
    if kind.exchange_us:
        traffic = TrafficProfile(kind.period_us, (Phase(kind.compute_us, kind.exchange_us, nic_bps),))
        program = program_of(traffic, iterations)
    else:
        whole_us = iterations * kind.period_us / SINGLE_STEPS
        program = Program(SINGLE_STEPS, (Compute((whole_us,)),), whole_us)
    runs_us = round(program.iterations * program.alone_us)
    spec = JobSpec(
        f"{kind.application}-{number}",
        "sim",
        "",
        ntasks=kind.gpus,
        gpus_per_task=1,
        traffic=traffic,
        low_comm=traffic is None,
        expected_us=runs_us,
        time_limit_us=None,
        iterations=program.iterations,
    )
    return SimJob(round(one.at_s * stretch * 1e6), spec, program)


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
