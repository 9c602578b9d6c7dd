"""`rmx alerts`: what is wrong now, and what was."""

from __future__ import annotations

import time
from typing import Any

import click

from rm.cli.session import Session, emit_json, json_option, note, table
from rm.units import format_duration


@click.command()
@click.option("--active", is_flag=True, help="Only what holds now.")
@click.option("--host", help="Only what concerns this host.")
@json_option
@click.pass_obj
def alerts(session: Session, /, active: bool, host: str | None, as_json: bool) -> None:
    """List alerts: those firing, those about to, and those that are over, the newest first."""
    answer = session.client.get("alerts")
    found = [
        a
        for a in answer["alerts"]
        if not (active and a["state"] == "resolved") and host in (None, a["subject"], *a["hosts"])
    ]
    if as_json:
        emit_json({"alerts": found, "rules": answer["rules"], "channels": answer["channels"]})
        return
    rows = [
        (
            a["state"] + (" (silenced)" if a["silenced"] else ""),
            a["condition"],
            a["subject"],
            _ago(a["pending_us"] if a["state"] == "pending" else a["fired_us"]),
            _ago(a["ended_us"]),
            a["rule"],
            a["message"],
        )
        for a in found
    ]
    columns = ("STATE", "CONDITION", "SUBJECT", "SINCE", "OVER FOR", "RULE", "MESSAGE")
    table(columns, rows, right=("SINCE", "OVER FOR"))
    for a in found:
        _tell_undelivered(a)


def _tell_undelivered(alert: dict[str, Any]) -> None:
    what = f"{alert['condition']} {alert['subject']}"
    if alert["failed"]:
        note(f"{what}: {alert['failed']}")
    for owed in alert["owed"]:
        note(f"{what}: {owed['channel']} is still to be told that it is {owed['event']}")


def _ago(at_us: int | None) -> str:
    if not at_us:
        return "-"
    return format_duration(max(0, round(time.time() - at_us / 1e6)) * 1_000_000)
