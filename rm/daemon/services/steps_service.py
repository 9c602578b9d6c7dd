"""Playbook steps passed on to the hosts' agents, for a runner that has no connections of its own.

They may hold secrets and concern no job: they go from the request to the agent's channel and back, and
meet neither the leader nor the journal, the database or the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from rm.core.model.host import Host
from rm.errors import RmError, Unreachable, UsageError
from rm.protocol.codes import Code, NotConnected, code_of
from rm.protocol.notifications import Hello
from rm.protocol.request import Answer, Request
from rm.protocol.steps import Steps as StepsRequest
from rm.typed import convert

log = logging.getLogger("rm.steps")

# as long as it takes: a step may wait for hours, and a lost channel ends the wait
PATIENCE_S = 30 * 86_400.0

# Of refusals after which certainly nothing was done: by an agent from before playbooks, by one whose files
# were replaced under it, of a request that does not fit.
UNSENT = frozenset({Code.NO_SUCH_OP, Code.REPLACED, Code.BAD_REQUEST})


class Doors(Protocol):
    """The agents that are connected."""

    def doors(self) -> Sequence[tuple[Host, Hello]]: ...
    def call(self, name: str, request: Request[Answer], timeout_s: float = ...) -> Future[Answer]: ...
    def cancel(self, name: str, future: Future[Any]) -> None: ...


class Steps:
    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    def channels(self) -> Sequence[Mapping[str, Any]]:
        """The hosts whose agents take steps: where they are, the agent's user id, which executor it has."""
        found = []
        for host, hello in self._doors.doors():
            executor = hello.features.steps
            if executor:
                found.append({**_door(host), "uid": hello.uid, "executor": executor})
        return found

    async def run(self, door: Mapping[str, Any], request: Mapping[str, Any]) -> Mapping[str, Any]:
        """{"result": the agent's} or {"unsent": why nothing was done}.

        Raises:
            UsageError: the request is none that an agent takes.
            Unreachable: the agent was lost, or its process ended: what was done is unknown.
        """
        name = str(door["host"])
        if not any(_door(host) == door for host, _ in self._doors.doors()):
            return {"unsent": f"No agent of a host {name} at this address is connected."}
        try:
            asked = convert(dict(request), StepsRequest)
        except msgspec.ValidationError as error:
            raise UsageError(f"The steps for host {name} fit no agent: {error}.") from None
        future = self._doors.call(name, asked, PATIENCE_S)
        try:
            return {"result": msgspec.to_builtins(await asyncio.wrap_future(future))}
        except asyncio.CancelledError:
            self._doors.cancel(name, future)
            log.info("steps on %s are given up: the client has gone", name)
            raise
        except RmError as error:
            if isinstance(error, NotConnected) or code_of(error) in UNSENT:
                return {"unsent": str(error)}
            if isinstance(error, Unreachable):
                raise
            raise Unreachable(f"The agent on {name} did not finish the steps: {error}") from None


def _door(host: Host) -> dict[str, Any]:
    return {"host": host.name, "address": host.address, "port": host.port, "login": host.login}
