"""`apt_key`: a key that apt trusts is there, or is not. Newer releases have no `apt-key`."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "id": Arg(),
    "url": Arg(),
    "data": Arg(),
    "file": Arg(),
    "keyring": Arg(),
    "keyserver": Arg(),
    "validate_certs": Arg("bool", default=True),
    "state": Arg(choices=("absent", "present"), default="present"),
}
_SOURCES = ("data", "file", "keyserver", "url")


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    given = [name for name in _SOURCES if args[name] is not None]
    if len(given) > 1:
        raise BadArgument(f"give only one of {', '.join(_SOURCES)}")
    if args["keyserver"] and not args["id"]:
        raise BadArgument("'keyserver' needs 'id'")
    if not args["id"] and not given:
        raise BadArgument("give 'id', 'data', 'file' or 'url'")
    if args["state"] == "present" and not given:
        raise BadArgument(f"state 'present' needs one of {', '.join(_SOURCES)}")
    digits = re.fullmatch(r"(?:0[xX])?([0-9a-fA-F]+)", args["id"] or "00000000")
    if digits is None or (len(digits[1]) not in (8, 16) and len(digits[1]) <= 16):
        raise BadArgument(f"the id '{args['id']}' is not 8, 16 or more hexadecimal digits")
    return args
