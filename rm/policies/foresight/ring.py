"""From placed jobs to demands: a ring over each job's hosts that sends as its traffic profile says.

FORESIGHT Sec. III profiles a job's flows alone on the network at several throttling rates. Here
they follow from the declared or measured profile: in each phase every host sends to the next one
at the phase's rate, all of them at the pace of the slowest link; a phase that is slowed lasts
longer and moves what comes after it. (Compute that overlaps with communication is not known, so
a throttled iteration is never estimated too short.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from rm.core.model.network.fabric import Fabric
from rm.core.model.snapshot import PlacedJob
from rm.policies.foresight.demand import JobDemand, Piece, Profile
from rm.policies.foresight.patterns import LogicalLink
from rm.policies.interleave.profile import phases_of

RATES = (Fraction(1), Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))


def ring_demand(
    job: PlacedJob,
    fabric: Fabric | None,
    host_bps: Mapping[str, int],
    rates: Sequence[Fraction] = RATES,
    iterations: int = 1,
) -> JobDemand:
    """The flows of a job that communicates, with one profile per rate that differs from the ones before.

    `host_bps` are the capacities of the hosts' links; a host without one is never short of it.
    """
    assert job.traffic is not None, "only jobs with a profile have a demand"
    flows = ring(job)
    limit = _alone_bps(flows, fabric, host_bps)
    profiles: list[Profile] = []
    for rate in rates:
        pieces, grown = [], 0
        for op, (offset, duration, wanted) in enumerate(phases_of(job.traffic)):
            slowed = max(1, int(rate * wanted))
            sent = slowed if limit is None else max(1, min(slowed, limit))
            lasts = -(-duration * wanted // sent)
            start = offset + grown
            pieces += [Piece(flow, start, start + lasts, sent, op) for flow in range(len(flows))]
            grown += lasts - duration
        profile = Profile(job.traffic.period_us + grown, tuple(pieces), rate)
        if not profiles or profile.length_us > profiles[-1].length_us:
            profiles.append(profile)
    return JobDemand(job.job, flows, iterations, tuple(profiles))


def ring(job: PlacedJob) -> tuple[tuple[str, str], ...]:
    """Each host to the next in the order of ranks, the last one to the first."""
    hosts = job.placement.hosts
    return tuple((a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts))


def links_of(job: PlacedJob, fabric: Fabric | None) -> set[LogicalLink]:
    """All logical links that the job's ring uses, hosts' included."""
    found = set()
    for a, b in ring(job):
        found |= {LogicalLink(a, True, leaf=False), LogicalLink(b, False, leaf=False)}
        if (crossing := _leaves(a, b, fabric)) is not None:
            found |= {LogicalLink(crossing[0], True), LogicalLink(crossing[1], False)}
    return found


def iterations_within(periods_us: Mapping[int, int], horizon_us: int, most: int) -> dict[int, int]:
    """How many iterations of each job make one round of a plan; at least one of each.

    At most one common multiple of the periods (Sec. III), at most `horizon_us`, and about `most`
    iterations of all jobs together. Where the common multiple is too long, the round is as long as
    a number of iterations of some job after which the others are idle for the least share of it; and
    longer than all that beside a job whose single iteration is.
    """
    longest = max(periods_us.values())
    within = min(horizon_us, int(most / sum(Fraction(1, p) for p in periods_us.values())))
    whole = lcm(*periods_us.values())
    if whole <= within:
        return {job: whole // p for job, p in periods_us.items()}
    multiples = {k * p for p in set(periods_us.values()) for k in range(1, within // p + 1)}
    rounds = sorted(m for m in multiples if m >= longest) or [longest]
    best = min(rounds, key=lambda m: (sum(Fraction(m % p, m) for p in periods_us.values()), m))
    return {job: best // p for job, p in periods_us.items()}


def _alone_bps(
    flows: Sequence[tuple[str, str]], fabric: Fabric | None, host_bps: Mapping[str, int]
) -> int | None:
    """The rate of each flow when the job has the network to itself; None = without limit."""
    limits = [host_bps[h] for ends in flows for h in ends if h in host_bps]
    if fabric is not None:
        crossing: Counter[LogicalLink] = Counter()
        for a, b in flows:
            if (leaves := _leaves(a, b, fabric)) is not None:
                crossing.update((LogicalLink(leaves[0], True), LogicalLink(leaves[1], False)))
        limits += [fabric.capacity_bps // n for n in crossing.values()]
    return min(limits, default=None)


def _leaves(a: str, b: str, fabric: Fabric | None) -> tuple[str, str] | None:
    """The leaves of a flow that crosses the spines."""
    if fabric is None:
        return None
    source, destination = fabric.leaf_of.get(a), fabric.leaf_of.get(b)
    if source is None or destination is None or source == destination:
        return None
    return source, destination
