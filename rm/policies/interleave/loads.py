"""What placed jobs put on the links: on each of their hosts' links, and on leaves' uplinks.

Where the snapshot has a fabric, a job whose hosts hang below several leaves loads the uplinks of
each of these ("leaf:NAME") like a host link. Model: all uplinks of a leaf are one link, as wide as
they are together; the job's ring visits its hosts in the order of their first ranks, and each time
that it leaves a leaf one flow of the job's rate goes up (and one comes down: links are counted one
way). Metronome, Sec. II-C, leaves these links out for fabrics without oversubscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from rm.core.model.network.fabric import Fabric, uplink_name
from rm.core.model.network.links import Link
from rm.core.model.snapshot import PlacedJob
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.profile import Phases, job_demands, phases_of
from rm.policies.interleave.unify import Demand, Rank, rank_key


class WithNic(Protocol):
    @property
    def nic_bps(self) -> int: ...


class Links(Protocol):
    """What there is of links, as a `Snapshot` has it."""

    @property
    def links(self) -> Mapping[str, Link]: ...

    @property
    def hosts(self) -> Mapping[str, WithNic]: ...

    @property
    def fabric(self) -> Fabric | None: ...


def link_loads(
    placed: Iterable[PlacedJob], snapshot: Links, model: str = "ring"
) -> tuple[dict[int, Demand], dict[str, LinkLoad]]:
    """Each job's demand (period as self-limited by its links) and the load of each link that has any.

    LowComm jobs and jobs without a profile put no load. The capacity of a host link is the
    snapshot's, or else the host's. A link of unknown capacity (0) has no load: nobody can say what it bears.
    """
    demands: dict[int, Demand] = {}
    loads: dict[str, dict[int, Phases]] = {}
    capacity: dict[str, int] = {}
    for job in placed:
        if job.traffic is None or job.low_comm:
            continue
        tasks = {h: len(job.placement.on(h)) for h in job.placement.hosts}
        uplinks = uplinks_of(job, snapshot)
        for link in (*tasks, *uplinks):
            capacity[link] = capacity_of(link, snapshot)
        profiles = job_demands(job.traffic, tasks, capacity, model, uplinks)
        for link, profile in profiles.items():
            phases = phases_of(profile)
            if phases:
                loads.setdefault(link, {})[job.job] = phases
                demands[job.job] = Demand(job.job, profile.period_us, phases, rank_of(job))
    return demands, {link: LinkLoad(capacity[link], loads[link]) for link in sorted(loads)}


def uplinks_of(job: PlacedJob, snapshot: Links) -> dict[str, tuple[int, int]]:
    """The uplinks that the job's traffic takes: its tasks below the leaf, and its ring's crossings."""
    fabric = snapshot.fabric
    if fabric is None:
        return {}
    crossings = fabric.crossings(job.placement.hosts)
    below = dict.fromkeys(crossings, 0)
    for task in job.placement.tasks if crossings else ():
        leaf = fabric.leaf_of.get(task.host)
        if leaf in below:
            below[leaf] += 1
    return {uplink_name(leaf): (below[leaf], times) for leaf, times in crossings.items()}


def capacity_of(link: str, snapshot: Links) -> int:
    """Bit/s, one way; 0 = not known."""
    if link in snapshot.links:
        return snapshot.links[link].capacity_bps
    if link in snapshot.hosts:
        return snapshot.hosts[link].nic_bps
    assert snapshot.fabric is not None
    return snapshot.fabric.capacity_bps


def rank_of(job: PlacedJob) -> Rank:
    """The job's place in the order of priority, deployment and name (R3)."""
    return rank_key(job.priority, job.sequence, job.name)
