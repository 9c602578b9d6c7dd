"""`find`: files of a host by name, age, size, kind and content."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "paths": Arg("list", required=True, aliases=("name", "path")),
    "patterns": Arg("list", aliases=("pattern",)),
    "excludes": Arg("list", aliases=("exclude",)),
    "use_regex": Arg("bool", default=False),
    "file_type": Arg(choices=("any", "directory", "file", "link"), default="file"),
    "recurse": Arg("bool", default=False),
    "depth": Arg("int"),
    "follow": Arg("bool", default=False),
    "hidden": Arg("bool", default=False),
    "age": Arg(),
    "age_stamp": Arg(choices=("atime", "ctime", "mtime"), default="mtime"),
    "size": Arg(),
    "mode": Arg("mode"),
    "exact_mode": Arg("bool", default=True),
    "contains": Arg(),
    "read_whole_file": Arg("bool", default=False),
    "encoding": Arg(),
    "get_checksum": Arg("bool", default=False),
    "checksum_algorithm": Arg(
        choices=("md5", "sha1", "sha224", "sha256", "sha384", "sha512"),
        default="sha1",
        aliases=("checksum", "checksum_algo"),
    ),
    "limit": Arg("int"),
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _measured(name: str, text: str | None, units: dict[str, int]) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(-?\d+)([a-z])?", text.lower())
    if match is None or (match[2] and match[2] not in units):
        raise BadArgument(f"'{name}' must be a number with one of {', '.join(units)}, not '{text}'")
    return int(match[1]) * (units[match[2]] if match[2] else 1)


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    for pattern in [*(args["patterns"] or ()), *(args["excludes"] or ())] if args["use_regex"] else ():
        try:
            re.compile(pattern)
        except re.error as problem:
            raise BadArgument(f"'{pattern}' is not a regular expression: {problem}") from None
    if args["limit"] is not None and args["limit"] <= 0:
        raise BadArgument("'limit' must be positive")
    rest = {k: v for k, v in args.items() if k not in ("age", "size", "mode")}
    return {
        **rest,
        "age_s": _measured("age", args["age"], _SECONDS),
        "size_bytes": _measured("size", args["size"], _BYTES),
        "mode_bits": args["mode"],
    }
