"""`rmx alerts`: what is wrong now, and what was; who looks after it; silences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from rm.cli.output import note
from rm.cli.session import Session, emit_json, json_option, table
from rm.units import format_duration, parse_duration_us

if TYPE_CHECKING:
    from rm.api.alerts import Alert, Silence

COMMENT = click.option("--comment", "-m", default="", metavar="TEXT", help="Why, for the others.")


@click.group(invoke_without_command=True)
@click.option("--active", is_flag=True, help="Only what holds now.")
@click.option("--host", help="Only what concerns this host.")
@json_option
@click.pass_context
def alerts(ctx: click.Context, /, active: bool, host: str | None, as_json: bool) -> None:
    """List alerts (firing, pending and over, the newest first) and silences."""
    if ctx.invoked_subcommand is not None:
        return
    session: Session = ctx.obj
    answer = session.client.alerts.list()
    found = [
        a
        for a in answer.alerts
        if not (active and a.state == "resolved") and host in (None, a.subject, *a.hosts)
    ]
    if as_json:
        emit_json(
            {
                "alerts": found,
                "silences": answer.silences,
                "rules": answer.rules,
                "channels": answer.channels,
            }
        )
        return
    rows = [
        (
            _state(a),
            a.level or "-",
            a.condition,
            a.subject,
            _ago(a.pending_us if a.state == "pending" else a.fired_us),
            _ago(a.ended_us),
            a.rule,
            a.message,
        )
        for a in found
    ]
    columns = ("STATE", "LEVEL", "CONDITION", "SUBJECT", "SINCE", "OVER FOR", "RULE", "MESSAGE")
    table(columns, rows, right=("SINCE", "OVER FOR"))
    for a in found:
        _tell_undelivered(a)
    if answer.silences:
        click.echo()
        silences = [_silence_row(s) for s in answer.silences]
        table(("SILENCE", "CONDITIONS", "HOSTS", "ENDS IN", "BY", "COMMENT"), silences, right=("ENDS IN",))


@alerts.command()
@click.argument("names", nargs=-1, required=True, metavar="ALERT...")
@COMMENT
@json_option
@click.pass_obj
def ack(session: Session, /, names: tuple[str, ...], comment: str, as_json: bool) -> None:
    """Acknowledge firing alerts: ALERT is a subject, or RULE/CONDITION/SUBJECT."""
    keys = session.client.alerts.acknowledge(names, comment)
    if as_json:
        emit_json({"acknowledged": keys})
        return
    for key in keys:
        click.echo(f"acknowledged: {key}")


@alerts.command()
@click.option("--for", "duration", required=True, metavar="TIME", help="Such as 30m, 2h or 7d.")
@click.option("--condition", "-c", "conditions", multiple=True, help="Only this condition; may be repeated.")
@click.option("--host", "hosts", multiple=True, help="Only this host or pattern; may be repeated.")
@COMMENT
@json_option
@click.pass_obj
def silence(
    session: Session,
    /,
    duration: str,
    conditions: tuple[str, ...],
    hosts: tuple[str, ...],
    comment: str,
    as_json: bool,
) -> None:
    """Keep new alerts from firing for a time. The end of a firing alert is still notified."""
    made = session.client.alerts.silence(
        parse_duration_us(duration) / 1e6, conditions=conditions, hosts=hosts, comment=comment
    )
    if as_json:
        emit_json({"silence": made})
        return
    click.echo(f"silence {made.id} ends in {_away(made.until_us)}")


@alerts.command()
@click.argument("number", type=click.IntRange(1, 999_999_999), metavar="SILENCE")
@json_option
@click.pass_obj
def unsilence(session: Session, /, number: int, as_json: bool) -> None:
    """End a silence; conditions that hold then fire."""
    gone = session.client.alerts.unsilence(number)
    if as_json:
        emit_json({"silence": gone})
        return
    click.echo(f"silence {number} is ended")


def _state(alert: Alert) -> str:
    more = [f"({alert.silenced})"] if alert.silenced else []
    more += [f"(acknowledged by {alert.acked})"] if alert.acked and alert.state == "firing" else []
    return " ".join([alert.state, *more])


def _silence_row(silence: Silence) -> tuple[Any, ...]:
    return (
        silence.id,
        ",".join(silence.conditions) or "all",
        ",".join(silence.hosts) or "all",
        _away(silence.until_us),
        silence.by,
        silence.comment,
    )


def _tell_undelivered(alert: Alert) -> None:
    what = f"{alert.condition} {alert.subject}"
    if alert.failed:
        note(f"{what}: {alert.failed}")
    for owed in alert.owed:
        note(f"{what}: {owed.channel} is still to be notified that it is {owed.event}")


def _ago(at_us: int | None) -> str:
    if not at_us:
        return "-"
    return format_duration(max(0, round(time.time() - at_us / 1e6)) * 1_000_000)


def _away(at_us: int) -> str:
    return format_duration(max(0, round(at_us / 1e6 - time.time())) * 1_000_000)
