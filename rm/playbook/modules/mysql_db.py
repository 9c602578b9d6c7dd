"""`mysql_db`: a database of MySQL or MariaDB is there, or is not, is written to a file, or read from one."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import MYSQL_LOGIN, Arg, CompileContext

ARGS = {
    "name": Arg("list", required=True, aliases=("db",)),
    "state": Arg(choices=("absent", "dump", "import", "present"), default="present"),
    "encoding": Arg(default=""),
    "collation": Arg(default=""),
    "target": Arg(),
    "single_transaction": Arg("bool", default=False),
    "quick": Arg("bool", default=True),
    "ignore_tables": Arg("list", default=[]),
    "hex_blob": Arg("bool", default=False),
    "force": Arg("bool", default=False),
    "master_data": Arg("int", default=0),
    "skip_lock_tables": Arg("bool", default=False),
    "dump_extra_args": Arg(),
    "check_implicit_admin": Arg("bool", default=False),
    "sql_log_bin": Arg("bool", default=True),
    **MYSQL_LOGIN,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    state, names = args["state"], args["name"]
    if state in ("dump", "import") and args["target"] is None:
        raise BadArgument(f"state '{state}' needs 'target'")
    if state == "import" and len(names) > 1:
        raise BadArgument("one database at a time is imported")
    if state in ("absent", "present") and names == ["all"]:
        raise BadArgument("'all' is for the states dump and import")
    return args
