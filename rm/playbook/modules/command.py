"""`command`: run a program without a shell, unless `creates` exists or `removes` does not."""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "_raw": Arg(),
    "cmd": Arg(),
    "argv": Arg("list"),
    "chdir": Arg(),
    "creates": Arg(),
    "removes": Arg(),
    "stdin": Arg(),
    "stdin_add_newline": Arg("bool", default=True),
    "strip_empty_ends": Arg("bool", default=True),
    "executable": Arg(),  # without effect, as in Ansible
    "expand_argument_vars": Arg("bool", default=True),
}
FREE_FORM = "_raw"
COMMAND = True


@lru_cache(maxsize=256)
def _words(text: str) -> tuple[str, ...]:
    """Most hosts of a play are sent the same."""
    return tuple(shlex.split(text))


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    text = args["cmd"] if args["_raw"] is None else args["_raw"]
    if (text is None) == (args["argv"] is None):
        raise BadArgument("give one command: as text, as 'cmd', or as the list 'argv'")
    try:
        argv = args["argv"] or list(_words(text))
    except ValueError as problem:
        raise BadArgument(f"the command cannot be split into words: {problem}") from None
    if not argv:
        raise BadArgument("the command is empty")
    rest = {k: v for k, v in args.items() if k not in ("_raw", "cmd", "argv", "executable")}
    return {**rest, "argv": argv}
