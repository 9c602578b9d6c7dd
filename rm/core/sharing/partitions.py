"""Partitions as administrators rule them: state, tier, who may use them, times and limits.

Which hosts are in a partition the inventory says; one that nobody has ruled is open to all. Source: Slurm's
slurm.conf(5), "PARTITION CONFIGURATION".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rm.core.model.job import JobSpec
from rm.core.model.replacing import replace
from rm.core.sharing.accounts import DRAIN, INACTIVE, PARTITION_STATES, Accounts, Partition
from rm.core.sharing.limits import OF_QOS, check_limits
from rm.core.sharing.preempt_terms import check_terms
from rm.errors import Conflict, NotFound, Refusal, UsageError

MAX_PARTITIONS = 1_000
MAX_TIER = 65_533  # Slurm's
MAX_PRIORITY = 65_533
MAX_MINUTES = 2**31 - 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")


def known_partition(accounts: Accounts, name: str) -> Partition:
    """Raises NotFound."""
    found = accounts.partition_by_name.get(name)
    if found is None:
        raise NotFound(
            f"No rules of a partition '{name:.80}' are there.",
            "`rmx partition show` lists the partitions; `rmx partition add` gives one rules.",
        )
    return found


def put_partition(old: Accounts, wanted: Partition, new: bool) -> Accounts:
    """With the rules of a partition added, or changed where they are not `new`.

    Raises:
        UsageError: they cannot be.
        Conflict: new ones are there already.
        NotFound: those to be changed are not.
    """
    if new and wanted.name in old.partition_by_name:
        raise Conflict(f"Partition {wanted.name} has rules already.", "Change them: rmx partition set.")
    if not new:
        known_partition(old, wanted.name)
    others = tuple(wanted if one.name == wanted.name else one for one in old.partitions)
    made = replace(old, partitions=(*others, wanted) if new else others)
    check_partitions(made)
    return made


def without_partition(old: Accounts, name: str) -> Accounts:
    """Raises NotFound. Its hosts stay in it, and are open to all."""
    known_partition(old, name)
    return replace(old, partitions=tuple(one for one in old.partitions if one.name != name))


def against_use(accounts: Accounts, name: str, account: str, qos: str) -> str:
    """Why a job of this account and QOS may not use a partition, as a sentence without its full stop; empty
    where it may."""
    found = accounts.partition_by_name.get(name)
    if found is None:
        return ""
    if found.accounts and {*found.accounts}.isdisjoint((*accounts.path(account), account)):
        whose = f"account {account}" if account else "jobs without an account"
        return f"partition {name} is not for {whose}, but for {', '.join(found.accounts)}"
    if found.qos and qos not in found.qos:
        of = f"jobs of QOS {qos}" if qos else "jobs without a QOS"
        return f"partition {name} is not for {of}, but for those of {', '.join(found.qos)}"
    return ""


def taking(accounts: Accounts, spec: JobSpec, account: str, qos: str) -> JobSpec:
    """What a new job asks for, without the partitions that take no new jobs by their state: such a partition
    would start it later, as one that waits.

    Raises:
        UsageError: none that it names takes it: it is not for its account or QOS, or takes no new jobs.
    """
    if not accounts.partitions:
        return spec
    refuse_closed(accounts, spec.partitions, account, qos)
    left = [name for name in spec.partitions if not _refuses_new(accounts, name)]
    return spec if len(left) == len(spec.partitions) else replace(spec, partition=",".join(left))


def refuse_closed(accounts: Accounts, names: Sequence[str], account: str, qos: str) -> None:
    """Raises UsageError where none of the partitions that a new job names takes it: it is not for its account
    or QOS, or takes no new jobs."""
    if not accounts.partitions or not names:
        return
    against = []
    for name in names:
        said = against_use(accounts, name, account, qos)
        if not said and _refuses_new(accounts, name):
            state = accounts.partition_by_name[name].state
            said = f"partition {name} takes no new jobs: it is in the state {state}"
        if not said:
            return
        against.append(said)
    raise UsageError(
        f"{against[0][0].upper()}{'; '.join(against)[1:]}.",
        "`rmx partition show` lists them.",
        Refusal.NOT_IN_PARTITION,
    )


def _refuses_new(accounts: Accounts, name: str) -> bool:
    found = accounts.partition_by_name.get(name)
    return found is not None and found.state in (DRAIN, INACTIVE)


def check_partitions(accounts: Accounts) -> None:
    """Raises UsageError for the first thing that is wrong with the rules of a partition."""
    if len(accounts.partitions) > MAX_PARTITIONS:
        raise UsageError(f"There may be {MAX_PARTITIONS} partitions with rules.")
    names = [one.name for one in accounts.partitions]
    if len(accounts.partition_by_name) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise UsageError(f"Partition {twice} is listed twice.")
    for one in accounts.partitions:
        if not _NAME.match(one.name):
            raise UsageError(
                f"'{one.name:.80}' is no name of a partition.",
                "Write up to 64 letters, digits, _ . and -, beginning with a letter or a digit.",
            )
        if one.state not in PARTITION_STATES:
            raise UsageError(
                f"The state of partition {one.name} is '{one.state:.80}'.",
                f"It may be {', '.join(PARTITION_STATES)}.",
            )
        numbers = (
            ("tier", one.tier, MAX_TIER),
            ("priority", one.priority, MAX_PRIORITY),
            ("default time in minutes", one.default_minutes, MAX_MINUTES),
        )
        for what, number, most in numbers:
            if not 0 <= number <= most:
                raise UsageError(f"The {what} of partition {one.name} is {number}.", f"Write 0 to {most}.")
        check_limits(f"Partition {one.name}", one.limits, OF_QOS)
        _check_times(one)
        check_terms(one, f"partition {one.name}")
        _check_allowed(one, accounts)


def _check_times(one: Partition) -> None:
    most = one.limits.get("job.minutes")
    if most is not None and one.default_minutes > most:
        raise UsageError(
            f"The default time of partition {one.name} is {one.default_minutes} minutes, and its jobs have "
            f"at most {most}.",
            "Lower the one, or raise the other.",
        )


def _check_allowed(one: Partition, accounts: Accounts) -> None:
    for account in one.accounts:
        if account not in accounts.by_name:
            raise UsageError(
                f"Partition {one.name} is for '{account:.80}', which is no account.", "Add it before."
            )
    for qos in one.qos:
        if qos not in accounts.qos_by_name:
            raise UsageError(f"Partition {one.name} is for '{qos:.80}', which is no QOS.", "Add it before.")
