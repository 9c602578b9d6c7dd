"""One run of FORESIGHT's jobs under the daemon's cycle, and what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning
from rm.policies.foresight.ring import iterations_within
from rm.sim.network.fabric import Ecmp, Topology, logical_spine
from rm.sim.network.fluid import Fluid
from rm.sim.papers._foresight.workload import Scene
from rm.sim.papers.frame.parameters import parameters
from rm.sim.world import Settings, World

Stages = Literal["barriers", "apart"]
UNBOUNDED = 1_000_000  # iterations of all jobs in one plan: the horizon alone bounds them


@dataclass(frozen=True, slots=True)
class Case:
    """What a run does about contention.

    `comm` None is the baseline, ECMP alone; `perfect` sends over all spines as one. `stages` is how
    the stages of a ring all-reduce depend on each other:

    - "barriers": each of the 2 (n - 1) stages waits for its last flow.
    - "apart": none; a flow goes through its stages by itself, and the all-reduce ends with the last one.
    """

    comm: Mapping[str, Any] | None = None
    perfect: bool = False
    stages: Stages = "barriers"
    ecmp: Ecmp = "transfer"  # draws a spine for each transfer: each stage, or each all-reduce "apart"


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean iteration of each job and of all iterations together, and alone, in microseconds.

    Each counts from the job's beginning, so with the plan's first delay. `overloaded_us`: how long
    some link between leaf and spine was asked for more than it carries, summed over these links.
    """

    iteration_us: tuple[float, ...]
    alone_us: tuple[float, ...]
    delay_us: tuple[float, ...]
    mean_us: float
    overloaded_us: float


def simulate(scene: Scene, spines: int, case: Case, seed: int, horizon_ms: int | None = None) -> Measured:
    """Every job makes as many iterations as one round of a plan has within the horizon.

    A job that is done goes on until the last one is, so that nobody's last iterations are alone.
    """
    known = parameters("foresight")
    horizon_ms = horizon_ms or known["horizon_ms"]
    alone = alone_us(scene, spines)
    counts = iterations_within({n: round(us) for n, us in enumerate(alone)}, horizon_ms * 1_000, UNBOUNDED)
    fabric = scene.fabric(spines)
    comm = load("comm", "none")
    if case.comm is not None:
        options = {"horizon_ms": horizon_ms, "iterations": UNBOUNDED, "units": known["units"]} | dict(
            case.comm
        )
        comm = load("comm", "foresight", options)
    jobs = scene.jobs([counts[n] for n in range(len(alone))], staged=case.stages == "barriers")
    network = Fluid(
        Topology(
            {h.name: h.nic_bps for h in scene.hosts},
            logical_spine(fabric) if case.perfect else fabric,
            ecmp=case.ecmp,
            seed=seed,
        )
    )
    result = World(
        scene.hosts,
        jobs,
        Policies(load("queue", "fifo"), scene.placement, comm),
        network,
        tuning=Tuning(top_k=1),
        fabric=fabric,
        settings=Settings(keep_running=True),
    ).run()
    took = []
    for job in result.jobs:
        assert job.start_us is not None
        assert job.end_us is not None
        took.append(job.end_us - job.start_us)
    made = [job.iterations for job in result.jobs]
    return Measured(
        iteration_us=tuple(us / n for us, n in zip(took, made, strict=True)),
        alone_us=alone,
        delay_us=tuple(job.paused_us / job.iterations for job in result.jobs),
        mean_us=sum(took) / sum(made),
        overloaded_us=sum(use.overloaded_us for name, use in result.links.items() if "->" in name),
    )


def alone_us(scene: Scene, spines: int) -> tuple[float, ...]:
    """Each job's iteration when it runs alone, over all spines as one (Sec. III profiles jobs so)."""
    fabric = logical_spine(scene.fabric(spines))
    times = []
    for model, ring in zip(scene.models, scene.rings, strict=True):
        single = Scene(scene.hosts, scene.leaf_of, (model,), (ring,))
        network = Fluid(Topology({h.name: h.nic_bps for h in scene.hosts}, fabric))
        policies = Policies(load("queue", "fifo"), single.placement, load("comm", "none"))
        result = World(scene.hosts, single.jobs([1], staged=False), policies, network, fabric=fabric).run()
        times.append(result.mean_jct_us)
    return tuple(times)
