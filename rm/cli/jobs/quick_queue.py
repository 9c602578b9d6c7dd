"""`rmx queue` into a file or a pipe without click, where all goes well; `rm.cli.jobs.queue` does the rest."""

from __future__ import annotations

import gc
import sys

from rm.api.job_rows import JobRow
from rm.cli.ending import ended
from rm.cli.jobs.queue_view import View
from rm.client.address import find_daemon
from rm.client.kept_ssh import at_hand
from rm.client.listing import rows_at_once
from rm.errors import RmError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

KEPT: list[JobRow] = []  # the program ends before it has freed them
FLAGS = {"--me": "me", "--long": "wide", "-l": "wide", "--noheader": "noheader"}
VALUES = {
    "--state": "state", "-t": "state", "--user": "user", "-u": "user", "--job-name": "name", "-n": "name",
    "--partition": "partition", "-p": "partition", "--nodelist": "nodelist", "-w": "nodelist",
    "--format": "form", "-o": "form", "--sort": "sort", "-S": "sort",
}  # fmt: skip


def attempt(words: Sequence[str]) -> int | None:
    """The exit code; None: this is not simple, and nothing has been printed."""
    options = _options(words)
    if options is None or sys.stdout.isatty():
        return None
    gc.disable()  # ten thousand rows stay to the end, which is soon
    try:
        address, view = find_daemon(None, None), View(**options)
        path = at_hand(address)
        rows = _rows(path, view) if path else None
    except (RmError, OSError):
        rows = None
    if rows is None:
        gc.enable()
        return None
    KEPT[:] = rows
    return ended(lambda: _print(view, rows))


def _options(words: Sequence[str]) -> dict[str, Any] | None:
    """The keywords of a view."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in FLAGS:
            found[FLAGS[word]] = True
        elif name in VALUES and equals and name.startswith("--"):
            found[VALUES[name]] = value
        elif word in VALUES and rest:
            found[VALUES[word]] = rest.pop(0)
        else:
            return None
    return found


def _rows(path: str, view: View) -> list[JobRow] | None:
    rows = rows_at_once(path, view.selection)
    return None if rows is None else view.shown(rows)


def _print(view: View, rows: Sequence[JobRow]) -> int:
    lines = list(view.lines(rows))
    sys.stdout.write("\n".join([*lines, ""]) if lines else "")
    return 0
