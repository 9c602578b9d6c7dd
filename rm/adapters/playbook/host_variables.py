"""The variables of a playbook's hosts: the inventory's or the daemon's, with those beside the playbooks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rm.adapters.playbook.inventory_files import opened, read_beside
from rm.adapters.playbook.vault import Vault
from rm.core.model.host import Host
from rm.playbook.inventory.export import groups_of
from rm.playbook.inventory.hosts import decode
from rm.playbook.inventory.inventory import Beside, Inventory
from rm.playbook.inventory.sources import GroupTree
from rm.playbook.model.connection import passwords_of
from rm.playbook.model.located import untemplated


class _BesidePlaybooks:
    """group_vars/ and host_vars/ of the playbooks' directories, each read once, and `_known`, those that hold
    for all of them; passwords in the former become secrets of the vault."""

    def __init__(self, known: Beside, vault: Vault) -> None:
        self._known, self._vault = known, vault
        self.beside = cache(self._read)

    def _read(self, directory: str) -> Beside:
        found = read_beside(Path(directory), self._vault)
        self._vault.secrets.update(passwords_of([*found.groups.values(), *found.hosts.values()]))
        return found

    def own(self, host: str, directory: str) -> Collection[str]:
        return {**self._known.hosts.get(host, {}), **self.beside(directory).hosts.get(host, {})}.keys()


class InventoryVariables(_BesidePlaybooks):
    """Those of inventory files, of which `beside` are group_vars/ and host_vars/."""

    def __init__(self, inventory: Inventory, beside: Beside, vault: Vault) -> None:
        super().__init__(beside, vault)
        self._inventory = inventory
        self.tree = inventory.tree()
        vault.secrets.update(passwords_of(beside.groups.values()))

    def merged(self, host: str, joined: Collection[str], directory: str) -> dict[str, Any]:
        ranked = self._inventory.ranks.get(host, ())
        if joined:
            ranked = self.tree.ranked({*ranked, *joined} - {"ungrouped"} or {"ungrouped"})
        return self._inventory.merged(host, self._known, self.beside(directory), ranked)


class DaemonVariables(_BesidePlaybooks):
    """The daemon's variables with what it could not read: files that ansible-vault sealed beside
    `hosts.inventory`, which `sealed` is. group_vars/ beside the playbook are weaker than the daemon's
    variables, which do not tell a group's from a host's own; host_vars/ there are stronger. Where the daemon
    is not `trusted`, the texts of its variables are neither templates nor conditions."""

    def __init__(self, hosts: Sequence[Host], sealed: Beside, vault: Vault, trusted: bool = True) -> None:
        super().__init__(sealed, vault)
        self._trusted = trusted
        self._hosts = {host.name: host for host in hosts}
        self.tree = GroupTree()

    def merged(self, host: str, joined: Collection[str], directory: str) -> dict[str, Any]:
        known, playbooks = self._hosts.get(host), self.beside(directory)
        groups = groups_of(known) if known else ()
        later = self.tree.ranked({*joined} - {*groups, "ungrouped"})
        found: dict[str, Any] = {}
        for beside in (self._known, playbooks):
            for group in ("all", *groups, *later):
                found.update(beside.groups.get(group, {}))
        found.update(self._known.hosts.get(host, {}))
        given = known.variables if known else ()
        values = {name: opened(decode(text), self._vault) for name, text in given}
        found.update(values if self._trusted else untemplated(values))
        found.update(playbooks.hosts.get(host, {}))
        names = sorted({*groups, *later}) if later else list(groups) or ["ungrouped"]
        found["group_names"] = names if self._trusted else untemplated(names)
        return found
