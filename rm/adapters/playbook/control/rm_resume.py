"""`rm_resume`: this host takes jobs again."""

from __future__ import annotations

from typing import Any

from rm.adapters.playbook.control import Hands
from rm.adapters.playbook.control.rm_drain import asked, host_of


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    name = args["host"] or hands.host.name
    why = host_of(hands, name).drained_by
    if not why:
        return {"changed": False, "host": name, "msg": f"{name} takes jobs already"}
    wanted = args["only_drained_by"]
    if wanted is not None and wanted not in why:
        return {"changed": False, "host": name, "msg": f"{name} stays drained: {why}"}
    if not step.get("check"):
        asked(hands, lambda daemon: daemon.resume(name))
    return {"changed": True, "host": name, "msg": f"{name} takes jobs again"}
