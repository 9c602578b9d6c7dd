"""Ada-SRSF's workload and cluster (Sec. V-A, Table III), and one run on them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from rm.core.model.host import Host
from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning
from rm.sim.network.fabric import Topology
from rm.sim.network.ideal import Ideal
from rm.sim.network.penalty import Penalty
from rm.sim.network.port import Network
from rm.sim.papers._ada_srsf.compat import AskedPenalty, AskingAdaDual
from rm.sim.papers.frame.parameters import parameters
from rm.sim.program import Communicate, Compute, sequence
from rm.sim.result import Result
from rm.sim.workload import SimJob, hosts
from rm.sim.world import World
from rm.units import GIB

MB, MIB = 1e6, 1 << 20
BITS = 8


def cluster(servers: int, gpu_mem_gb: int) -> tuple[Host, ...]:
    known = parameters("ada-srsf")
    bandwidth_bps = round(BITS * 1e9 / known["b_ns"])
    return hosts(servers, gpus=known["gpus_a_server"], gpu_mem_bytes=gpu_mem_gb * GIB, nic_bps=bandwidth_bps)


def jobs(seed: int, scale: int, groups: int = 1) -> list[SimJob]:
    """`groups` times the 160 jobs of Sec. V-A, iterations and arrivals divided by `scale`.

    Sizes keep their printed numbers and are dealt out at random; networks, iterations and arrivals
    are uniform.
    """
    known, chance = parameters("ada-srsf"), random.Random(f"ada-srsf/{seed}")
    sizes = [
        size
        for size, count in zip(known["job_sizes"], known["job_counts"], strict=True)
        for _ in range(count * groups)
    ]
    chance.shuffle(sizes)
    least, most = known["iterations"]
    made = []
    for number, gpus in enumerate(sizes):
        model = chance.randrange(len(known["models"]))
        iterations = max(1, chance.randint(least, most) // scale)
        arrival_us = int(chance.uniform(0, known["arrivals_s"] * 1e6 / scale))
        message = known["message_mb"][model] * MB
        parts_us = (known["forward_ms"][model] * 1e3, known["backward_ms"][model] * 1e3)
        program = sequence(
            iterations,
            (Compute(parts_us), Communicate(message * BITS, size_bytes=message)),
            BITS * 1e9 / known["b_ns"],
            known["a_ms"] * 1e3,
        )
        spec = JobSpec(
            name=f"{known['models'][model]}-{number + 1}",
            user="sim",
            script="",
            ntasks=gpus,
            gpus_per_task=1,
            gpu_mem_bytes=known["gpu_mem_mb"][model] * MIB,
            expected_us=int(program.compute_us * iterations),  # E_J = 0 before placement (Sec. IV-A)
        )
        made.append(SimJob(arrival_us, spec, program))
    return sorted(made, key=lambda job: job.arrival_us)


def simulate(
    seed: int,
    placement: str,
    comm: str,
    *,
    placement_options: Mapping[str, Any] | None = None,
    comm_options: Mapping[str, Any] | None = None,
    scale: int | None = None,
    gpu_mem_gb: int | None = None,
    eta_ns: float | None = None,
    ideal: bool = False,
    compat: bool = False,
    groups: int = 1,
) -> Result:
    """One run under SRSF. `ideal`: no contention at all; `compat`: with the authors' defect."""
    known = parameters("ada-srsf")
    own = cluster(known["servers"] * groups, gpu_mem_gb or known["gpu_mem_gb"])
    eta = known["eta_ns"] if eta_ns is None else eta_ns
    a_us, b, slower = known["a_ms"] * 1e3, known["b_ns"] / 1e3, eta / 1e3
    network: Network
    options = dict(comm_options or {})
    if comm == "adadual":
        options = {"b": known["b_ns"] * 1e-9, "eta": eta * 1e-9} | options
    policy = load("comm", comm, options)
    if ideal:
        network = Ideal(Topology({h.name: h.nic_bps for h in own}), lockstep=True)
    elif compat:
        network = AskedPenalty(a_us, b, slower)
        if comm == "adadual":
            policy = AskingAdaDual(policy, network)
    else:
        network = Penalty(a_us, b, slower)
    policies = Policies(load("queue", "srsf"), load("placement", placement, placement_options), policy)
    workload = jobs(seed, scale or known["scale"], groups)
    return World(own, workload, policies, network, tuning=Tuning(top_k=1)).run()
