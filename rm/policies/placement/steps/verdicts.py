"""A verdict for every host: what refused it, or its scores in pipeline order (`rmx why`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rm.core.model.asked.demand import Shape
from rm.core.model.job import Placement
from rm.core.model.reasons import HostVerdict, Reason, ReasonCode
from rm.policies.placement.steps.capacity import Capacities
from rm.policies.placement.steps.filters import refusal
from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.network_table import NetworkTable
from rm.policies.placement.steps.pools import Pool


def explain_hosts(
    capacities: Capacities,
    shape: Shape,
    caps: Ints,
    pool: Pool | None = None,
    table: NetworkTable | None = None,
    placement: Placement | None = None,
    refused: Mapping[int, Reason] | None = None,
    scores: Mapping[int, Sequence[tuple[str, float]]] | None = None,
) -> list[HostVerdict]:
    """Judge the hosts in inventory order.

    Args:
        caps: tasks that each host takes after the filters.
        pool: where the job went; hosts outside are refused as another zone's, and with `table`
            those of no capacity in it as badly connected.
        refused, scores: what the policy's own filters and stages said, by host number.
    """
    in_pool = {int(n): int(c) for n, c in zip(pool.numbers, pool.caps, strict=True)} if pool else {}
    quality = table.quality() if table is not None else None
    verdicts: list[HostVerdict] = []
    for i, host in enumerate(capacities.hosts):
        why = refusal(host, capacities.snapshot.free.get(host.name), shape)
        if why is None and refused is not None:
            why = refused.get(i)
        mine: list[tuple[str, float]] = []
        if why is None:
            mine.append(("room_tasks", float(caps[i])))
            if (zone := capacities.snapshot.zones.get(host.zone)) is not None:
                mine.append(("zone_delay_ms", zone.delay_us / 1_000))
            if quality is not None and not np.isnan(quality[i]):
                mine.append(("network", round(float(quality[i]), 3)))
            mine.extend(scores.get(i, ()) if scores is not None else ())
            if placement is not None:
                mine.append(("tasks", float(len(placement.on(host.name)))))
            if pool is not None and i not in in_pool:
                why = other_zone(host.zone, pool, capacities)
            elif pool is not None and table is not None and in_pool[i] == 0:
                why = table.bad_reason(i)
        verdicts.append(HostVerdict(host.name, why, tuple(mine)))
    return verdicts


def other_zone(zone: str, pool: Pool, capacities: Capacities) -> Reason:
    mine, theirs = (capacities.user_delay_us(z) / 1_000 for z in (zone, pool.zones[0]))
    return Reason(
        ReasonCode.ZONE,
        f"zone {zone} is not needed: {pool.where} has room and comes first",
        (("zone_delay_ms", mine), ("chosen_zone_delay_ms", theirs)),
    )
