"""Typed reasons: every "no" carries its code and its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rm.core.model.quickly_made import quickly_made


class ReasonCode(StrEnum):
    __hash__ = str.__hash__  # as JobState does
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
    PARTITION_DOWN = "PartitionDown"
    PARTITION_INACTIVE = "PartitionInactive"
    PARTITION_TIME = "PartitionTimeLimit"
    PARTITION_HOSTS = "PartitionNodeLimit"
    ACCOUNT_NOT_ALLOWED = "AccountNotAllowed"  # in the partition
    QOS_NOT_ALLOWED = "QOSNotAllowed"
    # limits of accounts and their users (Assoc), and of QOS
    ASSOC_JOBS = "AssocGrpJobsLimit"
    ASSOC_SUBMIT = "AssocGrpSubmitJobsLimit"
    ASSOC_CPUS = "AssocGrpCpuLimit"
    ASSOC_GPUS = "AssocGrpGRES"
    ASSOC_HOSTS = "AssocGrpNodeLimit"
    ASSOC_MEM = "AssocGrpMemLimit"
    ASSOC_GPU_MINUTES = "AssocGrpGRESRunMinutes"
    ASSOC_BILLING = "AssocGrpBillingMinutes"
    ASSOC_USER_JOBS = "AssocMaxJobsLimit"
    ASSOC_USER_SUBMIT = "AssocMaxSubmitJobLimit"
    ASSOC_JOB_WALL = "AssocMaxWallDurationPerJobLimit"
    ASSOC_JOB_CPUS = "AssocMaxCpuPerJobLimit"
    ASSOC_JOB_GPUS = "AssocMaxGRESPerJob"
    ASSOC_JOB_HOSTS = "AssocMaxNodePerJobLimit"
    ASSOC_JOB_MEM = "AssocMaxMemPerJob"
    ASSOC_JOB_GPU_MINUTES = "AssocMaxGRESMinutesPerJob"
    QOS_JOBS = "QOSGrpJobsLimit"
    QOS_SUBMIT = "QOSGrpSubmitJobsLimit"
    QOS_CPUS = "QOSGrpCpuLimit"
    QOS_GPUS = "QOSGrpGRES"
    QOS_HOSTS = "QOSGrpNodeLimit"
    QOS_MEM = "QOSGrpMemLimit"
    QOS_GPU_MINUTES = "QOSGrpGRESRunMinutes"
    QOS_USER_JOBS = "QOSMaxJobsPerUserLimit"
    QOS_USER_SUBMIT = "QOSMaxSubmitJobPerUserLimit"
    QOS_USER_CPUS = "QOSMaxCpuPerUserLimit"
    QOS_USER_GPUS = "QOSMaxGRESPerUser"
    QOS_USER_HOSTS = "QOSMaxNodePerUserLimit"
    QOS_USER_MEM = "QOSMaxMemoryPerUser"
    QOS_ACCOUNT_JOBS = "QOSMaxJobsPerAccountLimit"
    QOS_ACCOUNT_SUBMIT = "QOSMaxSubmitJobPerAccountLimit"
    QOS_ACCOUNT_CPUS = "QOSMaxCpuPerAccountLimit"
    QOS_ACCOUNT_GPUS = "QOSMaxGRESPerAccount"
    QOS_ACCOUNT_HOSTS = "QOSMaxNodePerAccountLimit"
    QOS_ACCOUNT_MEM = "QOSMaxMemoryPerAccount"
    QOS_JOB_WALL = "QOSMaxWallDurationPerJobLimit"
    QOS_JOB_CPUS = "QOSMaxCpuPerJobLimit"
    QOS_JOB_GPUS = "QOSMaxGRESPerJob"
    QOS_JOB_HOSTS = "QOSMaxNodePerJobLimit"
    QOS_JOB_MEM = "QOSMaxMemoryPerJob"
    QOS_JOB_GPU_MINUTES = "QOSMaxGRESMinutesPerJob"
    # ours
    ZONE = "Zone"  # no zone, or no union of zones, has room
    BANDWIDTH = "Bandwidth"  # the host link is too narrow for the task
    CONTENTION = "Contention"  # no rotation keeps the phases apart
    DEPENDENCY_LOOP = "DependencyLoop"  # the affinity graph would close a loop
    BAD_NETWORK = "BadNetwork"  # excluded by measured loss, delay or bandwidth
    LAUNCH_FAILED = "LaunchFailed"
    HOST_LOST = "HostLost"
    PREEMPTED = "Preempted"  # it gave its hosts up to another job
    NOBODY_PREEMPTED = "NobodyPreempted"  # though it may preempt others
    LEASE = "Lease"  # a lost host may still run the job's tasks
    LEFT_ALONE = "LeftAlone"  # it runs; the jobs that share its links are slower managed
    TIME_LIMIT = "TimeLimit"
    DEADLINE = "DeadLine"  # it could not be over by its deadline any more
    CANCELLED = "Cancelled"
    EXIT_CODE = "NonZeroExitCode"
    OUT_OF_MEMORY = "OutOfMemory"
    POLICY = "PolicyFault"  # the placement policy raised


USED_BY = "used_by"  # the name of the number that names users


@quickly_made
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
