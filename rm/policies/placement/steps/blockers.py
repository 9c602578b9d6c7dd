"""Why a job has no placement: the hosts' refusals gathered into a few sentences, worst first."""

from __future__ import annotations

import numpy as np

from rm.core.model.asked.demand import Demand, Shape
from rm.core.model.host import Host
from rm.core.model.reasons import Reason, ReasonCode
from rm.policies.placement.steps.capacity import CPUS, Capacities
from rm.policies.placement.steps.filters import refusal
from rm.policies.placement.steps.gang import Gang


def headline(demand: Demand, capacities: Capacities) -> Reason:
    """The one blocker to show in a queue listing."""
    shape, gang = demand.shape, Gang.of(demand)
    caps = capacities.of(shape)
    if len(capacities.hosts) == 0:
        return Reason(ReasonCode.HOST_NOT_AVAILABLE, "there are no hosts yet", (("hosts", 0),))
    if caps.any() or gang.most_hosts < gang.hosts_min:
        return gang.blocker(caps)
    if not capacities.admitted(shape).any():
        worst = capacities.shut(shape, lambda filters: by_kind(filters, capacities)[0])
    else:
        worst = _lacking_most(shape, capacities) or by_kind(shape, capacities)[0]
    return Reason(worst.code, f"no host can take a task; {worst.message}", worst.numbers)


def by_kind(shape: Shape, capacities: Capacities) -> list[Reason]:
    """One reason per kind of refusal with the number of hosts and the host that comes closest.

    Lacking resources come first, since they may come free; then by number of hosts.
    """
    groups: dict[tuple[ReasonCode, str], list[tuple[Host, Reason]]] = {}
    free = capacities.snapshot.free
    for host in capacities.hosts:
        why = refusal(host, free.get(host.name), shape)
        if why is not None:
            groups.setdefault((why.code, why.numbers[0][0]), []).append((host, why))
    ranked = sorted(groups.values(), key=lambda g: (g[0][1].code is not ReasonCode.RESOURCES, -len(g)))
    return [
        _gathered(len(group), *max(group, key=lambda pair: _have(pair[1])), len(capacities.hosts))
        for group in ranked
    ]


def _lacking_most(shape: Shape, capacities: Capacities) -> Reason | None:
    """`by_kind`'s first, when that is a lack of resources, without asking every host for its reason.

    A long queue needs one for each of its shapes after each change.
    """
    free = capacities.free_table()
    left = capacities.admitted(shape) & (free[CPUS] >= 0)
    groups: list[tuple[int, int, int]] = []  # hosts, minus the first of them, and the closest
    for have, lacks in capacities.lacking(shape):
        lacking = left & lacks
        if count := int(np.add.reduce(lacking)):
            closest = int(((have + 1) * lacking).argmax())
            groups.append((count, -int(lacking.argmax()), closest))
            left &= ~lacking
    if not groups:
        return None
    count, _, closest = max(groups)
    host = capacities.hosts[closest]
    why = refusal(host, capacities.snapshot.free.get(host.name), shape)
    assert why is not None
    return _gathered(count, host, why, len(capacities.hosts))


def _gathered(count: int, host: Host, why: Reason, hosts: int) -> Reason:
    if count == 1:
        message = f"{host.name}: {why.message}"
    elif why.code is ReasonCode.RESOURCES:
        message = f"{count} of {hosts} hosts lack resources: {why.message} on {host.name}, the closest"
    else:
        message = f"{count} of {hosts} hosts, for one {host.name}: {why.message}"
    return Reason(why.code, message, (("hosts_refusing", count), ("hosts", hosts), *why.numbers))


def _have(reason: Reason) -> float:
    """The second number of a lack of resources is what is there."""
    if reason.code is not ReasonCode.RESOURCES:
        return 0.0
    have = reason.numbers[1][1]
    return float(have) if isinstance(have, (int, float)) else 0.0
