"""The ways to the hosts while a playbook runs: an agent's channel, one over SSH, a process here."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rm.adapters.hosts.commands import python_of
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.become import Passwords, Refused
from rm.adapters.playbook.program import PART_BYTES, REQUEST_BYTES, in_parts
from rm.core.model.host import Host
from rm.errors import Unreachable, UsageError
from rm.playbook.model.connection import CONNECTIONS, SSH_ARGS
from rm.playbook.model.located import Unsafe
from rm.playbook.model.steps import THE_HOSTS, Batch, Way
from rm.playbook.run.reach import IMPLICIT

if TYPE_CHECKING:
    from rm.adapters.playbook.channel import StepsChannel
    from rm.adapters.playbook.local import LocalSteps

PORT_MAX = 65_535
PYTHON = "ansible_python_interpreter"
# settings of the SSH connection, and the variable of a Host in which rm/adapters/hosts/ssh.py finds each
OF_SSH = {
    "ansible_private_key_file": "ansible_ssh_private_key_file", **{name: name for name in SSH_ARGS},
}  # fmt: skip
# interpreters for which the agent's own may stand
AGENTS_PYTHON = ("auto", "auto_legacy", "auto_silent", "auto_legacy_silent", "python3", "/usr/bin/python3")
# host, as root, local, as the task says; Python, and to where: a task may give the host a variable of these
Key = tuple[str, bool, bool, Way, str, tuple[str, int, str, tuple[tuple[str, str], ...]] | None]


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

    `variables(name)` gives a host's connection variables, evaluated, `passwords(name, way)` what to say.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        settings: SshSettings,
        agents: Agents | None,
        variables: Callable[[str], Mapping[str, Any]],
        passwords: Callable[[str, Way], Passwords],
    ) -> None:
        self.passwords = passwords
        self.hosts, self.settings, self.agents, self.variables = hosts, settings, agents, variables
        self.channels: dict[Key, StepsChannel | LocalSteps] = {}
        self._locks: dict[Key, threading.Lock] = {}
        self._guard = threading.Lock()
        self._closed = False

    def host(self, name: str, way: Way = THE_HOSTS) -> Host:
        """The host to connect to; a name that the inventory does not know is an address."""
        known = self.hosts.get(name) or Host(name, "", name)
        given = self._given(name, way)
        address, user = given.get("ansible_host", known.address), given.get("ansible_user", known.login)
        port = str(given.get("ansible_port", known.port))
        if not (port.isdecimal() and 1 <= int(port) <= PORT_MAX):
            raise UsageError(
                f"ansible_port of host '{name}' is {port!r}.", f"It lies between 1 and {PORT_MAX}."
            )
        kept = (
            (key, value) for key, value in known.variables if key not in OF_SSH and key not in OF_SSH.values()
        )
        of_ssh = ((OF_SSH[key], str(given[key])) for key in OF_SSH if key in given)
        return replace(
            known, address=str(address), port=int(port), login=way.login or str(user),
            variables=(*kept, *of_ssh),
        )  # fmt: skip

    def _given(self, name: str, way: Way) -> dict[str, Any]:
        return {**self.variables(name), **dict(way.variables)}

    def connection(self, name: str, way: Way) -> str:
        """ "local", "ssh" for a connection of its own, or "" for the agent's channel where there is one."""
        if way.connection:
            return "" if way.connection == "auto" else way.connection
        said = self.variables(name).get("ansible_connection")
        if said is None:
            return "local" if name in IMPLICIT and name not in self.hosts else ""
        return CONNECTIONS[str(said)] or ""

    def send(self, name: str, batch: Batch, request: dict[str, Any]) -> dict[str, Any]:
        """Raises Unreachable (or another RmError) when the host does not answer; where sudo refuses, each
        step fails with what it said."""
        try:
            return self._send(name, batch, request)
        except Refused as refusal:
            failed = [{"id": step["id"], "failed": True, "msg": str(refusal)} for step in request["steps"]]
            return {"results": failed, "planned": request["planned"]}

    def _send(self, name: str, batch: Batch, request: dict[str, Any]) -> dict[str, Any]:
        way = batch.way
        connection = self.connection(name, way)
        if connection == "local":
            return in_parts(request, lambda part: self._ask(name, batch.become, True, way, part))
        host = self.host(name, way)
        become = batch.become and host.login != "root"
        agents = self.agents
        if connection == "ssh" or self._python(name, way) not in (self.settings.python, *AGENTS_PYTHON):
            agents = None

        def send(part: dict[str, Any]) -> dict[str, Any]:
            answer = agents.send(host, become, part) if agents is not None else None
            return self._ask(name, become, False, way, part) if answer is None else answer

        if agents is not None and agents.serves(host, become):
            return in_parts(request, send, agents.request_bytes, agents.part_bytes)
        return in_parts(request, send, REQUEST_BYTES, PART_BYTES)

    def _python(self, name: str, way: Way) -> str:
        return python_of(self._given(name, way).get(PYTHON), self.settings)

    def _ask(self, name: str, become: bool, local: bool, way: Way, request: dict[str, Any]) -> dict[str, Any]:
        """One request over a kept-open connection of ours; one that was lost is forgotten."""
        host = None if local else self.host(name, way)
        place = (host.address, host.port, host.login, host.variables) if host else None
        key = (name, become, local, way, self._python(name, way), place)
        with self._guard:
            self._refuse_closed(name)
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # a channel carries one request at a time
            channel = self.channels.get(key) or self._connect(name, become, local, way)
            try:
                with self._guard:
                    self._refuse_closed(name)
                    self.channels[key] = channel
                return channel.steps(request)
            except (Unreachable, Refused):
                with self._guard:
                    self.channels.pop(key, None)
                channel.close()
                raise

    def _refuse_closed(self, name: str) -> None:
        if self._closed:
            raise Unreachable(f"The run was ended before host {name} was asked.")

    def _connect(self, name: str, become: bool, local: bool, way: Way) -> StepsChannel | LocalSteps:
        passwords, python = self.passwords(name, way), self._python(name, way)
        if local:
            from rm.adapters.playbook.local import LocalSteps

            known = python in (self.settings.python, *AGENTS_PYTHON)
            if isinstance(self._given(name, way).get(PYTHON), Unsafe) and not known:
                raise UsageError(
                    f"{PYTHON} of host '{name}' names a program of this machine, in a text that is not "
                    "trusted (`!unsafe`, or from a daemon that is not root's).",
                    "Write it in the playbook or in host_vars/ beside it.",
                )
            return LocalSteps(name, python, become and getpass.getuser() != "root", passwords.become)
        from rm.adapters.playbook.channel import StepsChannel  # with all of SSH: only where it is used

        return StepsChannel(self.host(name, way), replace(self.settings, python=python), become, passwords)

    def reconnect(self, name: str) -> None:
        """Forget the host's kept-open connections: the next request makes new ones."""
        with self._guard:  # other hosts' connections come and go meanwhile
            its = [self.channels.pop(key) for key in list(self.channels) if key[0] == name]
        for channel in its:
            channel.close()

    def close(self) -> None:
        """Nothing is sent any more; a host finishes the step that it is at."""
        with self._guard:
            self._closed = True
            channels = list(self.channels.values())
        if self.agents is not None:
            self.agents.close()
        for channel in channels:
            channel.close()
