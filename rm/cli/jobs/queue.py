"""`rmx queue`: the jobs, one a line, names never cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rm.cli.jobs.queue_columns import COLUMNS, LONG, USUAL, chosen, ordered, slurm_line
from rm.cli.session import Session, completes, emit_json, json_option, printable, table
from rm.units import parse_hosts

if TYPE_CHECKING:
    from rm.api.jobs import Job


def _words(text: str | None) -> frozenset[str]:
    return frozenset(word.strip() for word in (text or "").split(",") if word.strip())


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
    noheader: bool,
    as_json: bool,
) -> None:
    """List jobs: the unfinished ones, and those that ended in the last minutes."""
    slurm_form = form if form and "%" in form else ""
    columns = (
        chosen(form) if form and not slurm_form else [COLUMNS[name] for name in (LONG if wide else USUAL)]
    )
    users, names, partitions = _words(user), _words(name), _words(partition)
    hosts = frozenset(parse_hosts(nodelist)) if nodelist else frozenset()
    here = len(users) > 1 or len(names) > 1 or bool(partitions or hosts)  # what the daemon does not select
    found = session.client.jobs(
        state=state,
        user=",".join(users) if len(users) == 1 else "",
        mine=me,
        name=",".join(names) if len(names) == 1 else "",
        ended=everything,
        most=None if here else limit,
    )

    def fits(job: Job) -> bool:
        spec = job.spec
        return (
            (not users or spec.user in users)
            and (not names or spec.name in names)
            and (not partitions or spec.partition in partitions)
            and (not hosts or not hosts.isdisjoint(job.hosts))
        )

    jobs = ordered([job for job in found if fits(job)][-(limit or 0) :], sort or "")
    if as_json:
        emit_json({"jobs": jobs})
    elif slurm_form:
        for job in jobs if noheader else [None, *jobs]:
            click.echo(printable(slurm_line(slurm_form, job)))
    else:
        rows = [[column.text(job) for column in columns] for job in jobs]
        table([c.header for c in columns], rows, [c.header for c in columns if c.right], header=not noheader)
