"""`setup`: gather facts now (plays do it by themselves unless `gather_facts: false`)."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"gather_subset": Arg("list"), "gather_timeout": Arg("int"), "filter": Arg("list")}
ALIASES = ("gather_facts",)


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {}
