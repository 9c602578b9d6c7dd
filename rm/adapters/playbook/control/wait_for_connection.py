"""`wait_for_connection`: connect anew until the host answers a step."""

from __future__ import annotations

import time
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands
from rm.errors import RmError


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    if step.get("check"):
        return {"changed": False, "skipped": True, "might_run": True, "msg": "might wait for the connection"}
    began = time.monotonic()
    if hands.stopping.wait(args["delay"]):
        raise ControlFailed("The run was ended while it waited.")
    wait_until_up(hands, began + args["timeout"], args["sleep"])
    return {"changed": False, "elapsed": int(time.monotonic() - began)}


def wait_until_up(hands: Hands, deadline_s: float, sleep_s: float) -> None:
    """Returns when the host answers; raises ControlFailed when it does not until then."""
    while True:
        try:
            if hands.ask("ping", {"data": "pong"}).get("ping") == "pong":
                return
            said = "it cannot run steps"
        except RmError as problem:
            hands.reconnect()
            said = str(problem)
        if time.monotonic() >= deadline_s:
            raise ControlFailed(f"Timed out waiting for {hands.host.name}: {said}")
        if hands.stopping.wait(sleep_s):
            raise ControlFailed("The run was ended while it waited.")
