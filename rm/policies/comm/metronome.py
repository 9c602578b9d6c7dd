"""Metronome's communication policy: rotations, global time-shifts, idle time, shaping.

Sources: Metronome Sec. II and III; CASSINI Sec. 4. Two modes: "paper" is the literal text;
"default" differs where the literal text loses: (a) residual idle time removes the drift of
averaged periods, (b) idle time is injected only where it costs less than the contention it
removes, and never into a high job beside low ones, (c) stage 3 maximises the gap between phases,
not the distance of their middles, (d) early iterations wait for their slot (slot gating), (e) the
order of bursts, traffic classes or gates keep jobs apart, or nothing, whichever costs the slowest
job least (keeping.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from rm.core.model.alignment import Alignment, LinkAlignment, Schedule, ShapingRule
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.scheduling.rescheduling import Rescheduling
from rm.errors import ConfigError
from rm.policies.comm.steps.bursts import LEAST_SHARE, burst_rules
from rm.policies.comm.steps.keeping import PAIR, Keeping, everything, least_loss
from rm.policies.comm.steps.results import link_alignment
from rm.policies.interleave.affinity import bfs_shifts, components, contended, violations
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.component import Settled
from rm.policies.interleave.loads import link_loads, rank_of
from rm.policies.interleave.profile import DEMAND_MODELS
from rm.policies.interleave.solve import Thresholds, unmatched_link_score
from rm.policies.interleave.unify import Demand
from rm.units import MINUTE_US

LOWEST_HTB_PRIORITY = 7


@dataclass(frozen=True, slots=True)
class MetronomeOptions:
    """Thresholds of Metronome Sec. III and IV, and switches for ablations.

    `g_t_us` G_T, `e_t` E_T as a share of the period, `slots` Di-Pre; `demand` one of
    ring, sum, alltoall, literal. `stage3` seeks the largest cushion offline where the scheduler's
    first scheme has not got it; `compact` leaves no cushion at all, which is how the paper's ablation
    removes stage 3 (Table VII), and `regulation` lets the controller pause jobs (Table VIII; without
    it a job is moved to its slot once). `gating` is not part of regulation: it has its own switch. `bursts`
    lets links serve them first come, first served. With `combine` each link has classes by rank, gates, and
    the best rotation there is.
    `reschedule` and what follows: see rm.core.scheduling.rescheduling; minutes between two moves.
    """

    slots: int = 72
    g_t_us: int = 5000
    e_t: float = 0.10
    mul_max: int = 24
    min_slots: int = 12
    d_max: int = 3600
    mode: str = "default"
    demand: str = "ring"
    shaping: bool = True
    rotation: bool = True
    gating: bool = True
    bursts: bool = True
    combine: bool = False
    stage3: bool = True
    compact: bool = False
    regulation: bool = True
    reschedule: bool = False
    reschedule_below: float = 90.0
    reschedule_every_min: float = 30.0

    def __post_init__(self) -> None:
        if self.mode not in ("default", "paper"):
            raise ConfigError(f"The mode of metronome is {self.mode!r}.", 'Use "default" or "paper".')
        if self.demand not in DEMAND_MODELS:
            raise ConfigError(
                f"The demand model of metronome is {self.demand!r}.",
                f"Known are: {', '.join(DEMAND_MODELS)}.",
            )
        for name in ("slots", "mul_max", "min_slots", "d_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Metronome's option {name} is {getattr(self, name)}.", "Use 1 or more.")
        for name in ("g_t_us", "e_t", "reschedule_every_min"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"Metronome's option {name} is {getattr(self, name)}.", "It must not be negative."
                )

    @property
    def paper(self) -> bool:
        return self.mode == "paper"

    @property
    def chooses(self) -> bool:
        """Are there both traffic classes and gates, of which each link has what loses least?"""
        return self.shaping and self.rotation and self.gating and not (self.combine or self.paper)

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            self.g_t_us,
            self.e_t,
            self.mul_max,
            self.slots,
            self.min_slots,
            self.d_max,
            self.paper,
            compact=self.compact,
            crowd=None if self.combine or self.paper else PAIR,
        )


class Metronome:
    name = "metronome"

    def __init__(self, options: MetronomeOptions | None = None) -> None:
        self.options = options or MetronomeOptions()

    @property
    def verified(self) -> bool:
        return not self.options.paper

    @property
    def rescheduling(self) -> Rescheduling | None:
        """When the cycle may move running jobs; None = never."""
        if not self.options.reschedule:
            return None
        return Rescheduling(
            self.options.reschedule_below, round(self.options.reschedule_every_min * MINUTE_US)
        )

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Align all jobs that share contended links, of hosts and of leaves; independent of the
        order of `placed`."""
        jobs = {p.job: p for p in placed}
        demands, loads = link_loads(placed, snapshot, self.options.demand)
        crowded = contended(loads)
        answer = Settled()
        members = {name: sorted(load.phases) for name, load in crowded.items()}
        for names, group in components(members) if self.options.rotation else ():
            mixed = not all(jobs[j].high for j in group)  # then no high job is lengthened
            pinned = {j for j in group if mixed and jobs[j].high and not self.options.paper}
            part = {n: crowded[n] for n in names}
            answer.add(part, demands, pinned, self.options.thresholds, offline and self.options.stage3)
        schedules, broken = self._schedules(answer, crowded, demands, jobs)
        solved = {n: s for n, s in answer.links.items() if n not in broken}
        links = {n: link_alignment(n, crowded[n], s) for n, s in solved.items()}
        apart = {n for n, s in solved.items() if s.scheme.perfect}
        keeping = everything(crowded)
        if self.options.chooses:
            high = {j for j, p in jobs.items() if p.high}
            keeping = least_loss(crowded, demands, high, apart, snapshot.hosts, self.options.bursts)
        schedules = tuple(replace(s, gate=False) if s.job in keeping.ungated else s for s in schedules)
        for name, load in crowded.items():
            if name not in links:
                value = unmatched_link_score([demands[j] for j in load.phases], load)
                links[name] = LinkAlignment(name, value, 0, tuple(members[name]))
        controlled = {s.job for s in schedules}
        return Alignment(
            score=min((a.score for a in links.values()), default=100.0),
            links=tuple(links[name] for name in sorted(links)),
            schedules=schedules,
            shaping=self._shaping(keeping, crowded, jobs, snapshot.hosts) if self.options.shaping else (),
            unmatched=tuple(sorted({j for m in members.values() for j in m} - controlled)),
            recompute=answer.improvable and self.options.stage3,
        )

    def _schedules(
        self,
        answer: Settled,
        links: Mapping[str, LinkLoad],
        demands: Mapping[int, Demand],
        jobs: Mapping[int, PlacedJob],
    ) -> tuple[tuple[Schedule, ...], set[str]]:
        """The schedules, and links that they do not suit: there nothing is promised."""
        period = answer.effective
        shifts, references = bfs_shifts(answer.rotations, period, answer.ranks)
        broken = {link for link, _, _ in violations(answer.rotations, period, shifts)}
        result = []
        for _, group in components({n: sorted(r) for n, r in answer.rotations.items()}):
            perfect = all(s.scheme.perfect for j in group for s in answer.solved[j])
            gating = perfect and self.options.gating and not self.options.paper
            mixed = not all(jobs[j].high for j in group)
            for job in group:
                demand, first = demands[job], answer.solved[job][0]
                at = first.plan.index(job)
                reference = job in references
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
                        high=jobs[job].high,
                        gate=gating and not reference and not (jobs[job].high and mixed),
                        regulated=self.options.regulation,
                    )
                )
        return tuple(sorted(result, key=lambda s: s.job)), broken

    def _shaping(
        self,
        keeping: Keeping,
        links: Mapping[str, LinkLoad],
        jobs: Mapping[int, PlacedJob],
        hosts: Container[str],
    ) -> tuple[ShapingRule, ...]:
        """On host links bursts as they come, or strict priorities: high jobs first, then the low ones by
        rank, or all alike."""
        rules: list[ShapingRule] = []
        for host in sorted(keeping.ranked | keeping.shared | keeping.ordered):
            if host not in hosts:
                continue  # classes are kept where the kernel is ours: not on uplinks
            if host in keeping.ordered:
                on = (jobs[job] for job in links[host].phases)
                rules += burst_rules(host, links[host].capacity, on)
                continue
            capacity, low = links[host].capacity, 0
            for job in sorted((jobs[j] for j in links[host].phases), key=rank_of):
                low += 0 if job.high or (low and host in keeping.shared) else 1
                priority = 0 if job.high else min(low, LOWEST_HTB_PRIORITY)
                rate = max(1, capacity // LEAST_SHARE)
                rules.append(ShapingRule(job.job, host, priority, rate, capacity))
        return tuple(rules)


OPTIONS = MetronomeOptions
POLICY = Metronome
