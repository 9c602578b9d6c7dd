"""Questions on the terminal while a playbook runs, from any thread; the end of the run ends them, too."""

from __future__ import annotations

import select
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from rm.errors import RmError

LOOK_S = 0.2  # how soon a question sees that the run has ended


class NotAnswered(RmError):
    """The run was ended while something was asked."""


class Terminal:
    """Asks one question at a time. `quiet()` is entered meanwhile: nothing else may write there."""

    def __init__(self, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        self.quiet = quiet
        self._turn = threading.Lock()

    def ask(self, text: str, private: bool, stopping: threading.Event) -> str:
        """A line without its end; what is private is not shown while it is typed."""
        with self._turn, self.quiet():
            if not private:
                click.echo(text, nl=False, err=True)
                return self._line(stopping)
            before = termios.tcgetattr(sys.stdin)
            hidden = list(before)
            hidden[3] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, hidden)  # before anybody is asked to type
            click.echo(text, nl=False, err=True)
            try:
                return self._line(stopping)
            finally:
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
                click.echo(err=True)

    def _line(self, stopping: threading.Event) -> str:
        while not select.select([sys.stdin], [], [], LOOK_S)[0]:
            if stopping.is_set():
                raise NotAnswered("The run was ended before the question was answered.")
        return sys.stdin.readline().rstrip("\n")
