"""Steps that the control machine carries out: one file per operation, found by its name.

A file defines `carry_out(hands, step) -> answer`. It may ask the host for parts of its work
(`hands.ask`), connect anew, write local files, or ask the daemon; the answer has the shape of the
executor's: {"changed", "failed", "msg", …}. Which modules are such ones, rm/playbook says (`CONTROL`).
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.become import Passwords
from rm.core.model.host import Host
from rm.playbook.run import answers
from rm.quick_dataclass import dataclass

if TYPE_CHECKING:
    from rm.api.hosts import Host as DaemonHost

# (text, whether what is typed is hidden, set when the run ends) -> the line; raises RmError when it ended
Prompt = Callable[[str, bool, threading.Event], str]


class Daemon(Protocol):
    """What steps ask of the daemon's client (`rm.client.Client`), from several threads. Raises RmError."""

    def hosts(self) -> Sequence[DaemonHost]: ...
    def drain(self, name: str, reason: str = "") -> DaemonHost: ...
    def resume(self, name: str) -> DaemonHost: ...


class ControlFailed(Exception):
    """The step cannot be done; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What a step may use. `request` is the executor's, with the steps in it; `send` answers one such
    request for any host (raises Unreachable); `reconnect` drops the kept-open connections;
    `groups` are the inventory's. The host is this machine (`local`), or is reached with these `settings` and
    `passwords`; `become`: its steps are root's."""

    host: Host
    request: dict[str, Any]
    send: Callable[[str, dict[str, Any]], dict[str, Any]]
    reconnect: Callable[[], None]
    hosts: tuple[Host, ...]
    stopping: threading.Event
    daemon: Daemon | None = None
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: SshSettings | None = None
    passwords: Passwords = field(default_factory=Passwords)
    local: bool = False
    become: bool = False
    prompt: Prompt | None = None  # asks the admin; None: there is no terminal

    def groups_of(self, name: str) -> set[str]:
        return {group for group, members in self.groups.items() if name in members}

    def ask(self, op: str, args: dict[str, Any], host: str = "", user: str = "") -> dict[str, Any]:
        """One operation of the executor on this (or another) host; its answer, `failed` where it does not
        fit."""
        step = {"id": 0, "task": 0, "op": op, "args": args, "check": False}
        step |= {"user": user} if user else {}
        request = {"steps": [step], "check": False, "diff": False, "planned": {}}
        return answers.asked(op, args, self.send(host or self.host.name, request)["results"])


def carry_out(hands: Hands) -> dict[str, Any]:
    """All steps of a request, as the executor would answer it."""
    results = []
    for step in hands.request["steps"]:
        if step["op"] == "note":
            note = step["args"]
            answer = {"failed": bool(note.get("failed")), **note["result"]}
        else:
            operation = importlib.import_module(f"{__name__}.{step['op']}")
            try:
                answer = operation.carry_out(hands, step)
            except ControlFailed as problem:
                answer = {"failed": True, "msg": str(problem)}
            except ValueError as problem:  # a host's words may hold a zero byte, or what is no Unicode
                answer = {"failed": True, "msg": f"'{step['op']}' cannot be done so: {problem}."}
        results.append({"changed": False, "failed": False, **answer, "id": step["id"]})
    return {"results": results, "planned": hands.request["planned"]}
