"""Every job as if it had the network for itself: Metronome's "Ideal", the lower bound of an iteration."""

from __future__ import annotations

from collections.abc import Mapping

from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.plan import Wire
from rm.sim.network.port import LinkUsage


class Ideal(Fluid):
    """A fluid network in which each job has all links of the topology to itself.

    The flows of one job still share what they would share if it were alone. `usage` adds up the
    jobs' own copies of a link, so that a link may be busy for longer than has passed.
    """

    def __init__(self, topology: Topology, *, lockstep: bool = False) -> None:
        super().__init__(topology, lockstep=lockstep)
        self._own: dict[tuple[int, int], Wire] = {}

    def usage(self) -> Mapping[str, LinkUsage]:
        total = {name: [0.0] * 4 for name in self.topology.names}
        for wire in self._own.values():
            seen = self._seen(wire)
            for i, value in enumerate(
                (seen.carried_bits, seen.busy_us, seen.overloaded_us, seen.excess_bits)
            ):
                total[wire.name][i] += value
        return {name: LinkUsage(*values) for name, values in total.items()}

    def _wire(self, job: int, index: int) -> Wire:
        wire = self._own.get((job, index))
        if wire is None:
            like = self._wires[index]
            wire = self._own[job, index] = Wire(like.name, like.capacity)
        return wire


def _sum(a: LinkUsage, b: LinkUsage) -> LinkUsage:
    return LinkUsage(
        a.carried_bits + b.carried_bits,
        a.busy_us + b.busy_us,
        a.overloaded_us + b.overloaded_us,
        a.excess_bits + b.excess_bits,
    )
