"""`rmx shell` and `rmx attach`: into a job that runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from rm.cli.jobs.attended import Attendance, Signals, as_step, at_terminal, beginning, must_be_terminal
from rm.cli.jobs.run import session_of
from rm.cli.session import Session, completes, one_job
from rm.errors import NotFound, UsageError
from rm.units import number_of, parse_hosts


def one_number(session: Session, word: str) -> int:
    """The id of a job, or of the job that an element of an array is.

    Raises:
        UsageError: it names several.
        NotFound: there is no such element.
    """
    job, dot, step = word.partition(".")
    if dot and step and job.isdigit():
        raise UsageError(
            f"'{word}' is a step, and only whole jobs are entered.",
            f"Leave the step out: {job}. `rmx shell` and `rmx attach` take a step.",
        )
    found = one_job(word, None)
    return session.client.job(found).id if found.tasks else found.job


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--host", metavar="HOST", default="", help="Of the job's hosts; its first one if not given.")
@click.argument("job", shell_complete=completes("jobs"), metavar="JOB[.STEP]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [ARG]...]")
@click.pass_obj
def shell(session: Session, /, host: str, job: str, command: tuple[str, ...]) -> int:
    """Open a shell in the running JOB, on one of its hosts; or run COMMAND there.

    It is in the job's control group and has its user, its environment and what it sees of the host. In a
    JOB.STEP these are the step's, on the step's first host unless another is named.
    """
    command = command[1:] if command[:1] == ("--",) else command  # as it ends the options of other programs
    name, _, step = job.partition(".")
    in_step = number_of(step)
    number = one_number(session, job if in_step is None else name)
    if in_step is not None:
        host = host or _host_of_step(session, number, in_step)
    terminal = not command or at_terminal()
    if terminal:
        must_be_terminal()
    name = os.urandom(10).hex()
    entered: dict[str, Any] = as_step(command) if in_step is None else {"in_step": in_step}
    begin = beginning(list(command), terminal, **entered)
    with Signals() as signals:
        attendance = Attendance(
            session, number, host, name, begin, terminal=terminal, interrupts=not terminal
        )
        return attendance.run(signals)


def _host_of_step(session: Session, number: int, step: int) -> str:
    attempt = session.client.job(number).attempt
    for one in session.client.job_steps([number]):
        if (one.attempt, one.step) == (attempt, step) and one.ended_us is None:
            return parse_hosts(one.hosts)[0]
    raise NotFound(f"Step {number}.{step} does not run.", f"`rmx show {number}` lists the job's steps.")


def attach_step(session: Session, number: int, step: str, options: Sequence[str]) -> int:
    """Attend a step of the job beside its `srun`; the exit code. `options`: those of the job's `sattach`."""
    terminal = "--pty" in options
    if terminal:
        must_be_terminal()
    begin = beginning(["sattach", *options, f"{number}.{step}"], terminal)
    with Signals() as signals:
        name = os.urandom(10).hex()
        return Attendance(session, number, "", name, begin, terminal=terminal, interrupts=not terminal).run(
            signals
        )


@click.command()
@click.option("--keep", is_flag=True, help="Let the job go on when this terminal is closed.")
@click.option("--pty", is_flag=True, help="Of a STEP at a terminal: all keys go there.")
@click.argument("job", shell_complete=completes("jobs"), metavar="JOB[.STEP]")
@click.pass_obj
def attach(session: Session, /, keep: bool, pty: bool, job: str) -> int:
    """Attend the session of a JOB of `rmx run` again, in place of who attends it now.

    Or attend a running STEP of any own job, beside its `srun`: see what its tasks say, and type what they
    read. It goes on when you leave.
    """
    name, dot, step = job.partition(".")
    if dot and step.isdigit():
        if keep:
            raise UsageError("A step has no --keep.", "It goes on when you leave.")
        return attach_step(session, one_number(session, name), step, ["--pty"] if pty else [])
    number = one_number(session, job)
    if pty:
        raise UsageError("Only a step has --pty.", f"Name one, as in {number}.0.")
    terminal = at_terminal()
    with Signals() as signals:
        attendance = Attendance(session, number, "", session_of(number), None, terminal=terminal, keep=keep)
        return attendance.run(signals)
