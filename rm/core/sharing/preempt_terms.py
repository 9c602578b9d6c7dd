"""On which terms a running job gives way to a pending one: by its QOS, or by the tier of its partition.

Where a partition has a preempt mode, tiers stand above QOS: no job preempts one of a higher tier, by its QOS
either. So nobody preempts, by any way, the job for which he went. Source of the terms: Slurm's documentation,
"Preemption", `PreemptType=preempt/qos` and `preempt/partition_prio`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.job import Job
from rm.core.sharing.accounts import OFF, PREEMPT_MODES, SUSPEND, Accounts, Partition, Qos
from rm.errors import UsageError

LONGEST_S = 365 * 86_400


@dataclass(frozen=True, slots=True)
class Terms:
    """What becomes of the job (`mode`), how long after its signal, and for how long it is let run before;
    `above`: why the other one stands above it, in words."""

    mode: str
    grace_us: int
    exempt_us: int
    above: str


def terms_of(accounts: Accounts, qos: str, partition: str, job: Job) -> Terms | None:
    """On which terms `job` gives way to one of this QOS and of these partitions; None: it does not."""
    ruled = accounts.partition_by_name.get(job.partition or job.spec.partition)
    higher = 0
    if accounts.preempted_from is not None:
        higher = accounts.tier_of(partition) - accounts.tier_of(job.partition or job.spec.partition)
    if higher < 0:
        return None
    mine, named = accounts.qos_by_name.get(qos), accounts.qos_by_name.get(job.qos)
    if mine is not None and named is not None and job.qos in mine.preempts and named.preempt_mode != OFF:
        return _terms(named, f"of QOS {qos}")
    if higher and ruled is not None and ruled.preempt_mode != OFF:
        return _terms(ruled, f"of partition {partition}" if partition else "without a partition")
    return None


def may_preempt(accounts: Accounts, job: Job) -> bool:
    """Does the job stand above any others, by its QOS or its partition?"""
    if job.qos in accounts.preemptors:
        return True
    least = accounts.preempted_from
    return least is not None and accounts.tier_of(job.spec.partition) > least


def is_suspended_by_others(accounts: Accounts, job: Job) -> bool:
    """May the job have to stand still for others?"""
    qos = accounts.qos_by_name.get(job.qos)
    ruled = (accounts.partition_by_name.get(name) for name in job.spec.partitions)
    found = [one.preempt_mode for one in (qos, *ruled) if one is not None]
    return SUSPEND in found


def check_terms(one: Qos | Partition, what: str) -> None:
    """Raises UsageError for the first thing that is wrong with how its jobs are preempted."""
    if one.preempt_mode not in PREEMPT_MODES:
        raise UsageError(
            f"The preempt mode of {what} is '{one.preempt_mode:.80}'.",
            f"It may be {', '.join(PREEMPT_MODES)}.",
        )
    for name, seconds in (("grace", one.grace_s), ("exempt time", one.exempt_s)):
        if not 0 <= seconds <= LONGEST_S:
            raise UsageError(f"The {name} of {what} is {seconds:g} s.", f"Write 0 to {LONGEST_S}.")


def _terms(one: Qos | Partition, above: str) -> Terms:
    return Terms(one.preempt_mode, int(one.grace_s * 1e6), int(one.exempt_s * 1e6), above)
