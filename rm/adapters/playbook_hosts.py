"""The ways to the hosts while a playbook runs: an agent's channel, one over SSH, a process here."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rm.adapters.playbook_become import Passwords, Refused
from rm.adapters.playbook_channel import Ask, StepsChannel
from rm.adapters.playbook_local import LocalSteps
from rm.adapters.ssh import SshSettings
from rm.core.host import Host
from rm.playbook.steps import Batch

# the variables that hold passwords, the strongest first
BECOME_PASSWORDS = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
LOGIN_PASSWORDS = ("ansible_password", "ansible_ssh_password", "ansible_ssh_pass")
LOCALHOST = ("localhost", "127.0.0.1", "::1")
Key = tuple[str, bool, str, bool]  # host, as root, login, local


class Ways:
    """Answers requests of the operation `steps` for any host, each over one kept-open channel.

    `variables(name)` gives a host's connection variables, evaluated.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        settings: SshSettings,
        ask: Ask | None,
        variables: Callable[[str], Mapping[str, Any]],
        passwords: Passwords | None = None,
    ) -> None:
        self.passwords = passwords or Passwords()
        self.hosts, self.settings, self.ask, self.variables = hosts, settings, ask, variables
        self.channels: dict[Key, StepsChannel | LocalSteps] = {}
        self._locks: dict[Key, threading.Lock] = {}
        self._guard = threading.Lock()

    def host(self, name: str, login: str = "") -> Host:
        """The host to connect to; a name that the inventory does not know is an address."""
        known = self.hosts.get(name) or Host(name, "", name)
        given = self.variables(name)
        address, user = given.get("ansible_host", known.address), given.get("ansible_user", known.login)
        return replace(known, address=str(address), login=login or str(user))

    def is_local(self, name: str) -> bool:
        connection = self.variables(name).get("ansible_connection")
        return connection == "local" or (connection is None and name in LOCALHOST and name not in self.hosts)

    def send(self, name: str, batch: Batch, request: dict[str, Any]) -> dict[str, Any]:
        """Raises Unreachable (or another RmError) when the host does not answer; where sudo refuses, each
        step fails with what it said."""
        try:
            return self._send(name, batch, request)
        except Refused as refusal:
            failed = [{"id": step["id"], "failed": True, "msg": str(refusal)} for step in request["steps"]]
            return {"results": failed, "planned": request["planned"]}

    def _send(self, name: str, batch: Batch, request: dict[str, Any]) -> dict[str, Any]:
        local = batch.local or self.is_local(name)
        login = "" if local else self.host(name, batch.login).login
        become = batch.become and login != "root"
        if self.ask is not None and not become and not local and not batch.login:
            answer = self.ask(name, request)
            if answer is not None:
                return answer
        key = (name, become, batch.login, local)
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # a channel carries one request at a time
            channel = self.channels.get(key)
            if channel is None:
                channel = self._connect(name, become, batch.login, local)
                self.channels[key] = channel
            return channel.steps(request)

    def _connect(self, name: str, become: bool, login: str, local: bool) -> StepsChannel | LocalSteps:
        given = self.variables(name)
        passwords = Passwords(
            _first(given, BECOME_PASSWORDS) or self.passwords.become,
            _first(given, LOGIN_PASSWORDS) or self.passwords.login,
        )
        if local:
            python = str(given.get("ansible_python_interpreter") or self.settings.python)
            return LocalSteps(name, python, become and getpass.getuser() != "root", passwords.become)
        return StepsChannel(self.host(name, login), self.settings, become, passwords)

    def reconnect(self, name: str) -> None:
        """Forget the host's kept-open connections: the next request makes new ones."""
        for key in [key for key in self.channels if key[0] == name]:
            self.channels.pop(key).close()

    def close(self) -> None:
        for channel in list(self.channels.values()):
            channel.close()


def _first(given: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((str(given[name]) for name in names if given.get(name) not in (None, "")), "")
