"""`group_by`: the answer names the group; the runner adds the host to it before the next play."""

from __future__ import annotations

from typing import Any

from rm.adapters.playbook.control import Hands


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    changed = args["key"] not in hands.groups_of(hands.host.name)
    return {"changed": changed, "add_group": args["key"], "parent_groups": args["parents"]}
