"""What is known of the jobs that are aligned: their loads, the contended links, and what was decided there.

One alignment goes on from the one before: only jobs that came, went or changed are looked at anew. What is
known follows from those jobs and that alignment (`resumed`); it is kept so that nothing has to be worked out
twice. An object that was handed out is never changed: `follow` works on a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from rm.core.model.network.alignment import Alignment, LinkAlignment, Schedule, ShapingRule
from rm.core.model.snapshot import Aligned, PlacedJob, Snapshot
from rm.policies.interleave.affinity import peak_sum
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.profile import Phases
from rm.policies.interleave.unify import Demand

JOB, LINK = attrgetter("job"), attrgetter("link")


@dataclass(frozen=True, slots=True)
class Load:
    """What one job puts on its links; nothing, and no demand, if it has no known traffic."""

    view: PlacedJob
    demand: Demand | None
    phases: Mapping[str, Phases]


@dataclass(slots=True)
class Known:
    """`on`: the jobs that load a link; `links`: the contended ones; what was decided by job, or by link."""

    loads: dict[int, Load] = field(default_factory=dict)
    on: dict[str, frozenset[int]] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    links: dict[str, LinkLoad] = field(default_factory=dict)
    schedules: dict[int, Schedule] = field(default_factory=dict)
    aligned: dict[str, LinkAlignment] = field(default_factory=dict)
    rules: dict[str, tuple[ShapingRule, ...]] = field(default_factory=dict)
    together: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)
    seen: object = None  # the links of the snapshot that it was worked out under

    def copy(self) -> Known:
        return Known(
            dict(self.loads),
            dict(self.on),
            dict(self.capacity),
            dict(self.links),
            dict(self.schedules),
            dict(self.aligned),
            dict(self.rules),
            dict(self.together),
            set(self.unsettled),
            self.seen,
        )

    def demand(self, job: int) -> Demand:
        demand = self.loads[job].demand
        assert demand is not None, "only jobs with demand are on links"
        return demand

    def contended_of(self, job: int) -> list[str]:
        return [link for link in self.loads[job].phases if link in self.links]

    def part_of(self, job: int, most: int | None) -> tuple[set[int], set[str]] | None:
        """The jobs and contended links that are connected with a job; None when there are more than `most`
        jobs."""
        jobs, links, waiting = {job}, set[str](), [job]
        while waiting:
            for link in self.contended_of(waiting.pop()):
                if link in links:
                    continue
                links.add(link)
                phases = self.links[link].phases
                if most is not None and len(phases) > most:
                    return None
                others = phases.keys() - jobs
                jobs |= others
                waiting += others
                if most is not None and len(jobs) > most:
                    return None
        return jobs, links

    def take(self, alignment: Alignment) -> set[int]:
        """What was decided is this now. Returns jobs of which the alignment does not say all, since they are
        left alone: what was known of them stays."""
        alone = {job for one in alignment.released for job in one.jobs}
        schedules = dict(zip(map(JOB, alignment.schedules), alignment.schedules, strict=True))
        rules: dict[str, list[ShapingRule]] = {}
        for rule in alignment.shaping:
            rules.setdefault(rule.host, []).append(rule)
        said = {host: tuple(found) for host, found in rules.items()}
        if alone:
            kept = {job: s for job, s in self.schedules.items() if job in alone and job not in schedules}
            schedules = kept | schedules
            said |= {host: r for host, r in self.rules.items() if any(rule.job in alone for rule in r)}
        self.schedules, self.rules = schedules, said
        self.aligned = dict(zip(map(LINK, alignment.links), alignment.links, strict=True))
        self.together = {job: jobs for jobs in alignment.together for job in jobs}
        self.unsettled = set(alignment.unsettled)
        return alone

    def forget_link(self, link: str) -> None:
        self.aligned.pop(link, None)
        self.rules.pop(link, None)
        self.unsettled.discard(link)


@dataclass(slots=True)
class Change:
    """Jobs that came, went or are others than before, and the links that these are or were on."""

    jobs: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


def follow(placed: Sequence[PlacedJob], snapshot: Snapshot, model: str) -> tuple[Known, Change]:
    """What is known when these jobs are placed, and what differs from the alignment that holds."""
    aligned, change = snapshot.aligned, Change()
    if aligned is None:
        known = Known()
    elif isinstance(aligned.grounds, Known):
        known = aligned.grounds.copy()
        if aligned.renewed:
            known.take(aligned.alignment)
    else:
        known, unsaid = resumed(aligned, snapshot, model)
        change.jobs |= unsaid
        for job in unsaid & known.loads.keys():
            change.links |= known.loads[job].phases.keys()
    others = changed_links(known, snapshot)
    moved = {job for link in others for job in known.on[link]}
    there = {view.job: view for view in placed}
    change.gone = known.loads.keys() - there.keys()
    load_of = known.loads.get
    renewed = [job for job, view in there.items() if (load := load_of(job)) is None or load.view is not view]
    for job in (moved & there.keys()).union(renewed):
        before, view = known.loads.get(job), there[job]
        if before is None or job in moved or before.view != view:
            change.jobs.add(job)
        else:
            known.loads[job] = Load(view, before.demand, before.phases)
    for job in change.gone | change.jobs:
        if (before := known.loads.pop(job, None)) is not None:
            for link in before.phases:
                known.on[link] -= {job}
            change.links |= before.phases.keys()
    for job in sorted(change.jobs):
        if job in there:
            learn(known, there[job], snapshot, model)
            change.links |= known.loads[job].phases.keys()
    change.jobs |= change.gone
    for link in change.links:
        contend(known, link)
    return known, change


def changed_links(known: Known, snapshot: Snapshot) -> set[str]:
    """The links that have another capacity now; not those of hosts that are gone. Those that stand in the
    same mapping as before, which is never changed, are not looked at."""
    links, hosts, fabric = snapshot.links, snapshot.hosts, snapshot.fabric
    capacity, found = known.capacity, set[str]()
    asked = capacity.keys() - links.keys() if known.seen is links else capacity
    known.seen = links
    for name in asked:  # thousands: no call for each
        bps = capacity[name]
        if (link := links.get(name)) is not None:
            if link.capacity_bps != bps:
                found.add(name)
        elif (host := hosts.get(name)) is not None:
            if host.nic_bps != bps:
                found.add(name)
        elif fabric is not None and fabric.capacity_bps != bps:
            found.add(name)
    return found


def resumed(aligned: Aligned, snapshot: Snapshot, model: str) -> tuple[Known, set[int]]:
    """What is known by an alignment and its jobs alone, and the jobs of which it does not say all."""
    known = Known()
    for view in aligned.jobs.values():
        learn(known, view, snapshot, model)
    for link in list(known.on):
        contend(known, link)
    return known, known.take(aligned.alignment)


def learn(known: Known, view: PlacedJob, snapshot: Snapshot, model: str) -> None:
    demands, loads = link_loads([view], snapshot, model)
    phases = {link: load.phases[view.job] for link, load in loads.items()}
    known.loads[view.job] = Load(view, demands.get(view.job), phases)
    for link, load in loads.items():
        known.on[link] = known.on.get(link, frozenset()) | {view.job}
        known.capacity[link] = load.capacity


def contend(known: Known, link: str) -> None:
    """Note whether the link's jobs contend."""
    jobs = sorted(known.on[link])
    if not jobs:
        del known.on[link], known.capacity[link]
        known.links.pop(link, None)
        return
    load = LinkLoad(known.capacity[link], {job: known.loads[job].phases[link] for job in jobs})
    if peak_sum(load) > load.capacity:
        known.links[link] = load
    else:
        known.links.pop(link, None)
