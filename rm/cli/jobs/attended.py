"""The terminal, or the input and output, of this process as the near end of a session of a job."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rm.cli.output import note
from rm.cli.session import Session
from rm.client import attending
from rm.client.attending import Ended, Streams
from rm.errors import Conflict, NotFound, RmError, UsageError

TWICE_S = 1.0  # between two Ctrl-C that cancel
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def at_terminal() -> bool:
    """Are standard input and output one?"""
    return os.isatty(0) and os.isatty(1)


def shows_terminal() -> bool:
    """Is standard output one? What `srun --pty` looks at: its input may come from a file or pipe."""
    return os.isatty(1)


def must_be_terminal() -> None:
    """Raises UsageError unless standard input and output are one."""
    for fd, name in ((0, "input"), (1, "output")):
        if not os.isatty(fd):
            raise UsageError(
                f"A terminal is wanted, and standard {name} is none.",
                "Call it from a terminal, or without --pty and with a command.",
            )


def window() -> tuple[int, int]:
    """(rows, columns) of the terminal; zeros where there is none."""
    for fd in (0, 1):
        with suppress(OSError):
            rows, columns = struct.unpack("4H", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))[:2]
            if rows and columns:
                return rows, columns
    return 0, 0


def beginning(argv: list[str], terminal: bool, **more: Any) -> Mapping[str, Any]:
    """How a session begins, as the API takes it."""
    rows, columns = window() if terminal else (0, 0)
    term = os.environ.get("TERM", "")[:64] if terminal else ""
    return {"argv": argv, "terminal": terminal, "rows": rows, "columns": columns, "term": term, **more}


def as_step(command: Sequence[str]) -> dict[str, str]:
    """By what name the session stands in the job's accounting; without a command it is a shell."""
    return {"step": os.path.basename(command[0])[:200] if command else "shell"}


@contextmanager
def raw(terminal: bool) -> Iterator[None]:
    """Every key goes to the far side; the terminal is as it was, however this ends. Nothing is changed where
    standard input is none."""
    if not terminal or not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


class Signals:
    """What this process was signalled, as a descriptor that wakes and the numbers in their order."""

    def __init__(self) -> None:
        self.wake, self._in = os.pipe()
        for fd in (self.wake, self._in):
            os.set_blocking(fd, False)
        self.numbers: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGWINCH):
            self._before[number] = signal.signal(number, lambda n, _: self.numbers.append(n))
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wake)
        os.close(self._in)

    def poke(self) -> None:
        """Wake who waits, from any thread."""
        with suppress(OSError):
            os.write(self._in, b"\0")

    def taken(self) -> list[int]:
        """Those that have come, which are not here any more."""
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        numbers, self.numbers = self.numbers, []
        return numbers

    def ending(self) -> int:
        """The first signal that is to end this process; 0: none."""
        return next((n for n in self.numbers if n in ENDING), 0)


class Attendance:
    """This process at one session. `cancel` ends the job, where the session is what the job is for. With
    `interrupts`, Ctrl-C goes to the program at once."""

    def __init__(
        self,
        session: Session,
        job: int,
        host: str,
        name: str,
        begin: Mapping[str, Any] | None,
        *,
        terminal: bool,
        keep: bool = False,
        cancel: Callable[[], None] | None = None,
        interrupts: bool = False,
    ) -> None:
        self._interrupts = interrupts
        self._session, self._job, self._name = session, job, name
        self._terminal, self._keep, self._cancel = terminal, keep, cancel
        self._far = attending.Session(session.new_connection, job, host, name, begin, self._note)
        self._interrupted_at = 0.0
        self._left_by = 0

    def run(self, signals: Signals) -> int:
        """The exit code.

        Raises:
            RmError: the session could not begin, or was lost.
        """

        def look(far: attending.Session) -> bool:
            return self._look(far, signals)

        try:
            with raw(self._terminal):
                if self._terminal:
                    signals.numbers.append(signal.SIGWINCH)  # it may have changed before we looked
                    signals.poke()
                ended = self._far.attend(Streams(0, 1, 2, signals.wake, look))
        except (NotFound, Conflict) as error:
            if self._far.displaced or not self._far.began:
                raise
            return self._job_ended(error)
        if ended is None:
            if self._keep:
                note(f"Job {self._job} goes on; `rmx attach {self._job}` attends it again.")
            return 128 + self._left_by
        return self._told(ended)

    def _told(self, ended: Ended) -> int:
        if ended.signal:
            note(f"The program was ended by signal {ended.signal} ({signal.strsignal(ended.signal)}).")
        return ended.exit_code

    def _job_ended(self, error: RmError) -> int:
        """The session is not there any more: the job says why, if it has ended."""
        from rm.client import exit_code

        try:
            job = self._session.client.wait(self._job, 10.0)
        except RmError:
            raise error from None
        note(f"Job {self._job} ended {job.state}.{f' {job.reason.message}' if job.reason else ''}")
        return exit_code(job) or 1

    def _look(self, far: attending.Session, signals: Signals) -> bool:
        numbers, signals.numbers = signals.numbers, []
        for number in numbers:
            if number == signal.SIGWINCH:
                if self._terminal:
                    far.resize(*window())
            elif number == signal.SIGINT and not self._terminal:
                self._interrupt(far)
            elif number in ENDING:
                self._left_by = number
                if not self._keep:
                    far.hang_up()
                    if self._cancel is not None:
                        self._cancel()
                return False
        return True

    def _interrupt(self, far: attending.Session) -> None:
        if self._interrupts:
            far.signal(signal.SIGINT)
            return
        now = time.monotonic()
        if now - self._interrupted_at > TWICE_S:
            self._interrupted_at = now
            note("Interrupted: the job goes on. Again within a second cancels it.")
        elif self._cancel is not None:
            note(f"Job {self._job} is cancelled.")
            self._cancel()
        else:
            far.signal(signal.SIGINT)

    def _note(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write("\r\n")
        note(text)
        if self._terminal:
            sys.stderr.write("\r")
