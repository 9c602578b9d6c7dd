"""The ways to the hosts while a playbook runs: an agent's channel, one over SSH, a process here."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rm.adapters.playbook_channel import Ask, StepsChannel
from rm.adapters.playbook_local import LocalSteps
from rm.adapters.ssh import SshSettings
from rm.core.host import Host
from rm.playbook.steps import Batch

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
    ) -> None:
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
        """Raises Unreachable (or another RmError) when the host does not answer."""
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
        if local:
            python = str(self.variables(name).get("ansible_python_interpreter") or self.settings.python)
            return LocalSteps(name, python, become and getpass.getuser() != "root")
        return StepsChannel(self.host(name, login), self.settings, become)

    def reconnect(self, name: str) -> None:
        """Forget the host's kept-open connections: the next request makes new ones."""
        for key in [key for key in self.channels if key[0] == name]:
            self.channels.pop(key).close()

    def close(self) -> None:
        for channel in list(self.channels.values()):
            channel.close()
