"""`rmx reservation`: hosts that are kept for some users, or for maintenance."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rm.cli.groups import Group
from rm.cli.output import printable
from rm.cli.session import Session, emit_json, json_option, table
from rm.cli.shown import moment
from rm.errors import UsageError
from rm.submission.begin import begin_us
from rm.units import fold_hosts, parse_hosts, parse_time_limit_us

if TYPE_CHECKING:
    from rm.api.reservations import Reservation

Command = Callable[..., None]


@click.group(cls=Group)
def reservation() -> None:
    """Keep hosts for some users, or for maintenance."""


def _options(command: Command) -> Command:
    for decorate in (
        click.option("--start", metavar="TIME", help="As --begin of submit has it (default: now)."),
        click.option("--end", metavar="TIME", help="In the same forms."),
        click.option("--duration", metavar="TIME", help="Instead of --end, such as 2h or 1-00:00:00."),
        click.option("--cron", metavar="EXPRESSION", help="It begins at each of these times."),
        click.option("--users", metavar="LIST", help="Whose jobs may run there, with commas."),
        click.option("--accounts", metavar="LIST", help="The jobs for these accounts, and those below."),
        click.option("--hosts", "-w", metavar="HOSTS", help="These hosts: h1,h[3-5]."),
        click.option("--maint/--no-maint", default=None, help="For maintenance: hosts are drained."),
        click.option("--maintenance", metavar="PLAYBOOK", help="Run it on the hosts when it begins."),
        click.option("--ignore-jobs/--no-ignore-jobs", default=None,
                     help="Also where jobs run that may not be over in time."),
        click.option("--comment", metavar="TEXT", help="Free text."),
        json_option,
    ):  # fmt: skip
        command = decorate(command)
    return command


@reservation.command()
@click.argument("name")
@_options
@click.option("--count", type=click.IntRange(1, 4096), help="Reserve this number of hosts, chosen now.")
@click.option("--constraint", "-C", metavar="LIST", help="Of hosts with these features.")
@click.option("--zone", help="Of this zone.")
@click.option("--partition", "-p", help="Of this partition.")
@click.pass_obj
def create(session: Session, /, name: str, as_json: bool, **options: Any) -> None:
    """Make a reservation."""
    made = session.client.reservations.create(name, **_fields(options))
    _answer(made, as_json, "is made")


@reservation.command("set")
@click.argument("name")
@_options
@click.pass_obj
def set_(session: Session, /, name: str, as_json: bool, **options: Any) -> None:
    """Change a reservation; what is not named stays."""
    fields = _fields(options)
    if not fields:
        raise UsageError("The request changes nothing.", "Name an option, such as --end.")
    _answer(session.client.reservations.change(name, **fields), as_json, "is changed")


@reservation.command()
@click.argument("name")
@json_option
@click.pass_obj
def delete(session: Session, /, name: str, as_json: bool) -> None:
    """Delete a reservation in which no job runs."""
    _answer(session.client.reservations.delete(name), as_json, "is deleted")


@reservation.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@click.pass_obj
def show(session: Session, /, names: Sequence[str], as_json: bool) -> None:
    """List reservations that are open or to come."""
    found = session.client.reservations.list()
    for name in names:
        if name not in {one.name for one in found}:
            raise UsageError(f"There is no reservation '{name}'.", "`rmx reservation show` lists them.")
    found = [one for one in found if not names or one.name in names]
    if as_json:
        emit_json({"reservations": found})
        return
    table(("NAME", "STATE", "FROM", "TO", "AGAIN", "FOR", "HOSTS", "COMMENT"), [_row(one) for one in found])


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request."""
    now = datetime.now()
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("start", "end"):
        if name in given:
            given[f"{name}_us"] = begin_us(given.pop(name), now, f"--{name}")
    if "duration" in given:
        given["lasts_us"] = parse_time_limit_us(given.pop("duration")) or 0
    for name in ("users", "accounts"):
        if name in given:
            given[name] = [one for one in given[name].split(",") if one]
    if "hosts" in given:
        given["hosts"] = parse_hosts(given["hosts"])
    for name, field in (("constraint", "features"), ("maintenance", "playbook")):
        if name in given:
            given[field] = given.pop(name)
    if given.get("playbook"):
        if os.path.exists(given["playbook"]):
            given["playbook"] = os.path.abspath(given["playbook"])
        given.setdefault("maint", True)
    return given


def _answer(found: Reservation, as_json: bool, what: str) -> None:
    if as_json:
        emit_json({"reservation": found})
        return
    click.echo(f"reservation {found.name} {what}: {fold_hosts(list(found.hosts))}{_when(found)}")


def _when(found: Reservation) -> str:
    if not found.windows:
        return ""
    begins_us, ends_us = found.windows[0]
    return f", {moment(begins_us)} to {moment(ends_us)}"


def _row(found: Reservation) -> tuple[Any, ...]:
    begins, ends = (moment(at) for at in found.windows[0]) if found.windows else ("", "")
    accounts = "accounts " + ",".join(found.accounts) if found.accounts else ""
    whose = " of ".join(filter(None, (",".join(found.users), accounts))) or "nobody"
    return (
        found.name,
        "ACTIVE" if found.is_open else "INACTIVE",
        begins,
        ends,
        found.cron,
        f"maintenance ({whose})" if found.maint else whose,
        fold_hosts(list(found.hosts)),
        printable(found.comment or found.result),
    )
