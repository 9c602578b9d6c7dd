"""The reports of `sreport` on what was used: of the cluster, of accounts with their users, of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rm.cli.slurm.accounting.sreport_asked import Asked, Report
from rm.cli.slurm.accounting.sreport_print import TIME, Column, Row, Table, Value, chosen, lines
from rm.cli.slurm.users import entry_of
from rm.errors import UsageError
from rm.units import MIB

if TYPE_CHECKING:
    from rm.api.sharing import Accounts
    from rm.api.usage import Usage, UsageLine
    from rm.client import Client

ROOT = "root"
TOP = 10
HELD: Mapping[str, Callable[[UsageLine], float]] = {  # seconds of each, joules of energy
    "cpu": lambda line: line.cpu_us / 1e6,
    "mem": lambda line: line.mem_mib_s,
    "energy": lambda line: line.energy_mj / 1e3,
    "gres/gpu": lambda line: line.gpu_us / 1e6,
}
CLUSTER = Column("Cluster", "Cluster", 9)
ACCOUNT = Column("Account", "Account", 15)
LOGIN = Column("Login", "Login", 9)
PROPER = Column("Proper", "Proper Name", 15)
TRES_NAME = Column("TresName", "TRES Name", 14)
TRES_COUNT = Column("TresCount", "TRES Count", 10)
USED = Column("Used", "Used", TIME, True)
ENERGY = Column("Energy", "Energy", TIME, True)
OF_CLUSTER = (
    Column("Allocated", "Allocated", TIME, True), Column("Down", "Down", TIME, True),
    Column("PlannedDown", "PLND Down", TIME, True), Column("Idle", "Idle", TIME, True),
    Column("Planned", "Planned", TIME, True), Column("Reported", "Reported", TIME, True),
)  # fmt: skip
OVER = Column("OverCommitted", "Over Comm", TIME, True)
UNKNOWN = ("Down", "PlannedDown", "Planned", "OverCommitted")  # rm records none of these
Totals = Mapping[str, float]  # by TRES


class Used(NamedTuple):
    """What one user used for one account, of each TRES."""

    account: str
    login: str
    used: Mapping[str, float]


def utilization(client: Client, asked: Asked, table: Table, cluster: str) -> Report:
    found = client.sharing.usage(["day"], since_us=asked.since_us, until_us=asked.until_us)
    known = (CLUSTER, *OF_CLUSTER, OVER, TRES_COUNT, TRES_NAME)
    usual = (CLUSTER, *([TRES_NAME] if asked.names_tres else []), *OF_CLUSTER)
    columns = chosen(asked.given.get("format", ""), known) or usual
    counts, rows = _counts(client), []
    wholes = _wholes(counts, found)
    for tres in asked.tres:
        allocated = sum(HELD[tres](line) for line in found.lines)
        count, whole = counts[tres], wholes[tres]
        values: dict[str, Value] = {"Allocated": allocated, "Reported": whole} | dict.fromkeys(UNKNOWN)
        values["Idle"] = max(0.0, whole - allocated)
        texts = {"Cluster": cluster, "TresName": tres, "TresCount": "" if count is None else str(count)}
        rows.append(Row(texts, {name: (value, whole) for name, value in values.items()}))
    title = f"Cluster Utilization {asked.span(found.since_us, found.until_us, seconds=False)}"
    return Report([title, _unit(asked, table)], list(lines(columns, rows, table)))


def by_account(client: Client, asked: Asked, table: Table, cluster: str) -> Report:
    """Each account with all below it, then its users."""
    found, used = _used(client, asked)
    tree, wholes = "tree" in asked.given, _wholes(_counts(client), found)
    account = ACCOUNT._replace(width=-20) if tree else ACCOUNT
    columns = _columns(asked, account, "Cluster,Account,Login,Proper")
    rows = [
        row
        for depth, one in _tree(client.sharing.accounts(), used, asked)
        for row in _rows(cluster, one, " " * depth if tree else "", asked, wholes)
    ]
    title = f"Cluster/Account/User Utilization {asked.span(found.since_us, found.until_us)}"
    return Report([title, _unit(asked, table)], list(lines(columns, rows, table)))


def by_user(client: Client, asked: Asked, table: Table, cluster: str) -> Report:
    return _users(client, asked, table, cluster, "Cluster/User/Account Utilization", None)


def top(client: Client, asked: Asked, table: Table, cluster: str) -> Report:
    text = asked.given.get("topcount", str(TOP))
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise UsageError(f"Invalid value for TopCount ({text:.80}).", "Write a number, 1 or more.")
    return _users(client, asked, table, cluster, f"Top {int(text)} Users", int(text))


def _users(client: Client, asked: Asked, table: Table, cluster: str, title: str, most: int | None) -> Report:
    """Who used most first."""
    found, used = _used(client, asked)
    accounts = asked.words("accounts")  # without those below them, as in Slurm
    used = [one for one in used if not accounts or one.account in accounts]
    if "group" in asked.given:
        used = _grouped(used)
    first = asked.tres[0]
    used.sort(key=lambda one: (-one.used[first], one.login, one.account))
    columns = _columns(asked, ACCOUNT, "Cluster,Login,Proper,Account")
    wholes = _wholes(_counts(client), found)
    rows = [row for one in used[:most] for row in _rows(cluster, one, "", asked, wholes)]
    heading = f"{title} {asked.span(found.since_us, found.until_us)}"
    return Report([heading, _unit(asked, table)], list(lines(columns, rows, table)))


def _used(client: Client, asked: Asked) -> tuple[Usage, list[Used]]:
    """By account and user, without those who used nothing."""
    found = client.sharing.usage(["account", "user"], since_us=asked.since_us, until_us=asked.until_us)
    users = asked.words("users")
    used = [
        Used(line.account or ROOT, line.user, {tres: held(line) for tres, held in HELD.items()})
        for line in found.lines
        if not users or line.user in users
    ]
    return found, [one for one in used if any(one.used.values())]


def _grouped(used: Iterable[Used]) -> list[Used]:
    """Each user once; the account is a list, by the alphabet."""
    found: dict[str, list[Used]] = {}
    for one in sorted(used, key=lambda one: one.account):
        found.setdefault(one.login, []).append(one)
    return [Used(", ".join(one.account for one in mine), login, _sum(mine)) for login, mine in found.items()]


def _sum(used: Iterable[Used]) -> Mapping[str, float]:
    found = dict.fromkeys(HELD, 0.0)
    for one in used:
        for tres in found:
            found[tres] += one.used[tres]
    return found


def children_of(accounts: Accounts) -> Mapping[str, Sequence[str]]:
    """The accounts below each."""
    found: dict[str, list[str]] = {}
    for one in sorted(accounts.accounts, key=lambda one: one.name):
        if one.name != ROOT:
            found.setdefault(one.parent, []).append(one.name)
    return found


def _tree(accounts: Accounts, used: Sequence[Used], asked: Asked) -> Iterator[tuple[int, Used]]:
    """Accounts and users in the order of the tree, with their depth. Where users are chosen, these alone."""
    children, names, users = dict(children_of(accounts)), asked.words("accounts"), asked.words("users")
    own: dict[str, list[Used]] = {}
    for one in sorted(used, key=lambda one: one.login):
        own.setdefault(one.account, []).append(one)
    in_tree = {ROOT}.union(*children.values())
    # what is of an account that was removed stands below the root
    children[ROOT] = [*children.get(ROOT, ()), *sorted(own.keys() - in_tree)]

    def whole(name: str) -> list[Used]:
        return [*own.get(name, ()), *(one for child in children.get(name, ()) for one in whole(child))]

    def walk(name: str, depth: int, inside: bool) -> Iterator[tuple[int, Used]]:
        shown = inside or not names or name in names
        if shown and not users and (everything := whole(name)):
            yield depth, Used(name, "", _sum(everything))
        if shown:
            yield from ((depth + 1, one) for one in own.get(name, ()))
        for child in children.get(name, ()):
            yield from walk(child, depth + 1, inside=shown)

    yield from walk(ROOT, 0, inside=False)


def _rows(cluster: str, one: Used, before: str, asked: Asked, wholes: Totals) -> Iterator[Row]:
    for tres in asked.tres:
        texts = {
            "Cluster": cluster, "Account": before + one.account, "Login": one.login,
            "Proper": proper_name(one.login), "TresName": tres,
        }  # fmt: skip
        times = {"Used": (one.used[tres], wholes[tres]), "Energy": (one.used["energy"], wholes["energy"])}
        yield Row(texts, times)


def _columns(asked: Asked, account: Column, usual: str) -> Sequence[Column]:
    usual += ",TresName,Used" if asked.names_tres else ",Used,Energy"
    known = (account, CLUSTER, LOGIN, PROPER, USED, ENERGY, TRES_NAME)
    return chosen(asked.given.get("format") or usual, known)


def _counts(client: Client) -> Mapping[str, int | None]:
    """Of the hosts that the cluster has now; None: energy has no bound, and all of it is what was used."""
    hosts = client.hosts()
    return {
        "cpu": sum(host.cpus for host in hosts),
        "mem": sum(host.mem_bytes // MIB for host in hosts),
        "energy": None,
        "gres/gpu": sum(len(host.gpus) for host in hosts),
    }


def _wholes(counts: Mapping[str, int | None], found: Usage) -> Totals:
    seconds = (found.until_us - found.since_us) / 1e6
    return {
        tres: sum(map(HELD[tres], found.lines)) if count is None else count * seconds
        for tres, count in counts.items()
    }


def _unit(asked: Asked, table: Table) -> str:
    if not table.form.seconds:
        return f"Usage reported in {table.form.said}"
    return f"Usage reported in {'TRES' if asked.names_tres else 'CPU'} {table.form.said}"


def proper_name(login: str) -> str:
    """The name that this machine knows; "" where it knows none."""
    entry = entry_of(login)
    return "" if entry is None else entry.pw_gecos.partition(",")[0]


REPORTS: Mapping[str, Callable[[Client, Asked, Table, str], Report]] = {
    "Utilization": utilization,
    "AccountUtilizationByUser": by_account,
    "UserUtilizationByAccount": by_user,
    "TopUsage": top,
}
