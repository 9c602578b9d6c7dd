"""The decision: which pending jobs start now, where, and how their traffic is interleaved.

One pass: queue policy -> placement candidates -> alignment of each candidate -> the best one is
reserved, and the next job sees the cluster with it. Pure: the same snapshot gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from rm.core.jobs.elements import limited
from rm.core.jobs.free import take
from rm.core.jobs.state import placed_view
from rm.core.model.asked.demand import Demand
from rm.core.model.host_reservation import waits_for as reserved_later
from rm.core.model.job import Job, Placement
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, PERFECT, Alignment
from rm.core.model.placement_request import PlacementRequest, request_of
from rm.core.model.planned import Planned
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import NEWEST, Snapshot
from rm.core.ports import Candidate, CommPolicy, PlacementPolicy, QueuePolicy, goes_on, reserves
from rm.core.scheduling.after import Tries, awaited, claimed_first
from rm.core.scheduling.ahead import Ahead
from rm.core.scheduling.blocked import Blocked, apart, partly
from rm.core.scheduling.choosing import Best, Taken, Tried
from rm.core.scheduling.decision import Decision
from rm.core.scheduling.gates import Gates, by_tier, path_of, ran_in, within
from rm.core.scheduling.held import not_yet
from rm.core.scheduling.host_kinds import of_kinds
from rm.core.scheduling.kinds import Kinds
from rm.core.scheduling.limits.licensing import lacking
from rm.core.scheduling.limits.limiting import Limited, Limiter
from rm.core.scheduling.neighbours import MOST, Neighbourhood
from rm.core.scheduling.patience import below, better_later, looked_at_us
from rm.core.scheduling.racks import below_few
from rm.core.scheduling.slices import slice_length
from rm.core.scheduling.turns import Turns
from rm.core.sharing.tally import Key

EPSILON = 1e-9
TRIED_WEIGHT = 5  # refusals that take as long as one for which places are found first, or around reservations
REJECTED_MAX = 64  # candidates that the comm policy may reject in one round
ROUNDS_MAX = 32  # of asking the placement policy to do without the hosts that spoke against them


@dataclass(frozen=True, slots=True)
class Policies:
    queue: QueuePolicy
    placement: PlacementPolicy
    comm: CommPolicy


@dataclass(frozen=True, slots=True)
class Tuning:
    """`top_k` candidates are aligned per job; a score below `min_score` keeps a job waiting, and what
    `patience` says of one that is not perfect (patience.py; 0: nothing). A pass places at most `placements`
    jobs, and refuses at most `refusals` demands that the passes before it did not, as for each all hosts are
    gone through; 0: any number. Elements of a job array that take about `slice_us` together may go to one
    slot of a host at once, as long as what is left makes `slice_shares` such slices for each slot; 0: each by
    itself, and however few are left."""

    top_k: int = 4
    min_score: float = float("-inf")
    patience: float = 0.0
    placements: int = 0
    refusals: int = 0
    slice_us: int = 0
    slice_shares: int = 2


@dataclass(slots=True)
class Pass:
    """The result of one pass. `taken` notes how each decision came about; `reasons` are those of single
    jobs; of demands, see `Blocked`. `untried` are the jobs that the next pass is to try, since this one has
    placed or refused as many as it may."""

    decisions: list[Decision] = field(default_factory=list)
    taken: dict[int, Taken] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)
    limited: dict[int, Limited] = field(default_factory=dict)  # by accounts, users, QOS or partitions
    untried: list[int] = field(default_factory=list)
    planned: dict[int, Planned] = field(default_factory=dict)  # the pending jobs that stand before others
    aside: dict[int, tuple[Key, ...]] = field(default_factory=dict)  # or as far as these keys' limits go
    again: bool = False  # something came free while several passes came to all: the next one begins anew


def decide(
    pending: Iterable[Job],
    snapshot: Snapshot,
    policies: Policies,
    tuning: Tuning,
    blocked: Blocked,
    whole: bool = True,
) -> Pass:
    """One scheduling pass over the pending jobs; `whole`: over all of them.

    `snapshot.free` and `snapshot.placed` are private copies: the pass reserves in them. Under a
    policy that reserves, jobs known not to fit keep their turn, and the first in order of all that
    do not fit, as many as its depth, stand before those after them.
    """
    result = Pass()
    eligible: list[Job] = []
    groups: dict[Demand, dict[int, None]] = {}  # those not yet looked at
    # with elements that get an id in this pass
    made = dict(snapshot.jobs) if reserves(policies.queue) or snapshot.claims else {}
    snapshot = replace(snapshot, jobs=made or snapshot.jobs, by_user=set(snapshot.by_user))
    kinds, claims, served = Kinds(snapshot), snapshot.claims, set[int]()
    gates, several = Gates(snapshot), set[int]()  # those that may run in several partitions
    alone: dict[int, Reason] = {}  # refused by keys of their own since a pass last came to all
    gated = bool(gates)
    turns, limiter = Turns(snapshot), Limiter.of(snapshot)
    ahead = reserving(snapshot, policies, tuning, kinds, limiter, whole)
    left = refused_now = 0
    weight = 1 if ahead is None else TRIED_WEIGHT
    # by identity, since each turn looks at all that wait and hashing a demand costs as much as the rest
    known: dict[int, tuple[Demand, bool, dict[int, None]]] = {}
    for job in pending:
        if job.is_conditional:
            waits = waiting(job, snapshot)
            if waits is not None:
                result.reasons[job.id] = waits
                continue
        asked = job
        if gated and job.spec.partition:
            job, shut = gates.of(job)
            if shut is not None:
                result.reasons[job.id] = shut
                continue
            if "," in asked.spec.partition:
                several.add(job.id)
        demand = kinds.of(job)
        if snapshot.reservations or job.spec.switches or asked is not job:
            blocked.note(asked, demand)
        if job.id in claims:
            eligible.append(job)
            left += 1
            continue
        if (reason := blocked.refused_alone(job)) is not None and job.id not in snapshot.planned:
            if ahead is not None:  # it may get a reservation
                eligible.append(job)
                alone[job.id] = reason
            continue
        met = known.get(id(demand))
        if met is None:
            refused = demand in blocked.reasons  # before, and nothing has come free since
            group = blocked.waiting[demand] if refused else groups.setdefault(demand, {})
            met = known[id(demand)] = demand, refused, group
        _, refused, group = met
        group[job.id] = None
        if refused and ahead is None:
            continue
        left += not refused
        eligible.append(job)
    if ahead is not None:
        ahead.hopeless = blocked.hopeless
        ahead.begin({job.id: job for job in eligible if job.id not in claims})
    if (sequence := snapshot.newest_sequence) is None:
        sequence = max((p.sequence for p in snapshot.placed.values()), default=0)
    ordered = by_tier(policies.queue.order(eligible, snapshot), snapshot)
    if claims:
        ordered = claimed_first(ordered, snapshot, tries_of(policies, tuning), served)
    for job, one in turns.of(ordered):
        if left == 0 and (ahead is None or ahead.full):
            break
        tried = refused_now + (weight * ahead.in_vain if ahead is not None else 0)
        full = len(result.decisions) >= tuning.placements > 0 or tried >= tuning.refusals > 0
        if full and (left or ahead is not None):
            # behind a reservation also those keep their turn that are known not to fit
            others = (
                j
                for j in eligible
                if ahead is not None or (j.id not in result.reasons and kinds.of(j) not in blocked.reasons)
            )
            result.untried = [j.id for j in others if j.id not in result.taken]
            break
        key = kinds.of(job)
        mine = job.id in claims
        if mine or (key not in blocked.reasons and job.id not in alone):
            group = groups[key] if not mine else {job.id: None}
            limit = turns.limit(job)
            asked, limited = limiter.open(one)
            decision, reasons, elsewhere = None, list[Reason](), None
            if asked is not one:
                elsewhere, limited = limited, None
            ruled = limiter.ruled(asked)
            if limit is None and limited is None and not mine and job.id not in snapshot.planned:
                limited = blocked.over(job, key, ruled)
            if limit is None and limited is None:
                if ahead is not None:
                    decision, reasons = ahead.place(asked, job.id)
                else:
                    decision, reasons = place(asked, snapshot, policies, tuning, sequence + 1)
                if decision is not None:  # with the hosts that it would have
                    if job.id in several:
                        name = ran_in(asked, decision.placement, snapshot.hosts)
                        decision, asked = replace(decision, partition=name), within(asked, name)
                    limited = limiter.against(asked, decision.placement)
                    if limited is not None:
                        refused_now += TRIED_WEIGHT * blocked.refuse_over(job, key, ruled, limited)
            if limited is not None:
                result.limited[job.id] = limited
                limit = limit or limited.reason
            if limit is not None:
                if ahead is not None:
                    ahead.limited(one, job.id, limited)
                result.reasons[job.id] = limit
                del group[job.id]
                left -= 1
                turns.end(job)
                continue
            if decision is not None:
                sequence += 1
                name = policies.placement.name
                result.taken[one.id] = Taken(one, decision.grounds, name, snapshot.now_us)
                reserve(snapshot, one, decision.placement, sequence)
                limiter.place(asked, decision.placement)
                if ahead is not None:
                    ahead.took(one, job.id, decision.placement)
                length = 1
                if one is not job:
                    made[one.id] = one
                    decision = replace(decision, array_job=job.id, array_task=one.array_task or 0)
                    if not limiter.ruled(asked).by_time:  # as long as one after the other may run
                        length = slice_length(
                            job, one, turns.left(job) + 1, snapshot, tuning.slice_us, tuning.slice_shares
                        )
                over = turns.placed(job)
                result.decisions.append(decision if length == 1 else replace(decision, slice_of=one.id))
                for _ in range(length - 1):  # what the first holds is theirs after it
                    follower = turns.next_of(job)
                    task = follower.array_task or 0
                    result.decisions.append(
                        replace(decision, job=follower.id, array_task=task, slice_of=one.id)
                    )
                    over = turns.placed(job, in_line=True)
                if mine and not over:  # the other elements have no claim: in the next pass it is one of many
                    turns.end(job)
                if mine:
                    served.add(job.id)
                if over or mine:
                    del group[job.id]
                    left -= 1
                continue
            if mine:
                result.reasons[job.id] = awaited(job, snapshot) or reasons[0]
                left -= 1
                turns.end(job)
                continue
            if elsewhere is not None:  # of its partitions only some were asked: it is blocked by itself
                result.limited[job.id], result.reasons[job.id] = elsewhere, reasons[0]
                blocked.reasons[partly(asked)] = reasons[0]
                blocked.waiting.setdefault(partly(asked), {})[job.id] = None
                del group[job.id]
                left -= 1
                turns.end(job)
                if ahead is not None and (promise := ahead.reserve(asked, job.id)) is not None:
                    result.reasons[job.id] = promise.promised(reasons[0])
                continue
            if own := apart(job, reasons[0]):  # its like may yet start
                del group[job.id]
                left -= 1
                refused_now += weight * blocked.refuse_alone(own, reasons[0], job)
                turns.end(job)
                if ahead is not None and (promise := ahead.reserve(job, job.id)) is not None:
                    result.reasons[job.id] = promise.promised(reasons[0])
                continue
            refused_now += weight * blocked.refuse(key, reasons[0], group)
            left -= len(group)
        turns.end(job)
        if ahead is not None and (promise := ahead.reserve(job, job.id)) is not None:
            result.reasons[job.id] = promise.promised(alone.get(job.id) or blocked.reasons[key])
    if not result.untried:
        result.again = blocked.came_to_all()
    result.untried += (number for number in served if number not in result.taken)
    result.planned, result.aside = (ahead.planned, ahead.aside) if ahead is not None else ({}, {})
    return result


def reserving(
    snapshot: Snapshot, policies: Policies, tuning: Tuning, kinds: Kinds, limiter: Limiter, whole: bool = True
) -> Ahead[Decision] | None:
    """What decides for jobs behind a reservation, where the queue policy makes any."""
    queue = policies.queue
    if not reserves(queue):
        return None
    return Ahead(
        snapshot,
        lambda job: queue.end_us(job, snapshot),
        lambda job, then: place(job, then, policies, tuning, NEWEST),
        kinds.of,
        limiter,
        getattr(queue, "depth", 1),
        whole,
    )


def waiting(job: Job, snapshot: Snapshot) -> Reason | None:
    """Why anything but a lack of resources keeps a job from being placed now."""
    return (
        not_yet(job, snapshot.now_us)
        or limited(job, snapshot)
        or reserved_later(job.spec, snapshot.now_us, snapshot.reservations, path_of(job, snapshot))
    )


def place(
    job: Job, snapshot: Snapshot, policies: Policies, tuning: Tuning, sequence: int
) -> tuple[Decision | None, list[Reason]]:
    """The best of the first `top_k` candidates by alignment score, or every reason for none.

    Candidates that the communication policy rejects do not count among these; when it rejects all,
    the placement policy is asked to do without the hosts whose links stood against them. Hosts that
    failed to launch the job are taken only when there is no other way.
    """
    request = request_of(job, snapshot)
    demand = request.demand
    if demand.licenses and (without := lacking(demand, snapshot)) is not None:
        return None, [without]

    def on_hosts(asked: PlacementRequest) -> tuple[Decision | None, list[Reason]]:
        return _place(job, asked, snapshot, policies, tuning, sequence)

    def ask(asked: PlacementRequest) -> tuple[Decision | None, list[Reason]]:
        return of_kinds(asked, snapshot, on_hosts)

    def first_of(demands: Iterable[Demand]) -> tuple[Decision | None, list[Reason]]:
        """The first that has a placement, or every reason of all: by when they say to look again."""
        reasons: list[Reason] = []
        for one in demands:
            asked = request if one is request.demand else replace(request, demand=one)
            decision, against = below_few(asked, snapshot, ask) if one.switches else ask(asked)
            if decision is not None:
                return decision, []
            reasons += against
        if len(reasons) > 1:
            reasons = sorted(dict.fromkeys(reasons), key=looked_at_us)
        return None, reasons

    if demand.avoid:
        elsewhere = first_of(demand.avoiding().alternatives())
        if elsewhere[0] is not None:
            return elsewhere
        demand = demand._replace(avoid=())
    return first_of(demand.alternatives())


def tries_of(policies: Policies, tuning: Tuning) -> Tries:
    """Where a job could be placed under some snapshot, if it would take any place that it may have."""
    tuning = replace(tuning, patience=0.0)

    def tries(job: Job, then: Snapshot) -> Placement | None:
        decision = place(job, then, policies, tuning, NEWEST)[0]
        return None if decision is None else decision.placement

    return tries


def _place(
    job: Job,
    request: PlacementRequest,
    snapshot: Snapshot,
    policies: Policies,
    tuning: Tuning,
    sequence: int,
) -> tuple[Decision | None, list[Reason]]:
    reasons: list[Reason] = []
    tried = Tried()
    for _ in range(ROUNDS_MAX):
        best, refusals, against = best_of(job, request, snapshot, policies, tuning, sequence, tried)
        reasons = reasons or refusals
        if best is not None or not against:
            break
        request = replace(request, demand=request.demand.without(against))
    if best is None:
        return None, reasons or [Reason(ReasonCode.RESOURCES, "no placement was found")]
    if best.alignment.score < tuning.min_score:
        return None, [below(best.alignment, tuning.min_score)]
    if (waits := better_later(job, best.alignment, snapshot, tuning.patience)) is not None:
        return None, [waits]
    candidate, alignment = best.candidate, best.alignment
    return Decision(job.id, candidate.placement, alignment, candidate.note, tried.grounds_of(best)), []


def best_of(
    job: Job,
    request: PlacementRequest,
    snapshot: Snapshot,
    policies: Policies,
    tuning: Tuning,
    sequence: int,
    tried: Tried,
) -> tuple[Best | None, list[Reason], set[str]]:
    """(the best of the candidates, the reasons for none, the hosts whose links stood against those
    that were rejected); adds to `tried` all that it looked at."""
    proposal = policies.placement.candidates(request, snapshot)
    best: Best | None = None
    rejections: list[Reason] = []
    against: set[str] = set()
    near = snapshot.near if isinstance(snapshot.near, Neighbourhood) else Neighbourhood()
    compared = 0
    for candidate in islice(proposal.candidates, tuning.top_k + REJECTED_MAX):
        alignment = align_candidate(job, candidate, near, snapshot, policies.comm, sequence)
        tried.candidates.append((candidate, alignment))
        if alignment.rejected is not None:
            rejections.append(alignment.rejected)
            hosts = {link.link for link in alignment.links} & set(candidate.placement.hosts)
            tried.against |= dict.fromkeys(hosts - tried.against.keys(), alignment.rejected)
            against |= hosts
            continue
        compared += 1
        if best is None or alignment.score > best.alignment.score + EPSILON:
            best = Best(candidate, alignment, proposal.observe)
        if best.alignment.score >= PERFECT - EPSILON or compared == tuning.top_k:
            break  # candidates come best first: no later one can be better than a perfect one
    return best, [*proposal.reasons, *dict.fromkeys(rejections)], against


def align_candidate(
    job: Job,
    candidate: Candidate,
    near: Neighbourhood,
    snapshot: Snapshot,
    comm: CommPolicy,
    sequence: int,
) -> Alignment:
    """The alignment of the jobs that the candidate would share links with, itself included."""
    new = placed_view(job, candidate.placement, sequence)
    if not new.communicates:
        return NOTHING_TO_ALIGN
    jobs = near.under(snapshot).of(new, MOST if goes_on(comm) else None)
    if len(jobs) == 1:
        return NOTHING_TO_ALIGN
    return comm.align(jobs, snapshot)


def reserve(snapshot: Snapshot, job: Job, placement: Placement, sequence: int) -> None:
    """Let the rest of the pass see the job as placed."""
    free = snapshot.free
    assert isinstance(free, dict)
    assert isinstance(snapshot.placed, dict)
    for host in placement.hosts:
        free[host] = take(free[host], job.spec, placement.on(host))
    snapshot.placed[job.id] = placed_view(job, placement, sequence)
    if job.spec.exclusive_user:
        assert isinstance(snapshot.by_user, set)
        snapshot.by_user.add(job.id)
