"""cassini: CASSINI's module: links ranked by compatibility, unique time-shifts, nothing else.

Source: CASSINI (NSDI 2024). For every link that carries more than one job the rotations that leave the
least excess demand (Table 1, eqs. 1-4) give its compatibility score; a placement's score is the mean
over these links (Algorithm 2, lines 17-24), and placements whose affinity graph has a loop are
discarded (line 13). Rotations become one time-shift per job by walking the graph (eq. 5, Algorithm 1).
Which candidates are compared is the placement policy's: `cassini` there augments any other. Neither
traffic classes nor pauses nor idle time: jobs keep their own iteration times.

Adjustment is the agent's (Sec. 5.7): a job whose iteration starts off its slot by more than 5 % of its
period, early or late, waits for its next slot; only "compatible" jobs have to. Slots are counted from
the component's reference, which the paper picks at random and which here is the best ranked job; the
reference itself never waits. A job that others hold up drags along all that count from it, so compatible
is taken as: every contended link of the job's component scores 100.

Where the paper is silent:

* The circle's perimeter is the least common multiple of the iteration times. Measured ones are never
  exact multiples: those within `tolerance_us` count as such and their mean is taken. Without a common
  multiple of at most `most_angles` angles a link has no rotation, and its score is what independent
  phases would give.
* An angle counts with the largest demand that touches it, so that a score of 100 (the paper's 1) holds
  in continuous time. Of several best rotations the middle of the first run is taken.
* The mean is over the links of the connected jobs that the candidate touches. Links elsewhere are the
  same for every candidate.
* Two jobs on the same two links are a loop already. `loops` says what a loop means: "discard" (the
  paper: no such placement, the job waits if there is no other), "leave" (it is allowed, its jobs are
  not shifted and its links score as independent phases do), "joint" (ours: the links of a loop are
  solved together, so that every job has one rotation on all of them; links that are not contended
  then bind nobody). `loop_test` narrows what counts as a loop (see affinity.has_cycle).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, PERFECT, Alignment, LinkAlignment, Schedule
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.errors import ConfigError
from rm.policies.comm.steps.results import link_alignment
from rm.policies.interleave.affinity import (
    LOOP_TESTS,
    bfs_shifts,
    blocks,
    components,
    contended,
    has_cycle,
    violations,
)
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.profile import DEMAND_MODELS
from rm.policies.interleave.solve import Solution, Thresholds, solve_block, unmatched_link_score
from rm.policies.interleave.unify import Demand

LOOPS = ("discard", "leave", "joint")


@dataclass(frozen=True, slots=True)
class CassiniOptions:
    """`angle_deg` discretisation of the circle in degrees (5, Sec. 5.1), at least `min_angles` of
    them for one iteration; `adjust` drift as a share of the period (Sec. 5.7); `budget` search steps
    per link, about 10 us each. The rest: see the module.
    """

    angle_deg: float = 5.0
    min_angles: int = 12
    most_angles: int = 3600
    tolerance_us: int = 1000
    loops: str = "discard"
    loop_test: str = "cassini"
    demand: str = "ring"
    adjust: float = 0.05
    budget: int = 5000

    def __post_init__(self) -> None:
        for option, value, known in (
            ("loops", self.loops, LOOPS),
            ("loop_test", self.loop_test, LOOP_TESTS),
            ("demand", self.demand, DEMAND_MODELS),
        ):
            if value not in known:
                raise ConfigError(
                    f"The option {option} of comm policy cassini is {value!r}.",
                    f"Known are: {', '.join(known)}.",
                )
        if not 0 < self.angle_deg <= 360:
            raise ConfigError(
                f"The option angle_deg of comm policy cassini is {self.angle_deg:g}.",
                "Use more than 0 and at most 360 degrees.",
            )
        for option in ("min_angles", "most_angles", "budget"):
            if getattr(self, option) < 1:
                raise ConfigError(f"The option {option} of comm policy cassini is below 1.", "Use 1 or more.")
        if self.tolerance_us < 0 or not 0 <= self.adjust < 0.5:
            raise ConfigError(
                "Of comm policy cassini, tolerance_us must not be negative and adjust be in [0, 0.5)."
            )

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            g_t=self.tolerance_us,
            e_t=0.0,
            mul_max=self.most_angles // self.min_angles,
            slots=round(360 / self.angle_deg),
            min_slots=self.min_angles,
            d_max=self.most_angles,
            paper=True,
            budget=self.budget,
        )


@dataclass(slots=True)
class _Answer:
    links: dict[str, LinkAlignment] = field(default_factory=dict)
    rotations: dict[str, dict[int, Fraction]] = field(default_factory=dict)
    solved: dict[int, list[tuple[Solution, LinkLoad]]] = field(default_factory=dict)
    rejected: Reason | None = None


class Cassini:
    name = "cassini"

    def __init__(self, options: CassiniOptions | None = None) -> None:
        self.options = options or CassiniOptions()

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Align all jobs that share links; independent of the order of `placed`."""
        demands, links = link_loads(placed, snapshot, self.options.demand)
        shared = {name: load for name, load in links.items() if len(load.phases) > 1}
        if not shared:
            return NOTHING_TO_ALIGN
        answer = _Answer()
        binding = contended(shared) if self.options.loops == "joint" else shared
        for names, _ in components({n: load.phases for n, load in binding.items()}):
            self._component({n: binding[n] for n in names}, demands, answer)
        schedules = self._schedules(answer, shared, demands, {p.job: p.high for p in placed})
        for name, load in shared.items():
            if name not in answer.links:  # without rotation, or (joint) without contention
                value = unmatched_link_score([demands[j] for j in load.phases], load)
                answer.links[name] = LinkAlignment(name, value, 0, tuple(sorted(load.phases)))
        members = {j for load in contended(shared).values() for j in load.phases}
        scores = [link.score for link in answer.links.values()]
        return Alignment(
            score=sum(scores) / len(scores),
            links=tuple(answer.links[name] for name in sorted(answer.links)),
            schedules=schedules,
            unmatched=tuple(sorted(members - {s.job for s in schedules})),
            rejected=answer.rejected,
        )

    def _component(
        self, part: Mapping[str, LinkLoad], demands: Mapping[int, Demand], answer: _Answer
    ) -> None:
        """The rotations of one connected part of the affinity graph."""
        if self.options.loops == "joint":
            groups = blocks(part, self.options.loop_test)
        elif has_cycle(part, self.options.loop_test):
            if self.options.loops == "discard" and answer.rejected is None:
                answer.rejected = _loop(part)
            return
        else:
            groups = [[name] for name in sorted(part)]
        for group in groups:
            loads = [part[name] for name in group]
            jobs = sorted({j for load in loads for j in load.phases})
            solution = solve_block([demands[j] for j in jobs], loads, self.options.thresholds)
            if solution is None:
                continue
            for name in group:
                answer.rotations[name] = {j: solution.scheme.shift(j) for j in part[name].phases}
            for name, load in part.items():  # those that the loop test left out follow from the block
                if name in group or (name not in answer.links and set(load.phases) <= set(jobs)):
                    answer.links[name] = link_alignment(name, load, solution)
                    for job in load.phases:
                        answer.solved.setdefault(job, []).append((solution, load))

    def _schedules(
        self,
        answer: _Answer,
        shared: Mapping[str, LinkLoad],
        demands: Mapping[int, Demand],
        high: Mapping[int, bool],
    ) -> tuple[Schedule, ...]:
        """Algorithm 1, and what each job is to keep to."""
        period = {j: Fraction(demands[j].period) for r in answer.rotations.values() for j in r}
        shifts, references = bfs_shifts(answer.rotations, period, {j: demands[j].rank for j in period})
        for link, _, _ in violations(answer.rotations, period, shifts):
            answer.links.pop(link, None)  # no common shifts: nothing is promised there
        held_up = {
            job
            for link, load in contended(shared).items()
            if link not in answer.links or answer.links[link].score < PERFECT
            for job in load.phases
        }
        result = []
        for _, group in components(answer.rotations):
            compatible = held_up.isdisjoint(group)
            for job in group:
                mine = answer.solved[job]
                gaps = [gap for solution, load in mine if (gap := solution.gap(load, job)) is not None]
                reference = job in references
                result.append(
                    Schedule(
                        job=job,
                        component=group[0],
                        shift_us=round(shifts[job]) % demands[job].period,
                        period_us=demands[job].period,
                        base_period_us=demands[job].period,
                        mul=max(s.plan.mul[s.plan.index(job)] for s, _ in mine),
                        cushion_us=max(0, int(min(gaps, default=Fraction(0)))),
                        reference=reference,
                        high=high[job],
                        adjust=self.options.adjust if compatible and not reference else 0.0,
                        regulated=False,
                    )
                )
        return tuple(sorted(result, key=lambda s: s.job))


def _loop(part: Mapping[str, LinkLoad]) -> Reason:
    jobs = sorted({j for load in part.values() for j in load.phases})
    return Reason(
        ReasonCode.DEPENDENCY_LOOP,
        f"{len(jobs)} jobs would meet around a loop of the links {', '.join(sorted(part))}, "
        "where no time-shifts surely suit every link",
        (("links", len(part)), ("jobs", len(jobs))),
    )


OPTIONS = CassiniOptions
POLICY = Cassini
