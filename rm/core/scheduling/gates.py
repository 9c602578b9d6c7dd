"""Which of its partitions are open to a pending job, and in which order jobs of several tiers are tried.

A partition that is down or inactive starts nothing; one that is not for a job's account or QOS takes no job
of theirs. Of several partitions a job keeps those that are open to it. Source of the codes: Slurm's
documentation, "Job Reason Codes"; of the tiers: slurm.conf(5), PriorityTier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rm.core.model.host import Host
from rm.core.model.job import Job, Placement
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Snapshot
from rm.core.sharing.accounts import DOWN, INACTIVE, NO_ACCOUNTS, USUAL_TIER, Accounts
from rm.core.sharing.partitions import against_use
from rm.core.sharing.shares import Shares

Open = tuple[tuple[str, ...], Reason | None]  # of a job's partitions those that are; why none is
_SHUT = {DOWN: ReasonCode.PARTITION_DOWN, INACTIVE: ReasonCode.PARTITION_INACTIVE}


class Gates:
    """Of the jobs of one pass, or one question; false where no partition has rules."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._accounts = accounts_of(snapshot)
        self._known: dict[tuple[str, str, str], Open] = {}

    def __bool__(self) -> bool:
        return bool(self._accounts.partitions)

    def of(self, job: Job) -> tuple[Job, Reason | None]:
        """(the job with those of its partitions that are open to it, why none is)"""
        asked = job.spec.partition
        if not asked or not self:
            return job, None
        standing = asked, job.account, job.qos
        found = self._known.get(standing)
        if found is None:
            found = self._known[standing] = self._find(job)
        names, shut = found
        if shut is not None or len(names) == asked.count(",") + 1:
            return job, shut
        return within(job, ",".join(names)), None

    def _find(self, job: Job) -> Open:
        names, reasons = list[str](), list[Reason]()
        for name in job.spec.partitions:
            reason = self._against(name, job)
            if reason is None:
                names.append(name)
            else:
                reasons.append(reason)
        return tuple(names), None if names else reasons[0]

    def _against(self, name: str, job: Job) -> Reason | None:
        ruled = self._accounts.partition_by_name.get(name)
        if ruled is None:
            return None
        if ruled.state in _SHUT:
            return Reason(_SHUT[ruled.state], f"partition {name} is in the state {ruled.state}")
        if said := against_use(self._accounts, name, job.account, job.qos):
            by_account = bool(against_use(self._accounts, name, job.account, next(iter(ruled.qos), "")))
            code = ReasonCode.ACCOUNT_NOT_ALLOWED if by_account else ReasonCode.QOS_NOT_ALLOWED
            return Reason(code, said)
        return None


def accounts_of(snapshot: Snapshot) -> Accounts:
    shares = snapshot.shares
    return shares.accounts if isinstance(shares, Shares) else NO_ACCOUNTS


def path_of(job: Job, snapshot: Snapshot) -> tuple[str, ...]:
    """The accounts that a job for a reservation runs for, from below the root; of others nobody asks."""
    if not job.spec.reservation or not job.account:
        return ()
    return accounts_of(snapshot).path(job.account) or (job.account,)


def within(job: Job, partition: str) -> Job:
    """As if the job had named this partition, or these."""
    return replace(job, spec=replace(job.spec, partition=partition))


def ran_in(job: Job, placement: Placement, hosts: Mapping[str, Host]) -> str:
    """In which of its partitions the job goes there: in the first that has all of the hosts."""
    there = [hosts[name].partitions for name in placement.hosts]
    return next((one for one in job.spec.partitions if all(one in names for names in there)), "")


def by_tier(ordered: Iterable[Job], snapshot: Snapshot) -> Iterable[Job]:
    """In the order that they have, but those of a higher tier first: of several partitions the highest."""
    tiers = accounts_of(snapshot).tiers
    if not tiers:
        return ordered
    known: dict[str, int] = {"": USUAL_TIER}

    def tier(job: Job) -> int:
        asked = job.spec.partition
        if asked not in known:
            known[asked] = max(tiers.get(name, USUAL_TIER) for name in job.spec.partitions)
        return -known[asked]

    return sorted(ordered, key=tier)
