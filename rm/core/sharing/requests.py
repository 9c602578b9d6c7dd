"""What requests make of accounts, QOS and partitions: pure functions, each from the old ones to the new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rm.core.model.replacing import replace
from rm.core.sharing import accounts as sharing
from rm.core.sharing.accounts import Account, Accounts, Member, Partition, Qos
from rm.core.sharing.partitions import check_partitions, known_partition, put_partition
from rm.core.sharing.qos import check_all, known_qos, put_qos
from rm.errors import UsageError


def add_account(old: Accounts, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of an AccountRequest."""
    return sharing.put_account(old, Account(**{**wanted, **_limits({}, wanted)}), new=True)


def set_account(old: Accounts, name: str, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of an AccountUpdate."""
    if name == sharing.ROOT:
        if wanted.keys() - {"limits"}:
            raise UsageError("The root of the accounts has nothing but limits.", "Name an account.")
        return sharing.limit_root(old, _limits(old.limits, wanted)["limits"])
    mine = sharing.known(old, name)
    return sharing.put_account(old, replace(mine, **{**wanted, **_limits(mine.limits, wanted)}), new=False)


def put_members(old: Accounts, name: str, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of a MemberRequest."""
    for user in wanted["users"]:
        mine = next((one for one in old.members_of(name) if one.user == user), Member(name, user))
        shares, default = wanted.get("shares", mine.shares), wanted.get("default") or mine.default
        new = replace(mine, shares=shares, default=default, **_limits(mine.limits, wanted))
        old = sharing.put_member(old, new)
    return old


def remove_members(old: Accounts, name: str, users: Sequence[str]) -> Accounts:
    for user in users:
        old = sharing.without_member(old, name, user)
    return old


def add_qos(old: Accounts, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of a QosRequest."""
    return put_qos(old, Qos(**_of_qos({}, wanted)), new=True)


def set_qos(old: Accounts, name: str, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of a QosUpdate."""
    mine = known_qos(old, name)
    return put_qos(old, replace(mine, **_of_qos(mine.limits, wanted)), new=False)


def add_partition(old: Accounts, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of a PartitionRequest."""
    return put_partition(old, Partition(**_of_partition({}, wanted)), new=True)


def set_partition(old: Accounts, name: str, wanted: Mapping[str, Any]) -> Accounts:
    """Of the fields of a PartitionUpdate."""
    mine = known_partition(old, name)
    return put_partition(old, replace(mine, **_of_partition(mine.limits, wanted)), new=False)


def import_all(wanted: Accounts) -> Accounts:
    """Instead of all that there are."""
    made = sharing.checked(wanted.accounts, wanted.members, wanted.qos, wanted.limits, wanted.partitions)
    check_all(made)
    check_partitions(made)
    return made


def _limits(mine: Mapping[str, int], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """With those that are `wanted`; one that is None goes."""
    changes: Mapping[str, int | None] = wanted.get("limits", {})
    return {"limits": {name: value for name, value in {**mine, **changes}.items() if value is not None}}


def _of_partition(mine: Mapping[str, int], wanted: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: tuple(wanted[name]) for name in ("accounts", "qos") if name in wanted}
    return {**wanted, **_limits(mine, wanted), **lists}


def _of_qos(mine: Mapping[str, int], wanted: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: tuple(wanted[name]) for name in ("accounts", "preempts") if name in wanted}
    return {**wanted, **_limits(mine, wanted), **lists}
