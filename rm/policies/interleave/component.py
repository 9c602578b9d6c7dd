"""One connected part of the affinity graph, solved block by block from its best ranked job outwards.

Sources: Metronome Sec. III-B, CASSINI Sec. 4; R17, R21. A job on several blocks keeps the iteration time
that the first of them gave it. Links that the loop test left out because another one binds all their
jobs at least as much follow from that one's block.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from rm.policies.interleave.affinity import blocks
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.solve import Solution, Thresholds, solve_equals
from rm.policies.interleave.unify import Demand, Rank


@dataclass(slots=True)
class Settled:
    """What has been decided so far, over all parts; links and jobs without a rotation are left out.

    `effective` iteration times (ticks), `ranks` by which the references were chosen, `solved` each job's
    blocks, `rotations` of the links that were solved, in ticks, and per link, solved or following, the
    solution that holds there.
    """

    effective: dict[int, Fraction] = field(default_factory=dict)
    ranks: dict[int, Rank] = field(default_factory=dict)
    solved: dict[int, list[Solution]] = field(default_factory=dict)
    rotations: dict[str, dict[int, Fraction]] = field(default_factory=dict)
    links: dict[str, Solution] = field(default_factory=dict)

    @property
    def improvable(self) -> bool:
        return any(solution.improvable for solution in self.links.values())

    def add(
        self,
        links: Mapping[str, LinkLoad],
        demands: Mapping[int, Demand],
        pinned: Container[int],
        thresholds: Thresholds,
        offline: bool = False,
        loop_test: str = "reduced",
    ) -> None:
        """Solve a part: contended links and what their jobs demand; `pinned` are never lengthened."""
        waiting = blocks(links, loop_test)
        while waiting:
            names = min(waiting, key=lambda b: self._nearness(b, links, demands))
            waiting.remove(names)
            block = [links[n] for n in names]
            inside = sorted({j for load in block for j in load.phases})
            mine = [self._demand(demands[j], j in pinned) for j in inside]
            solution, ranked = solve_equals(mine, block, thresholds, offline)
            if solution is None:
                continue
            self.ranks.update({d.job: d.rank for d in ranked if d.job not in self.effective})
            for job in inside:
                self.effective.setdefault(job, solution.plan.period(job))
                self.solved.setdefault(job, []).append(solution)
            for name in names:
                self.rotations[name] = {j: solution.scheme.shift(j) for j in links[name].phases}
            for name, load in links.items():
                if name in names or (name not in self.links and set(load.phases) <= set(inside)):
                    self.links[name] = solution

    def gap(self, job: int, links: Mapping[str, LinkLoad]) -> Fraction | None:
        """The job's smallest cushion on any link, in ticks; None when its phases contend with none."""
        gaps = (s.gap(links[n], job) for n, s in self.links.items() if job in links[n].phases)
        return min((gap for gap in gaps if gap is not None), default=None)

    def _demand(self, demand: Demand, pinned: bool) -> Demand:
        """The demand with the iteration time that the job has by now."""
        used = self.effective.get(demand.job)
        if used is not None:
            return replace(demand, period=round(used), pinned=True)
        return replace(demand, pinned=pinned)

    def _nearness(
        self, names: Sequence[str], links: Mapping[str, LinkLoad], demands: Mapping[int, Demand]
    ) -> tuple[bool, Rank, list[str]]:
        """Blocks that touch a settled job come first, then the best ranked job's."""
        inside = {j for n in names for j in links[n].phases}
        return (not inside & self.effective.keys(), min(demands[j].rank for j in inside), list(names))
