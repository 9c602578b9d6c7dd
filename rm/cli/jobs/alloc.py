"""`rmx alloc`: a job that is there for as long as a command of this machine runs. `srun` in it runs steps."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rm.cli.jobs.allocated import PROGRAMS, Terminal, environment, write_programs
from rm.cli.jobs.attended import Signals
from rm.cli.jobs.run import FIRST_LOOK_S, LAST_LOOK_S, held_job, seconds_of
from rm.cli.jobs.submit import JobCommand, job_flags, typed_line
from rm.cli.output import note
from rm.cli.session import Session
from rm.errors import RmError, UsageError
from rm.submission.batch import Source
from rm.submission.options import FLAG, MAYBE, Option

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.client.tether import Tether

PREFIX = "SALLOC_"  # of variables that are options
FAILED = 1  # the exit code where there was no allocation, or the command could not be run
OWN = {
    "no-shell": Option("no_shell", ("no-shell",), takes=FLAG),
    "immediate": Option("immediate", ("immediate",), "I", takes=MAYBE),
    "kill-command": Option("kill_command", ("kill-command",), "K", takes=MAYBE),
    "bell": Option("bell", ("bell",), takes=FLAG, off="no-bell"),
}
PEACEFUL = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGQUIT)  # by which people end commands


class How(NamedTuple):
    """What is not the job's. `immediate_s`: how long it may wait, None for ever; `kills`: the command is sent
    `kill_by` when the allocation is revoked, 0 = what its kind usually gets. `line`: what was typed;
    `chdir`: the directory of the command, "" = this one."""

    shell: bool = True
    immediate_s: float | None = None
    kills: bool = False
    kill_by: int = 0
    quiet: bool = False
    bell: bool = False
    line: str = ""
    chdir: str = ""


def how_of(
    *, no_shell: bool, immediate: str | None, kill_command: str | None, quiet: bool, bell: bool
) -> How:
    """Of the options; "" is one without its value.

    Raises:
        UsageError: a value cannot be read.
    """
    immediate_s = None if immediate is None else seconds_of(immediate)
    kill_by = _signal_of(kill_command) if kill_command else 0
    return How(not no_shell, immediate_s, kill_command is not None, kill_by, quiet, bell)


def _signal_of(text: str) -> int:
    with suppress(ValueError, KeyError):
        if text.isdecimal():
            return int(signal.Signals(int(text)))
        return int(signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"])
    raise UsageError(f"--kill-command is '{text}', which is not a signal.", "Write a name such as TERM.")


def allocate(session: Session, flags: Mapping[str, Any], how: How, command: Sequence[str]) -> int:
    """Have a job while `command` runs here; its exit code, or FAILED."""
    argv = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
    if how.shell and argv[0] not in PROGRAMS and shutil.which(argv[0]) is None:
        raise UsageError(f"There is no command '{argv[0]}' here.", "It runs on this machine, as under Slurm.")
    how = how._replace(chdir=flags.get("chdir") or "")
    if how.chdir and not os.path.isdir(how.chdir):
        raise UsageError(f"There is no directory {how.chdir} here.", "The command runs on this machine.")
    name = flags.get("name") or "interactive"  # as Slurm 22.05 does; its manual says: the name of the command
    with Signals() as signals:
        job = held_job(session, flags, name, "rmx alloc", PREFIX, Source(how.line))
        if not _granted(session, job, signals, how):
            return FAILED
        if not how.shell:
            return 0
        return _Held(session, job, signals, how).run(argv)


def _granted(session: Session, job: int, signals: Signals, how: How) -> bool:
    """Wait until the job runs; False, and a message, when it will not."""
    client = session.client
    since, pause_s, pends = time.monotonic(), FIRST_LOOK_S, False
    while True:
        found = client.job(job)
        why = f" {found.reason.message}" if found.reason else ""
        if found.state == "RUNNING":
            said = [f"job {job} has been allocated resources"] if pends else []
            _say(how, *said, f"Granted job allocation {job}")
            if pends and how.bell:
                click.echo("\a", err=True, nl=False)
            return True
        if found.ended_us:
            note(f"Job {job} ended {found.state}.{why}")
            return False
        waited_s = time.monotonic() - since
        waits = found.state == "PENDING"  # one that has hosts is about to run
        impatient = waits and how.immediate_s is not None and waited_s >= how.immediate_s
        if impatient or signals.ending():
            with suppress(RmError):
                client.cancel(job)
            refused = f"error: Unable to allocate resources:{why or ' The job would have to wait.'}"
            note(refused if impatient else f"Job allocation {job} has been revoked.")
            return False
        if waits and not pends and waited_s > FIRST_LOOK_S:
            pends = True
            _say(how, f"Pending job allocation {job}", f"job {job} queued and waiting for resources")
            if why:
                _say(how, why.strip())
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_LOOK_S)


def _say(how: How, *texts: str) -> None:
    for text in texts:
        if not how.quiet:
            note(text)


class _Held:
    """A job that runs and waits, and the command here that it is for."""

    def __init__(self, session: Session, job: int, signals: Signals, how: How) -> None:
        self._session, self._job, self._signals, self._how = session, job, signals, how

    def run(self, argv: Sequence[str]) -> int:
        from rm.client.tether import Tether

        tether = Tether(self._session.new_connection, self._job, self._signals.poke)
        try:
            found = tether.environment()
            job = self._session.client.job(self._job)
        except RmError:
            with suppress(RmError):
                self._session.client.cancel(self._job)
            raise
        with Terminal() as terminal, TemporaryDirectory(prefix="rm-alloc-") as folder:
            write_programs(folder)
            environ = environment(os.environ, found, job, self._session, folder)
            try:
                command = subprocess.Popen(list(argv), env=environ, cwd=self._how.chdir or None)
            except OSError as error:
                note(f"'{argv[0]}' cannot be run: {error.strerror}.")
                tether.release(FAILED)
                return FAILED
            code = self._until_it_ends(command, tether, terminal.interactive)
        if tether.holds:
            _say(self._how, f"Relinquishing job allocation {self._job}")
            tether.release(code)
        return code

    def _until_it_ends(self, command: subprocess.Popen[bytes], tether: Tether, interactive: bool) -> int:
        def wait() -> None:
            command.wait()
            self._signals.poke()

        threading.Thread(target=wait, daemon=True).start()
        revoked = False
        while command.returncode is None:
            select.select([self._signals.wake], [], [])
            for number in self._signals.taken():
                if number in (signal.SIGTERM, signal.SIGHUP):  # the terminal sends it SIGINT itself
                    command.send_signal(number)
            if not revoked and not tether.holds and command.returncode is None:
                revoked = True
                self._revoked(tether)
                if self._how.kills:
                    usual = signal.SIGHUP if interactive else signal.SIGTERM
                    command.send_signal(self._how.kill_by or usual)
        if command.returncode < 0:
            return 0 if -command.returncode in PEACEFUL else FAILED
        return command.returncode

    def _revoked(self, tether: Tether) -> None:
        try:
            with self._session.new_client() as client:
                job = client.job(self._job)
        except RmError:
            note(str(tether.error or f"Job allocation {self._job} has been revoked."))
            return
        note(why_gone(job, tether.error))


def why_gone(job: Job, error: RmError | None) -> str:
    """What to say when the `job` is held no more. While it ends the session says an `error`."""
    if not job.ended_us and not job.ending and error is not None:
        return f"Job {job.id} is not held any more. {error}"
    if (job.ending or job.state) == "TIMEOUT":
        return f"Job {job.id} has exceeded its time limit and its allocation has been revoked."
    return f"Job allocation {job.id} has been revoked."


class AllocCommand(JobCommand):
    more = OWN


@click.command(
    cls=AllocCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@job_flags
@click.option("--no-shell", is_flag=True, help="Run nothing: the allocation stays until it is cancelled.")
@click.option(
    "-I",
    "--immediate",
    metavar="[SECONDS]",
    is_flag=False,
    flag_value="",
    help="Wait no longer than this.",
)
@click.option(
    "-K", "--kill-command", metavar="[SIGNAL]", is_flag=False, flag_value="",
    help="Send COMMAND this when the allocation is revoked: HUP to a shell, else TERM.",
)  # fmt: skip
@click.option("--bell/--no-bell", is_flag=True, help="Ring the terminal's bell when it is granted.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [ARG]...]")
@click.pass_obj
def alloc(
    session: Session,
    /,
    no_shell: bool,
    immediate: str | None,
    kill_command: str | None,
    bell: bool,
    command: tuple[str, ...],
    **flags: Any,
) -> int:
    """Hold an allocation while COMMAND, or a shell, runs on this machine.

    `srun` in it runs steps on the allocation, whose hosts are in SLURM_JOB_NODELIST. It ends with COMMAND,
    and so does this command, with its exit code.
    """
    quiet = bool(flags.pop("quiet", False))
    how = how_of(no_shell=no_shell, immediate=immediate, kill_command=kill_command, quiet=quiet, bell=bell)
    how = how._replace(line=typed_line("rmx alloc"))
    return allocate(session, flags, how, command)
