"""All accounts as a file of TOML, and back."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rm.errors import UsageError

if TYPE_CHECKING:
    import msgspec

    from rm.api.sharing import Account, Accounts, Member, Partition, Qos

ROOT = "root"
OF_USERS = frozenset({"users", "default", "user_limits"})
KNOWN = OF_USERS | {"parent", "shares", "description", "qos", "limits"}
OF_ROOT = frozenset({"limits", "qos", "partition"})
OF_PARTITION = frozenset(
    {"state", "tier", "priority", "accounts", "qos", "default_minutes", "limits", "description"}
) | {"preempt_mode", "grace_s", "exempt_s"}
OF_PREEMPTED = ("grace_s", "exempt_s")
OF_QOS = frozenset(
    {
        "priority",
        "usage_factor",
        "accounts",
        "limits",
        "description",
        "preempts",
        "preempt_mode",
        *OF_PREEMPTED,
    }
)


def as_toml(found: Accounts) -> str:
    """One table for each account; in the root's table the limits of the cluster, the QOS and the rules of
    partitions."""
    lines = []
    if found.limits:
        lines += [f"[{ROOT}]", f"limits = {_limits(found.limits)}", ""]
    for qos in found.qos:
        lines += [f"[{ROOT}.qos.{_key(qos.name)}]", f"priority = {qos.priority}"]
        lines.append(f"usage_factor = {float(qos.usage_factor)!r}")
        if qos.accounts:
            lines.append(f"accounts = [{', '.join(map(_quoted, qos.accounts))}]")
        if qos.preempts:
            lines.append(f"preempts = [{', '.join(map(_quoted, qos.preempts))}]")
        if qos.preempt_mode != "requeue":
            lines.append(f"preempt_mode = {_quoted(qos.preempt_mode)}")
        lines += [f"{name} = {value!r}" for name in OF_PREEMPTED if (value := float(getattr(qos, name)))]
        if qos.limits:
            lines.append(f"limits = {_limits(qos.limits)}")
        if qos.description:
            lines.append(f"description = {_quoted(qos.description)}")
        lines.append("")
    for partition in found.partitions:
        lines += _of_partition(partition)
    for one in found.accounts:
        lines += [f"[{_key(one.name)}]", f"shares = {one.shares}"]
        if one.parent != ROOT:
            lines.append(f"parent = {_quoted(one.parent)}")
        if one.description:
            lines.append(f"description = {_quoted(one.description)}")
        if one.qos:
            lines.append(f"qos = {_quoted(one.qos)}")
        if one.limits:
            lines.append(f"limits = {_limits(one.limits)}")
        members = [member for member in found.members if member.account == one.name]
        users = ", ".join(f"{_key(member.user)} = {member.shares}" for member in members)
        lines.append(f"users = {{ {users} }}" if users else "users = {}")
        if default := [_quoted(member.user) for member in members if member.default]:
            lines.append(f"default = [{', '.join(default)}]")
        if own := [f"{_key(one.user)} = {_limits(one.limits)}" for one in members if one.limits]:
            lines.append(f"user_limits = {{ {', '.join(own)} }}")
        lines.append("")
    return "\n".join(lines)


def _of_partition(one: Partition) -> list[str]:
    lines = [f"[{ROOT}.partition.{_key(one.name)}]"]
    if one.state != "up":
        lines.append(f"state = {_quoted(one.state)}")
    lines += [f"tier = {one.tier}", f"priority = {one.priority}"]
    for name in ("accounts", "qos"):
        if named := getattr(one, name):
            lines.append(f"{name} = [{', '.join(map(_quoted, named))}]")
    if one.default_minutes:
        lines.append(f"default_minutes = {one.default_minutes}")
    if one.preempt_mode != "off":
        lines.append(f"preempt_mode = {_quoted(one.preempt_mode)}")
    lines += [f"{name} = {value!r}" for name in OF_PREEMPTED if (value := float(getattr(one, name)))]
    if one.limits:
        lines.append(f"limits = {_limits(one.limits)}")
    if one.description:
        lines.append(f"description = {_quoted(one.description)}")
    return [*lines, ""]


def from_toml(
    text: bytes, where: str
) -> tuple[list[Account], list[Member], list[Qos], Mapping[str, int], list[Partition]]:
    """The accounts, members, QOS, limits of the cluster and rules of partitions of `as_toml`'s text.

    Raises:
        UsageError: it is no TOML, or says something else.
    """
    import msgspec

    from rm.api.sharing import Account, AccountsImport, Member, Partition, Qos
    from rm.typed import convert

    try:
        read = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} is no TOML: {error}.") from None
    accounts, members, qos, partitions = list[Account](), list[Member](), list[Qos](), list[Partition]()
    root = _table(read.pop(ROOT, {}), ROOT, OF_ROOT, where)
    try:
        limits = convert({"accounts": [], "limits": root.get("limits", {})}, AccountsImport).limits
        for name, fields in _table(root.get("qos", {}), f"{ROOT}.qos", None, where).items():
            qos.append(convert({"name": name, **_table(fields, f"QOS {name}", OF_QOS, where)}, Qos))
        for name, fields in _table(root.get("partition", {}), f"{ROOT}.partition", None, where).items():
            ruled = _table(fields, f"partition {name}", OF_PARTITION, where)
            partitions.append(convert({"name": name, **ruled}, Partition))
    except msgspec.ValidationError as error:
        raise _unfit(where, ROOT, error) from None
    for name, fields in read.items():
        _table(fields, f"account {name}", KNOWN, where)
        users, default = fields.get("users", {}), fields.get("default", [])
        if not _are_users(users, default):
            raise UsageError(
                f"{where}: the users of account {name} cannot be read.",
                'Write users = { alice = 1 }, and of these default = ["alice"].',
            )
        own_limits = _table(fields.get("user_limits", {}), f"user_limits of {name}", None, where)
        if strangers := sorted(own_limits.keys() - users.keys()):
            raise UsageError(
                f"{where}: user_limits of {name} names '{strangers[0]:.80}', who is none of its users.",
                f"Add the user to users of {name}, or take the limits away.",
            )
        own = {key: value for key, value in fields.items() if key not in OF_USERS}
        whose = f"account {name}"
        try:
            accounts.append(convert({"name": name, **own}, Account))
            for user, shares in users.items():
                whose = f"user {user} of account {name}"
                of = {"account": name, "user": user, "shares": shares, "default": user in default}
                members.append(convert(of | {"limits": own_limits.get(user, {})}, Member))
        except msgspec.ValidationError as error:
            raise _unfit(where, whose, error) from None
    return accounts, members, qos, limits, partitions


def _unfit(where: str, whose: str, error: msgspec.ValidationError) -> UsageError:
    from rm.typed import in_words

    key, what = in_words(error)
    return UsageError(f"{where}: {whose}{key and f', {key}'}: {what}.")


def _are_users(users: Any, default: Any) -> bool:
    if not isinstance(users, Mapping) or not isinstance(default, list):
        return False
    return all(isinstance(name, str) and name in users for name in default)


def _table(read: Any, what: str, known: Collection[str] | None, where: str) -> Mapping[str, Any]:
    """Raises UsageError where it is no table, or has a key that is not `known`."""
    if not isinstance(read, Mapping):
        raise UsageError(f"{where}: {what:.80} is no table.", "Each account is one: [physics].")
    if known is not None and (unknown := sorted(read.keys() - {*known})):
        raise UsageError(
            f"{where}: {what} has no '{unknown[0]:.80}'.", f"It may have {', '.join(sorted(known))}."
        )
    return read


def _limits(limits: Mapping[str, int]) -> str:
    return "{ " + ", ".join(f"{_key(name)} = {value}" for name, value in sorted(limits.items())) + " }"


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text, re.ASCII) else _quoted(text)


def _quoted(text: str) -> str:
    """A string of TOML, which has JSON's, but for the character DEL."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
