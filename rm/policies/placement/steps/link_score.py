"""Bandwidth scores: how well a job's phases fit between those of the jobs on a host's link.

Source: Metronome, Algorithm 1 lines 15-16 and Sec. III-B "Score"; the loop filter of lines 6-8
(R7, R10, R13, R20, R21). Jobs without a profile and LowComm jobs put no known load on a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import PERFECT
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import NEWEST, PlacedJob, Snapshot, TrackedDict
from rm.policies.interleave.affinity import blocks, peak_sum
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.profile import Phases, link_demand, phases_of
from rm.policies.interleave.solve import Solution, Thresholds, solve_equals, unmatched_link_score
from rm.policies.interleave.unify import Demand, rank_key

SCORES_MAX = 10_000  # remembered scores

Signature = tuple[int, tuple[tuple[int, bool, int, Phases], ...]]


class PlacedLoads:
    """What the placed jobs put on each host link, kept in step with one snapshot after the other.

    Only a cache: a job's demand is worked out again whenever its view, or any link, changed.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._seen: dict[int, PlacedJob] = {}
        self._hosts: dict[int, tuple[str, ...]] = {}
        self.capacity: dict[str, int] = {}
        self.least_bps = 0  # of those that are known
        self.demands: dict[int, Demand] = {}
        self._signatures: dict[str, Signature] = {}
        self._changes = 0  # entries of the snapshot's `changed` that are reflected
        self.scores: dict[object, float] = {}  # by what stands on a link; see LinkScores
        self.phases: dict[str, dict[int, Phases]] = {}
        self._snapshot: Snapshot | None = None

    def follow(self, snapshot: Snapshot) -> None:
        if self._snapshot is not snapshot:
            capacity = {
                name: snapshot.links[name].capacity_bps if name in snapshot.links else host.nic_bps
                for name, host in snapshot.hosts.items()
            }
            if capacity != self.capacity:
                for job in list(self._seen):
                    self._forget(job)
                self.capacity, self.least_bps = capacity, min(filter(None, capacity.values()), default=0)
        placed = snapshot.placed
        changed = placed.changed if isinstance(placed, TrackedDict) else None
        if changed is not None and self._snapshot is snapshot:
            renewed = {job: placed[job] for job in changed[self._changes :]}
        else:
            renewed = {j: view for j, view in placed.items() if self._seen.get(j) is not view}
            for job in [j for j in self._seen if j not in placed]:
                self._forget(job)
        for job, view in renewed.items():
            self._forget(job)
            self._learn(view, snapshot)
        self._snapshot = snapshot
        self._changes = len(changed) if changed is not None else 0
        if len(self.scores) > SCORES_MAX:
            self.scores.clear()

    def signature(self, host: str) -> Signature:
        """What stands on a host's link: links of one signature score alike."""
        if host not in self._signatures:
            there = sorted(self.phases.get(host, {}), key=lambda j: (self.demands[j].rank, j))
            self._signatures[host] = (
                self.capacity[host],
                tuple(
                    (
                        self._seen[j].priority,
                        self._seen[j].high,
                        self.demands[j].period,
                        self.phases[host][j],
                    )
                    for j in there
                ),
            )
        return self._signatures[host]

    def _learn(self, view: PlacedJob, snapshot: Snapshot) -> None:
        self._seen[view.job] = view
        if view.traffic is None or view.low_comm:
            self._hosts[view.job] = ()
            return
        demands, links = link_loads([view], snapshot, self._model)
        # task by task nobody knows what a job will send through uplinks: they count when it is aligned
        links = {name: load for name, load in links.items() if name in snapshot.hosts}
        self._hosts[view.job] = tuple(links)
        self.demands.update(demands)
        for host, load in links.items():
            self.phases.setdefault(host, {}).update(load.phases)
            self._signatures.pop(host, None)

    def _forget(self, job: int) -> None:
        if self._seen.pop(job, None) is None:
            return
        self.demands.pop(job, None)
        for host in self._hosts.pop(job):
            del self.phases[host][job]
            self._signatures.pop(host, None)
            if not self.phases[host]:
                del self.phases[host]

    def hosts_of(self, job: int) -> tuple[str, ...]:
        """The hosts whose links bear the job's load."""
        return self._hosts[job]

    def is_high(self, job: int) -> bool:
        return self._seen[job].high


@dataclass(frozen=True, slots=True)
class LinkScore:
    """One host link with the new job on it.

    `early`: nothing contends, no rotation was sought. `skip_stage_3`: the first rotation is
    already the one of the largest cushion, or none is perfect (R20).
    """

    score: float
    early: bool
    skip_stage_3: bool
    solution: Solution | None = None


EARLY = LinkScore(PERFECT, True, True)


