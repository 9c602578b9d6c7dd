"""`rmx logs`: a task's output, also while it runs."""

from __future__ import annotations

import sys

import click

from rm.cli.session import Session, job_operand, one_job


@click.command()
@job_operand
@click.option("--task", type=click.IntRange(0), default=0, metavar="RANK", help="Which task (0).")
@click.option("--stderr", "error", is_flag=True, help="Standard error, when the job keeps it apart.")
@click.option("--follow", is_flag=True, help="Go on until the task ends.")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Begin there.")
@click.pass_obj
def logs(
    session: Session,
    /,
    job: str | None,
    job_word: str | None,
    task: int,
    error: bool,
    follow: bool,
    offset: int,
) -> None:
    """Print the output of a task of JOB, byte by byte as it was written."""
    stream = "err" if error else "out"
    job_id = one_job(job, job_word)
    for chunk in session.client.stream(
        "jobs", job_id, "logs", task=task, stream=stream, offset=offset, follow=follow
    ):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
