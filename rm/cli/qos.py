"""`rmx qos`: qualities of service: limits, priority and price of a class of jobs."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rm.cli.groups import Group
from rm.cli.output import printable
from rm.cli.session import Session, emit_json, json_option, table
from rm.cli.sharing_limits import changes_of, given_of, limit_option, named_options, words_of
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.sharing import Partition, Qos

PRIORITY = click.IntRange(0, 2**31 - 1)


class _Factor(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"'{value}' is no finite number. Write a number from 0 on.", param, ctx)
        return number


FACTOR = _Factor(0.0)
MODES = click.Choice(["requeue", "cancel", "suspend", "off"])
F = TypeVar("F", bound=Callable[..., Any])


def preempted_options(command: F) -> F:
    """How jobs of a QOS or partition are preempted."""
    for option in (
        click.option("--exempt", "exempt_s", type=FACTOR, metavar="SECONDS", help="So long they run first."),
        click.option("--grace", "grace_s", type=FACTOR, metavar="SECONDS", help="Between warning and end."),
        click.option("--preempt-mode", type=MODES, help="What becomes of its jobs when they are preempted."),
    ):
        command = option(command)
    return command


def preemption_options(command: F) -> F:
    """Whom the jobs of a QOS preempt, and how they are preempted themselves."""
    for option in (
        preempted_options,
        click.option("--preempts", metavar="LIST", help="Its jobs preempt those of these QOS."),
    ):
        command = option(command)
    return command


@click.group(cls=Group)
def qos() -> None:
    """Give classes of jobs limits, priority and a price."""


@qos.command()
@click.argument("name")
@click.option("--priority", type=PRIORITY, help="Counts against the highest of all QOS (default: 0).")
@click.option("--usage-factor", type=FACTOR, help="How often what its jobs use counts (default: 1).")
@click.option("--accounts", metavar="LIST", help="These may use it, and those below them (default: all).")
@preemption_options
@limit_option
@click.option("--description", metavar="TEXT", help="Free text.")
@click.pass_obj
def add(session: Session, /, name: str, limits: tuple[str, ...], **options: Any) -> None:
    """Add a QOS."""
    session.client.sharing.add_qos(name, **_given(options), limits=given_of(limits))
    click.echo(f"QOS {name} is there.")


@qos.command("set")
@click.argument("name")
@click.option("--priority", type=PRIORITY, help="Counts against the highest of all QOS.")
@click.option("--usage-factor", type=FACTOR, help="How often what its jobs use counts.")
@click.option("--accounts", metavar="LIST", help="These may use it, and those below them; empty: all.")
@preemption_options
@limit_option
@click.option("--description", metavar="TEXT", help="Free text.")
@click.pass_obj
def set_(session: Session, /, name: str, limits: tuple[str, ...], **options: Any) -> None:
    """Change a QOS: what is named, and no more."""
    changes = _given(options) | ({"limits": changes_of(limits)} if limits else {})
    if not changes:
        raise UsageError("The request changes nothing.", "Name an option, such as --priority.")
    session.client.sharing.set_qos(name, **changes)
    click.echo(f"QOS {name} is changed.")


@qos.command()
@click.argument("name")
@click.pass_obj
def remove(session: Session, /, name: str) -> None:
    """Remove a QOS in which no job waits or runs."""
    session.client.sharing.remove_qos(name)
    click.echo(f"QOS {name} is removed.")


@qos.command()
@json_option
@click.pass_obj
def show(session: Session, /, as_json: bool) -> None:
    """List the QOS with their limits."""
    found = session.client.sharing.accounts().qos
    if as_json:
        emit_json({"qos": found})
        return
    if not found:
        click.echo("There is no QOS. `rmx qos add NAME` makes one.")
        return
    rows = [
        (
            one.name,
            one.priority,
            f"{one.usage_factor:g}",
            ",".join(one.accounts),
            ",".join(one.preempts),
            preempted_words(one),
            words_of(one.limits),
            printable(one.description),
        )
        for one in found
    ]
    header = ("QOS", "PRIORITY", "FACTOR", "ACCOUNTS", "PREEMPTS", "PREEMPTED", "LIMITS", "DESCRIPTION")
    table(header, rows, right=("PRIORITY", "FACTOR"))


def preempted_words(one: Qos | Partition) -> str:
    """`requeue`, `cancel,grace=60,exempt=600`"""
    times = (("grace", one.grace_s), ("exempt", one.exempt_s))
    return ",".join([one.preempt_mode, *(f"{name}={seconds:g}" for name, seconds in times if seconds)])


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return named_options(options, "accounts", "preempts")
