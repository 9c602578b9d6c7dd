"""`get_url`: a file on the host is what a web server has."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

WEB = {
    "url_username": Arg(aliases=("username",)),
    "url_password": Arg(aliases=("password",)),
    "force_basic_auth": Arg("bool", default=False),
    "validate_certs": Arg("bool", default=True),
    "use_proxy": Arg("bool", default=True),
    "http_agent": Arg(default="ansible-httpget"),
    "client_cert": Arg(),
    "client_key": Arg(),
    "ca_path": Arg(),
    "unredirected_headers": Arg("list"),
}
ARGS = {
    "url": Arg(required=True),
    "dest": Arg(required=True),
    "checksum": Arg(default=""),
    "force": Arg("bool", default=False),
    "backup": Arg("bool", default=False),
    "timeout": Arg("int", default=10),
    "headers": Arg("dict"),
    "tmp_dest": Arg(),
    "decompress": Arg("bool", default=True),
    **WEB,
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["checksum"] and ":" not in args["checksum"]:
        raise BadArgument("'checksum' must be '<algorithm>:<digest or URL>'")
    return {k: v for k, v in args.items() if k not in ("tmp_dest", "decompress")}
