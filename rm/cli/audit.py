"""`rmx audit`: who did what, from where."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rm.cli.session import Session, emit_json, json_option, table
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.accounts import Act

AT_ONCE = 5_000
FIELDS = (
    "seq", "at_us", "user", "uid", "role", "via", "origin", "token", "verb", "target", "outcome", "detail",
)  # fmt: skip


@click.command()
@click.option("--since", metavar="TIME", help="How far back, such as 7d (default: everything).")
@click.option("--user", default="", metavar="USER", help="Only this user's requests.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a first line of names.")
@json_option
@click.pass_obj
def audit(session: Session, /, since: str | None, user: str, as_csv: bool, as_json: bool) -> None:
    """Show the audit log, the oldest entry first. For administrators."""
    from rm.cli.shown import exact_moment
    from rm.units import parse_duration_us

    if as_csv and as_json:
        raise UsageError("--csv and --json are mutually exclusive.", "Keep one of them.")
    since_us = 0 if since is None else time.time_ns() // 1000 - parse_duration_us(since)
    found = _acts(session, since_us, user)
    if as_json:
        emit_json({"acts": list(found)})
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(FIELDS)
        writer.writerows([_cell(getattr(act, name)) for name in FIELDS] for act in found)
    else:
        rows = [
            (exact_moment(act.at_us), act.user or "-", act.role, act.via, act.origin,
             act.token or "-", act.verb, act.target or "-", act.outcome, act.detail)
            for act in found
        ]  # fmt: skip
        columns = ("WHEN", "USER", "ROLE", "VIA", "FROM", "TOKEN", "VERB", "TARGET", "OUTCOME", "DETAIL")
        table(columns, rows)


def _acts(session: Session, since_us: int, user: str) -> Iterator[Act]:
    """Only what was there at the beginning: asking for it adds to it."""
    after, begun_us = 0, time.time_ns() // 1000
    while True:
        part = session.client.accounts.audit(after=after, since_us=since_us, user=user, limit=AT_ONCE)
        for act in part:
            if act.at_us > begun_us and act.verb == "audit":
                return
            yield act
        if len(part) < AT_ONCE:
            return
        after = part[-1].seq


def _cell(value: Any) -> Any:
    """A spreadsheet takes text that begins so for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
