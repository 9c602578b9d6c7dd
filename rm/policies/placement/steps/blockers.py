"""Why a job has no placement: the hosts' refusals gathered into a few sentences, worst first."""

from __future__ import annotations

from rm.core.host import Host
from rm.core.job import Job
from rm.core.reasons import Reason, ReasonCode
from rm.policies.placement.steps.capacity import Capacities
from rm.policies.placement.steps.filters import Shape, refusal, shape_of
from rm.policies.placement.steps.gang import Gang


def headline(job: Job, capacities: Capacities) -> Reason:
    """The one blocker to show in a queue listing."""
    shape = shape_of(job.spec)
    caps = capacities.of(shape)
    gang = Gang.of(job.spec)
    if len(capacities.hosts) == 0:
        return Reason(ReasonCode.HOST_NOT_AVAILABLE, "there are no hosts yet", (("hosts", 0),))
    if caps.any() or gang.most_hosts < gang.hosts_min:
        return gang.blocker(caps)
    worst = by_kind(shape, capacities)[0]
    return Reason(worst.code, f"no host can take a task now; {worst.message}", worst.numbers)


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
    return [_gathered(group, len(capacities.hosts)) for group in ranked]


def _gathered(group: list[tuple[Host, Reason]], hosts: int) -> Reason:
    host, why = max(group, key=lambda pair: _have(pair[1]))
    if len(group) == 1:
        message = f"{host.name}: {why.message}"
    elif why.code is ReasonCode.RESOURCES:
        message = f"{len(group)} of {hosts} hosts lack resources: {why.message} on {host.name}, the closest"
    else:
        message = f"{len(group)} of {hosts} hosts, for one {host.name}: {why.message}"
    return Reason(why.code, message, (("hosts_refusing", len(group)), ("hosts", hosts), *why.numbers))


def _have(reason: Reason) -> float:
    """The second number of a lack of resources is what is there."""
    if reason.code is not ReasonCode.RESOURCES:
        return 0.0
    have = reason.numbers[1][1]
    return float(have) if isinstance(have, (int, float)) else 0.0
