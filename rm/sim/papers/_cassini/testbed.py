"""The networks: 24 servers behind oversubscribed leaves (Fig. 10), six of two GPUs (Fig. 16), one link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric, uplink_name
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.papers.frame.parameters import parameters
from rm.sim.workload import hosts

SHARED = "left"  # the leaf of the one link
LINK = uplink_name(SHARED)


@dataclass(frozen=True, slots=True)
class Testbed:
    """Hosts and the leaves above them; one spine, for all uplinks of a leaf are one link here."""

    hosts: tuple[Host, ...]
    fabric: Fabric

    @property
    def gpus(self) -> int:
        return sum(len(host.gpus) for host in self.hosts)

    def network(self, ideal: bool = False, shared_loss: float = 0.0) -> Fluid:
        """Rings wait for their slowest flow; `ideal` gives each job a copy of its own."""
        rates = {host.name: float(host.nic_bps) for host in self.hosts}
        topology = Topology(rates, self.fabric)
        if ideal:
            return Ideal(topology, lockstep=True)
        return Fluid(topology, lockstep=True, shared_loss=shared_loss)


def single_gpu(a_leaf: int | None = None) -> Testbed:
    """24 servers with a GPU each, this many behind one uplink; None = as in the paper."""
    known = parameters("cassini")
    return _leaves(known["hosts"], 1, a_leaf or known["hosts_a_leaf"])


def multi_gpu() -> Testbed:
    """Six servers with two GPUs each, below one leaf: what is contended are the servers' links."""
    known = parameters("cassini")
    return _leaves(known["multi_hosts"], known["multi_gpus"], known["multi_hosts"])


def _leaves(count: int, gpus: int, each: int) -> Testbed:
    known = parameters("cassini")
    made = hosts(count, gpus=gpus, nic_bps=int(known["nic_bps"]))
    leaf_of = {host.name: f"leaf{i // each + 1:02}" for i, host in enumerate(made)}
    return Testbed(made, Fabric(leaf_of, 1, int(known["uplink_bps"])))


def one_link(jobs: int) -> tuple[Testbed, Mapping[int, tuple[str, str]]]:
    """Two hosts for each job, of which one is below the leaf whose uplink all share; by job from 0 on.

    The other is below a leaf of its own, so that nothing but that uplink is shared.
    """
    known = parameters("cassini")
    made = hosts(2 * jobs, gpus=1, nic_bps=int(known["nic_bps"]))
    pairs = {job: (made[2 * job].name, made[2 * job + 1].name) for job in range(jobs)}
    leaf_of: dict[str, str] = {}
    for job, (here, there) in pairs.items():
        leaf_of |= {here: SHARED, there: f"right{job}"}
    return Testbed(made, Fabric(leaf_of, 1, int(known["nic_bps"]))), pairs
