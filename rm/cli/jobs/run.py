"""`rmx run`: a job for one command, whose input, output and exit code are this process's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rm.cli.jobs.attended import Attendance, Signals, as_step, beginning, must_be_terminal
from rm.cli.jobs.clusters import own_cluster
from rm.cli.jobs.submit import JobCommand, job_flags, typed_line
from rm.cli.output import note
from rm.cli.session import Session
from rm.client import submission
from rm.errors import RmError, UsageError
from rm.submission.batch import UNTOLD, Source, Submitter, batch_job
from rm.submission.options import SBATCH
from rm.submission.remarks import Remarks
from rm.submission.typed import printable_path

if TYPE_CHECKING:
    from rm.api.jobs import FullJob

SCRIPT = "#!/bin/sh\n# holds the job for a session: made by rm\nexec rm-hold\n"
NOT_HERE = {
    "output": "--output",
    "error": "--error",
    "input": "--input",
    "open_mode": "--open-mode",
    "array": "--array",
    "test_only": "--test-only",
    "wait": "--wait",
    "parsable": "--parsable",
    "hold": "--hold",
    "launch": "--launch",
    "container_image": "--container-image",
}
# of the command's step alone
CONTAINER = (
    "container_image", "container_name", "container_mounts", "container_workdir", "container_mount_home",
)  # fmt: skip
FIRST_LOOK_S, LAST_LOOK_S = 0.02, 0.5
TELL_S = 1.0  # a job that waits for less is not talked about


class How(NamedTuple):
    """What is not the job's but the session's. `options`: further ones of the step, which `srun` in the job
    reads. `line`: what was typed. `immediate_s`: how long the job may wait, None for ever."""

    terminal: bool = False
    keep: bool = False
    label: bool = False
    kill_on_bad_exit: bool = False
    quiet: bool = False
    unbuffered: bool = False
    options: Sequence[str] = ()
    line: str = ""
    immediate_s: float | None = None


def seconds_of(immediate: str | bool) -> float:
    """The value of --immediate, which may be left out.

    Raises:
        UsageError: it cannot be read.
    """
    if immediate in ("", True):
        return 1.0
    if not isinstance(immediate, str) or not immediate.isdecimal():
        raise UsageError(f"--immediate is '{immediate}'.", "Write a number of seconds.")
    return float(immediate)


def session_of(job: int) -> str:
    """The name of the session that a job is for."""
    return f"job{job:08d}"


def held_job(
    session: Session,
    flags: Mapping[str, Any],
    name: str,
    what: str,
    prefix: str = SBATCH,
    source: Source = UNTOLD,
    program: str = "",
) -> int:
    """Submit a job whose script waits for the end of a session; its id. `what` it is for, in refusals;
    `prefix`: of the variables that are options; `source`: what was typed; `program`: the command of the
    job for lists, as it was typed.

    Raises:
        UsageError: an option is none of such a job.
    """
    for key, option in NOT_HERE.items():
        if flags.get(key):
            raise UsageError(f"{what} takes no {option}.", "Leave it out, or use `rmx submit`.")
    remarks = Remarks()
    by = Submitter.here(prefix)
    spec, values = batch_job(SCRIPT, name, (), {}, flags, by, remarks, source)
    for warning in remarks.warnings:
        note(f"Warning: {warning}")
    remarks.refuse()
    if asked := values.get("clusters"):
        own_cluster(asked, session.client)
    spec.update(launch="batch", output="/dev/null")
    if program:
        spec["script_path"] = printable_path(program)
    if "requeue" not in values:
        spec["requeue"] = False  # nobody would attend a second attempt
    return submission.submit(session.connection, spec)


def when_it_runs(
    session: Session, job: int, signals: Signals, quiet: bool, immediate_s: float | None
) -> FullJob | None:
    """The job, once it runs or has ended, or has no hosts after `immediate_s`; None: a signal came before."""
    pause_s, since, told = FIRST_LOOK_S, time.monotonic(), ""
    client = session.client
    while True:
        found = client.job(job)
        if found.state == "RUNNING" or found.ended_us:
            if told and not quiet and found.state == "RUNNING":
                note(f"job {job} runs on {', '.join(found.hosts)}")
            return found
        if signals.ending():
            return None
        waited_s = time.monotonic() - since
        if immediate_s is not None and found.state == "PENDING" and waited_s >= immediate_s:
            return found
        why = found.reason.message if found.reason else ""
        if why and why != told and not quiet and waited_s > TELL_S:
            note(f"job {job} waits: {why}")
            told = why
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_LOOK_S)


def run_command(
    session: Session, flags: Mapping[str, Any], how: How, command: Sequence[str], prefix: str = SBATCH
) -> int:
    """Run `command` in a job of its own; its exit code. `prefix`: as of `held_job`."""
    if not command:
        raise UsageError("No command is given.", "Write it behind the options.")
    container = [
        f"--{key.replace('_', '-')}{'' if flags[key] is True else f'={flags[key]}'}"
        for key in CONTAINER
        if flags.get(key)
    ]
    flags = {key: value for key, value in flags.items() if key not in CONTAINER}
    with Signals() as signals:
        name = flags.get("name") or os.path.basename(command[0])
        job = held_job(session, flags, name, "rmx run", prefix, Source(how.line), command[0])

        def cancel() -> None:
            with suppress(RmError), session.new_client() as client:
                client.cancel(job)

        found = when_it_runs(session, job, signals, how.quiet, how.immediate_s)
        if found is None:
            cancel()
            number = signals.ending()
            note(f"Job {job} is cancelled.")
            return 128 + number
        if found.state == "PENDING":
            cancel()
            why = found.reason.message if found.reason else "The job would have to wait."
            note(f"error: Unable to allocate resources: {why}")
            return 1
        if found.state != "RUNNING":
            from rm.client import exit_code

            note(f"Job {job} ended {found.state}.{f' {found.reason.message}' if found.reason else ''}")
            return exit_code(found) or 1
        direct = how.terminal and not container and not how.options
        options = [*(["--pty"] if how.terminal else _step_options(how)), *how.options]
        argv = list(command) if direct else ["srun", *options, *container, *command]
        step = as_step(command) if direct else {}  # else `srun` makes one
        begin = beginning(argv, how.terminal, keep=how.keep, releases=True, **step)
        attendance = Attendance(
            session, job, "", session_of(job), begin, terminal=how.terminal, keep=how.keep, cancel=cancel
        )
        try:
            return attendance.run(signals)
        except RmError:
            cancel()
            raise


def _step_options(how: How) -> list[str]:
    words = ["--label"] if how.label else []
    words += ["--kill-on-bad-exit"] if how.kill_on_bad_exit else []
    words += ["--unbuffered"] if how.unbuffered else []
    return [*words, "--quiet"] if how.quiet else words


@click.command(
    cls=JobCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@job_flags
@click.option("--pty", is_flag=True, help="Run it on the first host, at a terminal of its own.")
@click.option("--keep", is_flag=True, help="Let the job go on when this terminal is closed.")
@click.option("-l", "--label", is_flag=True, help="Put each task's rank before its lines.")
@click.option("-K", "--kill-on-bad-exit", is_flag=True, help="End all tasks when one of them fails.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
@click.pass_obj
def run(
    session: Session,
    /,
    pty: bool,
    keep: bool,
    label: bool,
    kill_on_bad_exit: bool,
    command: tuple[str, ...],
    **flags: Any,
) -> int:
    """Run COMMAND in a job of its own, in each of its tasks, with this terminal's input and output.

    It waits for the job to start, and exits with the largest exit code. Ctrl-C twice within a second
    cancels the job.
    """
    if pty and command:
        must_be_terminal()
    quiet = bool(flags.pop("quiet", False))  # of sbatch it has no effect: here it means something
    how = How(pty, keep, label, kill_on_bad_exit, quiet, line=typed_line("rmx run"))
    return run_command(session, flags, how, command)
