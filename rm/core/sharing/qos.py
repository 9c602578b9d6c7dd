"""Qualities of service (QOS): classes of jobs with limits, a part in the priority and a price of their own.

Source: Slurm's documentation, "Quality of Service (QOS)".
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite

from rm.core.model.replacing import replace
from rm.core.sharing.accounts import Accounts, Qos, check_name
from rm.core.sharing.limits import OF_QOS, check_limits
from rm.core.sharing.preempt_terms import check_terms
from rm.errors import Conflict, NotFound, Refusal, UsageError

USUAL = "normal"  # of jobs that name none, and whose account has none, where there is one of this name
MAX_QOS = 1_000
MAX_PRIORITY = 2**31 - 1


def qos_for(accounts: Accounts, account: str, named: str) -> str:
    """In which QOS a job of an account runs: the `named` one, or else the account's; "" where there is none.
    Where there is no QOS at all, a name is a mere word of the job, as in a Slurm without accounting.

    Raises:
        UsageError: there is no such QOS, or it is not for the account.
    """
    path = accounts.path(account)
    if not named:
        if not path and not accounts.qos:
            return ""
        own = (accounts.by_name[above].qos for above in reversed(path))
        named = next(filter(None, own), USUAL if USUAL in accounts.qos_by_name else "")
    if not named or not accounts.qos:
        return named
    found = accounts.qos_by_name.get(named)
    usable = [one.name for one in accounts.qos if _is_for(one, path)]
    hint = f"There is {', '.join(usable)}." if usable else "There is none for it."
    if found is None:
        raise UsageError(f"There is no QOS '{named:.80}'.", hint, Refusal.NOT_IN_QOS)
    if not _is_for(found, path):
        whose = f"account {account}" if account else "jobs without an account"
        raise UsageError(f"QOS {named} is not for {whose}.", hint, Refusal.NOT_IN_QOS)
    return named


def known_qos(accounts: Accounts, name: str) -> Qos:
    """Raises NotFound."""
    found = accounts.qos_by_name.get(name)
    if found is None:
        raise NotFound(f"There is no QOS '{name:.80}'.", "`rmx qos show` lists them.")
    return found


def put_qos(old: Accounts, wanted: Qos, new: bool) -> Accounts:
    """With a QOS added, or changed where it is not `new`.

    Raises:
        UsageError: it cannot be.
        Conflict: a new one is there already.
        NotFound: one to be changed is not.
    """
    if new and wanted.name in old.qos_by_name:
        raise Conflict(f"There is a QOS {wanted.name} already.", "Change it: rmx qos set.")
    if not new:
        known_qos(old, wanted.name)
    others = tuple(wanted if one.name == wanted.name else one for one in old.qos)
    made = replace(old, qos=(*others, wanted) if new else others)
    check_all(made)
    return made


def without_qos(old: Accounts, name: str) -> Accounts:
    """Raises:
    NotFound: there is no such QOS.
    Conflict: it is an account's, another preempts it, or a partition names it.
    """
    known_qos(old, name)
    if of := [one.name for one in old.accounts if one.qos == name]:
        raise Conflict(f"{name} is the QOS of account {of[0]}.", f"rmx account set {of[0]} --qos OTHER.")
    if above := [one.name for one in old.qos if name in one.preempts]:
        raise Conflict(f"QOS {above[0]} preempts {name}.", f"rmx qos set {above[0]} --preempts OTHER.")
    if of := [one.name for one in old.partitions if name in one.qos]:
        raise Conflict(f"Partition {of[0]} is for {name}.", f"rmx partition set {of[0]} --qos OTHER.")
    return replace(old, qos=tuple(one for one in old.qos if one.name != name))


def refuse_lost_qos(new: Accounts, used: Collection[str]) -> None:
    """Raises Conflict where jobs that have not ended run in a QOS that `new` lacks; `used` are theirs."""
    if lost := sorted({*used} - new.qos_by_name.keys()):
        raise Conflict(
            f"Jobs that have not ended run in QOS {', '.join(lost[:8])}.",
            "Cancel them, or wait for their end: rmx queue --all.",
        )


def check_all(accounts: Accounts) -> None:
    """Raises UsageError for the first thing that is wrong with a QOS."""
    if len(accounts.qos) > MAX_QOS:
        raise UsageError(f"There may be {MAX_QOS} QOS.")
    if len(accounts.qos_by_name) < len(accounts.qos):
        names = [one.name for one in accounts.qos]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise UsageError(f"QOS {twice} is listed twice.")
    for one in accounts.qos:
        check_name(one.name, "a QOS")
        check_limits(f"QOS {one.name}", one.limits, OF_QOS)
        if not 0 <= one.priority <= MAX_PRIORITY:
            raise UsageError(
                f"The priority of QOS {one.name} is {one.priority}.", f"Write 0 to {MAX_PRIORITY}."
            )
        if not (isfinite(one.usage_factor) and one.usage_factor >= 0):
            raise UsageError(
                f"The usage factor of QOS {one.name} is {one.usage_factor}.", "Write a number from 0 on."
            )
        _check_preemption(one, accounts)
        for account in one.accounts:
            if account not in accounts.by_name:
                raise UsageError(
                    f"QOS {one.name} is for '{account:.80}', which is no account.", "Add it before."
                )


def _check_preemption(one: Qos, accounts: Accounts) -> None:
    check_terms(one, f"QOS {one.name}")
    for name in one.preempts:
        if name not in accounts.qos_by_name:
            raise UsageError(f"QOS {one.name} preempts '{name:.80}', which is no QOS.", "Add it before.")
    if circle := _circle(one.name, accounts):
        raise UsageError(
            f"QOS may not preempt each other: {', '.join(circle)}.", "Take one of them out of --preempts."
        )


def _circle(start: str, accounts: Accounts) -> list[str]:
    """From a QOS by those that it preempts back to itself; empty where there is no such way."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop()
        found = accounts.qos_by_name.get(way[-1])
        for name in found.preempts if found is not None else ():
            if name == start:
                return [*way, name]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []


def _is_for(one: Qos, path: tuple[str, ...]) -> bool:
    return not one.accounts or not {*one.accounts}.isdisjoint(path)
