"""`postgresql_db`: a database of PostgreSQL is there, or is not, is written to a file, or read from one."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import POSTGRESQL_LOGIN, Arg, CompileContext

ARGS = {
    "name": Arg(required=True, aliases=("db",)),
    "state": Arg(choices=("absent", "dump", "present", "rename", "restore"), default="present"),
    "owner": Arg(default=""),
    "template": Arg(default=""),
    "encoding": Arg(default=""),
    "lc_collate": Arg(default=""),
    "lc_ctype": Arg(default=""),
    "icu_locale": Arg(default=""),
    "locale_provider": Arg(default=""),
    "conn_limit": Arg(default=""),
    "tablespace": Arg(default=""),
    "comment": Arg(),
    "target": Arg(default=""),
    "target_opts": Arg(default=""),
    "dump_extra_args": Arg(default=""),
    "maintenance_db": Arg(default="postgres"),
    "session_role": Arg(),
    "trust_input": Arg("bool", default=True),
    "force": Arg("bool", default=False),
    **POSTGRESQL_LOGIN,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] in ("dump", "restore", "rename") and not args["target"]:
        raise BadArgument(f"state '{args['state']}' needs 'target'")
    if args["conn_limit"] and not args["conn_limit"].lstrip("-").isdigit():
        raise BadArgument(f"'conn_limit' must be a number, not '{args['conn_limit']}'")
    return {name: value for name, value in args.items() if name != "trust_input"}
