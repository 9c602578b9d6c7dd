"""What the scheduler thinks of one job now, and whether any state of the cluster could take it."""

from __future__ import annotations

from rm.core.jobs.free import all_of
from rm.core.model.host import HostState
from rm.core.model.job import Job
from rm.core.model.placement_request import PlacementRequest, request_of
from rm.core.model.reasons import HostVerdict, Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import NEWEST, Snapshot
from rm.core.ports import Candidate
from rm.core.scheduling.after import awaited
from rm.core.scheduling.choosing import as_placed
from rm.core.scheduling.decision import Decision
from rm.core.scheduling.engine import Policies, Tuning, place, reserving, waiting
from rm.core.scheduling.gates import Gates, by_tier, ran_in, within
from rm.core.scheduling.host_kinds import of_kinds
from rm.core.scheduling.kinds import Kinds
from rm.core.scheduling.limits.licensing import lacking
from rm.core.scheduling.limits.limiting import Limiter, exceeded
from rm.core.scheduling.why_nobody import why_nobody


def explain(
    job: Job, snapshot: Snapshot, policies: Policies, tuning: Tuning
) -> tuple[Decision | None, list[Reason], list[HostVerdict]]:
    """What the scheduler thinks of a job now, host by host: `rmx why` and `--dry-run`."""
    gates = Gates(snapshot)
    job, shut = gates.of(job)
    waits = waiting(job, snapshot) or shut or exceeded(job, snapshot) or awaited(job, snapshot)
    proposal = policies.placement.candidates(request_of(job, snapshot), snapshot, explain=True)
    limiter = Limiter.of(snapshot)
    ahead = reserving(snapshot, policies, tuning, Kinds(snapshot), limiter)
    if ahead is not None:
        numbers = [one for one in dict.fromkeys([*snapshot.planned, *snapshot.aside]) if one in snapshot.jobs]
        before = [gates.of(snapshot.jobs[number]) for number in numbers]
        others = [one for one, closed in before if closed is None and one.id != job.id]
        ahead.begin({one.id: one for one in others if one.id in snapshot.planned} | {job.id: job})
        for one in by_tier(policies.queue.order([*others, job], snapshot), snapshot) if others else ():
            if one.id == job.id:
                break
            if one.id in snapshot.planned:
                ahead.reserve(one, one.id)
            else:
                ahead.limited(one, one.id, limiter.open(one)[1])
        decision, reasons = ahead.place(job, job.id)
    else:
        decision, reasons = place(job, snapshot, policies, tuning, NEWEST)
    if waits is None and decision is not None:  # with the hosts that it would have
        there = within(job, ran_in(job, decision.placement, snapshot.hosts)) if job.spec.partition else job
        waits = exceeded(there, snapshot, decision.placement)
        if waits is None and (limited := limiter.against(there, decision.placement)) is not None:
            waits = limited.reason
    if next(proposal.candidates, None) is None:  # reasons and verdicts are complete only now
        reasons = list(dict.fromkeys([*proposal.reasons, *reasons]))
    if job.id in snapshot.planned and reasons and ahead is not None:
        promise = ahead.reserve(job, job.id)
        reasons[0] = promise.promised(reasons[0]) if promise is not None else reasons[0]
    if (
        waits is None
        and decision is None
        and (nobody := why_nobody(job, snapshot, policies, tuning)) is not None
    ):
        reasons.append(nobody)
    verdicts = proposal.verdicts if decision is None else as_placed(proposal.verdicts, decision.placement)
    return decision if waits is None else None, ([waits] if waits else []) + reasons, verdicts


def never_fits(job: Job, snapshot: Snapshot, policies: Policies) -> list[Reason]:
    """Why no state of this cluster could ever take the job; empty when one could.

    Asks the placement policy on the same hosts, all of them up and idle. A host that was not
    yet discovered could be anything, so nothing is impossible while there is one.
    """
    if (without := lacking(job.demand, replace(snapshot, placed={}))) is not None:
        return [without]
    if not snapshot.hosts or any(h.cpus == 0 for h in snapshot.hosts.values()):
        return []
    idle = replace(
        snapshot,
        hosts={n: replace(h, state=HostState.UP, drained_by="") for n, h in snapshot.hosts.items()},
        free={n: all_of(h) for n, h in snapshot.hosts.items()},
        placed={},
        reservations=tuple(one for one in snapshot.reservations if one.name == job.spec.reservation),
    )
    reasons: list[Reason] = []
    request = request_of(job, idle)

    def ask(asked: PlacementRequest) -> tuple[Candidate | None, list[Reason]]:
        proposal = policies.placement.candidates(asked, idle)
        return next(proposal.candidates, None), proposal.reasons

    for demand in request.demand.alternatives():
        found, against = of_kinds(replace(request, demand=demand), idle, ask)
        if found is not None:
            return []
        reasons += against
    if any(reason.code is ReasonCode.POLICY for reason in reasons):
        return []  # nobody knows
    return list(dict.fromkeys(reasons)) or [Reason(ReasonCode.RESOURCES, "no placement is possible")]
