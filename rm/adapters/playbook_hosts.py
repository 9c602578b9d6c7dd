"""The ways to the hosts while a playbook runs: an agent's channel, one over SSH, a process here."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rm.adapters.playbook_become import Passwords, Refused
from rm.adapters.playbook_local import LocalSteps
from rm.adapters.playbook_program import PART_BYTES, REQUEST_BYTES, in_parts
from rm.adapters.ssh_settings import SshSettings
from rm.core.host import Host
from rm.errors import Unreachable, UsageError
from rm.playbook.steps import Batch

if TYPE_CHECKING:
    from rm.adapters.playbook_channel import StepsChannel

PORT_MAX = 65_535
LOCALHOST = ("localhost", "127.0.0.1", "::1")
OVER_SSH = ("ssh", "paramiko", "paramiko_ssh", "ansible.builtin.ssh")
Key = tuple[str, bool, str, bool]  # host, as root, login, local


class Agents(Protocol):
    """The agents that can be asked instead of a host's sshd (playbook_agents.py)."""

    request_bytes: int
    part_bytes: int

    def serves(self, host: Host, become: bool) -> bool: ...
    def send(self, host: Host, become: bool, request: dict[str, Any]) -> dict[str, Any] | None:
        """None: nothing was sent. Raises Unreachable when the outcome is unknown."""
        ...

    def close(self) -> None: ...


class Ways:
    """Answers requests of the operation `steps` for any host, each over one kept-open channel.

    `variables(name)` gives a host's connection variables, evaluated, `passwords(name)` what to say there.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        settings: SshSettings,
        agents: Agents | None,
        variables: Callable[[str], Mapping[str, Any]],
        passwords: Callable[[str], Passwords],
    ) -> None:
        self.passwords = passwords
        self.hosts, self.settings, self.agents, self.variables = hosts, settings, agents, variables
        self.channels: dict[Key, StepsChannel | LocalSteps] = {}
        self._locks: dict[Key, threading.Lock] = {}
        self._guard = threading.Lock()
        self._closed = False

    def host(self, name: str, login: str = "") -> Host:
        """The host to connect to; a name that the inventory does not know is an address."""
        known = self.hosts.get(name) or Host(name, "", name)
        given = self.variables(name)
        address, user = given.get("ansible_host", known.address), given.get("ansible_user", known.login)
        port = str(given.get("ansible_port", known.port))
        if not (port.isdecimal() and 1 <= int(port) <= PORT_MAX):
            raise UsageError(
                f"ansible_port of host '{name}' is {port!r}.", f"It lies between 1 and {PORT_MAX}."
            )
        return replace(known, address=str(address), port=int(port), login=login or str(user))

    def is_local(self, name: str) -> bool:
        connection = self.variables(name).get("ansible_connection")
        return connection == "local" or (connection is None and name in LOCALHOST and name not in self.hosts)

    def over_ssh(self, name: str, batch: Batch) -> bool:
        """Does the task, or the host, ask for a connection of its own?"""
        return (batch.connection or self.variables(name).get("ansible_connection")) in OVER_SSH

    def send(self, name: str, batch: Batch, request: dict[str, Any]) -> dict[str, Any]:
        """Raises Unreachable (or another RmError) when the host does not answer; where sudo refuses, each
        step fails with what it said."""
        try:
            return self._send(name, batch, request)
        except Refused as refusal:
            failed = [{"id": step["id"], "failed": True, "msg": str(refusal)} for step in request["steps"]]
            return {"results": failed, "planned": request["planned"]}

    def _send(self, name: str, batch: Batch, request: dict[str, Any]) -> dict[str, Any]:
        if batch.connection == "local" or self.is_local(name):
            return in_parts(request, lambda part: self._ask(name, batch.become, batch.login, True, part))
        host = self.host(name, batch.login)
        become = batch.become and host.login != "root"
        agents = None if self.over_ssh(name, batch) else self.agents

        def send(part: dict[str, Any]) -> dict[str, Any]:
            answer = agents.send(host, become, part) if agents is not None else None
            return self._ask(name, become, batch.login, False, part) if answer is None else answer

        if agents is not None and agents.serves(host, become):
            return in_parts(request, send, agents.request_bytes, agents.part_bytes)
        return in_parts(request, send, REQUEST_BYTES, PART_BYTES)

    def _ask(
        self, name: str, become: bool, login: str, local: bool, request: dict[str, Any]
    ) -> dict[str, Any]:
        """One request over a kept-open connection of ours; one that was lost is forgotten."""
        key = (name, become, login, local)
        with self._guard:
            self._refuse_closed(name)
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # a channel carries one request at a time
            channel = self.channels.get(key) or self._connect(name, become, login, local)
            try:
                with self._guard:
                    self._refuse_closed(name)
                    self.channels[key] = channel
                return channel.steps(request)
            except (Unreachable, Refused):
                self.channels.pop(key, None)
                channel.close()
                raise

    def _refuse_closed(self, name: str) -> None:
        if self._closed:
            raise Unreachable(f"The run was ended before host {name} was asked.")

    def _connect(self, name: str, become: bool, login: str, local: bool) -> StepsChannel | LocalSteps:
        given = self.variables(name)
        passwords = self.passwords(name)
        if local:
            python = str(given.get("ansible_python_interpreter") or self.settings.python)
            return LocalSteps(name, python, become and getpass.getuser() != "root", passwords.become)
        from rm.adapters.playbook_channel import StepsChannel  # with all of SSH: only where it is used

        return StepsChannel(self.host(name, login), self.settings, become, passwords)

    def reconnect(self, name: str) -> None:
        """Forget the host's kept-open connections: the next request makes new ones."""
        for key in [key for key in self.channels if key[0] == name]:
            self.channels.pop(key).close()

    def close(self) -> None:
        """Nothing is sent any more; a host finishes the step that it is at."""
        with self._guard:
            self._closed = True
        if self.agents is not None:
            self.agents.close()
        for channel in list(self.channels.values()):
            channel.close()
