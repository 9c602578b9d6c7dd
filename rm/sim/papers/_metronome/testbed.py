"""The testbed of Metronome, Sec. IV-A: three hosts with a sliced A30, one with a T4, and a congested link.

A slice of a GPU (MIG) is a GPU of its own here. The congested host receives iPerf3's traffic at a fixed
rate, which yields to nobody; its measured delay is above the others'.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rm.core.model.host import Gpu, Host, HostState
from rm.core.model.network.links import LinkStats
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.network.port import Flow, Transfer
from rm.sim.network.unfairness import Unfairness
from rm.sim.papers.frame.parameters import parameters
from rm.units import GIB

A30, T4 = "a30", "t4"
MASTER = "master"  # where iPerf3 sends from; no worker
CONGESTED = "a30-3"
ENDLESS_BITS = 1e18
IPERF = 0  # transfer and job of the stream; those of the simulated jobs begin with 1


def hosts(seed: int) -> tuple[Host, ...]:
    """The four workers in an order that the seed draws: policies settle ties by it."""
    known = parameters("metronome")
    made = [
        _host(f"{A30}-{i + 1}", A30, known["a30_slices"])  #
        for i in range(known["a30_hosts"])
    ]
    made.append(_host(f"{T4}-1", T4, 1))
    random.Random(f"testbed/{seed}").shuffle(made)
    return tuple(made)


def _host(name: str, model: str, gpus: int) -> Host:
    known = parameters("metronome")
    return Host(
        name=name,
        zone="testbed",
        address=name,
        cpus=known[f"{model}_cpus"],
        mem_bytes=known[f"{model}_mem_gib"] * GIB,
        gpus=tuple(Gpu(i, model=model) for i in range(gpus)),
        nic_bps=int(known[f"{model}_bps"]),
        state=HostState.UP,
    )


def delays(of: Sequence[Host], congested: bool) -> Iterator[tuple[str, str, LinkStats]]:
    """The measured delay between any two hosts, one entry a direction."""
    known = parameters("metronome")
    for a in of:
        for b in of:
            if a.name != b.name:
                slow = congested and CONGESTED in (a.name, b.name)
                yield a.name, b.name, LinkStats(delay_us=known["congested_us" if slow else "delay_us"])


def network(of: Sequence[Host], ideal: bool = False, newcomer: float = 1.0) -> Fluid:
    """Full-duplex host links under one switch; `ideal` gives each job a copy of its own."""
    rates = {h.name: float(h.nic_bps) for h in of} | {MASTER: float(parameters("metronome")["a30_bps"])}
    topology = Topology(rates)
    return (
        Ideal(topology, lockstep=True)
        if ideal
        else Fluid(topology, lockstep=True, unfair=Unfairness(newcomer))
    )


def congest(network: Fluid, at_us: float = 0.0) -> None:
    """Begin the iPerf3 traffic into the congested host: before all others of any class."""
    known = parameters("metronome")
    stream = Flow(MASTER, CONGESTED, ENDLESS_BITS, known["iperf_share"] * known["a30_bps"], priority=-1)
    network.begin(Transfer(IPERF, IPERF, (MASTER, CONGESTED), (stream,)), at_us)
