"""`rm_drain`: no new jobs for this host; wait until the ones it has are over."""

from __future__ import annotations

import time
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands
from rm.errors import RmError


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    name = args["host"] or hands.host.name
    found = host_of(hands, name)
    changed = not found["drained_by"]
    jobs = list(found.get("jobs") or ())
    result: dict[str, Any] = {"changed": changed, "host": name, "jobs": jobs, "reason": found["drained_by"]}
    if step.get("check"):
        waits = f"; would wait for jobs {', '.join(map(str, jobs))}" if jobs and args["wait"] else ""
        return {**result, "msg": f"{name} would take no new jobs{waits}" if changed else f"is drained{waits}"}
    if changed:
        told(hands, "POST", ("hosts", name, "drain"), {"reason": args["reason"]})
        result["reason"] = args["reason"]
    deadline = time.monotonic() + args["timeout"]
    while args["wait"] and jobs:
        if time.monotonic() >= deadline:
            left = ", ".join(map(str, jobs))
            raise ControlFailed(
                f"{name} still runs the jobs {left} after {args['timeout']} s; it stays drained."
            )
        if hands.stopping.wait(args["sleep"]):
            raise ControlFailed(f"The run was ended while {name} drained; it stays drained.")
        jobs = list(host_of(hands, name).get("jobs") or ())
    return {**result, "jobs": jobs, "msg": f"{name} takes no new jobs"}


def host_of(hands: Hands, name: str) -> dict[str, Any]:
    """The host as the daemon shows it."""
    for host in told(hands, "GET", ("hosts",), {})["hosts"]:
        if host["name"] == name:
            found: dict[str, Any] = host
            return found
    raise ControlFailed(f"The daemon knows no host {name}; `rmx host import` adds an inventory's hosts.")


def told(hands: Hands, method: str, path: tuple[str, ...], body: dict[str, Any]) -> dict[str, Any]:
    """The daemon's answer; raises ControlFailed with its sentence."""
    if hands.daemon is None:
        raise ControlFailed("No daemon is known to this run, so hosts cannot be drained.")
    try:
        return hands.daemon(method, path, body)
    except RmError as problem:
        raise ControlFailed(f"{problem} {problem.hint}".strip()) from None
