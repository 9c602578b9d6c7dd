"""Moving a running job whose links have become incompatible.

Metronome's rescheduling is left open by the paper (Sec. V: deployed jobs may turn from compatible to
incompatible). Here: when a profile that was just measured leaves a contended link with a score below
`below`, although all rotations were sought anew, the lowest ranked low priority job there is taken
off its hosts and put back into the queue, provided that

* its user allows it (`--requeue`, the default; what the job did since its last checkpoint is lost),
* there is room elsewhere now where every link would score `below` or more, and
* no job was moved within the last `every_us`.

If that job has no such place the next one by rank is looked at. High priority jobs stay.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import PlacedJob
from rm.core.ports import CommPolicy
from rm.core.scheduling.engine import Policies, Tuning, place


@dataclass(frozen=True, slots=True)
class Rescheduling:
    """When jobs are moved: scores as of alignments (100 = no contention), times in microseconds."""

    below: float
    every_us: int


def rule_of(policy: CommPolicy) -> Rescheduling | None:
    """By which rule jobs of the policy are moved; None: they stay where they are."""
    rule: Rescheduling | None = getattr(policy, "rescheduling", None)
    return rule


def to_move(
    state: ClusterState,
    measured: Container[int],
    policies: Policies,
    tuning: Tuning,
    rule: Rescheduling,
    now_us: int,
) -> tuple[int, Reason] | None:
    """The job to move and why; None when nothing has to or can be moved.

    `state.alignment` is for the jobs as they are placed now, with the profiles of the `measured`
    ones.
    """
    if state.rescheduled_us is not None and now_us - state.rescheduled_us < rule.every_us:
        return None
    for link in sorted(state.alignment.links, key=lambda link: (link.score, link.link)):
        if link.score >= rule.below:
            break
        if not any(job in measured for job in link.jobs):
            continue
        for view in sorted((state.placed[j] for j in link.jobs if j in state.placed), key=_last_first):
            job = state.jobs[view.job]
            if view.high or job.state is not JobState.RUNNING or not job.spec.requeue:
                continue
            elsewhere = _elsewhere(state, job, policies, tuning, rule, now_us)
            if elsewhere is not None:
                hosts, score = elsewhere
                return job.id, Reason(
                    ReasonCode.CONTENTION,
                    f"link {link.link} scores {link.score:.1f} with the traffic measured there, "
                    f"{rule.below:.1f} is asked for; on {', '.join(hosts)} the job scores {score:.1f}",
                    (("score", link.score), ("below", rule.below), ("score_elsewhere", score)),
                )
    return None


def _last_first(view: PlacedJob) -> tuple[int, int, str]:
    """Lowest priority first, then the latest deployed: the order of ranks (R3) backwards."""
    return (view.priority, -view.sequence, view.name)


def _elsewhere(
    state: ClusterState, job: Job, policies: Policies, tuning: Tuning, rule: Rescheduling, now_us: int
) -> tuple[tuple[str, ...], float] | None:
    """Hosts on which the job would do now, were it not where it is, and its score there."""
    decision, _ = place(job, state.snapshot_without(job, now_us), policies, tuning, state.next_sequence)
    if decision is None or decision.alignment.score < rule.below:
        return None
    return decision.placement.hosts, decision.alignment.score
