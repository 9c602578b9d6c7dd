"""`rmx queue`: the jobs, one a line, names never cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rm.api.job_rows import PENDING, JobRow, row_of
from rm.cli.jobs.queue_view import View
from rm.cli.session import Session, completes, emit_json, json_option, table
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.cli.jobs.queue_view import Selection


def _row_of(job: Job) -> JobRow:
    reason = job.reason.code if job.reason else ""
    dropped_for = "" if job.state == PENDING else reason
    return row_of(job, job.state, job.short_state, job.hosts, reason, job.partition or "", dropped_for)


@click.command()
@click.option(
    "--state", "-t", default="", metavar="STATE[,STATE]", help="Only in these states, such as PENDING or R."
)
@click.option("--user", "-u", metavar="USER[,USER]", help="Only of these users.")
@click.option("--me", is_flag=True, help="Only mine.")
@click.option("--job-name", "-n", "name", metavar="NAME[,NAME]", help="Only of these names.")
@click.option(
    "--partition",
    "-p",
    metavar="NAME[,NAME]",
    help="Only in these partitions.",
    shell_complete=completes("partitions"),
)
@click.option(
    "--nodelist",
    "-w",
    metavar="HOSTS",
    help="Only on these hosts, such as gpu[01-04].",
    shell_complete=completes("hosts"),
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N.")
@click.option("--all", "everything", is_flag=True, help="Also list jobs that ended long ago.")
@click.option(
    "--long", "-l", "wide", is_flag=True, help="More columns: state, time of submission, limit, CPUs."
)
@click.option(
    "--format",
    "-o",
    "form",
    metavar="COLUMNS",
    help="Columns, such as jobid,name,gpus; or Slurm's '%i %j %b'.",
)
@click.option("--sort", "-S", metavar="COLUMN[,COLUMN]", help="Sort by these columns; -gpus: the most first.")
@click.option("--start", "starts", is_flag=True, help="When jobs that wait are expected to start.")
@click.option("--noheader", is_flag=True, help="Leave out the header line.")
@json_option
@click.pass_obj
def queue(
    session: Session,
    /,
    state: str,
    user: str | None,
    me: bool,
    name: str | None,
    partition: str | None,
    nodelist: str | None,
    limit: int | None,
    everything: bool,
    wide: bool,
    form: str | None,
    sort: str | None,
    starts: bool,
    noheader: bool,
    as_json: bool,
) -> None:
    """List jobs: the unfinished ones, and those that ended in the last minutes."""
    view = View(
        state=state, user=user or "", me=me, name=name or "", partition=partition or "",
        nodelist=nodelist or "", wide=wide, form=form or "", sort=sort or "", noheader=noheader,
    )  # fmt: skip
    asked: Selection = {**view.selection, "ended": everything, "most": None if view.selects_more else limit}
    if starts:
        from rm.cli.jobs.starts import show_starts

        if wide or form or sort:
            raise UsageError(
                "--start has columns and an order of its own.", "Leave out --long, --format and --sort."
            )
        show_starts(session, view.shown(session.client.rows(**asked), limit), as_json, not noheader)
        return
    if as_json:
        found = {job.id: job for job in session.client.jobs(**asked)}
        rows = [_row_of(job) for job in found.values()]
        shown = dict.fromkeys(row.id for row in view.shown(rows, limit))
        emit_json({"jobs": [found[job] for job in shown]})
        return
    rows = view.shown(session.client.rows(**asked), limit)
    if view.slurm_form:
        for line in view.lines(rows):
            click.echo(line)
    else:
        right = [column.header for column in view.columns if column.right]
        table([column.header for column in view.columns], view.cells(rows), right, header=not noheader)
