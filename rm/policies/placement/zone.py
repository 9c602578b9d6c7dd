"""zone: the nearest zone with room, and in it the best connected hosts.

Source: zone-first, Sec. 3.2, Fig. 8; R30-R35. Settled here:

* A zone fits when the whole gang fits on those of its hosts that pass the filters. A job that
  needs several hosts gets badly connected ones (see `NetworkWeights`) only when no zone fits
  without; zones are joined only when no single zone fits even then.
* A job takes the fewest hosts that hold it (or as many as it asks for), since tasks on one host
  need no network; of the choices of that many hosts the accumulated pair score decides. A job
  that fits on one host takes the one with the least room to spare.
* Further candidates: hosts not used by earlier ones, then other zones, then other first hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np

from rm.core.model.asked.demand import Shape
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import HostVerdict
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Candidate, Observed, Proposal
from rm.policies.placement.steps.blockers import by_kind, headline
from rm.policies.placement.steps.capacity import Capacities, LatestCapacities
from rm.policies.placement.steps.gang import Gang, Ints, place
from rm.policies.placement.steps.network_score import (
    DECIMALS,
    Floats,
    Mask,
    NetworkWeights,
    medoid_means,
    select,
)
from rm.policies.placement.steps.network_table import LatestNetworkTable
from rm.policies.placement.steps.observed import Around
from rm.policies.placement.steps.pools import Pool, pools_for
from rm.policies.placement.steps.verdicts import explain_hosts

OPTIONS = NetworkWeights
ROOMIER = 1 << 62  # than any host
NEAREST_FIRST = 3  # candidates of the nearest zone before other zones have their turn


class ZonePolicy:
    """See the module. Keeps only caches of what it was last shown; every answer is a pure function."""

    name = "zone"

    def __init__(self, options: NetworkWeights | None = None) -> None:
        self._capacities = LatestCapacities()
        self._tables = LatestNetworkTable(options or NetworkWeights())

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        capacities = self._capacities.under(snapshot)
        shape, gang = request.demand.shape, Gang.of(request.demand)
        caps = capacities.of(shape)
        if not gang.fits(caps):
            reasons = [headline(request.demand, capacities)]
            verdicts: list[HostVerdict] = []
            if explain:
                reasons += by_kind(shape, capacities)
                verdicts = explain_hosts(capacities, shape, caps)
            return Proposal(iter(()), reasons, verdicts)

        def pools() -> Iterator[Pool]:
            return pools_for(
                capacities,
                caps,
                gang,
                lambda: self._tables.under(snapshot),
                lambda some: gang.host_count(some) > 1,  # one host needs no network
            )

        def observe(candidate: Candidate) -> Observed:
            assert isinstance(candidate.grounds, Pool)
            table = partial(self._tables.under, snapshot)
            return Around(capacities, shape, caps, candidate.grounds, table).observed(candidate)

        found = self._search(pools(), capacities, shape, gang, snapshot)
        if not explain:
            return Proposal(found, observe=observe)
        first = next(found)
        table = self._tables.under(snapshot) if len(first.placement.hosts) > 1 else None
        verdicts = explain_hosts(capacities, shape, caps, next(pools()), table, first.placement)
        return Proposal(chain([first], found), [], verdicts, observe)

    def _search(
        self, pools: Iterator[Pool], capacities: Capacities, shape: Shape, gang: Gang, snapshot: Snapshot
    ) -> Iterator[Candidate]:
        nearest = self._in_pool(next(pools), capacities, shape, gang, snapshot)
        yield from islice(nearest, NEAREST_FIRST)
        others = [self._in_pool(pool, capacities, shape, gang, snapshot) for pool in pools]
        for other in others:
            yield from islice(other, 1)
        for rest in (nearest, *others):
            yield from rest

    def _in_pool(
        self, pool: Pool, capacities: Capacities, shape: Shape, gang: Gang, snapshot: Snapshot
    ) -> Iterator[Candidate]:
        free = snapshot.free
        count = gang.host_count(pool.caps)
        if count == 1:
            for local in tightest_first(pool.caps, gang):
                host = capacities.hosts[pool.numbers[local]]
                note = f"{pool.where}: all {gang.tasks} tasks on one host"
                yield Candidate(place([(host, gang.tasks)], free, shape), 100.0, note, pool)
            return
        table = self._tables.under(snapshot)
        pair = table.joined(pool.zones)[1]
        for chosen in host_sets(pool, gang, pair, count):
            spread = gang.spread(pool.caps[chosen].tolist())
            hosts = [capacities.hosts[pool.numbers[n]] for n in chosen]
            score = mean_pair_score(pair, chosen)
            note = f"{pool.where}: network score {score:.1f} over {len(hosts)} hosts"
            yield Candidate(place(list(zip(hosts, spread, strict=True)), free, shape), score, note, pool)


POLICY = ZonePolicy


def tightest_first(caps: Ints, gang: Gang) -> Iterator[int]:
    """Hosts that hold the whole gang, least room to spare first, then inventory order."""
    spare = np.where(caps >= gang.tasks, caps, ROOMIER)
    best = int(spare.argmin())
    yield best
    for n in np.argsort(spare, kind="stable"):
        if n != best and caps[n] >= gang.tasks:
            yield int(n)


def host_sets(pool: Pool, gang: Gang, pair: Floats, fewest: int) -> Iterator[list[int]]:
    """Sets of hosts that hold the gang, in the order of choice; the best accumulated score first. `fewest` is
    how many hosts of the pool it needs.

    Then sets of hosts that no earlier set used, then those that begin with another host.
    """
    seen: set[frozenset[int]] = set()
    caps, near = pool.caps.copy(), pool.near if len(pool.zones) > 1 else None
    count = fewest
    while count:
        chosen = _select(caps, near, gang, pair, count)
        seen.add(frozenset(chosen))
        yield chosen
        caps[chosen] = 0
        count = gang.host_count(caps)
    caps = pool.caps
    means = medoid_means(pair, caps > 0).round(DECIMALS)
    for start in np.argsort(-means, kind="stable"):
        if caps[start] <= 0:
            continue
        others = np.delete(caps, start)
        if caps[start] < gang.least_cap(0, others, fewest - 1):
            continue
        chosen = _select(caps, near, gang, pair, fewest, int(start))
        if frozenset(chosen) not in seen:
            seen.add(frozenset(chosen))
            yield chosen


def _select(
    caps: Ints, near: Ints | None, gang: Gang, pair: Floats, count: int, start: int | None = None
) -> list[int]:
    """The accumulating choice of `count` hosts, narrowed to hosts with which the gang still fits, nearest
    zone first; `near` is None where there is one zone."""
    rest, picked = caps.copy(), 0

    def allowed(chosen: list[int]) -> Mask:
        nonlocal picked
        if chosen:  # one more than when it was asked before
            picked += int(caps[chosen[-1]])
            rest[chosen[-1]] = 0
        least = max(gang.least_cap(picked, rest, count - len(chosen) - 1), 1)
        may: Mask = rest >= least
        if near is not None:
            may &= near == near[may].min()
        return may

    return [n for n, _ in select(pair, count, caps > 0, start=start, allowed=allowed)]


def mean_pair_score(pair: Floats, chosen: Sequence[int]) -> float:
    n, hosts = len(chosen), np.array(chosen)
    return float(np.add.reduce(pair[hosts[:, None], hosts], axis=None) / (n * (n - 1)))
