"""`pause`: wait for a time, or for the admin at the terminal."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands
from rm.errors import RmError


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    wait_s = args["minutes"] * 60 if args["minutes"] is not None else args["seconds"]
    began, clock = datetime.now(), time.monotonic()
    typed = ""
    if wait_s is not None:
        said = f"Paused for {wait_s:g} seconds"
        if hands.stopping.wait(max(0.0, wait_s)):
            raise ControlFailed("The run was ended while it paused.")
    else:
        said = "Paused until Enter"
        if hands.prompt is None:
            said = "Not waiting for Enter: there is no terminal"
        else:
            text = (args["prompt"] or "Press enter to continue, Ctrl+C to interrupt") + ":\n"
            try:
                typed = hands.prompt(text, not args["echo"], hands.stopping)
            except RmError as problem:
                raise ControlFailed(str(problem)) from None
    return {
        "changed": False,
        "start": str(began),
        "stop": str(datetime.now()),
        "delta": int(time.monotonic() - clock),
        "stdout": said,
        "user_input": typed,
        "echo": args["echo"],
    }
