"""`rmx cancel`, `hold`, `release`, `requeue`: what a user does to jobs that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rm.cli.session import Session, emit_json, job_ids, jobs_operand, json_option, note
from rm.errors import Forbidden, RmError, UsageError

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.client import Client

DONE = {"hold": "is held", "release": "is released", "requeue": "is put back into the queue"}


def _each(ids: list[int], act: Callable[[int], Job], as_json: bool, done: str) -> int:
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
            click.echo(f"Job {job_id} {done or 'is ' + job.state}")
    if as_json:
        emit_json({"jobs": changed})
    return code


def _all_that_fit(session: Session, user: str, name: str, state: str, as_json: bool) -> int:
    """One request, however many they are."""
    answer = session.client.cancel_all(user=user, name=name, state=state)
    for refused in answer.refused:
        note(refused.message)
    if as_json:
        emit_json({"jobs": answer.jobs})
    else:
        for job in answer.jobs:
            click.echo(f"Job {job.id} is {job.state}")
    if not answer.jobs and not answer.refused:
        note("No unfinished job matches.")
    return Forbidden.exit_code if answer.refused else 0


def _signal_number(text: str | None) -> int | None:
    if text is None:
        return None
    import signal

    name = text.upper().removeprefix("SIG")
    try:
        return int(signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name}"])
    except (ValueError, KeyError):
        raise UsageError(
            f"There is no signal '{text}'.", "Write a name or number, such as USR1 or 10."
        ) from None


@click.command()
@jobs_operand
@click.option("--signal", "-s", "signal_text", metavar="SIGNAL", help="Only send this signal to the tasks.")
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
    user: str,
    name: str,
    state: str,
    as_json: bool,
) -> int:
    """Cancel JOBs: SIGTERM to all their processes, and SIGKILL after the grace time."""
    number = _signal_number(signal_text)
    words = (*jobs, *job_words)
    if (user or name or state) and not words and number is None:
        return _all_that_fit(session, user, name, state, as_json)
    if user or name or state:
        listed = session.client.jobs(user=user, name=name, state=state)
        wanted = set(job_ids(words)) if words else None
        ids = [job.id for job in listed if job.ended_us is None and (wanted is None or job.id in wanted)]
        if not ids:
            note("No unfinished job matches.")
    else:
        ids = job_ids(words)
    done = f"got signal {number}" if number else ""
    client = session.client
    return _each(ids, lambda job: client.cancel(job, signal=number), as_json, done)


def _verb(name: str, text: str, act: Callable[[Client, int], Job]) -> click.Command:
    @click.command(name, help=text)
    @jobs_operand
    @json_option
    @click.pass_obj
    def command(session: Session, /, jobs: tuple[str, ...], job_words: tuple[str, ...], as_json: bool) -> int:
        client = session.client
        return _each(job_ids((*jobs, *job_words)), lambda job: act(client, job), as_json, DONE[name])

    return command


hold = _verb(
    "hold", "Keep pending JOBs from starting until they are released.", lambda client, job: client.hold(job)
)
release = _verb("release", "Let held JOBs start.", lambda client, job: client.release(job))
requeue = _verb(
    "requeue",
    "Stop running JOBs and put them back into the queue; they keep their ids.",
    lambda client, job: client.requeue(job),
)
