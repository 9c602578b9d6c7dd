"""Where `rmx` begins: the common forms of the commands that scripts call in loops run at once, all else by
click, whose loading alone takes longer than such a command."""

from __future__ import annotations

import sys
from importlib import import_module

from rm.cli.ending import ended

# what is not simple their `attempt` leaves to click: it answers None then, and has done nothing
QUICK = {"submit": "rm.cli.jobs.quick_submit", "queue": "rm.cli.jobs.quick_queue"}


def main() -> int:
    return ended(_command)


def _command() -> int:
    words = sys.argv[1:]
    code: int | None = None
    if words and (module := QUICK.get(words[0])):
        code = import_module(module).attempt(words[1:])
    if code is None:
        from rm.cli.main import run

        code = run(words)
    return code
