"""Steps to hosts whose agents the daemon is connected to: over its channels, asked for by HTTP.

Only for a host that the daemon knows by this very name, address, port and login, whose agent has the very
executor that this runner has and can act as the user that a step is for; every other host is reached as
if there were no daemon.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rm.adapters.playbook.program import OutcomeUnknown, answers_within_s, digest
from rm.core.model.host import Host
from rm.errors import RmError, Unreachable

if TYPE_CHECKING:  # the client takes a quarter of the command's start, and not every run asks the daemon
    from rm.api.channels import Channel
    from rm.client.connection import Connection

# small requests: a launch or a pause for the same agent waits behind one
REQUEST_BYTES = PART_BYTES = 256 << 10
LINE_BYTES = 7 << 20  # what check mode remembers may be longer than an agent takes


class DaemonAgents:
    """`connect` makes a connection of its own; `note` gets the reason once when no step will go this way."""

    request_bytes, part_bytes = REQUEST_BYTES, PART_BYTES

    def __init__(self, connect: Callable[[], Connection], note: Callable[[str], None]) -> None:
        self._connect = connect
        self._note = note
        self._guard = threading.Lock()
        self._channels: dict[str, Channel] | None = None
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False

    def serves(self, host: Host, become: bool) -> bool:
        """Could steps for this host, as root if `become`, else as its login, go over an agent's channel?"""
        return self._uid(host, become) is not None

    def _uid(self, host: Host, become: bool) -> int | None:
        """The user id of the agent that serves the host; None where none does."""
        channel = self._known().get(host.name)
        if channel is None or not _same_door(channel, host):
            return None
        return None if become and channel.uid != 0 else channel.uid

    def send(self, host: Host, become: bool, request: dict[str, Any]) -> dict[str, Any] | None:
        """The agent's result; None when nothing was sent.

        Raises:
            Unreachable: the agent or the daemon was lost, and what was done is unknown.
        """
        from msgspec import UNSET

        from rm.api.channels import StepsAnswer
        from rm.client.asking import Asking

        uid = self._uid(host, become)
        if uid is None or _too_long(request):
            return None
        if uid == 0 and not become and host.login != "root":
            request = {**request, "steps": [_as(host.login, step) for step in request["steps"]]}
        door = {"address": host.address, "port": host.port, "login": host.login}
        client = self._take()
        if client is None:
            return None
        try:
            sent = {**door, **request}
            answer = Asking(client).post(
                StepsAnswer,
                "channels",
                host.name,
                "steps",
                body=sent,
                answer_within_s=answers_within_s(request),
            )
        except Unreachable as error:
            self._leave(client, lost=True)
            raise OutcomeUnknown(
                f"What steps did on host {host.name} is unknown: {error.what}", "Run the playbook again."
            ) from None
        except BaseException:
            self._leave(client, lost=True)
            raise
        self._leave(client, lost=False)
        return None if answer.result is UNSET else dict(answer.result)

    def close(self) -> None:
        """End what is under way: a host finishes the step that it is at."""
        with self._guard:
            self._closed, self._channels = True, {}
            busy, idle = list(self._busy), list(self._idle)
            self._idle.clear()
        for client in busy:
            client.abort()
        for client in idle:
            client.close()

    # -- connections to the daemon

    def _known(self) -> dict[str, Channel]:
        with self._guard:
            if self._channels is None:
                self._channels = self._look()
            return self._channels

    def _look(self) -> dict[str, Channel]:
        from rm.api.channels import Channels
        from rm.client.asking import Asking

        client = self._connect()
        try:
            client.open()
            found = Asking(client).get(Channels, "channels").channels
        except RmError as error:
            client.close()
            self._note(f"No steps travel over the agents' channels: {error.what}")
            return {}
        self._idle.append(client)
        return {one.host: one for one in found if one.executor == digest()}

    def _take(self) -> Connection | None:
        """A connection to the daemon; None when it cannot be reached, or may not be asked, any more."""
        with self._guard:
            if self._closed:
                return None
            client = self._idle.pop() if self._idle else self._connect()
            self._busy.add(client)
        try:
            client.open()
        except RmError:
            self._leave(client, lost=True)
            return None
        return client

    def _leave(self, client: Connection, lost: bool) -> None:
        with self._guard:
            self._busy.discard(client)
            kept = not (lost or self._closed)
            if kept:
                self._idle.append(client)
        if not kept:
            with suppress(OSError):
                client.close()


def _same_door(channel: Channel, host: Host) -> bool:
    there = (channel.address, channel.port, channel.login)
    return there == (host.address, host.port, host.login)


def _too_long(request: dict[str, Any]) -> bool:
    """Does check mode remember more than an agent takes?"""
    return bool(request["planned"].get("content")) and len(json.dumps(request)) > LINE_BYTES


def _as(login: str, step: dict[str, Any]) -> dict[str, Any]:
    """The step as the user that the host would let in; parts of contents are kept by the agent itself."""
    return step if step.get("user") or step["op"] == "blob" else {**step, "user": login, "at_home": True}
