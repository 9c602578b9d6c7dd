"""`rmx set`: what can be changed of a job that has been submitted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from rm.arrays import parse_id
from rm.cli.jobs.queue_columns import job_ref
from rm.cli.session import Session, emit_json, json_option
from rm.errors import UsageError
from rm.hints import did_you_mean

if TYPE_CHECKING:
    from rm.api.jobs import Job

FIELDS = ("array-limit",)


@click.command("set")
@click.argument("job")
@click.argument("fields", nargs=-1, metavar="NAME=VALUE...", required=True)
@json_option
@click.pass_obj
def set_fields(session: Session, /, job: str, fields: tuple[str, ...], as_json: bool) -> None:
    """Change NAME of JOB to VALUE: array-limit=N, how many elements of a job array run at once (0: any)."""
    named = parse_id(job)
    changed: Job | None = None
    for field in fields:
        name, _, value = field.partition("=")
        if name not in FIELDS:
            raise UsageError(
                f"'{name}' is nothing that can be changed of a job.",
                did_you_mean(name, FIELDS) or f"Choose from {', '.join(FIELDS)}.",
            )
        if not re.match(r"\d{1,9}\Z", value):
            raise UsageError(f"{name} is '{value}'.", f"Write a number: rmx set {job} {name}=5.")
        if named.tasks:
            raise UsageError("The limit is the whole array's.", f"Write: rmx set {named.job} {field}.")
        changed = session.client.limit_array(named.job, int(value))
    assert changed is not None
    if as_json:
        emit_json({"job": changed})
    else:
        click.echo(f"Job {job_ref(changed)} is changed")
