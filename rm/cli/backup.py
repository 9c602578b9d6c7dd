"""`rmx backup`, `rmx restore` and `rmx upgrade`: the database, for the account that runs the daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.session import Session, emit_json, json_option
from rm.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rm.config import Config

LISTED = 20  # jobs that are named


@click.command()
@click.argument("file", metavar="FILE")
@json_option
@click.pass_obj
def backup(session: Session, /, file: str, as_json: bool) -> None:
    """Copy the daemon's database to FILE. The daemon may keep running."""
    config = _config(session)
    with Heartbeat(lambda: f"the database is copied to {file}"):
        from rm.adapters.store.backup import back_up_to  # takes seconds itself on a busy machine

        size = back_up_to(config.daemon.database, Path(file))
    if as_json:
        emit_json({"file": file, "bytes": size})
    else:
        click.echo(f"The database is copied to {file} ({format_bytes(size)}).")


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--release", is_flag=True, help="Hold no job: those that waited may start, perhaps again.")
@json_option
@click.pass_obj
def restore(session: Session, /, file: str, release: bool, as_json: bool) -> None:
    """Put the backup FILE in the database's place. Stop the daemon first.

    The present database is kept. Jobs that were submitted after the backup are not in it: the daemon
    stops those that still run when it starts. Jobs that waited in the backup may have run since: they are
    held until `rmx release JOB`.
    """
    # at once: Python's own start was silent
    with Heartbeat(lambda: f"the database is restored from {file}", at_once=True):
        from rm.bootstrap.database import restore_database

        config = _config(session)
        done = restore_database(config, Path(file), hold=not release)
    if as_json:
        before = str(done.before) if done.before else ""
        told = {"file": file, "schema": done.schema, "jobs": done.jobs, "before": before}
        emit_json({**told, "waiting": done.waiting, "open": done.open, "held": not release})
        return
    kept = f" What was there before is kept in {done.before}." if done.before else ""
    jobs = "1 job" if done.jobs == 1 else f"{done.jobs} jobs"
    click.echo(f"The database is restored from {file}, with {jobs}.{kept} Start the daemon now.")
    for line in _unsure(done.waiting, done.open, release):
        click.echo(line)


def _unsure(waiting: Sequence[int], running: Sequence[int], released: bool) -> Iterator[str]:
    """What becomes of jobs that may have run since the backup was made."""
    if waiting and released:
        yield f"Jobs that waited may start, also if they have run since the backup: {_listed(waiting)}."
    elif waiting:
        yield f"Held, since they waited in the backup and may have run since: {_listed(waiting)}."
        yield "rmx release JOB lets one run, rmx cancel JOB does not; rmx show JOB tells what hosts remember."
    if running:
        yield f"Not over in the backup: {_listed(running)}."
        yield "They go on, or end as their hosts say; one of which no host knows the end is held."


def _listed(jobs: Sequence[int]) -> str:
    more = f" and {len(jobs) - LISTED} more" if len(jobs) > LISTED else ""
    return f"{', '.join(map(str, jobs[:LISTED]))}{more}"


@click.command()
@click.option("--check", is_flag=True, help="Only show what an upgrade would do; change nothing.")
@json_option
@click.pass_obj
def upgrade(session: Session, /, check: bool, as_json: bool) -> int:
    """Bring the database to this rm's schema; with --check show what that would change, and on which hosts.

    Without --check the daemon must be stopped. A SQLite database is copied first.
    """
    from dataclasses import replace

    doing = "a copy of the database is upgraded" if check else "the database is upgraded"
    with Heartbeat(lambda: doing, at_once=True):
        from rm.bootstrap.database import look, upgrade_database

        config = _config(session)
        copy = None if check else upgrade_database(config)
        found = replace(look(config), copy=copy)
    if as_json:
        emit_json(found.as_json())
    else:
        click.echo("\n".join(found.sentences()))
    return found.exit_code


def _config(session: Session) -> Config:
    """The daemon's own configuration: its database is on this machine, or this machine reaches it."""
    from rm.config import load_config

    flags = {"daemon.socket": session.socket_flag} if session.socket_flag else {}
    return load_config(session.config_flag or os.environ.get("RM_CONFIG") or None, flags=flags)
