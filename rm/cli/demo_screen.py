"""What a demo shows while it runs, and how its sentences are set."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from rm.cli.heartbeat import Heartbeat


class Shown:
    """Lines with the time on standard error; on a terminal also what happens at this moment."""

    def __init__(self, status: Any) -> None:
        self._status = status
        self._began = time.monotonic()
        self.doing = "starting"
        self.heartbeat = Heartbeat(lambda: self.doing)

    def say(self, text: str) -> None:
        self.doing = ""
        line = f"{time.monotonic() - self._began:5.0f} s  {text}"
        if self._status is None:
            click.echo(line, err=True)
            self.heartbeat.spoke()
        else:
            self._status.console.print(line, markup=False, highlight=False)

    def now(self, text: str) -> None:
        self.doing = text
        if self._status is not None:
            self._status.update(text)


@contextmanager
def shown_screen() -> Iterator[Shown]:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        screen = Shown(None)
        with screen.heartbeat:
            yield screen
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield Shown(status)


def paragraph(*parts: str) -> None:
    click.echo(textwrap.fill(" ".join(parts), 110))
