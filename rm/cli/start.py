"""Where `rmx` begins: the common forms of the commands that scripts call in loops run at once, all else by
click, whose loading alone takes longer than such a command."""

from __future__ import annotations

import os
import sys

from rm.cli.ending import ended, leave

# what is not simple their `attempt` leaves to click: it answers None then, and has done nothing
QUICK = {"submit": "rm.cli.jobs.quick_submit", "queue": "rm.cli.jobs.quick_queue"}


def main() -> int:
    code = command_line()
    leave(code)
    return code


def command_line() -> int:
    prepare_streams()
    return ended(_command)


def prepare_streams() -> None:
    """A closed stream is empty, and drops what is written: to Python it is None, and messages for a closed
    standard error would go to standard output. A character that the output's encoding
    lacks is a question mark."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (
            descriptor := os.open(os.devnull, os.O_RDWR)
        ) <= 2:  # so that no socket becomes one of the three
            pass
        os.close(descriptor)
        sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def _command() -> int:
    words = sys.argv[1:]
    code: int | None = None
    # click writes UTF-8 where Python believes that a terminal knows ASCII only
    if words and sys.stdout.encoding.lower() == "utf-8" and (module := QUICK.get(words[0])):
        code = __import__(module, fromlist=["attempt"]).attempt(words[1:])
    if code is None:
        from rm.collector import uncollected

        with uncollected():  # a seventh of the time that this takes
            from rm.cli.main import run
        code = run(words)
    return code
