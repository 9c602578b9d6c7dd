"""Where `rmx` begins: the common forms of the commands that scripts call in loops run at once, all else by
click, whose loading alone takes longer than such a command."""

from __future__ import annotations

import sys

QUICK = {"submit": "rm.cli.jobs.quick_submit", "queue": "rm.cli.jobs.quick_queue"}


def main() -> int:
    words = sys.argv[1:]
    if words and (module := QUICK.get(words[0])):
        from importlib import import_module

        code: int | None = import_module(module).attempt(words[1:])
        if code is not None:
            return code
    from rm.cli.main import run

    return run(words)
