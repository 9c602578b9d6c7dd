"""Typed reasons: every "no" carries its code and its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReasonCode(StrEnum):
    # Slurm's names where Slurm has one
    RESOURCES = "Resources"
    PRIORITY = "Priority"
    LICENSES = "Licenses"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    BEGIN_TIME = "BeginTime"
    ARRAY_LIMIT = "JobArrayTaskLimit"
    HELD_USER = "JobHeldUser"
    HELD_ADMIN = "JobHeldAdmin"
    HOST_NOT_AVAILABLE = "ReqNodeNotAvail"
    RESERVATION = "Reservation"
    # ours
    ZONE = "Zone"  # no zone, or no union of zones, has room
    BANDWIDTH = "Bandwidth"  # the host link is too narrow for the task
    CONTENTION = "Contention"  # no rotation keeps the phases apart
    DEPENDENCY_LOOP = "DependencyLoop"  # the affinity graph would close a loop
    BAD_NETWORK = "BadNetwork"  # excluded by measured loss, delay or bandwidth
    LAUNCH_FAILED = "LaunchFailed"
    HOST_LOST = "HostLost"
    LEASE = "Lease"  # a lost host may still run the job's tasks
    TIME_LIMIT = "TimeLimit"
    DEADLINE = "DeadLine"  # it could not be over by its deadline any more
    CANCELLED = "Cancelled"
    EXIT_CODE = "NonZeroExitCode"
    OUT_OF_MEMORY = "OutOfMemory"
    POLICY = "PolicyFault"  # the placement policy raised


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, one sentence, and the numbers behind it as (name, value) pairs."""

    code: ReasonCode
    message: str
    numbers: tuple[tuple[str, float | int | str], ...] = ()

    def __str__(self) -> str:
        return f"({self.code}) {self.message}"


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """What the placement pipeline thought of one host: for `rmx why`.

    `refused` is None when every filter passed; `scores` are (name, value) in pipeline order.
    """

    host: str
    refused: Reason | None = None
    scores: tuple[tuple[str, float], ...] = ()
