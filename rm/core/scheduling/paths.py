"""Which spine each job's packets take, where code points name it to the switches.

A switch that hashes flows onto its uplinks may put two jobs onto one of them while another is idle. Here
the flows between leaves are spread: jobs in the order of their deployment, so that a job that joins moves
nobody, and of each the flows of its ring in turn, over the spine whose busier end, up from the one leaf or
down to the other, has the least peak load so far. For equal flows no link gets more than twice the least
possible and one. Ours, not a paper's; what FORESIGHT's plans fix comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import add

from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.paths import JobPath
from rm.core.model.snapshot import PlacedJob


def job_paths(
    placed: Iterable[PlacedJob],
    fabric: Fabric | None,
    hosts: Mapping[str, Host],
    planned: Iterable[JobPath] = (),
) -> tuple[JobPath, ...]:
    """The paths of all jobs that communicate between leaves, sorted; none where switches are not told."""
    if fabric is None or not fabric.dscp:
        return ()
    fixed = {(one.job, one.host): one.spine for one in planned}
    up: dict[str, list[int]] = {}  # by leaf, what each spine carries
    down: dict[str, list[int]] = {}
    found: list[JobPath] = []
    for job in sorted(placed, key=lambda one: (one.sequence, one.job)):
        if not job.may_communicate:
            continue
        for host, leaf, other in _crossings(job, fabric):
            load = _peak_bps(job, hosts.get(host))
            above = up.setdefault(leaf, [0] * fabric.spines)
            below = down.setdefault(other, [0] * fabric.spines)
            spine = fixed.get((job.job, host))
            if spine is None or spine >= fabric.spines:  # planned for a fabric that had more
                spine = _least_busy(above, below)
            above[spine] += load
            below[spine] += load
            found.append(JobPath(job.job, host, spine))
    return tuple(sorted(found, key=lambda one: (one.job, one.host)))


def _least_busy(above: list[int], below: list[int]) -> int:
    """The spine whose busier end has the least load, then both ends together, then the first."""
    busier = list(map(max, above, below))
    least = min(busier)
    spine = busier.index(least)
    if busier.count(least) == 1:
        return spine
    both = list(map(add, above, below))
    return min((s for s, load in enumerate(busier) if load == least), key=both.__getitem__)


def _crossings(job: PlacedJob, fabric: Fabric) -> Iterator[tuple[str, str, str]]:
    """(a host, its leaf, the leaf of the next in the job's ring), where the two leaves differ."""
    hosts = job.placement.hosts
    for here, there in zip(hosts, [*hosts[1:], *hosts[:1]], strict=True):
        leaf, other = fabric.leaf_of.get(here), fabric.leaf_of.get(there)
        if leaf is not None and other is not None and leaf != other:
            yield here, leaf, other


def _peak_bps(job: PlacedJob, host: Host | None) -> int:
    """What the job sends at most from a host; without a profile what the host's link takes."""
    if job.traffic is not None and job.traffic.peak_bps:
        return job.traffic.peak_bps
    return (host.nic_bps if host is not None else 0) or 1
