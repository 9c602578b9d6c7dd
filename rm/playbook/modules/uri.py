"""`uri`: ask a web server, and see whether it answers as it should."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext, packed
from rm.playbook.modules.get_url import WEB

ARGS = {
    "url": Arg(required=True),
    "method": Arg(default="GET"),
    "body": Arg("raw"),
    "body_format": Arg(choices=("form-urlencoded", "json", "raw"), default="raw"),
    "src": Arg(),
    "dest": Arg(),
    "headers": Arg("dict"),
    "status_code": Arg("list", default=["200"]),
    "return_content": Arg("bool", default=False),
    "follow_redirects": Arg(
        choices=("all", "no", "none", "safe", "urllib2", "yes", "True", "False"), default="safe"
    ),
    "creates": Arg(),
    "removes": Arg(),
    "timeout": Arg("int", default=30),
    "force": Arg("bool", default=False),
    "remote_src": Arg("bool", default=False),
    **WEB,
    "url_username": Arg(aliases=("user",)),
    **OWNERSHIP,
}
COMMAND = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["body"] is not None and args["src"]:
        raise BadArgument("give only one of 'body' and 'src'")
    if not all(code.isdigit() or code == "-1" for code in args["status_code"]):  # -1: no answer
        raise BadArgument("'status_code' must be numbers")
    method = args["method"].upper()
    if not method.isalpha():
        raise BadArgument(f"'{args['method']}' is not an HTTP method")
    found = {**args, "method": method}
    if args["src"] and not args["remote_src"]:
        path = context.source(args["src"], "files")
        if not context.files.exists(path):
            raise BadArgument(f"the local file {path} does not exist")
        found["content"] = packed(context.files.read(path, True))
    return found
