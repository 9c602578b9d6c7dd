"""`rm_drain`: no new jobs for this host; wait until the ones it has are over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from rm.adapters.playbook.control import ControlFailed, Daemon, Hands
from rm.api.hosts import Host
from rm.errors import RmError

Answer = TypeVar("Answer")


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    name = args["host"] or hands.host.name
    found = host_of(hands, name)
    changed = not found.drained_by
    jobs = list(found.jobs or ())
    result: dict[str, Any] = {"changed": changed, "host": name, "jobs": jobs, "reason": found.drained_by}
    if step.get("check"):
        waits = f"; would wait for jobs {', '.join(map(str, jobs))}" if jobs and args["wait"] else ""
        return {**result, "msg": f"{name} would take no new jobs{waits}" if changed else f"is drained{waits}"}
    if changed:
        asked(hands, lambda daemon: daemon.drain(name, args["reason"]))
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
        jobs = list(host_of(hands, name).jobs or ())
    return {**result, "jobs": jobs, "msg": f"{name} takes no new jobs"}


def host_of(hands: Hands, name: str) -> Host:
    """The host as the daemon shows it."""
    for host in asked(hands, lambda daemon: daemon.hosts()):
        if host.name == name:
            return host
    raise ControlFailed(f"The daemon knows no host {name}; `rmx host import` adds an inventory's hosts.")


def asked(hands: Hands, ask: Callable[[Daemon], Answer]) -> Answer:
    """The daemon's answer; raises ControlFailed with its sentence."""
    if hands.daemon is None:
        raise ControlFailed("No daemon is known to this run, so hosts cannot be drained.")
    try:
        return ask(hands.daemon)
    except RmError as problem:
        raise ControlFailed(f"{problem} {problem.hint}".strip()) from None
