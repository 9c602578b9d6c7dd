"""Reservations: when the first jobs that do not fit are to start, and where.

Source: EASY backfilling (D. Lifka, JSSPP 1995; A. Mu'alem and D. Feitelson, IEEE TPDS 2001): the
first job that does not fit gets a reservation, at the earliest time at which enough of what runs
will have ended. Another job may start before it if it ends by then, or leaves the reserved job
enough. Several jobs may have one (conservative backfilling, in the same paper).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from rm.core.jobs.free import all_of, needs, usable_gpus
from rm.core.model.host import Host
from rm.core.model.job import Job, JobSpec, Placement, TaskPlacement
from rm.core.model.planned import Planned
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free, Snapshot
from rm.core.scheduling.running import UNKNOWN_US

Tries = Callable[[Snapshot], Placement | None]


@dataclass(slots=True)
class Reservation:
    """The pending job `number`, tried as `job`, holds `placement` from `at_us` (`UNKNOWN_US`: once jobs have
    ended whose end nobody knows) to its expected end, at `until_us`. `tries` says where else it fits."""

    number: int
    job: Job
    at_us: int
    until_us: int
    placement: Placement
    tries: Tries
    # at its start, without it, by host, as far as anybody asked
    free: dict[str, Free] = field(default_factory=dict)

    def outlasted_by(self, end_us: int) -> bool:
        """Would a job that ends then still hold what it has when the reserved one is to start?"""
        return end_us > self.at_us

    @property
    def planned(self) -> Planned:
        return Planned(self.number, self._known_us, self.placement)

    def reason(self) -> Reason:
        """Why a job waits that would fit were it not for the reservation."""
        return Reason(
            ReasonCode.PRIORITY,
            f"waits behind the reservation of job {self.number}, which starts {said_start(self.at_us)}: "
            "it would not have ended by then, and not enough would be left",
            (("reserved_job", self.number), *self._numbers),
        )

    def promised(self, reason: Reason) -> Reason:
        """Why the reserved job itself waits, and until when."""
        message = f"{reason.message}; its reservation begins {said_start(self.at_us)}"
        return Reason(reason.code, message, (*reason.numbers, *self._numbers))

    @property
    def _known_us(self) -> int | None:
        return None if self.at_us >= UNKNOWN_US else self.at_us

    @property
    def _numbers(self) -> tuple[tuple[str, int], ...]:
        return () if self._known_us is None else (("reserved_start_us", self.at_us),)


@lru_cache(maxsize=256)
def said_start(at_us: int) -> str:
    """Of one reservation hundreds of jobs are told in a pass."""
    if at_us >= UNKNOWN_US:
        return "when jobs without a time limit have ended"
    try:
        at = datetime.fromtimestamp(at_us / 1e6, UTC)
    except (OverflowError, ValueError, OSError):
        return "in the far future"
    return f"at {at:%Y-%m-%d %H:%M:%S} UTC"


def holds(host: Host, free: Free, spec: JobSpec, tasks: tuple[TaskPlacement, ...]) -> bool:
    """Do these very tasks of a job fit into what is free, with these GPUs?"""
    if spec.exclusive:
        return free == all_of(host)
    cpus, mem = needs(spec, len(tasks))
    mem = host.mem_bytes if spec.mem_all else mem
    usable = set(usable_gpus(free, spec.gpu_mem_bytes))
    return free.cpus >= cpus and free.mem_bytes >= mem and all(usable.issuperset(t.gpus) for t in tasks)


def overlap(a: Free, b: Free) -> Free:
    """What is free in both."""
    idle, memory = set(b.gpus), dict(b.gpu_mem)
    return Free(
        min(a.cpus, b.cpus),
        min(a.mem_bytes, b.mem_bytes),
        tuple(g for g in a.gpus if g in idle),
        tuple((g, min(size, memory[g])) for g, size in a.gpu_mem if g in memory),
        a.strays or b.strays,
    )
