"""`mysql_user`: an account of MySQL or MariaDB is there with its privileges, or is not."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import MYSQL_LOGIN, Arg, CompileContext

ARGS = {
    "name": Arg(required=True, aliases=("user",)),
    "password": Arg(),
    "encrypted": Arg("bool", default=False),
    "host": Arg(default="localhost"),
    "host_all": Arg("bool", default=False),
    "state": Arg(choices=("absent", "present"), default="present"),
    "priv": Arg("raw"),
    "append_privs": Arg("bool", default=False),
    "subtract_privs": Arg("bool", default=False),
    "update_password": Arg(choices=("always", "on_create"), default="always"),
    "plugin": Arg(),
    "plugin_hash_string": Arg(),
    "plugin_auth_string": Arg(),
    "check_implicit_admin": Arg("bool", default=False),
    "sql_log_bin": Arg("bool", default=True),
    "tls_requires": Arg("dict"),
    "column_case_sensitive": Arg("bool", default=False),  # columns are always compared as they are written
    **MYSQL_LOGIN,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["append_privs"] and args["subtract_privs"]:
        raise BadArgument("give only one of 'append_privs' and 'subtract_privs'")
    if args["plugin"] and args["password"]:
        raise BadArgument("give only one of 'password' and 'plugin'")
    if (args["plugin_hash_string"] or args["plugin_auth_string"]) and not args["plugin"]:
        raise BadArgument("'plugin_hash_string' and 'plugin_auth_string' need 'plugin'")
    return {**args, "priv": _privileges(args), "tls_requires": _required(args["tls_requires"] or {})}


_SPECIFIED = ("CIPHER", "ISSUER", "SUBJECT")


def _required(given: dict[str, Any]) -> dict[str, str] | str:
    """What a connection of the account needs: "NONE", "SSL", "X509", or what its certificate must have."""
    wanted = {key.upper(): value for key, value in given.items()}
    for key, value in wanted.items():
        if key not in (*_SPECIFIED, "SSL", "X509"):
            raise BadArgument(f"'tls_requires' has no '{key}'; known: SSL, X509, {', '.join(_SPECIFIED)}")
        if key in _SPECIFIED and not isinstance(value, str):
            raise BadArgument(f"'{key}' of 'tls_requires' must be text, not {value!r}")
    if specified := {key: str(wanted[key]) for key in _SPECIFIED if key in wanted}:
        return specified
    return "X509" if "X509" in wanted else "SSL" if wanted else "NONE"


def _privileges(args: dict[str, Any]) -> dict[str, list[str]] | None:
    """What is granted on what, as MySQL writes both."""
    given = args["priv"]
    if given is None:
        return None
    if isinstance(given, dict):
        given = "/".join(f"{name}:{words}" for name, words in given.items())
    found: dict[str, list[str]] = {}
    for part in str(given).strip().split("/"):
        where, colon, words = part.strip().rpartition(":")
        if not colon or "." not in where:
            raise BadArgument(f"'{part}' is no privilege such as 'database.table:SELECT,INSERT'")
        kind, space, rest = where.partition(" ")
        kind = f"{kind} " if space and kind in ("FUNCTION", "PROCEDURE") else ""
        sides = (rest if kind else where).rpartition(".")
        quoted = (side if side.strip("`") == "*" else f"`{side.strip('`')}`" for side in sides[::2])
        one_by_one = re.split(r",\s*(?![^(]*\))", words)
        found[kind + ".".join(quoted)] = sorted(_columns(word.strip()) for word in one_by_one)
    if not args["subtract_privs"]:
        found.setdefault("*.*", ["USAGE"])
    return found


def _columns(word: str) -> str:
    """`SELECT (b, a)` with its columns in order, and the rest in capitals, as the server says it."""
    match = re.fullmatch(r"(\w[\w ]*?)\s*\((.*)\)", word)
    if match is None:
        return "ALL" if word.upper() == "ALL PRIVILEGES" else word.upper()
    columns = sorted(one.strip(" `") for one in match[2].split(","))
    return f"{match[1].upper()} ({', '.join(columns)})"
