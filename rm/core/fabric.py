"""The fabric above the hosts: leaves (racks), spines, and the links between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
