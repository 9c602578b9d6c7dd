"""The paper's models as traffic profiles.

Data parallel: a Down phase, then a ring all-reduce of the model at the rate of the link, 2(n-1)/n times its
size from each of n workers to the next. With Table 3's 528 MB that makes 113 ms for VGG16 on three workers
and 148 ms on eight, as printed in Fig. 3 and in Table 2. Model parallel: the phases that Fig. 1 draws, as
shares of the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import JobSpec
from rm.sim.papers.frame.parameters import parameters
from rm.sim.program import program_of
from rm.sim.workload import SimJob

DATA_PARALLEL = (
    "VGG11",
    "VGG16",
    "VGG19",
    "WideResNet101",
    "ResNet50",
    "BERT",
    "RoBERTa",
    "CamemBERT",
    "XLM",
)
MODEL_PARALLEL = ("GPT-1", "GPT-2", "GPT-3", "GPT-3 hybrid", "DLRM")
LARGEST = ("VGG11", "VGG16", "VGG19", "BERT", "RoBERTa", "XLM")  # Table 3: 450 MB and more
MIXED = (*DATA_PARALLEL, "DLRM")  # Sec. 5.2: model parallelism for DLRM, data parallelism for the others


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job's user chose. `slower` stretches its iteration, the same traffic in it: a larger batch."""

    model: str
    workers: int
    slower: float = 1.0

    @property
    def profile(self) -> TrafficProfile | None:
        """None: one worker has nobody to talk to."""
        if self.workers == 1:
            return None
        if self.model in DATA_PARALLEL:
            return data_parallel(self.model, self.workers, self.slower)
        return model_parallel(self.model, self.slower)

    @property
    def period_us(self) -> int:
        profile = self.profile
        return profile.period_us if profile else stretched(parameters("cassini")["grid_us"], self.slower)


def data_parallel(model: str, workers: int, slower: float = 1.0) -> TrafficProfile:
    """Down, then Up, in the least iteration on the grid in which both have room."""
    up_us, grid_us = all_reduce_us(model, workers), parameters("cassini")["grid_us"]
    least_us = up_us + parameters("cassini")["least_down_us"]
    period_us = max(stretched(math.ceil(least_us / grid_us) * grid_us, slower), least_us)
    nic_bps = int(parameters("cassini")["nic_bps"])
    return TrafficProfile(period_us, (Phase(period_us - up_us, up_us, nic_bps),))


def all_reduce_us(model: str, workers: int) -> int:
    """A ring all-reduce of the model's size (Table 3) with the link to itself."""
    known = parameters("cassini")
    bits = 2 * (workers - 1) / workers * known[f"{_key(model)}_mb"] * 8e6
    us: int = round(bits / known["nic_bps"] * 1e6)
    return us


def model_parallel(model: str, slower: float = 1.0) -> TrafficProfile:
    known = parameters("cassini")
    period_us = stretched(known["grid_us"], slower)
    return TrafficProfile(
        period_us,
        tuple(
            Phase(round(offset * period_us), round(share * period_us), int(bps))
            for offset, share, bps in known[f"{_key(model)}_phases"]
        ),
    )


def stretched(period_us: float, factor: float) -> int:
    """In whole milliseconds, as profiles are measured."""
    return round(period_us * factor / 1000) * 1000


def sim_job(
    name: str, shape: Shape, iterations: int, arrival_us: int = 0, hosts: Sequence[str] = ()
) -> SimJob:
    """A job of one GPU a worker. `hosts` pins each worker to one of these."""
    profile, alone_us = shape.profile, shape.period_us
    still = TrafficProfile(alone_us, ())
    spec = JobSpec(
        name,
        "sim",
        "",
        ntasks=shape.workers,
        tasks_per_host=1 if hosts else 0,
        gpus_per_task=1,
        iterations=iterations,
        expected_us=iterations * alone_us,
        hosts_only=tuple(hosts),
        low_comm=profile is None,
        traffic=profile,
    )
    return SimJob(arrival_us, spec, program_of(profile or still, iterations))


def _key(model: str) -> str:
    return model.lower().replace("-", "_").replace(" ", "_")
