"""The snapshots of Table IV as jobs with traffic profiles.

The paper names the models and draws their traffic (Fig. 6), but prints neither periods nor durations.
What it says about each snapshot (Secs. IV-B and IV-D, Table VI) bounds them; one rule sets the rest:

* A job has two workers and computes, then communicates at the rate of the link.
* In a contending pair the communication phases together take `fill` of the shortest time in which both
  must fit once (that is what compatible means for two jobs of one phase each), and their durations
  are in proportion to the models' parameters.
* S1 has to stay compatible at half the batch (Fig. 11): `fill` holds there.
* S4 is "strongly" compatible: half of `fill`. S0 is incompatible: `overfill`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rm.core.model.asked.demand import PRIORITY_HIGH
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.job import JobSpec
from rm.sim.papers._metronome.testbed import A30
from rm.sim.papers.frame.parameters import parameters
from rm.sim.program import program_of
from rm.sim.workload import SimJob

WORKERS = 2
NAMES = ("S1", "S2", "S3", "S4", "S5")
CONGESTED = ("S4", "S5")  # a host with a congested link is there (Table IV)


@dataclass(frozen=True, slots=True)
class Member:
    """A job of a snapshot: `compute_us`, then `comm_us` of communication at `rate_bps`."""

    model: str
    compute_us: int
    comm_us: int
    rate_bps: int
    high: bool = False
    gpu_type: str = A30

    @property
    def period_us(self) -> int:
        return self.compute_us + self.comm_us

    @property
    def profile(self) -> TrafficProfile:
        return TrafficProfile(self.period_us, (Phase(self.compute_us, self.comm_us, self.rate_bps),))

    @property
    def bits(self) -> float:
        """What a host sends in one iteration."""
        return self.rate_bps * self.comm_us / 1e6

    def slower(self, idle_us: int) -> Member:
        """With idle time in its compute phase."""
        return replace(self, compute_us=self.compute_us + idle_us)


def snapshot(name: str, fill: float | None = None) -> tuple[Member, ...]:
    """The members in the order of their deployment; `fill` None = the stated one."""
    known = parameters("metronome")
    full = known["fill"] if fill is None else fill
    us = {key[: -len("_us")]: value for key, value in known.items() if key.endswith("_period_us")}
    if name == "S0":
        period = us["s0_period"]
        comm = round(known["overfill"] * period / 2)
        return (
            Member("GPT-2", period - comm, comm, int(known["a30_bps"])),
            Member("GoogLeNet", period - comm, comm, int(known["t4_bps"]), gpu_type=""),
        )
    if name == "S1":
        one = _half_compatible(us["s1_period"], 3, full)
        return replace(one, high=True), one, one
    if name == "S4":
        return _equal_pair("BERT", us["s4_period"], full / 2)
    low, high = {"S2": ("VGG16", "VGG19"), "S3": ("WideResNet101", "VGG19"), "S5": ("ResNet152", "GPT-1")}[
        name
    ]
    periods = {low: us[f"{name.lower()}_low_period"], high: us[f"{name.lower()}_high_period"]}
    return _pair(periods, high, full)


def _pair(periods_us: Mapping[str, int], high: str, fill: float) -> tuple[Member, ...]:
    """Two models whose phases fill that part of the time that recurs for both."""
    known = parameters("metronome")
    longest, shortest = max(periods_us.values()), min(periods_us.values())
    often = round(longest / shortest)  # iterations of the faster job in one of the slower
    both_us = max(longest, often * shortest) / often
    weight = {model: known[f"{_key(model)}_parameters"] for model in periods_us}
    members = []
    for model, period in periods_us.items():
        comm = round(fill * both_us * weight[model] / sum(weight.values()))
        members.append(Member(model, period - comm, comm, int(known["a30_bps"]), model == high))
    return tuple(members)


def _equal_pair(model: str, period_us: int, fill: float) -> tuple[Member, ...]:
    comm = round(fill * period_us / 2)
    one = Member(model, period_us - comm, comm, int(parameters("metronome")["a30_bps"]))
    return replace(one, high=True), one


def _half_compatible(period_us: int, jobs: int, fill: float) -> Member:
    """One of this many equal jobs, whose phases take `fill` of the period once half the compute is gone."""
    comm = round(fill * period_us / (2 * jobs - fill))
    return Member("VGG19", period_us - comm, comm, int(parameters("metronome")["a30_bps"]))


def half_batch(members: Sequence[Member]) -> tuple[Member, ...]:
    """Half the images an iteration: half the compute, the same gradients."""
    return tuple(replace(m, compute_us=m.compute_us // 2) for m in members)


def spec(member: Member, iterations: int) -> JobSpec:
    return JobSpec(
        member.model,
        "sim",
        "",
        ntasks=WORKERS,
        tasks_per_host=1,
        gpus_per_task=1,
        gpu_type=member.gpu_type,
        iterations=iterations,
        priority=PRIORITY_HIGH if member.high else 0,
        low_comm=not member.comm_us,
        traffic=member.profile if member.comm_us else None,
    )


def sim_job(member: Member, arrival_us: int, iterations: int) -> SimJob:
    return SimJob(arrival_us, spec(member, iterations), program_of(member.profile, iterations))


def _key(model: str) -> str:
    return model.lower().replace("-", "")


def enough(member: Member, span_us: float) -> int:
    """More iterations than fit into a span."""
    return math.ceil(span_us / member.period_us) + 1
