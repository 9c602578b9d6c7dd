"""One alignment by metronome, going on from what is known: connected parts, one by one.

A part is what contended links connect. Parts of up to `exact_jobs` jobs are solved as a whole. Larger ones
are solved link by link (patchwork.py), and only where something has changed; what else may be found there is
left to recomputations, a few links at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

from rm.core.model.network.alignment import PERFECT, Alignment, LinkAlignment, Rotation, Schedule, ShapingRule
from rm.core.model.snapshot import PlacedJob
from rm.policies.comm.steps.bursts import burst_rules, least_bps
from rm.policies.comm.steps.keeping import PAIR, Keeping, alike, everything, is_alike, least_loss
from rm.policies.comm.steps.known import Change, Known
from rm.policies.comm.steps.metronome_options import MetronomeOptions
from rm.policies.comm.steps.results import link_alignment
from rm.policies.interleave.affinity import bfs_shifts, components, violations
from rm.policies.interleave.bodies import GRAIN, Place, around, cushion
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.component import Settled
from rm.policies.interleave.loads import rank_of
from rm.policies.interleave.patchwork import Patchwork
from rm.policies.interleave.solve import unmatched_link_score
from rm.policies.interleave.unify import Demand

LOWEST_HTB_PRIORITY = 7
AT_ONCE = 32  # links of large parts that are solved at once when jobs come or go
SLICE = 48  # of them in one recomputation
COMPONENT, SCORE = attrgetter("component"), attrgetter("score")
SHOWN_SLOTS = 3600  # of a circle, for the rotations in a large part


@dataclass(slots=True)
class Realigning:
    """`views` are the jobs that are placed, `hosts` those that can have traffic classes."""

    options: MetronomeOptions
    known: Known
    views: Mapping[int, PlacedJob]
    hosts: Container[str]
    offline: bool

    def realign(self, change: Change) -> None:
        """Solve what has changed; offline also what may be improved."""
        known = self.known
        near = {job for link in change.links for job in known.on.get(link, ())} | (change.jobs - change.gone)
        for link in change.links - known.links.keys():
            known.forget_link(link)
        for job in change.gone:
            known.together.pop(job, None)
        improved = set[str]()
        if self.offline:
            improved = known.unsettled & known.links.keys()
            near |= {job for link in improved for job in known.links[link].phases}
        most = None if self.options.paper else self.options.exact_jobs
        seen, large = set[int](), set[int]()
        small: list[tuple[set[int], set[str]]] = []
        for job in sorted(near):
            if job in seen:
                continue
            part = known.part_of(job, most)
            if part is None:
                large.add(job)
                continue
            seen |= part[0]
            small.append(part)
        work = self._patchwork(change.links) if large else None
        for job in change.jobs:
            known.schedules.pop(job, None)
        if work is not None:
            work.release(change.jobs)
            self._patched(work, large, change, improved)
        for part in small:
            self._exactly(*part)

    def answer(self) -> Alignment:
        known = self.known
        contending = set[int]().union(*[load.phases for load in known.links.values()])
        links = known.aligned
        return Alignment(
            score=min(map(SCORE, links.values()), default=PERFECT),
            links=tuple(map(links.__getitem__, sorted(links))),
            schedules=tuple(map(known.schedules.__getitem__, sorted(known.schedules))),
            shaping=tuple(chain.from_iterable(map(known.rules.__getitem__, sorted(known.rules)))),
            unmatched=tuple(sorted(contending - known.schedules.keys())),
            recompute=bool(known.unsettled),
            together=tuple(sorted(set(known.together.values()))),
            unsettled=tuple(sorted(known.unsettled)),
            grounds=known,
        )

    # -- small parts ---------------------------------------------------------------------------

    def _exactly(self, group: set[int], names: set[str]) -> None:
        """Solve a part as a whole."""
        known, options = self.known, self.options
        for job in group:
            known.schedules.pop(job, None)
            known.together.pop(job, None)
        if not names:
            return
        crowded = {name: known.links[name] for name in sorted(names)}
        demands = {job: known.demand(job) for job in group}
        answer = Settled()
        high = {job for job in group if self.views[job].high}
        if options.rotation:
            pinned = high if len(high) < len(group) and not options.paper else set[int]()
            answer.add(crowded, demands, pinned, options.thresholds, self.offline and options.stage3)
        schedules, broken = self._schedules(answer, crowded, demands)
        solved = {n: s for n, s in answer.links.items() if n not in broken}
        apart = {n for n, s in solved.items() if s.scheme.perfect}
        keeping = everything(crowded)
        if options.chooses:
            keeping = least_loss(crowded, demands, high, apart, self.hosts, alike(crowded), options.bursts)
        for schedule in schedules:
            ungated = schedule.job in keeping.ungated
            known.schedules[schedule.job] = replace(schedule, gate=False) if ungated else schedule
        for name, load in crowded.items():
            known.forget_link(name)
            known.aligned[name] = (
                link_alignment(name, load, solved[name]) if name in solved else self._by_chance(name, load)
            )
            self._shape(name, load, keeping)
        if answer.improvable and options.stage3:
            known.unsettled |= names
        if schedules or any(name in known.rules for name in names):
            known.together |= dict.fromkeys(group, tuple(sorted(group)))

    def _schedules(
        self, answer: Settled, links: Mapping[str, LinkLoad], demands: Mapping[int, Demand]
    ) -> tuple[list[Schedule], set[str]]:
        """The schedules, and links that they do not suit: there nothing is promised."""
        period = answer.effective
        shifts, references = bfs_shifts(answer.rotations, period, answer.ranks)
        broken = {link for link, _, _ in violations(answer.rotations, period, shifts)}
        result = []
        for _, group in components({n: sorted(r) for n, r in answer.rotations.items()}):
            perfect = all(s.scheme.perfect for j in group for s in answer.solved[j])
            gating = perfect and self.options.gating and not self.options.paper
            mixed = not all(self.views[j].high for j in group)
            for job in group:
                demand, first = demands[job], answer.solved[job][0]
                at = first.plan.index(job)
                reference, high = job in references, self.views[job].high
                result.append(
                    Schedule(
                        job=job,
                        component=group[0],
                        shift_us=round(shifts[job]),
                        period_us=round(period[job]),
                        base_period_us=demand.period,
                        inject_us=first.plan.inject[at] // first.plan.mul[at],
                        mul=max(s.plan.mul[s.plan.index(job)] for s in answer.solved[job]),
                        cushion_us=max(0, int(answer.gap(job, links) or 0)),
                        reference=reference,
                        high=high,
                        gate=gating and not reference and not (high and mixed),
                        regulated=self.options.regulation,
                    )
                )
        return result, broken

    # -- large parts ---------------------------------------------------------------------------

    def _patched(self, work: Patchwork, large: set[int], change: Change, improved: set[str]) -> None:
        """Solve links of large parts, as many as there is time for. In the jobs' bodies there may be jobs
        that are now in small parts: those are solved after this."""
        known, rotation = self.known, self.options.rotation
        fresh, later = (
            [n for n in names if n in known.links and not large.isdisjoint(known.links[n].phases)]
            for names in (change.links, improved)
        )
        fresh = sorted(fresh, key=lambda link: (len(known.links[link].phases), link))
        later = sorted(later, key=lambda link: (known.aligned[link].score, link))[:SLICE]
        at_once = len(fresh) <= AT_ONCE
        for link in fresh if rotation else ():
            work.settle(link, joining=False)
        work.tear()
        for link in fresh if rotation and at_once else ():
            work.settle(link)
        lost = [n for n in fresh if n in known.aligned and known.aligned[n].rotations and n not in work.kept]
        work.loosen(job for link in lost for job in known.links[link].phases)
        for link in later if rotation else ():
            if not work.settle(link):
                work.resettle(link)
        known.unsettled -= set(later)
        for job in work.moved - work.body.keys():
            known.schedules.pop(job, None)
        touched = set(work.moved)
        for link in sorted({*fresh, *later, *work.turned}):
            kept = link in work.kept
            if self._renew(link, work, shaped=at_once or kept or link in later):
                touched |= known.links[link].phases.keys()
            if kept:
                known.unsettled.discard(link)
            elif link not in later and rotation:
                known.unsettled.add(link)
        touched |= {other for job in touched for other in known.together.get(job, ())} & known.loads.keys()
        for job in touched:
            known.together.pop(job, None)
        for body in work.bodies_of(sorted(touched)):
            self._schedule(body, work)

    def _patchwork(self, changed: Collection[str]) -> Patchwork:
        """What the schedules say, and the links but the changed ones, in the form in which it can be
        changed."""
        known = self.known
        body = dict(zip(known.schedules, map(COMPONENT, known.schedules.values()), strict=True))
        members = defaultdict[int, set[int]](set)
        for job, number in body.items():
            members[number].add(job)
        kept = {
            name
            for name, one in known.aligned.items()
            if one.rotations and one.score >= PERFECT and name not in changed
        }
        return Patchwork(
            known.links,
            _Links(known),
            _Demands(known),
            {job for job, view in self.views.items() if view.high},
            self.options.thresholds,
            _Places(known.schedules),
            body,
            dict(members),
            kept,
        )

    def _renew(self, name: str, work: Patchwork, shaped: bool) -> bool:
        """What is said of a link of a large part; its classes when they are `shaped` as well. May schedules
        of its jobs be others by that?"""
        known, options = self.known, self.options
        load = known.links[name]
        kept = name in work.kept
        before, classes = known.aligned.get(name), known.rules.pop(name, None)
        now = known.aligned[name] = _kept_apart(name, load, work) if kept else self._by_chance(name, load)
        rotated = before is not None and (before.rotations, before.gap_us) != (now.rotations, now.gap_us)
        if not shaped:
            return rotated or bool(classes)
        keeping = everything({name: load})
        if options.chooses:
            demands = {job: known.demand(job) for job in load.phases}
            high = {job for job in load.phases if self.views[job].high}
            apart = {name} if kept else set[str]()
            meeting = {name} if is_alike(load, work.on, known.links) else set[str]()
            keeping = least_loss({name: load}, demands, high, apart, self.hosts, meeting, options.bursts)
        self._shape(name, load, keeping)
        return rotated or before is None or known.rules.get(name) != classes

    def _schedule(self, body: Collection[int], work: Patchwork) -> None:
        """The schedules of the jobs of one body."""
        known, options = self.known, self.options
        jobs = sorted(body)
        idle = {job: max(0, work.places[job].period - known.demand(job).period) for job in jobs}
        strain = {job: abs(work.places[job].period - known.demand(job).period) // GRAIN for job in jobs}
        reference = min(jobs, key=lambda job: (strain[job], known.demand(job).rank, job))
        origin = work.places[reference].shift
        common = math.lcm(*(work.places[job].period for job in jobs))
        mixed = not all(self.views[job].high for job in jobs)
        for job in jobs:
            place, view = work.places[job], self.views[job]
            gaps = [known.aligned[n].gap_us for n in work.on[job] if n in work.kept]
            known.schedules[job] = Schedule(
                job=job,
                component=jobs[0],
                shift_us=(place.shift - origin) % place.period,
                period_us=place.period,
                base_period_us=known.demand(job).period,
                inject_us=idle[job],
                mul=common // place.period,
                cushion_us=min((gap for gap in gaps if gap is not None), default=0),
                reference=job == reference,
                high=view.high,
                gate=options.gating
                and job != reference
                and not (view.high and mixed)
                and not self._ungated(job, work),
                regulated=options.regulation,
            )
            known.together[job] = tuple(jobs)

    def _ungated(self, job: int, work: Patchwork) -> bool:
        """Do classes or the order of bursts keep the job apart on all of its links, so that it waits for no
        slot? See `least_loss`, of which the rules are what is left."""
        if not self.options.chooses:
            return False
        eased = False
        for name in work.on[job]:
            rules = self.known.rules.get(name)
            if not rules:
                if name in work.kept:
                    return False
            elif rules[0].bursts is not None or len(self.known.links[name].phases) > PAIR:
                eased = True
        return eased

    # -- both ----------------------------------------------------------------------------------

    def _by_chance(self, name: str, load: LinkLoad) -> LinkAlignment:
        value = unmatched_link_score([self.known.demand(job) for job in load.phases], load)
        return LinkAlignment(name, value, 0, tuple(sorted(load.phases)))

    def _shape(self, host: str, load: LinkLoad, keeping: Keeping) -> None:
        """On a host's link bursts as they come, or strict priorities: high jobs first, then the low ones by
        rank, or all alike."""
        on = [self.views[job] for job in load.phases]
        if not self.options.shaping or host not in self.hosts:
            return  # classes are kept where the kernel is ours: not on uplinks
        if host in keeping.ordered:
            self.known.rules[host] = tuple(burst_rules(host, load.capacity, on))
        elif host in keeping.ranked or host in keeping.shared:
            self.known.rules[host] = tuple(_ranked(host, load.capacity, on, host in keeping.shared))


def _ranked(host: str, capacity: int, jobs: Iterable[PlacedJob], shared: bool) -> Iterable[ShapingRule]:
    low = 0
    for job in sorted(jobs, key=rank_of):
        low += 0 if job.high or (low and shared) else 1
        priority = 0 if job.high else min(low, LOWEST_HTB_PRIORITY)
        yield ShapingRule(job.job, host, priority, least_bps(capacity), capacity)


def _kept_apart(name: str, load: LinkLoad, work: Patchwork) -> LinkAlignment:
    """A link whose jobs are kept apart; they are rotated against the first of them."""
    jobs = sorted(load.phases)
    places = work.places
    circle = around(places[job] for job in jobs)
    assert circle is not None, "otherwise they could not be kept apart"
    first = places[jobs[0]].shift

    def rotation(job: int) -> int:
        return (places[job].shift - first) % places[job].period * SHOWN_SLOTS // circle

    return LinkAlignment(
        name,
        PERFECT,
        circle,
        tuple(jobs),
        tuple(Rotation(name, job, rotation(job), SHOWN_SLOTS) for job in jobs),
        cushion(load, places),
    )


class _Links(dict[int, list[str]]):
    """The contended links of each job, looked up when first asked for."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def __missing__(self, job: int) -> list[str]:
        self[job] = self._known.contended_of(job)
        return self[job]


class _Places(dict[int, Place]):
    """Where these schedules put each job, worked out when first asked for."""

    def __init__(self, schedules: Mapping[int, Schedule]) -> None:
        self._schedules = dict(schedules)

    def __missing__(self, job: int) -> Place:
        schedule = self._schedules[job]
        place = self[job] = Place(schedule.shift_us, schedule.period_us)
        return place


class _Demands(dict[int, Demand]):
    """The demand of each job, looked up when first asked for."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def __missing__(self, job: int) -> Demand:
        self[job] = self._known.demand(job)
        return self[job]
