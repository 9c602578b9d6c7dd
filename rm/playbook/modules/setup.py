"""`setup`: gather facts now (plays do it by themselves unless `gather_facts: false`)."""

from __future__ import annotations

from typing import Any

from rm.playbook.facts.subset import topics_of
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "gather_subset": Arg("list"),
    "gather_timeout": Arg("int"),
    "filter": Arg("list"),
    "fact_path": Arg(default="/etc/ansible/facts.d"),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    subset = args["gather_subset"] or []
    topics_of(subset)
    return {"subset": subset, "filter": args["filter"] or [], "fact_path": args["fact_path"]}
