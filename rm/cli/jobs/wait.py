"""`rmx wait` and `rmx submit --wait`: until jobs have ended, with their exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rm.arrays import JobId, lowest, mask
from rm.cli.output import note
from rm.cli.session import Session, emit_json, job_ids, jobs_operand, json_option
from rm.cli.shown import called

if TYPE_CHECKING:
    from rm.api.jobs import Job


def wait_for(
    session: Session, ids: Sequence[JobId], timeout_s: float | None = None, as_json: bool = False
) -> int:
    """The largest exit code of the jobs.

    Raises:
        TimedOut: not all have ended in time.
    """
    from rm.client import exit_code

    ended = []
    for job in session.client.wait_each([one for named in ids for one in named.each()], timeout_s):
        ended.append(job)
        if exit_code(job):
            note(f"Job {called(job)} ended {job.state} ({job.exit or '-'}).{_why(job)}")
        else:  # where its output is, for one, if not where it was to be
            for told in dict.fromkeys(task.note for task in job.tasks if task.note):
                note(f"Job {called(job)}: {told}")
    if as_json:
        emit_json({"jobs": ended})
    return max(map(exit_code, ended), default=0)


def _why(job: Job) -> str:
    if job.array is not None and job.array.failed:
        first = lowest(mask(job.array.failed))
        return (
            f" Failed: {job.array.failed:.80}. `rmx show {job.id}_{first}` tells why the first of them did."
        )
    return f" {job.reason.message}" if job.reason else ""


@click.command()
@jobs_operand
@click.option("--timeout", metavar="TIME", help="Give up after this time, such as 30s; exit with 124.")
@json_option
@click.pass_obj
def wait(
    session: Session, /, jobs: tuple[str, ...], job_words: tuple[str, ...], timeout: str | None, as_json: bool
) -> int:
    """Wait until all JOBs have ended; exit with the largest of their codes."""
    from rm.units import SECOND_US, parse_duration_us

    timeout_s = None if timeout is None else parse_duration_us(timeout) / SECOND_US
    return wait_for(session, job_ids((*jobs, *job_words)), timeout_s, as_json)
