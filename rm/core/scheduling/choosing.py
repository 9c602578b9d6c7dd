"""The record of a decision: what is noted when it is taken, and what is made of it for those placed alone.

A pass notes only what the next decision would change; nothing is put into words before somebody keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rm.core.model.choice import CHOSEN_MAX, COMPARED_MAX, NAMED_MAX, Choice, Compared, Judged, Refused
from rm.core.model.job import Job, Placement
from rm.core.model.network.alignment import Alignment
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import HostVerdict, Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.ports import Candidate, Observed

NOTE_MAX = 200  # characters of a candidate's note


@quickly_made
@dataclass(frozen=True, slots=True)
class Best:
    """The best of the candidates so far, with how its policy takes note of the hosts around it."""

    candidate: Candidate
    alignment: Alignment
    observe: Callable[[Candidate], Observed] | None


@quickly_made
@dataclass(frozen=True, slots=True)
class Grounds:
    """What a decision stands upon: the candidate, its alignment, and the `others` that were looked at before
    and after it. `candidates` counts all; `place` is its own among them, from 0.

    `observed`: what the policy noted of the hosts around it; None: it notes nothing. `against`: hosts that
    the communication policy spoke against, and why. It is kept for each placement of a pass, and so holds
    no other candidate's placement, which may be large.
    """

    candidate: Candidate
    alignment: Alignment
    observed: Observed | None
    others: tuple[Compared, ...]
    place: int
    candidates: int
    against: Mapping[str, Reason]


@dataclass(slots=True)
class Tried:
    """The candidates of one job that were looked at, and why hosts were spoken against."""

    candidates: list[tuple[Candidate, Alignment]] = field(default_factory=list)
    against: dict[str, Reason] = field(default_factory=dict)

    def grounds_of(self, best: Best) -> Grounds:
        """To be asked before the snapshot changes."""
        tried = self.candidates
        place = next(i for i, (candidate, _) in enumerate(tried) if candidate is best.candidate)
        others = tuple([_compared(*tried[i]) for i in range(min(len(tried), COMPARED_MAX)) if i != place])
        observed = best.observe(best.candidate) if best.observe is not None else None
        return Grounds(
            best.candidate,
            best.alignment,
            observed,
            others[: COMPARED_MAX - 1],
            place,
            len(tried),
            self.against,
        )


@quickly_made
@dataclass(frozen=True, slots=True)
class Taken:
    """A placement that was taken at `now_us`."""

    job: Job
    grounds: Grounds
    placement_policy: str
    now_us: int

    def choice(self) -> Choice:
        """The record; to be asked before anything but decisions happens to the state."""
        grounds = self.grounds
        tasks = tasks_of(grounds.candidate.placement)
        judged = grounds.observed() if grounds.observed is not None else chosen_only(tasks)
        at = min(grounds.place, len(grounds.others))
        own = _compared(grounds.candidate, grounds.alignment, taken=True)
        return Choice(
            self.now_us,
            self.placement_policy,
            tuple([_finite(verdict) for verdict in judged.chosen]),
            len(tasks),
            self._refused(judged.refused),
            judged.refused_hosts,
            judged.passed_over_hosts,
            (*grounds.others[:at], own, *grounds.others[at:]),
            grounds.candidates,
        )

    def _refused(self, groups: Sequence[Refused]) -> tuple[Refused, ...]:
        """The groups; hosts that the engine had excluded, and not the user, with the engine's own reason."""
        if not self.job.avoid and not self.grounds.against:
            return tuple([replace(group, reason=_storable(group.reason)) for group in groups])
        own: dict[Reason, list[str]] = {}
        left: list[Refused] = []
        for group in groups:
            rest = []
            for host in group.hosts:
                if (reason := self._engines(host)) is not None:
                    own.setdefault(reason, []).append(host)
                else:
                    rest.append(host)
            if rest:
                left.append(Refused(_storable(group.reason), tuple(rest)))
        return (*[Refused(_storable(reason), tuple(hosts)) for reason, hosts in own.items()], *left)

    def _engines(self, host: str) -> Reason | None:
        if host in self.job.spec.hosts_excluded:
            return None
        if host in self.job.avoid:
            return Reason(ReasonCode.LAUNCH_FAILED, "failed to launch the job before")
        return self.grounds.against.get(host)


def tasks_of(placement: Placement) -> dict[str, int]:
    """How many tasks each of its hosts has, in the order of their first ranks."""
    tasks: dict[str, int] = {}
    for task in placement.tasks:
        tasks[task.host] = tasks.get(task.host, 0) + 1
    return tasks


def chosen_only(tasks: Mapping[str, int]) -> Judged:
    """Of a policy that notes nothing: the hosts that it took."""
    first = islice(tasks.items(), CHOSEN_MAX)
    return Judged(tuple([HostVerdict(host, None, (("tasks", float(count)),)) for host, count in first]))


def as_placed(verdicts: Sequence[HostVerdict], placement: Placement) -> list[HostVerdict]:
    """The verdicts with the tasks of this placement, which need not be the policy's first candidate."""
    tasks = tasks_of(placement)
    found: list[HostVerdict] = []
    for verdict in verdicts:
        count = tasks.get(verdict.host, 0)
        scores = tuple(score for score in verdict.scores if score[0] != "tasks")
        if count or verdict.refused is None:
            scores = (*scores, ("tasks", float(count)))
        found.append(HostVerdict(verdict.host, None if count else verdict.refused, scores))
    return found


def _compared(candidate: Candidate, alignment: Alignment, taken: bool = False) -> Compared:
    hosts = candidate.placement.hosts
    return Compared(
        hosts[:NAMED_MAX],
        len(hosts),
        _number(candidate.score),
        _number(alignment.score),
        candidate.note[:NOTE_MAX],
        taken,
        None if alignment.rejected is None else _storable(alignment.rejected),
    )


def _number(value: float) -> float | None:
    """JSON has no infinity."""
    return round(float(value), 3) if math.isfinite(value) else None


def _finite(verdict: HostVerdict) -> HostVerdict:
    """Without scores that JSON lacks numbers for."""
    if all(math.isfinite(value) for _, value in verdict.scores):
        return verdict
    return replace(verdict, scores=tuple(s for s in verdict.scores if math.isfinite(s[1])))


def _storable(reason: Reason) -> Reason:
    """With text in the place of numbers that JSON lacks."""
    if all(math.isfinite(v) for _, v in reason.numbers if isinstance(v, float)):
        return reason
    numbers = tuple(
        (n, str(v) if isinstance(v, float) and not math.isfinite(v) else v) for n, v in reason.numbers
    )
    return replace(reason, numbers=numbers)
