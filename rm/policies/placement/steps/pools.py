"""Pools: the hosts among which a job may be placed, nearest zone first (R35)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rm.core.model.quickly_made import quickly_made
from rm.policies.placement.steps.capacity import Capacities
from rm.policies.placement.steps.gang import Gang, Ints
from rm.policies.placement.steps.network_table import NetworkTable
from rm.policies.placement.steps.zones import fitting_zones, spill_zones


@quickly_made
@dataclass(frozen=True, slots=True)
class Pool:
    """Hosts among which a job may be placed: one zone, or zones joined because none fits alone.

    `numbers` are the hosts in inventory numbers, `names` their names, `caps` the tasks each takes (0 = not
    usable), `near` the rank of each host's zone, 0 for the nearest. `first`: no pool comes before it.
    """

    zones: tuple[str, ...]
    numbers: NDArray[np.int64]
    names: tuple[str, ...]
    caps: Ints
    near: Ints
    without_bad: bool
    first: bool = True

    @property
    def where(self) -> str:
        return f"zone {self.zones[0]}" if len(self.zones) == 1 else f"zones {', '.join(self.zones)}"


def pools_for(
    capacities: Capacities,
    caps: Ints,
    gang: Gang,
    table: Callable[[], NetworkTable],
    needs_network: Callable[[Ints], bool],
) -> Iterator[Pool]:
    """The pools in which the whole gang fits, best first; none only when it fits nowhere.

    First the zones that hold it alone, without their badly connected hosts where the job
    `needs_network` on hosts of these capacities; then those that hold it only with them; when
    no zone holds it alone, the fewest zones that do together.

    Args:
        caps: tasks that each host of the inventory takes, 0 where a filter refuses it.
    """
    members, delays = capacities.members_of, capacities.delays_us
    room = capacities.in_zones(caps)

    def fits_in(zones: Sequence[str]) -> bool:
        if room[zones[0]] < gang.tasks:
            return False
        return gang.any_hosts or gang.fits(caps[members[zones[0]]])

    crowded: list[str] = []
    first = True
    for zone in fitting_zones(room, delays, fits_in):
        mine = caps[members[zone]]
        if needs_network(mine):
            good = table().without_bad(zone, mine)
            if good is not mine and not gang.fits(good):
                crowded.append(zone)
                continue
            yield _pool((zone,), capacities, good, True, first)
        else:
            yield _pool((zone,), capacities, mine, False, first)
        first = False
    for zone in crowded:
        yield _pool((zone,), capacities, caps[members[zone]], False, first)
        first = False
    if not first:
        return
    everyone = {z: caps[mine] for z, mine in members.items()}
    clean = {z: table().without_bad(z, mine) for z, mine in everyone.items()}
    for usable, without_bad in ((clean, needs_network(caps)), (everyone, False)):
        if usable is clean and not without_bad:
            continue
        zones = spill_zones(
            {z: int(c.sum()) for z, c in usable.items()},
            delays,
            table().apart_us,
            gang.tasks,
            lambda some, usable=usable: gang.fits(np.concatenate([usable[z] for z in some] or [np.zeros(0)])),  # type: ignore[misc]
        )
        if zones:
            yield _pool(tuple(zones), capacities, np.concatenate([usable[z] for z in zones]), without_bad)
            return


def _pool(
    zones: tuple[str, ...], capacities: Capacities, caps: Ints, without_bad: bool, first: bool = True
) -> Pool:
    if len(zones) == 1:
        numbers, names = capacities.members_of[zones[0]], capacities.names_of[zones[0]]
        return Pool(zones, numbers, names, caps, np.zeros(len(numbers), dtype=np.int64), without_bad, first)
    members = [capacities.members_of[zone] for zone in zones]
    near = np.repeat(np.arange(len(zones)), [len(mine) for mine in members])
    names = tuple(name for zone in zones for name in capacities.names_of[zone])
    return Pool(zones, np.concatenate(members), names, caps, near, without_bad, first)
