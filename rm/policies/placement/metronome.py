"""metronome: zone-first's zones, then Metronome's three stages task by task.

Source: Metronome, Algorithm 1 and Sec. III-B; R18-R22. Stage 1 takes the hosts whose link has the
best score under the best rotation, stage 2 the least delay to the job's other tasks; stage 3, the
largest cushion, is the communication policy's. Settled here:

* Only hosts of the zone that zone-first chooses are looked at, without its badly connected ones
  while others fit; after latency the zone-first network score decides. LowComm jobs take the worst
  connected hosts, bad ones included.
* A gang takes the fewest hosts that hold it (`compact`), since tasks on one host need no link;
  Metronome itself places task by task and may spread a gang that one host could hold. Such
  placements follow as further candidates.
* When the best candidate of the nearest zone contends, the next ones come from all zones that fit,
  best score first: a job for which no rotation exists is kept apart where there is room.
* A job without a profile (it is profiled on the run) has an unknown demand: stage 1 treats it like
  LowComm, every link is as good. Stage 2 does not: nothing says that its delays do not matter.
* A declared rate beyond a host's link refuses the host (eq. 14); a measured one never does, since
  it was measured through such links.
* `mode = "paper"` solves links to the letter and refuses every loop that `loop_test` finds. Two jobs on
  the same two hosts are none (R21): under `cassini` the paper's own three jobs of snapshot S1 would be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import numpy as np

from rm.core.model.asked.demand import Demand, Shape
from rm.core.model.choice import CHOSEN_MAX
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import HostVerdict, Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Candidate, Observed, Proposal
from rm.errors import ConfigError
from rm.policies.interleave.affinity import LOOP_TESTS
from rm.policies.interleave.profile import DEMAND_MODELS
from rm.policies.interleave.solve import Thresholds
from rm.policies.placement.rack import LatestLeaves, fewest_places
from rm.policies.placement.steps.blockers import by_kind, headline
from rm.policies.placement.steps.capacity import Capacities, LatestCapacities
from rm.policies.placement.steps.gang import Gang, Ints, place
from rm.policies.placement.steps.link_score import LinkScores, PlacedLoads
from rm.policies.placement.steps.network_score import NetworkWeights
from rm.policies.placement.steps.network_table import LatestNetworkTable
from rm.policies.placement.steps.observed import Around
from rm.policies.placement.steps.pools import Pool, pools_for
from rm.policies.placement.steps.stages import Stages
from rm.policies.placement.steps.verdicts import explain_hosts
from rm.units import format_count

WHOLE = 4  # candidates that leave hosts whole, before the stages' own
MORE_OF_NEAREST = 2  # candidates of the nearest zone compared with the first of each other zone


@dataclass(frozen=True, slots=True)
class MetronomeOptions(NetworkWeights):
    """The weights of zone-first, Metronome's thresholds (as the communication policy's), and:

    `loop_test` which loops of the affinity graph count (cassini, contended or reduced);
    `joint_jobs` loops of up to this many jobs are solved jointly instead of refused;
    `compact` whether a gang takes the fewest hosts that hold it;
    `budget` search steps for the score of one link (about 10 us each): a score that contends may
    then be a few points too low, which at worst orders two contended links wrongly.
    """

    slots: int = 72
    g_t_us: int = 5000
    e_t: float = 0.10
    mul_max: int = 24
    min_slots: int = 12
    d_max: int = 3600
    mode: str = "default"
    demand: str = "ring"
    loop_test: str = "reduced"
    joint_jobs: int = 6
    compact: bool = True
    budget: int = 500

    def __post_init__(self) -> None:
        for option, value, known in (
            ("mode", self.mode, ("default", "paper")),
            ("demand", self.demand, DEMAND_MODELS),
            ("loop_test", self.loop_test, LOOP_TESTS),
        ):
            if value not in known:
                raise ConfigError(
                    f"The option {option} of placement policy metronome is {value!r}.",
                    f"Known are: {', '.join(known)}.",
                )

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            self.g_t_us,
            self.e_t,
            self.mul_max,
            self.slots,
            self.min_slots,
            self.d_max,
            self.mode == "paper",
            self.budget,
        )


OPTIONS = MetronomeOptions


@quickly_made
@dataclass(frozen=True, slots=True)
class _Ask:
    """One question to the policy, with everything looked up for it."""

    demand: Demand
    snapshot: Snapshot
    capacities: Capacities
    shape: Shape
    gang: Gang
    caps: Ints
    links: LinkScores | None


class MetronomePolicy:
    """See the module. Keeps only caches of what it was last shown; every answer is a pure function."""

    name = "metronome"

    def __init__(self, options: MetronomeOptions | None = None) -> None:
        self.options = options or MetronomeOptions()
        self._capacities = LatestCapacities()
        self._tables = LatestNetworkTable(self.options)
        self._loads = PlacedLoads(self.options.demand)
        self._leaves = LatestLeaves()

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        ask, narrow = self._ask(request, snapshot)
        if not ask.gang.fits(ask.caps):
            reasons = [too_narrow(ask, narrow) if narrow else headline(request.demand, ask.capacities)]
            verdicts: list[HostVerdict] = []
            if explain:
                reasons += by_kind(ask.shape, ask.capacities)
                verdicts = explain_hosts(ask.capacities, ask.shape, ask.caps, refused=narrow)
            return Proposal(iter(()), reasons, verdicts)
        proposal = Proposal(iter(()), observe=partial(self._observed, ask, narrow))
        proposal.candidates = self._search(ask, proposal.reasons)
        if explain:
            first = next(proposal.candidates, None)
            if first is not None:
                proposal.candidates = chain([first], proposal.candidates)
            proposal.verdicts = self._explain(ask, narrow, first)
        return proposal

    def stages(self, request: PlacementRequest, snapshot: Snapshot) -> Stages | None:
        """The stages over the nearest pool, to be asked task by task; None when nothing fits."""
        ask, _ = self._ask(request, snapshot)
        if not ask.gang.fits(ask.caps):
            return None
        return self._stages(next(self._pools(ask)), ask, ask.gang)

    def _ask(self, request: PlacementRequest, snapshot: Snapshot) -> tuple[_Ask, dict[int, Reason]]:
        """The question, and the hosts whose link is too narrow for it."""
        capacities = self._capacities.under(snapshot)
        demand = request.demand
        shape, gang = demand.shape, Gang.of(demand)
        caps = capacities.of(shape)
        links, narrow = None, {}
        o = self.options
        if demand.traffic is not None and not demand.low_comm and gang.fits(caps):
            self._loads.follow(snapshot)
            joint = 0 if o.mode == "paper" else o.joint_jobs
            links = LinkScores(request, self._loads, o.thresholds, o.demand, o.loop_test, joint)
            narrow = narrow_links(demand, capacities, caps, self._loads)
            if narrow:
                caps = caps.copy()
                caps[list(narrow)] = 0
        return _Ask(demand, snapshot, capacities, shape, gang, caps, links), narrow

    def _pools(self, ask: _Ask) -> Iterator[Pool]:
        talks = ask.gang.tasks > 1 and not ask.demand.low_comm
        return pools_for(
            ask.capacities, ask.caps, ask.gang, lambda: self._tables.under(ask.snapshot), lambda _: talks
        )

    def _search(self, ask: _Ask, reasons: list[Reason]) -> Iterator[Candidate]:
        loops: dict[str, Reason] = {}
        found = 0
        searches = (self._in_pool(pool, ask, loops) for pool in self._pools(ask))
        nearest = next(searches)
        first = next(nearest, None)
        if first is not None:
            found += 1
            yield first
        others = list(searches)
        batch = [c for other in others for c in islice(other, 1)]
        batch = [*islice(nearest, MORE_OF_NEAREST), *batch]
        for candidate in sorted(batch, key=lambda c: -c.score):
            found += 1
            yield candidate
        for candidate in chain(nearest, *others):
            found += 1
            yield candidate
        if not found:
            reasons.extend(dict.fromkeys(loops.values()))

    def _in_pool(self, pool: Pool, ask: _Ask, loops: dict[str, Reason]) -> Iterator[Candidate]:
        gangs = [ask.gang]
        fewest = ask.gang.host_count(pool.caps)
        if self.options.compact and fewest < ask.gang.most_hosts:
            gangs.insert(0, Gang(ask.gang.tasks, ask.gang.hosts_min, fewest))
        seen: set[tuple[tuple[int, int], ...]] = set()
        for gang in gangs:
            stages = self._stages(pool, ask, gang)
            whole = gang is not ask.gang and stages.tight
            for assigned in self._together(stages, ask) if whole else stages.gangs():
                counts = Counter(assigned)  # in the order of their first tasks
                if (key := tuple(sorted(counts.items()))) in seen:
                    continue
                seen.add(key)
                yield self._candidate(stages, counts, assigned, ask)
            loops.update(stages.loops)

    def _together(self, stages: Stages, ask: _Ask) -> Iterator[list[int]]:
        """The stages' placements, and before them those below the fewest leaves and on the fewest hosts
        there, which leave others whole, wherever the network tells nothing against them."""
        found = stages.gangs()
        first = next(found, None)
        if first is None:
            return
        if ask.links is not None and len(set(first)) > 1:
            yield from self._leaving_whole(stages, ask, list(dict.fromkeys(first)))
        yield from chain([first], found)

    def _leaving_whole(self, stages: Stages, ask: _Ask, than: list[int]) -> Iterator[list[int]]:
        pool, caps = stages.pool, stages.pool.caps.copy()
        leaf = self._leaves.among(pool.zones, pool.numbers, ask.capacities.hosts, ask.snapshot.fabric)
        apart = stages.apart(than)
        for _ in range(WHOLE):
            if not ask.gang.fits(caps):
                return
            counts = dict(fewest_places(caps, leaf, ask.gang))
            caps[next(iter(counts))] = 0
            if stages.apart(list(counts)).is_no_farther(apart) and not stages.loops_at(counts):
                yield [host for host, tasks in counts.items() for _ in range(tasks)]

    def _candidate(
        self, stages: Stages, counts: Mapping[int, int], assigned: list[int], ask: _Ask
    ) -> Candidate:
        pool = stages.pool
        score = stages.score(assigned)
        spread = [(ask.capacities.hosts[pool.numbers[n]], k) for n, k in counts.items()]
        links = "no known traffic" if ask.links is None else f"bandwidth score {score:.1f}"
        note = f"{pool.where}: {links} over {format_count(len(spread), 'host')}"
        return Candidate(place(spread, ask.snapshot.free, ask.shape), score, note, stages)

    def _stages(self, pool: Pool, ask: _Ask, gang: Gang) -> Stages:
        table = self._tables.under(ask.snapshot)
        tight = self.options.mode != "paper"
        return Stages(pool, gang, table, ask.links, ask.demand.low_comm, tight)

    def _observed(self, ask: _Ask, narrow: dict[int, Reason], candidate: Candidate) -> Observed:
        stages = candidate.grounds
        assert isinstance(stages, Stages)
        stages.find(ask.capacities.number[host] for host in candidate.placement.hosts[:CHOSEN_MAX])
        around = Around(
            ask.capacities, ask.shape, ask.caps, stages.pool, lambda: stages.table, narrow, stages.scores_of
        )
        return around.observed(candidate)

    def _explain(self, ask: _Ask, narrow: dict[int, Reason], first: Candidate | None) -> list[HostVerdict]:
        """Verdicts with the stages' scores as the job's first task saw them."""
        pool = next(self._pools(ask))
        stages = self._stages(pool, ask, ask.gang)
        choice = stages.choose([])
        stages.find(pool.numbers.tolist())
        final = choice.final if choice is not None else np.empty(0)
        refused = dict(narrow)
        scores: dict[int, list[tuple[str, float]]] = {}
        for local, number in enumerate(pool.numbers):
            if choice is not None and pool.caps[local] > 0:
                scores[int(number)] = [
                    ("bandwidth", round(float(choice.scores[local]), 3)),
                    ("latency_us", round(float(choice.raw_latency_us[local]), 1)),
                    ("latency", float(final[local])),
                ]
        table = self._tables.under(ask.snapshot) if pool.without_bad else None
        placement = first.placement if first is not None else None
        return explain_hosts(ask.capacities, ask.shape, ask.caps, pool, table, placement, refused, scores)


POLICY = MetronomePolicy


def narrow_links(demand: Demand, capacities: Capacities, caps: Ints, loads: PlacedLoads) -> dict[int, Reason]:
    """Hosts with room whose link is known to be slower than the declared rate of a task (eq. 14)."""
    rate = demand.declared_bps
    if rate <= loads.least_bps:
        return {}
    return {
        int(n): Reason(
            ReasonCode.BANDWIDTH,
            f"a task sends {rate / 1e6:.0f} Mbit/s, the host link carries {bps / 1e6:.0f} Mbit/s",
            (("rate_bps", rate), ("link_bps", bps)),
        )
        for n in np.flatnonzero(caps)
        if 0 < (bps := loads.capacity[capacities.hosts[n].name]) < rate
    }


def too_narrow(ask: _Ask, narrow: dict[int, Reason]) -> Reason:
    """The headline when the job would fit if its rate were lower."""
    rate = ask.demand.declared_bps
    widest = max(int(dict(r.numbers)["link_bps"]) for r in narrow.values())
    return Reason(
        ReasonCode.BANDWIDTH,
        f"its tasks send {rate / 1e6:.0f} Mbit/s each; of the hosts with room {len(narrow)} have slower "
        f"links (at most {widest / 1e6:.0f} Mbit/s), the others take {int(ask.caps.sum())} "
        f"of {ask.gang.tasks} tasks",
        (("rate_bps", rate), ("hosts_too_narrow", len(narrow)), ("room_tasks", int(ask.caps.sum()))),
    )
