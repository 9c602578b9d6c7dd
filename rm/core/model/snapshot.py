"""Snapshot: all a policy may see."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.host import Host, Zone
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job, Placement
from rm.core.model.network.alignment import Alignment
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import Link, NetworkView
from rm.core.model.planned import Planned
from rm.core.model.progress import Progress
from rm.core.model.quickly_made import quickly_made

K = TypeVar("K")
V = TypeVar("V")


class TrackedDict(dict[K, V]):
    """A dict that remembers in `changed` which keys were set, in order.

    Policies follow `changed` instead of looking at every entry for every job; so an entry is
    replaced (`free[host] = ...`), never changed in place, and none is deleted.
    """

    __slots__ = ("changed",)

    def __init__(self, values: Mapping[K, V] | None = None) -> None:
        super().__init__(values or {})
        self.changed: list[K] = []

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.changed.append(key)


@dataclass(slots=True)
class Touches:
    """Which jobs have begun, ended, become others or been heard of, one after the other; the oldest are
    forgotten."""

    _numbers: list[int] = field(default_factory=list)
    _forgotten: int = 0

    def add(self, job: int) -> None:
        self._numbers.append(job)
        if len(self._numbers) > TOUCHES_MAX:
            del self._numbers[: TOUCHES_MAX // 2]
            self._forgotten += TOUCHES_MAX // 2

    @property
    def count(self) -> int:
        return self._forgotten + len(self._numbers)

    def between(self, since: int, until: int) -> set[int] | None:
        """The jobs from one count to another; None when it is not known any more."""
        if since < self._forgotten:
            return None
        return set(self._numbers[since - self._forgotten : until - self._forgotten])


@quickly_made
@dataclass(frozen=True, slots=True)
class Touched:
    """What a follower of one snapshot after the other has to look at: jobs touched up to this count. It holds
    for a snapshot with these placed jobs alone, not for what may have been made of it."""

    touches: Touches
    until: int
    placed: Mapping[int, PlacedJob]


@dataclass(slots=True)
class Free:
    """What is left of one host. `gpus` are the idle indices in ascending order; `gpu_mem` pairs each
    GPU that no job has for itself with its free bytes, for jobs that share GPUs. `strays`: the jobs of which
    an attempt that was given up still runs there, and holds what it uses."""

    cpus: int
    mem_bytes: int
    gpus: tuple[int, ...]
    gpu_mem: tuple[tuple[int, int], ...] = ()
    strays: tuple[int, ...] = ()


TOUCHES_MAX = 1 << 16
NEWEST = 1 << 60  # the sequence of a job about to be placed: it is deployed after all others


@quickly_made
@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job that occupies hosts (or is about to, within this pass), as the policies see it.

    `sequence` grows with the order of deployment (R3).
    """

    job: int
    name: str
    high: bool
    priority: int
    sequence: int
    placement: Placement
    traffic: TrafficProfile | None
    low_comm: bool
    licenses: tuple[tuple[str, int], ...] = ()
    user: str = ""
    exclusive_user: bool = False

    @property
    def communicates(self) -> bool:
        """Does it put a known load on links that others may share?"""
        return self.traffic is not None and self.may_communicate

    @property
    def may_communicate(self) -> bool:
        """Does it put a load there as far as is known?"""
        return not self.low_comm and len(self.placement.hosts) > 1


@dataclass(frozen=True, slots=True)
class Aligned:
    """The alignment that holds, and the jobs that it is for.

    `grounds` are those of the policy's newest answer. When that answer has been replaced since, `renewed`, by
    one that another thread found for the same jobs, they are older than the alignment.
    """

    alignment: Alignment
    jobs: Mapping[int, PlacedJob]
    grounds: object = None
    renewed: bool = False


class SharesView(Protocol):
    """What policies ask of `rm.core.sharing`."""

    def factor(self, account: str, user: str, committed_weight: float) -> float:
        """The fair share of a user in an account, from 0 to 1; what running jobs will yet use counts so
        often."""
        ...

    def qos_part(self, qos: str) -> float:
        """The priority of a QOS, as a part of the highest one's."""
        ...

    def partition_part(self, name: str) -> float:
        """The priority of a partition, as a part of the highest of all."""
        ...


class NoShares:
    """Where there are no accounts."""

    def factor(self, account: str, user: str, committed_weight: float) -> float:
        return 0.0

    def qos_part(self, qos: str) -> float:
        return 0.0

    def partition_part(self, name: str) -> float:
        return 0.0


NO_SHARES = NoShares()


@quickly_made
@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent view of the cluster at `now_us`.

    The mappings are read-only views of the leader's state; they are valid until the next
    event is applied, and a policy must not keep them. `free` already reflects the jobs placed
    earlier in the same pass. `hosts` keeps inventory order.
    """

    now_us: int
    hosts: Mapping[str, Host]
    zones: Mapping[str, Zone]
    links: Mapping[str, Link]
    network: NetworkView
    free: Mapping[str, Free]
    placed: Mapping[int, PlacedJob]
    jobs: Mapping[int, Job] = field(default_factory=dict)
    progress: Mapping[int, Progress] = field(default_factory=dict)
    fabric: Fabric | None = None
    licenses: Mapping[str, int] = field(default_factory=dict)  # how many of each there are
    behind: Mapping[int, int] = field(default_factory=dict)  # by array: placed, in line behind another one
    by_user: AbstractSet[int] = (
        frozenset()
    )  # placed jobs whose hosts are their users' alone; others may be in it
    claims: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # by pending job: those that give their hosts up to it
    reservations: tuple[HostReservation, ...] = ()
    shares: SharesView = NO_SHARES
    aligned: Aligned | None = None  # where the alignment of all that is placed goes on from
    touched: Touched | None = None
    newest_sequence: int | None = None  # of the placed jobs; None: look at them all
    near: object = None  # the cycle's Neighbourhood
    planned: Mapping[int, Planned] = field(
        default_factory=dict
    )  # by pending job, first those that stand first
    aside: AbstractSet[int] = frozenset()  # pending jobs for which something of limits is set aside
    next_job: int = 1  # the first id that no job has: an element of an array that is placed gets the next one
