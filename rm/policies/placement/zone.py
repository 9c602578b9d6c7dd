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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from rm.core.job import Job, Placement
from rm.core.ports import Candidate, Proposal
from rm.core.reasons import HostVerdict, Reason, ReasonCode
from rm.core.snapshot import Snapshot
from rm.policies.placement.steps.blockers import by_kind, headline
from rm.policies.placement.steps.capacity import Capacities, LatestCapacities
from rm.policies.placement.steps.filters import Shape, refusal, shape_of
from rm.policies.placement.steps.gang import Gang, Ints, place
from rm.policies.placement.steps.network_score import (
    DECIMALS,
    Floats,
    Mask,
    NetworkWeights,
    medoid_means,
    select,
)
from rm.policies.placement.steps.network_table import LatestNetworkTable, NetworkTable
from rm.policies.placement.steps.zones import fitting_zones, spill_zones

OPTIONS = NetworkWeights
NEAREST_FIRST = 3  # candidates of the nearest zone before other zones have their turn


@dataclass(frozen=True, slots=True)
class Pool:
    """Hosts among which a job may be placed: one zone, or zones joined because none fits alone.

    `numbers` are the hosts in inventory numbers, `caps` the tasks each takes (0 = not usable),
    `near` the rank of each host's zone, 0 for the nearest.
    """

    zones: tuple[str, ...]
    numbers: NDArray[np.int64]
    caps: Ints
    near: Ints
    without_bad: bool

    @property
    def where(self) -> str:
        return f"zone {self.zones[0]}" if len(self.zones) == 1 else f"zones {', '.join(self.zones)}"


class ZonePolicy:
    """See the module. Keeps only caches of what it was last shown; every answer is a pure function."""

    name = "zone"
    Options = NetworkWeights

    def __init__(self, options: NetworkWeights | None = None) -> None:
        self._capacities = LatestCapacities()
        self._tables = LatestNetworkTable(options or NetworkWeights())

    def candidates(self, job: Job, snapshot: Snapshot, explain: bool = False) -> Proposal:
        capacities = self._capacities.under(snapshot)
        shape, gang = shape_of(job.spec), Gang.of(job.spec)
        pools = pools_for(capacities, shape, gang, lambda: self._tables.under(snapshot))
        if pools is None:
            reasons = [headline(job, capacities)]
            verdicts: list[HostVerdict] = []
            if explain:
                reasons += by_kind(shape, capacities)
                verdicts = explain_hosts(capacities, shape, None, None)
            return Proposal(iter(()), reasons, verdicts)
        found = self._search(pools, capacities, shape, gang, snapshot)
        if not explain:
            return Proposal(found)
        first = next(found)
        pool = next(pools_for(capacities, shape, gang, lambda: self._tables.under(snapshot)) or iter(()))
        verdicts = explain_hosts(capacities, shape, pool, self._tables.under(snapshot), gang, first.placement)
        return Proposal(chain([first], found), [], verdicts)

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
        if gang.host_count(pool.caps) == 1:
            for local in tightest_first(pool.caps, gang):
                host = capacities.hosts[pool.numbers[local]]
                note = f"{pool.where}: all {gang.tasks} tasks on one host"
                yield Candidate(place([(host, gang.tasks)], free, shape), 100.0, note)
            return
        table = self._tables.under(snapshot)
        pair = table.joined(pool.zones)[1]
        for chosen in host_sets(pool, gang, pair):
            spread = gang.spread([int(pool.caps[n]) for n in chosen])
            hosts = [capacities.hosts[pool.numbers[n]] for n in chosen]
            score = mean_pair_score(pair, chosen)
            note = f"{pool.where}: network score {score:.1f} over {len(hosts)} hosts"
            yield Candidate(place(list(zip(hosts, spread, strict=True)), free, shape), score, note)


POLICY = ZonePolicy


def pools_for(
    capacities: Capacities, shape: Shape, gang: Gang, table: Callable[[], NetworkTable]
) -> Iterator[Pool] | None:
    """The pools in which the whole gang fits, best first; None when it fits nowhere."""
    caps = capacities.of(shape)
    if not gang.fits(caps):
        return None
    return _pools(capacities, caps, gang, table)


def _pools(
    capacities: Capacities, caps: Ints, gang: Gang, table: Callable[[], NetworkTable]
) -> Iterator[Pool]:
    ranks = {z: i for i, z in enumerate(capacities.zones)}
    local = [caps[members] for members in capacities.members]
    room = {z: int(local[i].sum()) for z, i in ranks.items()}
    delays = {z: float(capacities.user_delay_us(z)) for z in room}
    alone = fitting_zones(room, delays, lambda zones: gang.fits(local[ranks[zones[0]]]))
    crowded: list[str] = []
    for zone in alone:
        mine = local[ranks[zone]]
        if gang.host_count(mine) > 1:  # one host needs no network
            good = np.where(table().bad(zone), 0, mine)
            if not gang.fits(good):
                crowded.append(zone)
                continue
            yield _pool((zone,), capacities, good, True)
        else:
            yield _pool((zone,), capacities, mine.copy(), False)
    for zone in crowded:
        yield _pool((zone,), capacities, local[ranks[zone]].copy(), False)
    if alone:
        return
    clean = {z: np.where(table().bad(z), 0, local[i]) for z, i in ranks.items()}
    everyone = {z: local[i] for z, i in ranks.items()}
    for usable, without_bad in ((clean, True), (everyone, False)):
        zones = spill_zones(
            {z: int(c.sum()) for z, c in usable.items()},
            delays,
            table().zone_delay_us,
            lambda some, usable=usable: gang.fits(np.concatenate([usable[z] for z in some] or [np.zeros(0)])),  # type: ignore[misc]
        )
        if zones:
            yield _pool(tuple(zones), capacities, np.concatenate([usable[z] for z in zones]), without_bad)
            return


