"""Which jobs are connected through the links that they share."""

from __future__ import annotations

from rm.core.model.fabric import Fabric, uplink_name
from rm.core.model.snapshot import PlacedJob, Snapshot


class Neighbourhood:
    """The communicating jobs of a snapshot by their links, looked up when first asked for.

    Valid as long as nothing is placed in the snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._by_link: dict[str, list[PlacedJob]] | None = None

    def of(self, job: PlacedJob) -> list[PlacedJob]:
        """The job and every communicating one connected to it through shared hosts or uplinks, by id."""
        by_link = self._links()
        fabric = self.snapshot.fabric
        found = {job.job: job}
        frontier = [job]
        while frontier:
            for link in links_of(frontier.pop(), fabric):
                for other in by_link.get(link, ()):
                    if other.job not in found:
                        found[other.job] = other
                        frontier.append(other)
        return [found[j] for j in sorted(found)]

    def _links(self) -> dict[str, list[PlacedJob]]:
        if self._by_link is None:
            self._by_link = {}
            for other in self.snapshot.placed.values():
                if other.communicates:
                    for link in links_of(other, self.snapshot.fabric):
                        self._by_link.setdefault(link, []).append(other)
        return self._by_link


def links_of(job: PlacedJob, fabric: Fabric | None) -> tuple[str, ...]:
    """The host links and the leaves' uplinks that the job's traffic takes."""
    hosts = job.placement.hosts
    if fabric is None:
        return hosts
    return (*hosts, *map(uplink_name, fabric.crossings(hosts)))
