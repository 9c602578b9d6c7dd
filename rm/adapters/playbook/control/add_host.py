"""`add_host`: the answer names the host; the runner adds it before the next play."""

from __future__ import annotations

from typing import Any

from rm.adapters.playbook.control import Hands


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    known = {host.name: host for host in hands.hosts}.get(args["name"])
    changed = known is None or not set(args["groups"]) <= hands.groups_of(args["name"])
    told = {"host_name": args["name"], "groups": args["groups"], "host_vars": args["variables"]}
    return {"changed": changed, "add_host": told}
