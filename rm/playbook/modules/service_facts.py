"""`service_facts`: the host's services and their states as the fact `services`."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS: dict[str, Arg] = {}
FACTS = ("services",)


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {}
