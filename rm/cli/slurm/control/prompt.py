"""The prompt of `scontrol`: its commands line by line, until `exit`, `quit` or the end of the input."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

from rm.cli.output import note
from rm.errors import RmError

PROMPT, AGAIN = "scontrol: ", "!!"
FAILED = 1
ENDING = ("exit", "quit")
SETTING = ("details", "oneliner")  # for the commands that follow, as the options of these names


def commands(
    options: dict[str, str],
    whole: Callable[[str], str],
    run: Callable[[Sequence[str], Mapping[str, str]], int],
) -> int:
    """Each by `run`, with these options; FAILED once one has failed. `whole`: of a keyword's beginning."""
    code, before = 0, ""
    if sys.stdin.isatty():
        import readline  # noqa: F401  for `input`: a line can be edited, and one from before called back
    while (line := _line()) is not None:
        line = before if line == AGAIN else line
        try:
            words = shlex.split(line)
        except ValueError as error:
            note(f"error: {error}.")
            code = FAILED
            continue
        if not words:
            continue
        before = line
        verb = whole(words[0])
        if verb in ENDING:
            break
        if verb in SETTING:
            options[verb] = ""
        try:
            code = max(code, run(words, options))
        except RmError as error:
            note(f"error: {error}")
            code = FAILED
        sys.stdout.flush()
    return code


def _line() -> str | None:
    """What was typed; None at the end. As Slurm's, it shows a line that comes from no terminal."""
    try:
        typed = input(PROMPT).strip()
    except EOFError:
        print()
        return None
    if not sys.stdin.isatty():
        print(typed)
    return typed
