"""The fabric above the hosts: leaves (racks), spines, and the links between them.

All uplinks of a leaf count as one link, named by `uplink_name`, as wide as they are together: what
equal-cost multipath gives when it spreads flows evenly. Two flows that it hashes onto one uplink may
still meet there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rm.core.model.host import Host

UPLINK = "leaf:"
LEAF_VARIABLE = "rm_leaf"


def uplink_name(leaf: str) -> str:
    """The name of a leaf's uplinks among the links."""
    return UPLINK + leaf


@dataclass(frozen=True, slots=True)
class Fabric:
    """A leaf-spine fabric: each leaf has one link of `uplink_bps` (each way) to each spine.

    `leaf_of` names the leaf of each host; a host that is not in it hangs on no known leaf, and
    its traffic is counted on its host link alone. `dscp` are the code points by which leaves send a packet
    over each spine; empty: they choose as they like.
    """

    leaf_of: Mapping[str, str]
    spines: int
    uplink_bps: int
    dscp: tuple[int, ...] = ()

    @property
    def capacity_bps(self) -> int:
        """All uplinks of one leaf together, one way."""
        return self.spines * self.uplink_bps

    def with_host(self, host: Host) -> Fabric:
        """The fabric with the leaf that the host's inventory variable names, if it names one."""
        leaf = leaf_of(host)
        if leaf is None or self.leaf_of.get(host.name) == leaf:
            return self
        return replace(self, leaf_of={**self.leaf_of, host.name: leaf})

    def leaves(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """The distinct leaves of these hosts, sorted."""
        return tuple(sorted({self.leaf_of[h] for h in hosts if h in self.leaf_of}))

    def crossings(self, hosts: Sequence[str]) -> dict[str, int]:
        """How often a ring over these hosts, in this order, leaves each leaf (and comes back).

        Only leaves that it leaves are named, so a job below one leaf crosses nothing. Hosts on no
        known leaf are outside every leaf.
        """
        leaves = [self.leaf_of.get(h) for h in hosts]
        found: dict[str, int] = {}
        for here, there in zip(leaves, [*leaves[1:], *leaves[:1]], strict=True):
            if here is not None and here != there:
                found[here] = found.get(here, 0) + 1
        return found


def leaf_of(host: Host) -> str | None:
    """The leaf in the host's inventory variable `rm_leaf`; None when it has none."""
    text = dict(host.variables).get(LEAF_VARIABLE)
    if text is None:
        return None
    try:  # variables are kept as JSON where they would read as something else than a string
        return str(json.loads(text))
    except ValueError:
        return text


def fabric_of(hosts: Iterable[Host], spines: int, uplink_bps: int, dscp: Iterable[int] = ()) -> Fabric | None:
    """The fabric above these hosts; None without spines."""
    if spines == 0:
        return None
    found = {host.name: leaf for host in hosts if (leaf := leaf_of(host)) is not None}
    return Fabric(found, spines, uplink_bps, tuple(dscp))
