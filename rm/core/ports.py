"""Ports: what the core asks of the world, and what policies must answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeGuard

from rm.core.model.choice import Judged
from rm.core.model.job import Job, Placement
from rm.core.model.network.alignment import Alignment
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import HostVerdict, Reason
from rm.core.model.snapshot import PlacedJob, Snapshot


@quickly_made
@dataclass(frozen=True, slots=True)
class Candidate:
    """One gang-complete placement with the policy's own score (higher is better)."""

    placement: Placement
    score: float = 0.0
    note: str = ""
    grounds: object = field(default=None, compare=False, repr=False)  # the policy's own: for `observe`


Observed = Callable[[], Judged]  # what was noted of the hosts around a placement, to be put into words


@dataclass(slots=True)
class Proposal:
    """A placement policy's answer: candidates lazily, best first; or the reasons for none.

    `reasons` is filled when `candidates` yields nothing: every blocker, worst first.
    `verdicts` is filled only when the caller asked to explain. `observe` notes what there is
    around a candidate, for the record; it is asked for the one taken alone, before the snapshot changes,
    and answers at once with what can be put into words after that.
    """

    candidates: Iterator[Candidate]
    reasons: list[Reason] = field(default_factory=list)
    verdicts: list[HostVerdict] = field(default_factory=list)
    observe: Callable[[Candidate], Observed] | None = None


class QueuePolicy(Protocol):
    name: str

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        """The order in which to try the eligible pending jobs; a pure function."""
        ...


class ReservingPolicy(QueuePolicy, Protocol):
    """A queue policy under which the first jobs that do not fit get a reservation: those after them
    start only where they do not delay them."""

    def end_us(self, job: Job, snapshot: Snapshot) -> int | None:
        """When the job is expected to have ended, if it runs or else started now; None = never."""
        ...


def reserves(policy: QueuePolicy) -> TypeGuard[ReservingPolicy]:
    """Asked in every pass: `isinstance` with a protocol would look at all of its attributes."""
    return hasattr(policy, "end_us")


def keeps_order(policy: QueuePolicy) -> bool:
    """Does the order of jobs under it change only as they are changed? So says the policy itself."""
    return not reserves(policy) and getattr(policy, "keeps_order", False)


class PlacementPolicy(Protocol):
    name: str

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        """Placements of all tasks of a job; never oversubscribes `snapshot.free`.

        Whether there is one depends on the request's demand and the snapshot alone.
        """
        ...


class CommPolicy(Protocol):
    """A policy that lets running jobs be moved has a `rescheduling`, too (rm.core.scheduling.rescheduling);
    one with a true `aligns_unprofiled` is asked about jobs without a profile as well. One with a false
    `aligns` is never asked. One with a true `goes_on` is shown, in the snapshot, the alignment that holds,
    and changes there what has to change."""

    name: str

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Rotations, time-shifts and shaping for jobs that share links; pure.

        `offline` asks for stage 3: the scheme of the largest cushion, however long it takes.
        """
        ...


def aligns(policy: CommPolicy) -> bool:
    """Is the policy asked for alignments?"""
    return bool(getattr(policy, "aligns", True))


def aligns_unprofiled(policy: CommPolicy) -> bool:
    """Is the policy asked about jobs without a profile, too?"""
    return bool(getattr(policy, "aligns_unprofiled", False))


def goes_on(policy: CommPolicy) -> bool:
    """Does an alignment of the policy's go on from the one before?"""
    return bool(getattr(policy, "goes_on", False))


class Transfer(NamedTuple):
    """One collective operation of a job between its hosts, under way or waiting to start: a tuple, since a
    simulator makes millions of them.

    `remaining_us` is the job's remaining time if undisturbed, which times `gpus` is its remaining
    service (SRSF's order); `compute_us` the compute time of one of its iterations, `since_us` when
    it was ready to communicate.
    """

    job: int
    hosts: tuple[str, ...]
    size_bytes: float
    left_bytes: float
    gpus: int
    remaining_us: float
    compute_us: float = 0.0
    since_us: float = 0.0


class Admission(NamedTuple):
    """Which waiting transfers start now, in this order, and which ongoing ones wait again."""

    start: tuple[int, ...]
    pause: tuple[int, ...] = ()


class AdmissionPolicy(Protocol):
    """A communication policy that also decides when a single transfer may start.

    Asked whenever a transfer becomes ready or ends, in the simulator and for jobs on hosts that call
    the iteration client before they communicate. What it takes back after it has started stands still there.
    One with a false `looks_at_left` is shown the whole size as what is left, which costs less to find.
    One that starts no transfer on a host where `most` or more go on, whatever they are, may say so: it is not
    asked about those then.
    """

    def admit(self, waiting: Sequence[Transfer], ongoing: Sequence[Transfer]) -> Admission:
        """`waiting` and `ongoing` in the order of their jobs' ids; pure."""
        ...


def admits(policy: object) -> TypeGuard[AdmissionPolicy]:
    """`isinstance` with a protocol would not, as of Python 3.12, see what a wrapper passes on."""
    return hasattr(policy, "admit")


def looks_at_left(policy: object) -> bool:
    """Does an admission policy read how much of a transfer is left?"""
    return bool(vars(type(policy)).get("looks_at_left", True))  # who inherits may look


def most_beside(policy: object) -> int | None:
    """Where as many transfers go on an admission policy starts no further one in any case; None: it may."""
    if not isinstance(vars(type(policy)).get("most"), property):  # who inherits may start others
        return None
    most: int | None = policy.most  # type: ignore[attr-defined]
    return most


class WeighingPolicy(Protocol):
    """A communication policy under which a flow's share of a link changes while it sends.

    What an iteration sends is looked at in this many equal `parts`. It takes another congestion control, so
    the simulator asks it; live hosts keep theirs.
    """

    @property
    def parts(self) -> int: ...

    def weight(self, bytes_ratio: float) -> float:
        """By how much a flow counts of which this part of the iteration's bytes is sent; above 0."""
        ...


def weighs(policy: object) -> TypeGuard[WeighingPolicy]:
    return hasattr(policy, "weight")


class Clock(Protocol):
    def now_us(self) -> int:
        """Microseconds since the epoch."""
        ...

    def monotonic_us(self) -> int:
        """Microseconds since some moment, by a clock that nobody sets."""
        ...
