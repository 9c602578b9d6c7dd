"""`rmx queue`: the jobs, one a line, names never cut."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from rm.cli.session import Session, emit_json, json_option, table
from rm.units import fold_hosts, format_elapsed

COLUMNS = ("JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "TASKS", "HOSTS(REASON)")


def elapsed_us(job: Mapping[str, Any]) -> int:
    """How long the job has run, or ran."""
    if job["started_us"] is None:
        return 0
    return int((job["ended_us"] or time.time_ns() // 1000) - job["started_us"])


def where_or_why(job: Mapping[str, Any]) -> str:
    reason = f"({job['reason']['code']})" if job.get("reason") else ""
    if job["state"] == "PENDING":
        return reason or "(None)"
    return " ".join(filter(None, (fold_hosts(job["hosts"]), reason)))


@click.command()
@click.option("--state", "-t", metavar="STATE[,STATE]", help="Only in these states, such as PENDING or R.")
@click.option("--user", "-u", metavar="USER", help="Only of this user.")
@click.option("--me", is_flag=True, help="Only mine.")
@click.option("--job-name", "-n", "name", metavar="NAME", help="Only of this name.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N.")
@click.option("--all", "everything", is_flag=True, help="Also the jobs that ended long ago.")
@json_option
@click.pass_obj
def queue(
    session: Session,
    /,
    state: str | None,
    user: str | None,
    me: bool,
    name: str | None,
    limit: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """List jobs: the unfinished ones, and those that ended within the last minutes."""
    answer = session.client.get(
        "jobs", state=state, user=user, mine=me, name=name, limit=limit, all=everything
    )
    if as_json:
        emit_json({"jobs": answer["jobs"]})
        return
    rows = [
        (
            job["id"],
            job["spec"]["partition"] or "-",
            job["spec"]["name"],
            job["spec"]["user"],
            job["short_state"],
            format_elapsed(elapsed_us(job)),
            job["spec"]["ntasks"],
            where_or_why(job),
        )
        for job in answer["jobs"]
    ]
    table(COLUMNS, rows, right=("JOBID", "TIME", "TASKS"))