class LinkScores:
    """Scores of host links for one job, whose demand depends on how many of its tasks are there."""

    def __init__(
        self,
        request: PlacementRequest,
        loads: PlacedLoads,
        thresholds: Thresholds,
        model: str,
        loop_test: str,
        joint_jobs: int,
    ) -> None:
        assert request.demand.traffic is not None, "what nobody knows has no score"
        self._job = request.job
        self._wants = request.demand
        self._traffic: TrafficProfile = request.demand.traffic
        self._loads = loads
        self._thresholds = thresholds
        self._model = model
        self._loop_test = loop_test
        self._joint_jobs = joint_jobs
        self._rank = rank_key(self._wants.priority, NEWEST, "")
        self._demand: dict[tuple[int, int], tuple[int, Phases]] = {}
        self._known: dict[tuple[str, int], LinkScore] = {}

    @property
    def loaded(self) -> Mapping[str, Mapping[int, Phases]]:
        """The hosts whose links bear load, with the phases of each job."""
        return self._loads.phases

    def score_at(self, host: str, tasks: int) -> float:
        """The score of `at`, shared by all links that bear the same load."""
        if host not in self._loads.phases or self._job in self._loads.phases[host]:
            return self.at(host, tasks).score
        key = (self._loads.signature(host), self._mine(host, tasks), self._wants.priority)
        known = self._loads.scores.get(key)
        if known is None:
            known = self._loads.scores[key] = self.at(host, tasks).score
        return known

    def at(self, host: str, tasks: int) -> LinkScore:
        """The link of `host` with `tasks` tasks of the job there, the rest assumed elsewhere (R22)."""
        if host not in self._loads.phases:
            return EARLY
        known = self._known.get((host, tasks))
        if known is None:
            known = self._known[host, tasks] = self._score(host, tasks)
        return known

    def sends_alike(self, host: str, tasks: int, others: int) -> bool:
        """Does the job put the same on the link of `host` with that many tasks there as with others?"""
        return self._mine(host, tasks) == self._mine(host, others)

    def _score(self, host: str, tasks: int) -> LinkScore:
        period, mine = self._mine(host, tasks)
        link = self._with(host, mine)
        if not mine or peak_sum(link) <= link.capacity:
            return EARLY
        demands = self._ranked(link.phases, period, mine)
        solution = solve_equals(demands, [link], self._thresholds)[0]
        if solution is None:
            return LinkScore(unmatched_link_score(demands, link), False, True)
        simple = len(link.phases) == 2 and all(len(p) == 1 for p in link.phases.values())
        score = solution.link_score(link)
        return LinkScore(score, False, simple or not solution.scheme.perfect, solution)

    def _mine(self, host: str, tasks: int) -> tuple[int, Phases]:
        key = (tasks, self._loads.capacity[host])
        if key not in self._demand:
            profile = link_demand(self._traffic, tasks, self._wants.ntasks, self._model, key[1])
            self._demand[key] = (profile.period_us, phases_of(profile))
        return self._demand[key]

    def _with(self, host: str, mine: Phases) -> LinkLoad:
        phases = dict(self._loads.phases.get(host, {}))
        phases.pop(self._job, None)
        if mine:
            phases[self._job] = mine
        return LinkLoad(self._loads.capacity[host], phases)

    def _ranked(self, jobs: Mapping[int, Phases], period: int, mine: Phases) -> list[Demand]:
        """The demands of jobs that share links; high jobs beside low ones are never lengthened."""
        high = {j: self._wants.is_high if j == self._job else self._loads.is_high(j) for j in jobs}
        mixed = not all(high.values()) and not self._thresholds.paper
        result = []
        for job in jobs:
            if job == self._job:
                result.append(Demand(job, period, mine, self._rank, high[job] and mixed))
            else:
                its = self._loads.demands[job]
                result.append(Demand(job, its.period, its.phases, its.rank, high[job] and mixed))
        return result

    def loop(self, tasks_on: Mapping[str, int]) -> Reason | None:
        """Would the job with these tasks per host close a loop in the affinity graph? (R21)

        A loop through at most `joint_jobs` jobs whose periods match is not an obstacle: its links
        are solved jointly.
        """
        mine = {host: self._mine(host, tasks) for host, tasks in tasks_on.items()}
        shared = [h for h, (_, phases) in mine.items() if phases and h in self._loads.phases]
        if len(shared) < 2:
            return None
        near = self._connected(shared, mine)
        if near is None:
            return None
        links = {host: self._with(host, mine[host][1] if host in mine else ()) for host in near}
        for names in blocks(links, self._loop_test):
            jobs = {j for n in names for j in links[n].phases}
            if len(names) < 2 or self._job not in jobs:
                continue
            if len(jobs) <= self._joint_jobs and self._joint(names, links, mine):
                continue
            return Reason(
                ReasonCode.DEPENDENCY_LOOP,
                f"its {len(jobs)} jobs would wait for each other around the links of {', '.join(names)}, "
                "so no common time-shifts exist",
                (("links", len(names)), ("jobs", len(jobs))),
            )
        return None

    def _connected(self, shared: Sequence[str], mine: Mapping[str, tuple[int, Phases]]) -> list[str] | None:
        """The links that other jobs connect to `shared`; None when they connect no two of these.

        A loop must leave the job by one link and come back by another. Unless every shared link
        counts (cassini), only contended ones do.
        """
        origin: dict[str, str] = {}
        joined = False
        done: set[int] = {self._job}
        for start in shared:
            waiting = [start]
            while waiting:
                host = waiting.pop()
                if host in origin:
                    joined |= origin[host] != start
                    continue
                link = self._with(host, mine[host][1] if host in mine else ())
                if self._loop_test != "cassini" and peak_sum(link) <= link.capacity:
                    continue
                origin[host] = start
                for job in link.phases:
                    if job not in done:
                        done.add(job)
                        waiting.extend(self._loads.hosts_of(job))
        return sorted(origin) if joined else None

    def _joint(
        self,
        names: Sequence[str],
        links: Mapping[str, LinkLoad],
        mine: Mapping[str, tuple[int, Phases]],
    ) -> bool:
        jobs = {j: p for n in names for j, p in links[n].phases.items()}
        period = max(p for p, phases in mine.values() if phases)
        demands = self._ranked(jobs, period, jobs[self._job])
        solution, _ = solve_equals(demands, [links[n] for n in names], self._thresholds)
        return solution is not None
