"""From an order of hosts or of GPUs to proposals: what the policies that know no network share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from rm.core.model.asked.demand import Shape
from rm.core.model.job import Placement
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.quickly_made import quickly_made
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Candidate, Proposal
from rm.policies.placement.steps.blockers import by_kind, headline
from rm.policies.placement.steps.capacity import Capacities, Mask
from rm.policies.placement.steps.gang import Gang, Ints, laid_out
from rm.policies.placement.steps.network_score import Floats
from rm.policies.placement.steps.observed import Around
from rm.policies.placement.steps.slots import Counts, preferred
from rm.policies.placement.steps.verdicts import explain_hosts


@quickly_made
@dataclass(frozen=True, slots=True)
class Ask:
    """A job that fits, and the cluster that it is to be placed in; `caps` are the tasks that each
    host takes."""

    request: PlacementRequest
    snapshot: Snapshot
    capacities: Capacities
    shape: Shape
    gang: Gang
    caps: Ints

    @property
    def gpus(self) -> int:
        """GPUs of the whole job; of one without GPUs its tasks."""
        return self.request.demand.gpus


@quickly_made
@dataclass(frozen=True, slots=True)
class Ranking:
    """A policy's preferences for one job.

    `choose` gives the tasks of each host, first ranks first, for capacities with which the gang
    fits; on each host the GPUs of the least `keys` (hosts x positions) are taken, ties by position.
    `score` is what the hosts were compared by, named for `rmx why`.
    """

    choose: Callable[[Ints], Counts]
    keys: Floats
    note: str
    score: tuple[str, Floats] | None = None

    def score_of(self, host: int) -> tuple[tuple[str, float], ...]:
        return () if self.score is None else ((self.score[0], float(self.score[1][host])),)


def propose(
    request: PlacementRequest,
    snapshot: Snapshot,
    capacities: Capacities,
    explain: bool,
    rank: Callable[[Ask], Ranking],
) -> Proposal:
    """The policy's choice; each further candidate does without the first host of the one before."""
    shape, gang = request.demand.shape, Gang.of(request.demand)
    caps = capacities.of(shape)
    if not gang.fits(caps):
        reasons = [headline(request.demand, capacities)]
        if not explain:
            return Proposal(iter(()), reasons)
        reasons += by_kind(shape, capacities)
        return Proposal(iter(()), reasons, explain_hosts(capacities, shape, caps))
    ask = Ask(request, snapshot, capacities, shape, gang, caps)
    ranking = rank(ask)
    usable = capacities.usable(shape).copy() if shape.least_gpus else None
    found = _candidates(ask, ranking, usable)
    around = Around(capacities, shape, caps, scores=ranking.score_of if ranking.score is not None else None)
    if not explain:
        return Proposal(found, observe=around.observed)
    first = next(found)
    scores = None
    if ranking.score is not None:
        name, values = ranking.score
        scores = {i: [(name, float(value))] for i, value in enumerate(values)}
    verdicts = explain_hosts(capacities, shape, caps, placement=first.placement, scores=scores)
    return Proposal(chain([first], found), [], verdicts, around.observed)


def _candidates(ask: Ask, ranking: Ranking, usable: Mask | None) -> Iterator[Candidate]:
    left = ask.caps.copy()
    while ask.gang.fits(left):
        counts = ranking.choose(left)
        yield Candidate(_placement(ask, ranking.keys, counts, usable), 0.0, ranking.note)
        left[counts[0][0]] = 0


def _placement(ask: Ask, keys: Floats, counts: Counts, usable: Mask | None) -> Placement:
    """The tasks on their hosts, and of each host the chosen GPUs in ascending order."""
    taken: list[tuple[str, int, list[int]]] = []
    for number, count in counts:
        gpus: list[int] = []
        if ask.shape.takes_all_gpus:
            gpus = sorted(gpu.index for gpu in ask.capacities.hosts[number].gpus)
        elif usable is not None:
            chosen = sorted(preferred(usable[number], keys[number])[: ask.shape.gpus_for(count)].tolist())
            gpus = ask.capacities.gpu_index[number, chosen].tolist()
        taken.append((ask.capacities.hosts[number].name, count, gpus))
    return laid_out(taken, ask.shape)
