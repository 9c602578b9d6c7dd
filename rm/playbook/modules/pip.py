"""`pip`: Python packages are installed, or are not."""

from __future__ import annotations

import shlex
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg("list"),
    "version": Arg(),
    "requirements": Arg(),
    "state": Arg(choices=("absent", "forcereinstall", "latest", "present"), default="present"),
    "virtualenv": Arg(),
    "virtualenv_command": Arg(default="virtualenv"),
    "virtualenv_python": Arg(),
    "virtualenv_site_packages": Arg("bool", default=False),
    "extra_args": Arg(),
    "editable": Arg("bool", default=False),
    "chdir": Arg(),
    "executable": Arg(),
    "umask": Arg(),
    "break_system_packages": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not args["name"] and not args["requirements"]:
        raise BadArgument("give 'name' or 'requirements'")
    if args["name"] and args["requirements"]:
        raise BadArgument("give only one of 'name' and 'requirements'")
    if args["executable"] and args["virtualenv"]:
        raise BadArgument("give only one of 'executable' and 'virtualenv'")
    if args["umask"]:
        raise BadArgument("'umask' is not supported")
    try:
        extra = shlex.split(args["extra_args"] or "")
    except ValueError as problem:
        raise BadArgument(f"'extra_args' cannot be split into words: {problem}") from None
    names: list[str] = []
    for part in args["name"] or ():
        if names and part.lstrip()[:1] in tuple("<>=!~"):  # a comma inside of "x>=1,<2"
            names[-1] += "," + part.strip()
        else:
            names.append(part.strip())
    return {**args, "name": names, "extra_args": extra}
