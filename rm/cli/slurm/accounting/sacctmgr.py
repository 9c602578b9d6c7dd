"""`sacctmgr`: accounts, their users and QOS, as Slurm's scripts show and change them.

Source: sacctmgr(1) of Slurm 22.05. What rm does not keep is refused, but for a cluster's name and an
organization, of which a note says so.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rm.cli.output import note, printable
from rm.cli.slurm.accounting.sacctmgr_fields import (
    FIELDS,
    LIMITS,
    MINUTES,
    OTHER_NAMES,
    TRES,
    USUAL,
    Field,
    Row,
)
from rm.cli.slurm.words import Options, read
from rm.errors import UsageError
from rm.units import GIB, MINUTE_US, number_of, parse_memory_bytes, parse_time_limit_us

if TYPE_CHECKING:
    from rm.api.sharing import Accounts
    from rm.client import Client

OPTIONS = Options(
    taken=("associations/s", "immediate/i", "noheader/n", "parsable/p", "parsable2/P", "quiet/Q"),
    ignored=("oneliner/o", "readonly/r", "verbose/v"),
    refused=("json", "yaml"),
)
ENTITIES = {
    "account": "account", "accounts": "account", "acct": "account", "user": "user", "users": "user",
    "association": "association", "associations": "association", "assoc": "association",
    "assocs": "association", "qos": "qos", "cluster": "cluster", "clusters": "cluster",
}  # fmt: skip
ACTIONS = {"show": "show", "list": "show", "add": "add", "create": "add", "modify": "modify",
           "update": "modify", "delete": "delete", "remove": "delete"}  # fmt: skip
NAMES = {
    "account": ("name", "names", "account", "accounts", "acct"),
    "user": ("name", "names", "user", "users"),
    "qos": ("name", "names", "qos"),
    "association": (),
    "cluster": ("name", "names", "cluster"),
}
OF_ACCOUNT = frozenset({"account", "accounts", "acct"})
OF_USER = frozenset({"user", "users"})
OF_CLUSTER = frozenset({"cluster", "clusters"})
NONE_DELETED = frozenset({"withdeleted", "withdelete", "withd"})  # rm keeps none: as if it had been left out
UNKNOWN_WORDS = frozenset({
    "withcoord", "withcoords", "withcoordinator", "withcoordinators", "withrawqos", "withrawqoslevel",
    "withsubaccounts", "withsubacct", "wopinfo", "woplimits", "wolimits", "onlydefaults",
})  # fmt: skip
SAVED = "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): "


class Said(NamedTuple):
    """`names` are those of what it is about, `where` and `sets` by their small names, `flags` words alone."""

    names: list[str]
    where: dict[str, str]
    sets: dict[str, str]


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    if len(given.operands) < 2:
        raise UsageError("Name what to do and with what: sacctmgr show account.")
    action, entity = (ACTIONS.get(given.operands[0].lower()), ENTITIES.get(given.operands[1].lower()))
    if action is None or entity is None or (entity in ("association", "cluster") and action != "show"):
        raise UsageError(
            f"rm knows no `sacctmgr {' '.join(given.operands[:2]):.80}`.",
            "It shows account, user, assoc, qos and cluster, and changes account, user and qos.",
        )
    said = _said(given.operands[2:], entity, action)
    from rm.client import Client

    with Client() as client:
        if action == "show":
            _show(client, entity, said, given.options)
            return 0
        return _change(client, action, entity, said, given.options)


def _said(words: Sequence[str], entity: str, action: str) -> Said:
    said, after_set = Said([], {}, {}), action == "add"
    for word in words:
        name, equals, value = word.partition("=")
        small = name.lower().rstrip("+-")
        if not equals and small in ("where", "set") and name.lower() == small:
            after_set = action == "add" or small == "set"
        elif equals and name[-1:] in "+-":
            raise UsageError(f"'{word:.80}' changes a part of a list.", "Write the whole list, with = alone.")
        elif not equals and small in ("withassoc", "withassocs", "tree"):
            said.where[small] = "1"
        elif not equals and small in NONE_DELETED:
            continue
        elif not equals and small in UNKNOWN_WORDS:
            raise UsageError(f"rm's sacctmgr does not know the word '{word:.80}'.", "Leave it out.")
        elif not equals and entity == "association":
            raise UsageError(
                f"'{word:.80}' is no number of an association, which rm has none of.",
                "Write user=NAME or account=NAME.",
            )
        elif not equals:
            said.names.extend(one for one in word.split(",") if one)
        elif small in NAMES[entity] and (action == "add" or not after_set):
            said.names.extend(one for one in value.split(",") if one)
        else:
            (said.sets if after_set and small != "format" else said.where)[small] = value.strip("'\"")
    return said


def _show(client: Client, entity: str, said: Said, options: Mapping[str, str]) -> None:
    where = dict(said.where)
    format_ = where.pop("format", "")
    with_assoc = bool(where.pop("withassoc", "") or where.pop("withassocs", "")) or "associations" in options
    where.pop("tree", "")
    accounts = _list(where, OF_ACCOUNT)
    users, clusters = _list(where, OF_USER), _list(where, OF_CLUSTER)
    if entity == "cluster":
        clusters |= frozenset(said.names)
    if where:
        raise UsageError(f"rm does not choose by '{next(iter(where)):.80}'.", "Name accounts or users.")
    usual = USUAL[entity]
    if with_assoc and entity in ("account", "user"):
        usual += "," + USUAL["association"].replace(
            "account,user,", "" if entity == "account" else "account,"
        )
    columns = list(_columns(format_ or usual))
    cluster = client.status().settings.cluster_name
    if clusters and cluster not in clusters:
        return _print([], columns, options)
    found, names = client.sharing.accounts(), frozenset(said.names)
    if entity == "account":
        accounts |= names
    elif entity == "user":
        users |= names
    if entity == "qos":
        rows = [
            one for one in _rows(found, entity, cluster) if one.qos and (not names or one.qos.name in names)
        ]
    elif entity == "cluster":
        rows = list(_rows(found, entity, cluster))
    else:
        rows = [
            row
            for row in _rows(found, entity, cluster)
            if (not accounts or _account_of(row) in accounts)
            and (not users or (row.member is not None and row.member.user in users))
        ]
    if entity == "user" and not with_assoc:  # each once
        rows = list({row.member.user: row for row in reversed(rows) if row.member}.values())[::-1]
    _print(rows, columns, options)


def _account_of(row: Row) -> str:
    return row.account.name if row.account else row.member.account if row.member else "root"


def _rows(found: Accounts, entity: str, cluster: str) -> Iterator[Row]:
    members = sorted(found.members, key=lambda one: (one.user, one.account))
    if entity == "qos":
        yield from (Row(found, cluster, qos=one) for one in found.qos)
    elif entity == "cluster":
        yield Row(found, cluster)
    elif entity == "account":
        yield from (Row(found, cluster, account=one) for one in found.accounts)
    elif entity == "user":
        yield from (Row(found, cluster, member=one) for one in members)
    else:
        yield Row(found, cluster)
        for one in found.accounts:
            yield Row(found, cluster, account=one)
            mine = (member for member in members if member.account == one.name)
            yield from (Row(found, cluster, member=member) for member in mine)


def _columns(text: str) -> Iterator[tuple[Field, int]]:
    for word in text.split(","):
        name, _, width = word.strip().partition("%")
        small = name.lower()
        field = FIELDS.get(OTHER_NAMES.get(small, small))
        if field is None:
            raise UsageError(f"There is no field '{name:.80}'.", f"There are {', '.join(sorted(FIELDS))}.")
        if width and not re.fullmatch(r"-?\d{1,4}", width, re.ASCII):
            raise UsageError(f"The width of {name:.80} is '{width:.80}'.", "Write a number behind %.")
        yield field, int(width) if width else field.width


def _print(rows: Sequence[Row], columns: Sequence[tuple[Field, int]], options: Mapping[str, str]) -> None:
    parsable, end = "parsable" in options or "parsable2" in options, "|" if "parsable" in options else ""
    lines = [[printable(str(field.text(row))) for field, _ in columns] for row in rows]
    headers = [field.header for field, _ in columns]
    if parsable:
        for line in lines if "noheader" in options else [headers, *lines]:
            print("|".join(line) + end)
        return
    widths = [width for _, width in columns]
    if "noheader" not in options:
        print("".join(_fit(text, width) + " " for text, width in zip(headers, widths, strict=True)))
        print("".join("-" * abs(width) + " " for width in widths))
    for line in lines:
        print("".join(_fit(text, width) + " " for text, width in zip(line, widths, strict=True)))


def _fit(text: str, width: int) -> str:
    if len(text) > abs(width):
        text = text[: abs(width) - 1] + "+"
    return text.rjust(width) if width > 0 else text.ljust(-width)


# -- changes


def _change(client: Client, action: str, entity: str, said: Said, options: Mapping[str, str]) -> int:
    changes = list(_changes(client, action, entity, said))
    if not changes:
        done = {"add": "new added", "modify": "modified", "delete": "deleted"}[action]
        note(f" Nothing {done}")
        return 1
    if "quiet" not in options:
        verb = {"add": "Adding", "modify": "Modified", "delete": "Deleting"}[action]
        print(f" {verb} {entity}(s)")
        print("".join(f"  {what}\n" for what, _ in changes), end="")
    if "immediate" not in options:
        print(SAVED, end="", flush=True)
        if not sys.stdin.readline().strip().lower().startswith("y"):
            print(" Changes Discarded")
            return 0
    for _, change in changes:
        change()
    return 0


def _changes(
    client: Client, action: str, entity: str, said: Said
) -> Iterator[tuple[str, Callable[[], object]]]:
    """(what it is about, what does it), for each; nothing is done yet."""
    sharing = client.sharing
    if entity == "user":
        yield from _of_users(client, action, said)
        return
    if not said.names:
        raise UsageError(f"Name the {entity}.", f"sacctmgr {action} {entity} NAME …")
    _refuse(said.where)
    fields = {} if action == "delete" else _fields(entity, said.sets, new=action == "add")
    if action == "modify" and not fields:
        raise UsageError("The request changes nothing.", "Write: set NAME=VALUE.")
    doing: dict[tuple[str, str], Callable[..., object]] = {
        ("account", "add"): sharing.add_account,
        ("account", "modify"): sharing.set_account,
        ("account", "delete"): sharing.remove_account,
        ("qos", "add"): sharing.add_qos,
        ("qos", "modify"): sharing.set_qos,
        ("qos", "delete"): sharing.remove_qos,
    }
    do = doing[entity, action]
    there = _there(client, entity) if action == "add" else frozenset()
    for name in said.names:
        if name in there:
            note(f"this {entity} '{name}' already exists: it is not added, and stays as it is")
        else:
            yield name, partial(do, name, **fields)


def _there(client: Client, entity: str) -> frozenset[str]:
    found = client.sharing.accounts()
    return frozenset(one.name for one in (found.qos if entity == "qos" else found.accounts))


def _of_users(client: Client, action: str, said: Said) -> Iterator[tuple[str, Callable[[], object]]]:
    sharing, sets = client.sharing, dict(said.sets)
    users = [*said.names, *_list(said.where, OF_USER)]
    if not users:
        raise UsageError("Name the user.", f"sacctmgr {action} user NAME account=ACCOUNT")
    accounts = _list(sets if action == "add" else said.where, OF_ACCOUNT)
    for name in ("defaultaccount", "defaultacct"):
        if default := sets.pop(name, ""):
            accounts = accounts | {default} if action == "add" else accounts
            break
    else:
        default = ""
    if action != "add":
        _refuse({name: one for name, one in said.where.items() if name not in OF_USER})
    fields = {} if action == "delete" else _fields("user", sets, new=False)
    found = client.sharing.accounts().members
    for user in users:
        mine = [one.account for one in found if one.user == user]
        if action == "add":
            if not accounts:
                raise UsageError(f"Name an account for {user:.80}.", "Write account=NAME.")
            if known := sorted(accounts.intersection(mine)):
                note(f"user {user} is in {', '.join(known)} already: that stays as it is")
            for account in sorted(accounts.difference(mine), key=lambda one: one != default):
                own = fields | ({"default": True} if account == default else {})
                yield (
                    f"{user} in {account}",
                    partial(sharing.put_members, account, [user], **own),
                )
        elif action == "delete":
            for account in (one for one in mine if not accounts or one in accounts):
                yield f"{user} in {account}", partial(sharing.remove_member, account, user)
        else:
            if default:
                yield f"{user} in {default}", partial(sharing.put_members, default, [user], default=True)
            for account in (one for one in mine if fields and (not accounts or one in accounts)):
                yield f"{user} in {account}", partial(sharing.put_members, account, [user], **fields)


def _list(found: dict[str, str], names: frozenset[str]) -> frozenset[str]:
    """The words of what is named so, which is taken out."""
    texts = [found.pop(name) for name in [*found] if name in names]
    return frozenset(word for text in texts for word in text.split(",") if word)


def _refuse(where: dict[str, str]) -> None:
    if _list(where, OF_CLUSTER):
        note("rm has one cluster: its name changes nothing")
    if where:
        raise UsageError(f"rm does not choose by '{next(iter(where)):.80}'.", "Name accounts, users or QOS.")


def _fields(entity: str, sets: Mapping[str, str], new: bool) -> dict[str, Any]:
    """Those of rm's requests."""
    fields, limits = dict[str, Any](), dict[str, int | None]()
    for name, value in sets.items():
        if name in OF_CLUSTER:
            note("rm has one cluster: its name changes nothing")
        elif name in ("organization", "org") and entity == "account":
            note("rm keeps no organization of an account: it is left out")
        elif name in LIMITS[entity]:
            limits |= _limits(LIMITS[entity][name], name, value)
        elif (known := SETS[entity].get(name)) is not None:
            fields[known[0]] = known[1](name, value)
        else:
            raise UsageError(
                f"rm sets no '{name:.80}' of {entity}s.", f"It sets {', '.join(_settable(entity))}."
            )
    if limits:
        fields["limits"] = {n: v for n, v in limits.items() if v is not None} if new else limits
    return fields


