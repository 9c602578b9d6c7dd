"""`package_facts`: the installed packages as the fact `packages`."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "manager": Arg("list", choices=("auto", "apt", "rpm", "dnf", "dnf5", "yum"), default=["auto"]),
    "strategy": Arg(choices=("first", "all"), default="first"),
}
FACTS = ("packages",)


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    rpm = ("dnf", "dnf5", "yum")
    return {"manager": ["rpm" if one in rpm else one for one in args["manager"]]}
