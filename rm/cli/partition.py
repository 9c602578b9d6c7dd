"""`rmx partition`: times, limits, tiers and states of partitions, and who may use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rm.cli.groups import Group
from rm.cli.output import printable
from rm.cli.qos import preempted_options, preempted_words
from rm.cli.session import Session, emit_json, json_option, table
from rm.cli.sharing_limits import changes_of, given_of, limit_option, named_options, words_of
from rm.errors import UsageError
from rm.units import MINUTE_US, fold_hosts, format_elapsed, parse_time_limit_us

if TYPE_CHECKING:
    from rm.api.hosts import Host
    from rm.api.sharing import Partition

NUMBER = click.IntRange(0, 65_533)
STATES = click.Choice(["up", "down", "drain", "inactive"])
LONGEST = "job.minutes"
HEADER = (
    "PARTITION", "STATE", "HOSTS", "TIER", "PRIORITY", "DEFAULT", "ACCOUNTS", "QOS", "PREEMPTED", "LIMITS",
    "DESCRIPTION",
)  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])


def rule_options(command: F) -> F:
    for option in (
        click.option("--description", metavar="TEXT", help="Free text."),
        limit_option,
        click.option("--max-time", metavar="TIME", help="No job may have more; the limit job.minutes."),
        click.option("--default-time", metavar="TIME", help="Of jobs without a time limit; 0: none."),
        click.option("--qos", metavar="LIST", help="Jobs of these QOS may use it (default: all)."),
        click.option("--accounts", metavar="LIST", help="These may use it, and those below (default: all)."),
        click.option("--priority", type=NUMBER, help="Counts against the highest of all (default: 0)."),
        click.option("--tier", type=NUMBER, help="Jobs of a higher tier come first (default: 1)."),
        preempted_options,
        click.option("--state", type=STATES, help="What becomes of its jobs (default: up)."),
    ):
        command = option(command)
    return command


@click.group(cls=Group)
def partition() -> None:
    """Give partitions times, limits, tiers and states."""


@partition.command()
@click.argument("name")
@rule_options
@click.pass_obj
def add(session: Session, /, name: str, limits: tuple[str, ...], **options: Any) -> None:
    """Give a partition rules."""
    given = _given(options)
    longest = {LONGEST: one} if (one := given.pop(LONGEST, None)) is not None else {}
    session.client.sharing.add_partition(name, **given, limits=given_of(limits) | longest)
    click.echo(f"Partition {name} has rules.")


@partition.command("set")
@click.argument("name")
@rule_options
@click.pass_obj
def set_(session: Session, /, name: str, limits: tuple[str, ...], **options: Any) -> None:
    """Change the rules of a partition: what is named, and no more."""
    given = _given(options)
    changes = changes_of(limits) | ({LONGEST: given.pop(LONGEST)} if LONGEST in given else {})
    if changes:
        given["limits"] = changes
    if not given:
        raise UsageError("The request changes nothing.", "Name an option, such as --state.")
    session.client.sharing.set_partition(name, **given)
    click.echo(f"Partition {name} is changed.")


@partition.command()
@click.argument("name")
@click.pass_obj
def remove(session: Session, /, name: str) -> None:
    """Take its rules from a partition; its hosts stay in it."""
    session.client.sharing.remove_partition(name)
    click.echo(f"Partition {name} has no rules any more.")


@partition.command()
@json_option
@click.pass_obj
def show(session: Session, /, as_json: bool) -> None:
    """List the partitions, their hosts and rules."""
    from rm.api.sharing import Partition

    ruled, hosts = session.client.sharing.partitions(), session.client.hosts()
    if as_json:
        emit_json({"partitions": ruled})
        return
    known = {one.name: one for one in ruled}
    names = dict.fromkeys([*known, *(name for host in hosts for name in host.partitions)])
    if not names:
        click.echo("There are no partitions. `rmx host add NAME --partition NAME` puts a host into one.")
        return
    rows = [tuple(_cells(known.get(name) or Partition(name=name), hosts)) for name in names]
    table(HEADER, rows, right=("TIER", "PRIORITY"))


def _cells(one: Partition, hosts: list[Host]) -> Iterator[Any]:
    yield printable(one.name)
    yield one.state
    yield fold_hosts(host.name for host in hosts if one.name in host.partitions)
    yield one.tier
    yield one.priority
    yield format_elapsed(one.default_minutes * MINUTE_US) if one.default_minutes else ""
    yield ",".join(one.accounts)
    yield ",".join(one.qos)
    yield preempted_words(one)
    yield words_of(one.limits)
    yield printable(one.description)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    given = named_options(options, "accounts", "qos")
    if (default := given.pop("default_time", None)) is not None:
        given["default_minutes"] = _minutes("--default-time", default) or 0
    if (longest := given.pop("max_time", None)) is not None:
        given[LONGEST] = _minutes("--max-time", longest)
    return given


def _minutes(option: str, text: str) -> int | None:
    """None: no limit."""
    if text == "0":
        return None
    limit_us = parse_time_limit_us(text)
    return None if limit_us is None else max(1, -(-limit_us // MINUTE_US))