def _settable(entity: str) -> list[str]:
    return sorted({*SETS[entity], *LIMITS[entity]})


def _limits(ours: str, name: str, value: str) -> Iterator[tuple[str, int | None]]:
    if ours == "job.minutes":
        limit_us = None if value == "-1" else parse_time_limit_us(value)
        yield ours, None if limit_us is None else max(1, -(-limit_us // MINUTE_US))
        return
    if (counted := MINUTES.get(ours.rpartition(".")[2])) is not None:
        of, equals, count = value.lower().rpartition("=")
        if equals and of != counted:
            raise UsageError(f"{name}={value:.80} limits what rm does not.", f"It limits {counted}.")
        yield ours, _count(name, count)
        return
    if not ours.endswith("TRES"):
        yield ours, _count(name, value)
        return
    for part in value.split(","):
        slurm, equals, count = part.partition("=")
        slurm = {"gres/gpu": "gres/gpu", "gpu": "gres/gpu"}.get(slurm.lower(), slurm.lower())
        if not equals or slurm not in TRES:
            raise UsageError(f"{name}={value:.80} limits what rm does not.", f"It limits {', '.join(TRES)}.")
        limit = ours.removesuffix("TRES") + TRES[slurm]
        if slurm == "mem" and count != "-1":
            yield limit, max(1, -(-parse_memory_bytes(count) // GIB))
        else:
            yield limit, _count(name, count)


def _count(name: str, text: str) -> int | None:
    """None: -1, which takes a limit away."""
    if text == "-1":
        return None
    return _whole(name, text)


def _whole(name: str, text: str) -> int:
    number = number_of(text)
    if number is None:
        raise UsageError(
            f"{name}={text:.80} is no whole number.", "Write 0 or more, or -1 for a limit that goes."
        )
    return number


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name}={text:.80} is no number.") from None


def _text(name: str, text: str) -> str:
    return text


def _names(name: str, text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def _mode(name: str, text: str) -> str:
    return {"requeue": "requeue", "cancel": "cancel", "suspend": "suspend"}.get(text.lower(), text)


def _seconds(name: str, text: str) -> float:
    if text.isdigit():
        return float(text)
    limit_us = parse_time_limit_us(text)
    return 0.0 if limit_us is None else limit_us / 1e6


Reader = Callable[[str, str], Any]
SETS: Mapping[str, Mapping[str, tuple[str, Reader]]] = {
    "account": {"fairshare": ("shares", _whole), "share": ("shares", _whole), "parent": ("parent", _text),
                "description": ("description", _text), "descr": ("description", _text),
                "defaultqos": ("qos", _text)},
    "user": {"fairshare": ("shares", _whole), "share": ("shares", _whole)},
    "qos": {"priority": ("priority", _whole), "description": ("description", _text),
            "usagefactor": ("usage_factor", _number), "preempt": ("preempts", _names),
            "preemptmode": ("preempt_mode", _mode), "gracetime": ("grace_s", _seconds),
            "preemptexempttime": ("exempt_s", _seconds)},
}  # fmt: skip
