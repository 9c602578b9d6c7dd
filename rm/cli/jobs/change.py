"""`rmx cancel`, `hold`, `release`, `requeue`: what a user does to jobs that exist."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rm.arrays import JobId, split_ids
from rm.cli.array_elements import state_of, targets
from rm.cli.jobs.own_job import is_own, requeue_itself
from rm.cli.jobs.queue_view import View
from rm.cli.output import note
from rm.cli.session import Session, emit_json, job_ids, jobs_operand, json_option
from rm.cli.shown import job_ref
from rm.errors import Forbidden, RmError, UsageError
from rm.submission.signals import signal_number

if TYPE_CHECKING:
    from rm.api.job_requests import SignalTo
    from rm.api.jobs import Job
    from rm.client import Client

NAMED_MOST = 100  # jobs; of more only how many they are
DONE = {
    "hold": "is held",
    "release": "is released",
    "requeue": "is put back into the queue",
    "suspend": "is suspended",
    "resume": "is resumed",
}
OF_HOSTS = {
    "hold": "rmx host drain",
    "release": "rmx host resume",
    "suspend": "rmx host drain",
    "resume": "rmx host resume",
}


def _each(ids: list[JobId], act: Callable[[JobId], Job], as_json: bool, done: str) -> int:
    """Do it to every job; a failure does not keep the others from it, and is the exit code."""
    changed, code = [], 0
    for job_id in ids:
        try:
            job = act(job_id)
        except RmError as error:
            note(str(error))
            code = error.exit_code
            continue
        changed.append(job)
        if not as_json:
            click.echo(f"Job {job_id} {done or 'is ' + state_of(job, job_id.tasks)}")
    if as_json:
        emit_json({"jobs": changed})
    return code


def _all_that_fit(session: Session, user: str, name: str, state: str, as_json: bool) -> int:
    """One request, however many they are."""
    from rm.cli.heartbeat import Heartbeat  # here: a single job is cancelled without threads

    with Heartbeat(lambda: "the jobs are cancelled, some hundreds at a time"):
        answer = session.client.cancel_all(user=user, name=name, state=state)
    for refused in answer.refused:
        note(refused.message)
    if as_json:
        emit_json({"jobs": answer.jobs})
    elif len(answer.jobs) <= NAMED_MOST:
        for job in answer.jobs:
            rest = "" if job.array is None else job.array.waiting or job.array.dropped
            click.echo(f"Job {job_ref(job)} is {state_of(job, rest)}")
    else:
        for ended, count in sorted(Counter(job.state for job in answer.jobs).items()):
            click.echo(f"{count} jobs are {ended}")
    if not answer.jobs and not answer.refused:
        note("No unfinished job matches.")
    return Forbidden.exit_code if answer.refused else 0


def _matching(
    session: Session, named: list[JobId], user: str, name: str, state: str, rests: bool
) -> list[JobId]:
    """Of the jobs that are named, or of all, those that fit. `rests`: also elements of arrays that have no
    jobs of their own."""
    lines = View(state=state).shown(session.client.rows(user=user, name=name, state=state))
    alive = [line for line in lines if line.ended_us is None and not line.array_over]
    if not state and named:  # whole arrays, as they are named
        known = {line.id for line in alive} | {line.array_job for line in alive}
        return [one for one in named if one.job in known]
    return targets([line for line in alive if rests or line.array_rest is None], named)


@click.command()
@jobs_operand
@click.option("--signal", "-s", "signal_text", metavar="SIGNAL", help="Only send this signal to the tasks.")
@click.option("--batch", "to", flag_value="script", help="The signal is for the script's shell alone.")
@click.option("--full", "to", flag_value="all", help="The signal is also for a script that runs once.")
@click.option("--user", "-u", default="", metavar="USER", help="All jobs of this user.")
@click.option("--job-name", "-n", "name", default="", metavar="NAME", help="All jobs of this name.")
@click.option("--state", "-t", default="", metavar="STATE", help="All jobs in this state.")
@json_option
@click.pass_obj
def cancel(
    session: Session,
    /,
    jobs: tuple[str, ...],
    job_words: tuple[str, ...],
    signal_text: str | None,
    to: SignalTo | None,
    user: str,
    name: str,
    state: str,
    as_json: bool,
) -> int:
    """Cancel JOBs: SIGTERM to all their processes, and SIGKILL after the grace time."""
    number = None if signal_text is None else signal_number(signal_text)
    if to and number is None:
        raise UsageError("--batch and --full say whom a signal reaches.", "Name it by --signal.")
    words = (*jobs, *job_words)
    for part in (part for word in words for part in split_ids(word)):
        if part.partition(".")[2].isdecimal():
            raise UsageError(
                f"'{part[:80]}' is a step, and this command cancels jobs.",
                f"`scancel {part[:80]}` ends a step; `rmx slurm-shims` makes that command.",
            )
    if (user or name or state) and not words and number is None:
        return _all_that_fit(session, user, name, state, as_json)
    if user or name or state:
        ids = _matching(session, job_ids(words) if words else [], user, name, state, number is None)
        if not ids:
            note("No unfinished job matches.")
    else:
        ids = job_ids(words)
    done = f"got signal {number}" if number else ""
    client = session.client
    return _each(ids, lambda job: client.cancel(job, signal=number, signal_to=to or "steps"), as_json, done)


def _verb(name: str, text: str, act: Callable[[Client, JobId], Job]) -> click.Command:
    @click.command(name, help=text)
    @jobs_operand
    @json_option
    @click.pass_obj
    def command(session: Session, /, jobs: tuple[str, ...], job_words: tuple[str, ...], as_json: bool) -> int:
        client = session.client
        ids = job_ids((*jobs, *job_words), OF_HOSTS[name])
        return _each(ids, lambda job: act(client, job), as_json, DONE[name])

    return command


hold = _verb(
    "hold",
    "Keep pending JOBs from starting until they are released. What an operator or administrator holds, its "
    "owner cannot release.",
    lambda client, job: client.hold(job),
)
suspend = _verb(
    "suspend",
    "Let running JOBs stand still, with all that they hold, until they are resumed; for operators.",
    lambda client, job: client.suspend(job),
)
resume = _verb(
    "resume", "Let suspended JOBs go on; for operators.", lambda client, job: client.resume_job(job)
)
release = _verb("release", "Let held JOBs start.", lambda client, job: client.release(job))


@click.command()
@jobs_operand
@click.option("--failed", is_flag=True, help="Of job arrays only the elements that failed.")
@click.option("--hold", is_flag=True, help="Keep them from starting until they are released.")
@json_option
@click.pass_obj
def requeue(
    session: Session,
    /,
    jobs: tuple[str, ...],
    job_words: tuple[str, ...],
    failed: bool,
    hold: bool,
    as_json: bool,
) -> int:
    """Stop running JOBs and put them back into the queue; they keep their ids.

    A task may do so with its own job on any host, also where no daemon can be reached.
    """
    ids = job_ids((*jobs, *job_words))
    own = [job for job in ids if is_own(str(job), os.environ)]
    if own and not (as_json or failed or hold) and requeue_itself(os.environ):
        click.echo(f"Job {own[0]} {DONE['requeue']}")
        ids = [job for job in ids if job not in own]
    if not ids:
        return 0
    client = session.client
    return _each(ids, lambda job: client.requeue(job, failed=failed, hold=hold), as_json, DONE["requeue"])
