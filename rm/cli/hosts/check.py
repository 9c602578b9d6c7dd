"""`rmx check`: look at the hosts of a new cluster over SSH, and say what to mend before rm is installed."""

from __future__ import annotations

import pwd
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import printable
from rm.cli.session import Session, emit_json, json_option, table
from rm.errors import RmError, UsageError

if TYPE_CHECKING:
    from rm.adapters.playbook.hosts import Ways
    from rm.core.model.host import Host

AT_ONCE = 16
PEERS = 3  # each host tries this many others, in a ring
USERS = range(1000, 60_000)  # of people, as useradd gives them
COLUMNS = ("HOST", "PYTHON", "KERNEL", "CLOCK", "CGROUP", "TOOLS", "INTERFACE", "HOME", "FINDINGS")


@click.command()
@click.option(
    "-i",
    "--inventory",
    multiple=True,
    metavar="FILE",
    help="An inventory (default: the daemon's hosts).",
)
@click.option("-l", "--limit", metavar="PATTERN", default="", help="Only these hosts and groups.")
@click.option("--known-hosts", metavar="FILE", help="Accepted host keys (default: ssh.known_hosts).")
@click.option("--private-key", metavar="FILE", help="SSH identity for hosts that name none.")
@click.option("-u", "--user", metavar="USER", help="Log in as USER where the inventory names none.")
@click.option(
    "--only",
    metavar="TOPICS",
    default="",
    help="Only findings about these: reach, root, clock, cgroup, tools, network, names, disk, home, users.",
)
@json_option
@click.pass_obj
def check(
    session: Session, /, inventory: Sequence[str], limit: str, known_hosts: str | None,
    private_key: str | None, user: str | None, only: str, as_json: bool,
) -> int:  # fmt: skip
    """Check hosts over SSH, whether rm is installed there or not, and list what to mend.

    Reach, key, clock, Python, sudo, control groups, tools, interfaces, routes between the hosts and their
    names, disks, home and uids. It changes nothing. Exit code 1: something must be mended before rm works
    there. With --only the other findings are neither shown nor counted, except a host that is not reached.
    """
    from rm.adapters.playbook.become import Passwords
    from rm.adapters.playbook.hosts import Ways
    from rm.adapters.playbook.roster import Roster
    from rm.adapters.playbook.vault import Vault
    from rm.cli.playbook.given import fleet_of
    from rm.cli.playbook.login import Login
    from rm.playbook.inventory.survey import TOPICS, Finding, findings, row
    from rm.playbook.read.ansible_settings import Settings

    topics = tuple(filter(None, only.replace(",", " ").split())) or TOPICS
    if unknown := [topic for topic in topics if topic not in TOPICS]:
        raise UsageError(
            f"--only names {', '.join(unknown)}, which is not a topic.",
            f"The topics are {', '.join(TOPICS)}.",
        )

    here = Path.cwd() / "site.yml"  # beside which group_vars/ and host_vars/ count
    login = Login(user=user)
    fleet = fleet_of(session, inventory, known_hosts, private_key, Vault(()), here, login, Settings())
    roster = Roster(fleet.hosts, {}, fleet.variables, limit)
    ways = Ways(roster.hosts, fleet.settings, None, roster.connection_of, lambda name, way: Passwords())
    hosts = [roster.hosts[name] for name in roster.wanted]
    users = {one.pw_name: one.pw_uid for one in pwd.getpwall() if one.pw_uid in USERS}
    surveys: dict[str, dict[str, Any]] = {}
    offsets: dict[str, tuple[int, int]] = {}
    found: list[Finding] = []

    def look(host: Host) -> None:
        peers = [
            {"name": p.name, "address": p.address, "port": p.port}
            for p in _next(list(roster.hosts.values()), host)
        ]
        try:
            _ask(ways, host.name, "ping", {"data": "pong"})
            began = time.time_ns() // 1000
            answer = _surveyed(ways, host.name, {"peers": [], "users": []})
            half = (time.time_ns() // 1000 - began) // 2
            offsets[host.name] = (answer["now_us"] - began - half, half)
            surveys[host.name] = _surveyed(ways, host.name, {"peers": peers, "users": sorted(users)})
        except RmError as problem:
            found.append(Finding("reach", host.name, problem.what, problem.hint, True))

    with Heartbeat(lambda: f"{len(surveys)} of {len(hosts)} hosts are looked at"):
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(look, hosts))
        finally:
            ways.close()
    names = [host.name for host in hosts if host.name in surveys]
    found += findings({name: surveys[name] for name in names}, offsets, users)
    found = [one for one in found if one.topic in (*topics, "reach")]
    grave = any(one.grave for one in found)
    if as_json:
        about = {name: {**surveys[name], "clock_us": offsets[name]} for name in names}
        emit_json({"hosts": about, "findings": [asdict(one) for one in found]})
        return int(grave)
    counts = {host.name: sum(one.host == host.name for one in found) for host in hosts}
    rows = []
    for name, count in counts.items():
        cells = row(surveys[name], offsets[name]) if name in surveys else "-" * (len(COLUMNS) - 2)
        rows.append((name, *cells, count or "none"))
    table(COLUMNS, rows, right=("FINDINGS",))
    for one in sorted(found, key=lambda one: not one.grave):
        said = f"{one.host}: {'' if one.grave else 'note: '}{one.what}"
        click.echo(f"\n{printable(said)}\n    {printable(one.mend)}")
    return int(grave)


def _next(hosts: Sequence[Host], host: Host) -> list[Host]:
    at = hosts.index(host)
    return [*hosts[at + 1 :], *hosts[:at]][:PEERS]


def _ask(ways: Ways, name: str, op: str, args: dict[str, Any]) -> dict[str, Any]:
    """One operation of the executor on a host; raises RmError."""
    from rm.playbook.model.steps import Batch, Step
    from rm.playbook.run.answers import asked

    request = {"steps": [Step(0, 0, op, args).wire()], "check": False, "diff": False, "planned": {}}
    answer = asked(op, args, ways.send(name, Batch((), False), request)["results"])
    if answer.get("failed"):
        raise RmError(f"Host {name} cannot be looked at: {answer.get('msg')}")
    return answer


def _surveyed(ways: Ways, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """What a host says of itself; raises RmError, also where that is no survey."""
    import msgspec

    from rm.protocol.survey import Survey
    from rm.typed import convert, in_words

    try:
        found: dict[str, Any] = msgspec.to_builtins(convert(_ask(ways, name, "survey", args), Survey))
    except msgspec.ValidationError as error:
        said = ": ".join(filter(None, in_words(error)))
        raise RmError(
            f"Host {name} says of itself what cannot be: {said}.", "See who answers there."
        ) from None
    return found
