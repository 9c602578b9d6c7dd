"""The fabric above the hosts: leaves (racks), spines, and the links between them.

All uplinks of a leaf count as one link, named by `uplink_name`, as wide as they are together: what
equal-cost multipath gives when it spreads flows evenly. Two flows that it hashes onto one uplink may
still meet there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

UPLINK = "leaf:"


def uplink_name(leaf: str) -> str:
    """The name of a leaf's uplinks among the links."""
    return UPLINK + leaf


@dataclass(frozen=True, slots=True)
class Fabric:
    """A leaf-spine fabric: each leaf has one link of `uplink_bps` (each way) to each spine.

    `leaf_of` names the leaf of each host; a host that is not in it hangs on no known leaf, and
    its traffic is counted on its host link alone.
    """

    leaf_of: Mapping[str, str]
    spines: int
    uplink_bps: int

    @property
    def capacity_bps(self) -> int:
        """All uplinks of one leaf together, one way."""
        return self.spines * self.uplink_bps

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
