"""`reboot`: ask for the restart, and wait until another boot id answers and the test command succeeds."""

from __future__ import annotations

import shlex
import time
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands
from rm.errors import RmError


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    if hands.local:  # in check mode, too, as Ansible
        said = "Running reboot with local connection would reboot the control node."
        return {"failed": True, "msg": said, "rebooted": False, "elapsed": 0}
    if step.get("check"):
        return {"changed": True, "rebooted": True, "elapsed": 0, "msg": "would reboot"}
    began = time.monotonic()
    first = hands.ask("boot_id", {"command": args["boot_time_command"]})
    before = "" if first.get("failed") else str(first.get("boot_id", ""))
    if not before:
        why = f": {first['msg']}" if first.get("msg") else "."
        raise ControlFailed(f"The host does not report its boot id, so a restart cannot be noticed{why}")
    asked = {"command": args["reboot_command"], "msg": args["msg"], "delay": args["pre_reboot_delay"]}
    started = hands.ask("reboot_now", asked)
    if started.get("failed"):
        raise ControlFailed(started["msg"])
    deadline = time.monotonic() + args["pre_reboot_delay"] + args["reboot_timeout"]
    while True:
        if hands.stopping.wait(1.0):
            raise ControlFailed("The run was ended while the host restarted.")
        try:
            now = _boot_id(hands, args)
            if now and now != before and _passes(hands, args):
                break
        except RmError:
            hands.reconnect()
        if time.monotonic() >= deadline:
            limit = args["reboot_timeout"]
            raise ControlFailed(f"{hands.host.name} did not come back within {limit} s of its restart.")
    if hands.stopping.wait(args["post_reboot_delay"]):
        raise ControlFailed("The run was ended after the host had restarted.")
    return {"changed": True, "rebooted": True, "elapsed": int(time.monotonic() - began)}


def _boot_id(hands: Hands, args: dict[str, Any]) -> str:
    answer = hands.ask("boot_id", {"command": args["boot_time_command"]})
    return str(answer.get("boot_id", ""))


def _passes(hands: Hands, args: dict[str, Any]) -> bool:
    command = {"argv": shlex.split(args["test_command"])}
    return not hands.ask("command", command).get("failed")
