"""`user`: an account exists with these properties, or does not exist."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True, aliases=("user",)),
    "state": Arg(choices=("present", "absent"), default="present"),
    "uid": Arg("int"),
    "non_unique": Arg("bool", default=False),
    "group": Arg(),
    "groups": Arg("list"),
    "append": Arg("bool", default=False),
    "comment": Arg(),
    "shell": Arg(),
    "home": Arg(),
    "create_home": Arg("bool", default=True, aliases=("createhome",)),
    "move_home": Arg("bool", default=False),
    "skeleton": Arg(),
    "umask": Arg(),
    "system": Arg("bool", default=False),
    "local": Arg("bool", default=False),
    "remove": Arg("bool", default=False),
    "force": Arg("bool", default=False),
    "password": Arg(),
    "update_password": Arg(choices=("always", "on_create"), default="always"),
    "password_lock": Arg("bool"),
    "password_expire_min": Arg("int"),
    "password_expire_max": Arg("int"),
    "password_expire_warn": Arg("int"),
    "password_expire_account_disable": Arg("int"),
    "expires": Arg("float"),
    "generate_ssh_key": Arg("bool", default=False),
    "ssh_key_bits": Arg("int"),
    "ssh_key_comment": Arg(),
    "ssh_key_file": Arg(),
    "ssh_key_passphrase": Arg(),
    "ssh_key_type": Arg(default="rsa"),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["umask"] and set(args["umask"]) - set("01234567"):
        raise BadArgument(f"'umask' must be octal such as '022', not '{args['umask']}'")
    if any(one == ":" or ord(one) < 32 or ord(one) == 127 for one in args["password"] or ""):
        raise BadArgument(
            "'password' holds a ':' or a control character such as a line break, which no hash has; "
            "give what the filter 'password_hash' makes"
        )
    return args
