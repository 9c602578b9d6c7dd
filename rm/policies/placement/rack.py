"""rack: below as few leaves as possible, and of those the ones that it fills best.

Traffic inside a rack does not touch the leaves' uplinks, which are what is oversubscribed. Settled here:

* One leaf that holds the whole gang: the one with the least room to spare (best fit), and there the
  fewest hosts, as in `consolidate`.
* Several: the roomiest are filled, and the leaf with the least room that is enough takes the rest; in
  each the roomiest hosts first. Ranks are consecutive below each leaf, so that a ring over the hosts
  leaves each leaf once.
* A host on no known leaf counts as a leaf of its own; without a fabric all do.

Options make it as indifferent as schedulers whose model of the network has two distances only. Themis
slows a job down by one factor when its workers are in several racks (CASSINI Sec. 4.2), Pollux when they
are on several hosts: once a gang does not fit into one, all placements are alike to them. `across` "any"
then takes hosts by lot, and `near` says what is one place. Each further candidate is another lot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import neg

import numpy as np

from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.errors import ConfigError
from rm.policies.placement.consolidate import fewest_hosts
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.gang import Gang, Ints
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts, host_by_host

NEAR = ("leaf", "host")
ACROSS = ("fewest", "any")
GROUPS_MAX = 1_000  # of zones, of which the leaves are kept


@dataclass(frozen=True, slots=True)
class RackOptions:
    """`near` what one place is, "leaf" or "host"; `across` where a gang goes that no place holds: to the
    "fewest" places or to "any" hosts, by lot. `seed` of the lots, with the job's id and attempt."""

    near: str = "leaf"
    across: str = "fewest"
    seed: int = 0

    def __post_init__(self) -> None:
        for option, value, known in (("near", self.near, NEAR), ("across", self.across, ACROSS)):
            if value not in known:
                raise ConfigError(
                    f"The option {option} of placement policy rack is {value!r}.",
                    f"Known are: {', '.join(known)}.",
                )
        if self.seed < 0:
            raise ConfigError(f"rack cannot work with seed = {self.seed}.", "Write 0 or more.")


class RackPolicy:
    """The fewest leaves, best fit; ties by inventory order."""

    name = "rack"

    def __init__(self, options: RackOptions | None = None) -> None:
        self.options = options or RackOptions()
        self._capacities = LatestCapacities()
        self._leaves = LatestLeaves()

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, self._rank)

    def _rank(self, ask: Ask) -> Ranking:
        leaf = self._leaves.of(ask.capacities.hosts, ask.snapshot.fabric)
        place = leaf if self.options.near == "leaf" else np.arange(len(leaf))
        lots = np.random.default_rng([self.options.seed, ask.request.job, ask.request.attempt])
        by_lot = self.options.across == "any"

        def choose(caps: Ints) -> Counts:
            if by_lot and tightest_place(caps, place, ask.gang) is None:
                drawn = host_by_host(lots.permutation(len(caps)), caps, ask.gang)
                return sorted(drawn, key=lambda pick: (leaf[pick[0]], pick[0]))
            return fewest_places(caps, place, ask.gang)

        why = "a free place, at random" if by_lot else "the fewest leaves, best filled"
        return Ranking(choose, ask.capacities.gpu_index.astype(np.float64), why)


POLICY = RackPolicy
OPTIONS = RackOptions


def leaf_numbers(hosts: Sequence[Host], fabric: Fabric | None) -> Ints:
    """A number for each host's leaf, in the order in which the inventory first names them."""
    above = fabric.leaf_of if fabric is not None else {}
    numbers: dict[tuple[bool, str], int] = {}
    found = []
    for host in hosts:
        leaf = above.get(host.name)
        key = (False, host.name) if leaf is None else (True, leaf)
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, dtype=np.int64)


class LatestLeaves:
    """The numbers of the leaves above the hosts that were asked for last. Only a cache."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[Host], Fabric | None, Ints] | None = None
        self._among: dict[tuple[str, ...], Ints] = {}

    def of(self, hosts: Sequence[Host], fabric: Fabric | None) -> Ints:
        """As `leaf_numbers`; not to be written to."""
        if self._last is None or self._last[0] is not hosts or self._last[1] is not fabric:
            self._last = hosts, fabric, leaf_numbers(hosts, fabric)
            self._among.clear()
        return self._last[2]

    def among(
        self, zones: tuple[str, ...], numbers: Ints, hosts: Sequence[Host], fabric: Fabric | None
    ) -> Ints:
        """The leaves above the hosts of some zones, which have these numbers, numbered in their order; not to
        be written to."""
        above = self.of(hosts, fabric)
        if zones not in self._among:
            if len(self._among) >= GROUPS_MAX:
                self._among.clear()
            self._among[zones] = np.unique(above[numbers], return_inverse=True)[1]
        return self._among[zones]


def fewest_places(caps: Ints, place: Ints, gang: Gang) -> Counts:
    """The tightest place that holds the gang, and there the fewest hosts; else the fewest places. It fits."""
    tightest = tightest_place(caps, place, gang)
    if tightest is not None:
        return fewest_hosts(np.where(place == tightest, caps, 0), gang)
    turn = np.empty(int(place.max()) + 1, dtype=np.int64)  # of each place in the order of choice
    turn[in_order(caps, place, gang)] = np.arange(len(turn))
    return host_by_host(np.lexsort((-caps, turn[place])), caps, gang)


def tightest_place(caps: Ints, place: Ints, gang: Gang) -> int | None:
    """The place with the least room that holds the gang by itself; None when none does."""
    room = np.bincount(place, caps)
    order = np.argsort(room, kind="stable")
    for n in order[np.searchsorted(room[order], gang.tasks) :].tolist():
        if gang.fits(np.where(place == n, caps, 0)):
            return int(n)
    return None


def in_order(caps: Ints, place: Ints, gang: Gang) -> list[int]:
    """All places: those that shall hold the gang, which fits but into no single one; then the roomiest."""
    left = np.bincount(place, caps).astype(np.int64)
    order: list[int] = np.argsort(-left, kind="stable").tolist()
    room: list[int] = left[order].tolist()
    need = gang.tasks
    for chosen, tasks in enumerate(room):
        if need <= 0 or not tasks:
            break
        if chosen and tasks >= need:  # it is the last: the tightest that is enough, the first of equal ones
            last = bisect_right(room, -need, lo=chosen, key=neg) - 1
            order.insert(chosen, order.pop(bisect_left(room, -room[last], lo=chosen, key=neg)))
            break
        need -= tasks
    return order
