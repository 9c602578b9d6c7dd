"""Policies whose defects end nothing: what one raises is noted, and a safe answer stands in.

Without an order jobs are tried as they came; without a placement the job waits, with the reason; without an
alignment no traffic is managed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rm.core.model.choice import Judged
from rm.core.model.job import Job
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.ports import (
    Candidate,
    CommPolicy,
    Observed,
    PlacementPolicy,
    Proposal,
    QueuePolicy,
    ReservingPolicy,
    reserves,
)
from rm.core.scheduling.choosing import chosen_only, tasks_of

UNORDERED = "jobs are tried as they came, without reservations"
WORDS_MAX = 300  # characters of an exception in a sentence


@dataclass(slots=True)
class Faults:
    """The newest defect of each policy, as sentences by its kind; `on_fault` hears of each new one."""

    on_fault: Callable[[str, Exception], None] = lambda sentence, error: None
    sentences: dict[str, str] = field(default_factory=dict)

    def note(self, kind: str, name: str, instead: str, error: Exception) -> str:
        words = f"{type(error).__name__}: {error}"[:WORDS_MAX]
        sentence = f"The {kind} policy '{name}' failed by a defect of its own ({words}); {instead}."
        if self.sentences.get(kind) != sentence:
            self.sentences[kind] = sentence
            self.on_fault(sentence, error)
        return sentence


class _Guarded:
    """Everything that is not guarded is the policy's own: `name`, and what only some policies have."""

    def __init__(self, policy: Any, faults: Faults) -> None:
        self._policy, self._faults = policy, faults
        self.name: str = policy.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


class _Queue(_Guarded):
    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        try:
            return list(self._policy.order(pending, snapshot))
        except Exception as error:
            self._faults.note("queue", self.name, UNORDERED, error)
            return sorted(pending, key=lambda job: (job.submitted_us, job.id))


class _Reserving(_Queue):
    def end_us(self, job: Job, snapshot: Snapshot) -> int | None:
        try:
            end_us: int | None = self._policy.end_us(job, snapshot)
            return end_us
        except Exception as error:
            self._faults.note("queue", self.name, UNORDERED, error)
            return None


class _Placement(_Guarded):
    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        try:
            found: Proposal = self._policy.candidates(request, snapshot, explain)
        except Exception as error:
            return Proposal(iter(()), [self._waits(error)])
        found.candidates = self._tried(found, found.candidates)
        if found.observe is not None:
            found.observe = partial(self._observed, found.observe)
        return found

    def _tried(self, found: Proposal, lazily: Iterator[Candidate]) -> Iterator[Candidate]:
        try:
            yield from lazily
        except Exception as error:
            found.reasons.insert(0, self._waits(error))

    def _observed(self, observe: Callable[[Candidate], Observed], candidate: Candidate) -> Observed:
        try:
            return partial(self._judged, observe(candidate), candidate)
        except Exception as error:
            return partial(self._unjudged, error, candidate)

    def _judged(self, observed: Observed, candidate: Candidate) -> Judged:
        try:
            return observed()
        except Exception as error:
            return self._unjudged(error, candidate)

    def _unjudged(self, error: Exception, candidate: Candidate) -> Judged:
        self._faults.note("placement", self.name, "`rmx why` lacks the verdicts of hosts", error)
        return chosen_only(tasks_of(candidate.placement))

    def _waits(self, error: Exception) -> Reason:
        sentence = self._faults.note("placement", self.name, "the jobs for which it fails wait", error)
        return Reason(ReasonCode.POLICY, sentence.removesuffix("."))


class _Comm(_Guarded):
    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        try:
            alignment: Alignment = self._policy.align(placed, snapshot, offline)
            return alignment
        except Exception as error:
            self._faults.note("communication", self.name, "no job's traffic is managed", error)
            return NOTHING_TO_ALIGN


def guarded(
    queue: QueuePolicy, placement: PlacementPolicy, comm: CommPolicy, faults: Faults
) -> tuple[QueuePolicy | ReservingPolicy, PlacementPolicy, CommPolicy]:
    """The same policies, with their defects kept in `faults`."""
    first = _Reserving(queue, faults) if reserves(queue) else _Queue(queue, faults)
    return first, _Placement(placement, faults), _Comm(comm, faults)
