"""The clusters that real workloads are played on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric
from rm.sim.real.workloads import rows
from rm.sim.workload import hosts
from rm.units import MBPS

HOST_GPUS = 4
NIC_BPS = 50_000 * MBPS  # of the hosts that Pollux measured, "up to"
SPINES = 2
GROUP = "P8"  # of Lingjun's three aggregation groups the smallest: 29 racks of 2 to 8 hosts


@dataclass(frozen=True, slots=True)
class Cluster:
    hosts: tuple[Host, ...]
    fabric: Fabric | None = None

    @property
    def gpus(self) -> int:
        return sum(len(host.gpus) for host in self.hosts)


def flat() -> Cluster:
    """16 hosts of 4 GPUs on one switch, as Pollux measured."""
    return Cluster(hosts(16, gpus=HOST_GPUS, nic_bps=NIC_BPS))


def lingjun(least: int = 16) -> Cluster:
    """The smallest racks of one of Lingjun's aggregation groups, until they have that many hosts.

    Hosts have 4 GPUs, as those whose jobs were measured. A rack has one uplink of a host's rate to each of
    two spines; the trace does not say what the real ones have.
    """
    racks = [(int(row["hosts"]), row["rack"]) for row in rows("lingjun.csv") if row["group"] == GROUP]
    of: list[str] = []
    for count, rack in sorted(racks, key=lambda one: (one[0], int(one[1][1:]))):
        if len(of) >= least:
            break
        of += [rack] * count
    made = hosts(len(of), gpus=HOST_GPUS, nic_bps=NIC_BPS)
    leaf_of = {host.name: rack for host, rack in zip(made, of, strict=True)}
    return Cluster(made, Fabric(leaf_of, SPINES, NIC_BPS, dscp=tuple(range(SPINES))))


CLUSTERS: Mapping[str, Callable[[], Cluster]] = {"flat": flat, "lingjun": lingjun}