def _pool(zones: tuple[str, ...], capacities: Capacities, caps: Ints, without_bad: bool) -> Pool:
    ranks = [capacities.zones.index(z) for z in zones]
    numbers = np.concatenate([capacities.members[r] for r in ranks])
    near = np.repeat(np.arange(len(ranks)), [len(capacities.members[r]) for r in ranks])
    return Pool(zones, numbers, caps, near, without_bad)


def tightest_first(caps: Ints, gang: Gang) -> Iterator[int]:
    """Hosts that hold the whole gang, least room to spare first, then inventory order."""
    spare = np.where(caps >= gang.tasks, caps, np.iinfo(np.int64).max)
    best = int(np.argmin(spare))
    yield best
    for n in np.argsort(spare, kind="stable"):
        if n != best and caps[n] >= gang.tasks:
            yield int(n)


def host_sets(pool: Pool, gang: Gang, pair: Floats) -> Iterator[list[int]]:
    """Sets of hosts that hold the gang, in the order of choice; the best accumulated score first.

    Then sets of hosts that no earlier set used, then those that begin with another host.
    """
    seen: set[frozenset[int]] = set()
    caps = pool.caps.copy()
    while gang.fits(caps):
        chosen = _select(caps, pool.near, gang, pair)
        seen.add(frozenset(chosen))
        yield chosen
        caps[chosen] = 0
    caps = pool.caps
    means = np.round(medoid_means(pair, caps > 0), DECIMALS)
    for start in np.argsort(-means, kind="stable"):
        if caps[start] <= 0:
            continue
        others = np.delete(caps, start)
        if caps[start] < gang.least_cap(0, others, gang.host_count(caps) - 1):
            continue
        chosen = _select(caps, pool.near, gang, pair, int(start))
        if frozenset(chosen) not in seen:
            seen.add(frozenset(chosen))
            yield chosen


def _select(caps: Ints, near: Ints, gang: Gang, pair: Floats, start: int | None = None) -> list[int]:
    """The accumulating choice, narrowed to hosts with which the gang still fits, nearest zone first."""
    count = gang.host_count(caps)
    single = bool((near == 0).all())

    def allowed(chosen: list[int]) -> Mask:
        rest = caps.copy()
        rest[chosen] = 0
        picked = int(caps[chosen].sum())
        least = max(gang.least_cap(picked, rest, count - len(chosen) - 1), 1)
        may: Mask = rest >= least
        if not single:
            may &= near == near[may].min()
        return may

    return [n for n, _ in select(pair, count, caps > 0, start=start, allowed=allowed)]


def mean_pair_score(pair: Floats, chosen: Sequence[int]) -> float:
    among = pair[np.ix_(chosen, chosen)]
    n = len(chosen)
    return float(among.sum() / (n * (n - 1)))


def explain_hosts(
    capacities: Capacities,
    shape: Shape,
    pool: Pool | None,
    table: NetworkTable | None,
    gang: Gang | None = None,
    placement: Placement | None = None,
) -> list[HostVerdict]:
    """A verdict for every host: what refused it, or its scores in pipeline order."""
    caps = capacities.of(shape)
    in_pool = {int(n): int(c) for n, c in zip(pool.numbers, pool.caps, strict=True)} if pool else {}
    several = pool is not None and gang is not None and gang.host_count(pool.caps) > 1
    quality = table.quality() if table is not None else None
    verdicts: list[HostVerdict] = []
    for i, host in enumerate(capacities.hosts):
        why = refusal(host, capacities.snapshot.free.get(host.name), shape)
        scores: list[tuple[str, float]] = []
        if why is None:
            scores.append(("room_tasks", float(min(caps[i], gang.tasks if gang else caps[i]))))
            if (zone := capacities.snapshot.zones.get(host.zone)) is not None:
                scores.append(("zone_delay_ms", zone.delay_us / 1_000))
            if quality is not None and not np.isnan(quality[i]):
                scores.append(("network", round(float(quality[i]), 3)))
            if placement is not None:
                scores.append(("tasks", float(len(placement.on(host.name)))))
            if pool is not None and i not in in_pool:
                why = _other_zone(host.zone, pool, capacities)
            elif pool is not None and table is not None and several and in_pool[i] == 0:
                why = table.bad_reason(i)
        verdicts.append(HostVerdict(host.name, why, tuple(scores)))
    return verdicts


def _other_zone(zone: str, pool: Pool, capacities: Capacities) -> Reason:
    mine, theirs = (capacities.user_delay_us(z) / 1_000 for z in (zone, pool.zones[0]))
    return Reason(
        ReasonCode.ZONE,
        f"zone {zone} is not needed: {pool.where} has room and comes first",
        (("zone_delay_ms", mine), ("chosen_zone_delay_ms", theirs)),
    )
