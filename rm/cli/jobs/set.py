"""`rmx set`: what can be changed of a job that has been submitted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rm.arrays import parse_id
from rm.cli.session import Session, emit_json, json_option
from rm.cli.shown import called
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.job_requests import JobUpdate
    from rm.api.jobs import Job

ARRAY_LIMIT = "array-limit"


@click.command("set")
@click.argument("job")
@click.argument("fields", nargs=-1, metavar="NAME=VALUE...", required=True)
@json_option
@click.pass_obj
def set_fields(session: Session, /, job: str, fields: tuple[str, ...], as_json: bool) -> None:
    """Change NAME of JOB to VALUE. Names are long options of submit, such as time, priority, partition,
    nodelist, dependency or comment, and array-limit: how many elements of a job array run at once (0: any).
    Elements of an array, 36_2 or 36_[3-9], are changed alone. An empty VALUE takes an option back. While a
    job runs its time limit may change, its name and comment."""
    named = parse_id(job)
    values: dict[str, str] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals:
            raise UsageError(f"'{field}' is no NAME=VALUE.", f"Write: rmx set {job} time=2:00:00.")
        values[name.lstrip("-")] = value
    limit = values.pop(ARRAY_LIMIT, None)
    if limit is not None and not re.match(r"\d{1,9}\Z", limit):
        raise UsageError(f"{ARRAY_LIMIT} is '{limit}'.", f"Write a number: rmx set {job} {ARRAY_LIMIT}=5.")
    if limit is not None and named.tasks:
        raise UsageError(
            f"{ARRAY_LIMIT} is the whole array's.", f"Write: rmx set {named.job} {ARRAY_LIMIT}={limit}."
        )
    update = update_of(values)
    changed: Job | None = None
    if update is not None:
        changed = session.client.update(named, update)
    if limit is not None:
        changed = session.client.limit_array(named.job, int(limit))
    assert changed is not None
    if as_json:
        emit_json({"job": changed})
    else:
        click.echo(f"Job {named if named.tasks else called(changed)} is changed")


def update_of(values: Mapping[str, str]) -> JobUpdate | None:
    """What these options of `rmx submit` change; None: nothing."""
    from rm.api.job_requests import JobUpdate
    from rm.submission.updates import fields_of

    fields = fields_of(values, datetime.now().astimezone())
    return JobUpdate(**fields) if fields else None  # what does not fit is the daemon's to refuse
