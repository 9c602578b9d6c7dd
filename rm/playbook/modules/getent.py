"""`getent`: entries of the host's name databases as facts (`getent_passwd`, …)."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "database": Arg(required=True),
    "key": Arg(),
    "service": Arg(),
    "split": Arg(),
    "fail_key": Arg("bool", default=True),
}
FACTS = ("getent_{database}",)


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
