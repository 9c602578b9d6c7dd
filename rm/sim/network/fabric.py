"""Topologies: which links there are, and which of them a flow takes.

One big switch (host links only), or leaf-spine: each leaf has a link to each spine. Traffic
inside a leaf stays there; between leaves it goes over one spine, which a pinned route names or
ECMP draws by a seeded hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from rm.core.model.network.fabric import Fabric
from rm.errors import UsageError
from rm.sim.network.port import Flow, Transfer

Path = tuple[int, ...]  # indices into Topology.names and .capacity_bps, from source to destination
Ecmp = Literal["connection", "transfer"]
SHARES_TOLERANCE = 1e-9
_MASK = (1 << 64) - 1


class Topology:
    """The links of a cluster, by index; a link is one direction unless `duplex` is False.

    Args:
        host_bps: capacity of each host's link, the same in both directions.
        fabric: leaves and spines above the hosts; None is one switch without a limit of its own.
            A host on no leaf reaches all others over host links alone.
        duplex: False gives each host one link that a flow loads whether it comes or goes, as in
            papers that count one link a host. A ring then loads it twice.
        ecmp: draw the spine once for a `connection` (job, source, destination, ordinal among the
            parallel ones), or anew for each `transfer`.
        seed: of the hash; another seed is another draw of all paths.
    """

    def __init__(
        self,
        host_bps: Mapping[str, float],
        fabric: Fabric | None = None,
        *,
        duplex: bool = True,
        ecmp: Ecmp = "connection",
        seed: int = 0,
    ) -> None:
        if fabric is not None and fabric.spines < 1:
            raise UsageError("A leaf-spine fabric without spines connects nothing.", "Give it one or more.")
        self.ecmp = ecmp
        self.seed = seed
        self.fabric = fabric
        self.names: list[str] = []
        self.capacity_bps: list[float] = []
        self._hosts = {host: number for number, host in enumerate(host_bps)}
        self._seed = _mix(seed & _MASK)
        self._out = [self._link(h if not duplex else f"{h}:out", bps) for h, bps in host_bps.items()]
        self._in = self._out
        if duplex:
            self._in = [self._link(f"{h}:in", bps) for h, bps in host_bps.items()]
        self.pairs = (
            list(zip(self._out, self._in, strict=True)) if duplex else []
        )  # the host links' directions
        self._up: dict[str, list[int]] = {}
        self._down: dict[str, list[int]] = {}
        self._leaf: list[str | None] = [None] * len(self._hosts)
        if fabric is not None:
            self._leaf = [fabric.leaf_of.get(host) for host in host_bps]
            for leaf in dict.fromkeys(leaf for leaf in self._leaf if leaf is not None):
                names = [f"spine{s}" for s in range(fabric.spines)]
                self._up[leaf] = [self._link(f"{leaf}->{s}", fabric.uplink_bps) for s in names]
                self._down[leaf] = [self._link(f"{s}->{leaf}", fabric.uplink_bps) for s in names]

    def subflows(self, transfer: Transfer) -> Iterator[tuple[Flow, float, Path]]:
        """Each flow's parts: (flow, share of it, path). A flow from a host to itself has an empty path.

        Raises:
            UsageError: an unknown host or spine, or shares that do not add up to 1.
        """
        parallel: dict[tuple[str, str], int] = {}
        for flow in transfer.flows:
            ends = flow.source, flow.destination
            ordinal = parallel[ends] = parallel.get(ends, -1) + 1
            source, destination = self._number(flow.source), self._number(flow.destination)
            if source == destination:
                yield flow, 1.0, ()
                continue
            a, b = self._leaf[source], self._leaf[destination]
            first, last = self._out[source], self._in[destination]
            if a == b or a is None or b is None:
                yield flow, 1.0, (first, last)
                continue
            up, down = self._up[a], self._down[b]
            for spine, share in flow.route or ((self._draw(transfer, source, destination, ordinal), 1.0),):
                if not 0 <= spine < len(up):
                    raise UsageError(
                        f"A flow from {flow.source} to {flow.destination} is pinned to spine {spine}.",
                        f"The fabric has the spines 0 to {len(up) - 1}.",
                    )
                yield flow, share, (first, up[spine], down[spine], last)
            if flow.route and abs(math.fsum(share for _, share in flow.route) - 1) > SHARES_TOLERANCE:
                raise UsageError(
                    f"The subflows from {flow.source} to {flow.destination} do not carry the whole flow.",
                    "Their shares must add up to 1.",
                )

    def _link(self, name: str, bps: float) -> int:
        if not bps > 0:
            raise UsageError(f"The link {name} has the capacity {bps:g} bit/s.", "Give it more than 0.")
        self.names.append(name)
        self.capacity_bps.append(float(bps))
        return len(self.names) - 1

    def _number(self, host: str) -> int:
        number = self._hosts.get(host)
        if number is None:
            raise UsageError(f"The simulated cluster has no host {host!r}.", "Flows name hosts of it.")
        return number

    def _draw(self, transfer: Transfer, source: int, destination: int, ordinal: int) -> int:
        """The spine of a connection: a hash like a switch's over addresses and ports."""
        bits = self._seed
        for part in (transfer.job, source, destination, ordinal):
            bits = _mix(bits ^ (part & _MASK))
        if self.ecmp == "transfer":
            bits = _mix(bits ^ (transfer.id & _MASK))
        assert self.fabric is not None
        return (bits * self.fabric.spines) >> 64


def logical_spine(fabric: Fabric) -> Fabric:
    """All spines as one with their total capacity: no choice of paths can do better.

    FORESIGHT's "perfect" variant: perfect routing and rate sharing at once (Table I).
    """
    return replace(fabric, spines=1, uplink_bps=fabric.capacity_bps)


def _mix(bits: int) -> int:
    """The finaliser of SplitMix64: each bit of the result depends on all bits of the argument."""
    bits = (bits + 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)
