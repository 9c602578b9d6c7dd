"""`rmx queue` into a file or a pipe without click, where all goes well; `rm.cli.jobs.queue` does the rest."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from rm.api.job_rows import JobRow
from rm.cli.ending import ended
from rm.cli.jobs.queue_view import View
from rm.client.address import find_daemon
from rm.client.one_request import answered
from rm.errors import RmError

FLAGS = {"--me": "me", "--long": "wide", "-l": "wide", "--noheader": "noheader"}
VALUES = {
    "--state": "state", "-t": "state", "--user": "user", "-u": "user", "--job-name": "name", "-n": "name",
    "--partition": "partition", "-p": "partition", "--nodelist": "nodelist", "-w": "nodelist",
    "--format": "form", "-o": "form", "--sort": "sort", "-S": "sort",
}  # fmt: skip
PLAIN = r"[\w.,-]*\Z"  # a value that needs no quoting in an address


def attempt(words: Sequence[str]) -> int | None:
    """The exit code; None: this is not simple, and nothing has been printed."""
    options = _options(words)
    if options is None or sys.stdout.isatty():
        return None
    try:
        address, view = find_daemon(None, None), View(**options)
        rows = _rows(address.path, view) if address.scheme == "unix" else None
    except (RmError, OSError):
        return None
    return None if rows is None else ended(lambda: _print(view, rows))


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
    given = [(name, "1" if value is True else str(value)) for name, value in view.selection.items() if value]
    if not all(re.match(PLAIN, value, re.ASCII) for _, value in given):
        return None
    query = "&".join(f"{name}={value}" for name, value in given)
    pages: list[list[JobRow]] = []
    more, before = True, 0
    while more:
        answer = answered(path, "GET", f"/v1/jobs/rows?before={before}&{query}", {})
        if answer is None:
            return None
        try:
            told = json.loads(answer)
            if tuple(told["columns"]) != JobRow._fields:
                return None
            pages.append(list(map(JobRow._make, told["rows"])))
            more = bool(told["more"] and pages[-1])
        except (ValueError, KeyError, TypeError):
            return None
        before = pages[-1][0].id if more else 0
    return view.shown([row for page in reversed(pages) for row in page])


def _print(view: View, rows: Sequence[JobRow]) -> int:
    sys.stdout.writelines(f"{line}\n" for line in view.lines(rows))
    return 0
