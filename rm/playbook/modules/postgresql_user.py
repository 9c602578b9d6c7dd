"""`postgresql_user`: a role of PostgreSQL that may log in is there with its attributes, or is not."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import POSTGRESQL_LOGIN, Arg, CompileContext

FLAGS = ("SUPERUSER", "CREATEROLE", "CREATEDB", "INHERIT", "LOGIN", "REPLICATION", "BYPASSRLS")
ARGS = {
    "name": Arg(required=True, aliases=("user",)),
    "password": Arg(),
    "state": Arg(choices=("absent", "present"), default="present"),
    "login_db": Arg(default="", aliases=("db",)),
    "fail_on_user": Arg("bool", default=True, aliases=("fail_on_role",)),
    "role_attr_flags": Arg(default=""),
    "encrypted": Arg("bool", default=True),
    "no_password_changes": Arg("bool", default=False),
    "expires": Arg(),
    "conn_limit": Arg("int"),
    "session_role": Arg(),
    "comment": Arg(),
    "trust_input": Arg("bool", default=True),
    **POSTGRESQL_LOGIN,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    flags = sorted({one.strip().upper() for one in args["role_attr_flags"].split(",") if one.strip()})
    for flag in flags:
        if flag.removeprefix("NO") not in FLAGS and flag not in FLAGS:
            raise BadArgument(
                f"'{flag}' is no attribute of a role: {', '.join(FLAGS)}, or one with NO before it"
            )
    rest = {name: value for name, value in args.items() if name not in ("trust_input", "encrypted")}
    return {**rest, "role_attr_flags": flags, "maintenance_db": args["login_db"] or "postgres"}
