"""Which jobs are connected through the links that they share."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm.core.model.network.fabric import Fabric, uplink_name
from rm.core.model.snapshot import PlacedJob, Snapshot, TrackedDict

MOST = 64  # jobs that are looked at as a whole: what is connected with more is judged by its own links
FEW = 8  # jobs on such a link, at most: among more no rotation is found


@dataclass(slots=True)
class Neighbourhood:
    """The communicating jobs of a snapshot by their links, kept in step with one snapshot after the other."""

    _fabric: Fabric | None = None
    _seen: dict[int, tuple[PlacedJob, tuple[str, ...]]] = field(default_factory=dict)
    _by_link: dict[str, dict[int, PlacedJob]] = field(default_factory=dict)
    _snapshot: Snapshot | None = None
    _changes: int = 0  # of the snapshot's `placed.changed`, reflected here

    def under(self, snapshot: Snapshot) -> Neighbourhood:
        """This, as of the snapshot's placed jobs now."""
        placed = snapshot.placed
        if snapshot.fabric is not self._fabric:
            self._fabric, self._seen, self._by_link = snapshot.fabric, {}, {}
            self._snapshot = None
        changed = placed.changed if isinstance(placed, TrackedDict) else None
        if changed is not None and self._snapshot is snapshot:
            for job in changed[self._changes :]:
                self._learn(placed[job])
        else:
            for job in self._seen.keys() - placed.keys():
                self._forget(job)
            for job, view in placed.items():
                before = self._seen.get(job)
                if before is None or before[0] is not view:
                    self._learn(view)
        self._snapshot, self._changes = snapshot, len(changed) if changed is not None else 0
        return self

    def of(self, job: PlacedJob, most: int | None = None) -> list[PlacedJob]:
        """The job and every communicating one connected to it through shared hosts or uplinks, by id; if
        these are more than `most`, those on its own links that few jobs share."""
        own = links_of(job, self._fabric)
        found = {job.job: job}
        waiting, seen = list(own), set(own)
        while waiting:
            for number, other in self._by_link.get(waiting.pop(), {}).items():
                if number not in found:
                    found[number] = other
                    more = [link for link in self._seen[number][1] if link not in seen]
                    seen.update(more)
                    waiting += more
            if most is not None and len(found) > most:
                return self._beside(job, own)
        return [found[j] for j in sorted(found)]

    def _beside(self, job: PlacedJob, own: tuple[str, ...]) -> list[PlacedJob]:
        found = {job.job: job}
        for link in own:
            others = self._by_link.get(link, {})
            if len(others) <= FEW:
                found = others | found
        return [found[j] for j in sorted(found)]

    def _learn(self, view: PlacedJob) -> None:
        self._forget(view.job)
        links = links_of(view, self._fabric) if view.communicates else ()
        self._seen[view.job] = view, links
        for link in links:
            self._by_link.setdefault(link, {})[view.job] = view

    def _forget(self, job: int) -> None:
        for link in self._seen.pop(job, (None, ()))[1]:
            del self._by_link[link][job]


def links_of(job: PlacedJob, fabric: Fabric | None) -> tuple[str, ...]:
    """The host links and the leaves' uplinks that the job's traffic takes."""
    hosts = job.placement.hosts
    if fabric is None:
        return hosts
    return (*hosts, *map(uplink_name, fabric.crossings(hosts)))
