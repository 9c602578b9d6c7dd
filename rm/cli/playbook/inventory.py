"""The hosts of a command: those that the daemon knows, or those of inventory files.

There is one inventory, the daemon's: jobs, monitoring and playbooks see the same hosts. Files named on the
command line stand instead of it; `hosts.inventory` of rm.toml does where no daemon answers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm.cli.session import Session
from rm.errors import Unreachable, UsageError
from rm.quick_dataclass import dataclass

if TYPE_CHECKING:
    from rm.adapters.playbook.vault import Vault
    from rm.core.model.host import Host
    from rm.playbook.inventory.sources import Sources

DAEMON = "the daemon's hosts"


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """Hosts with all their variables as the playbook begins; `sources` give them anew. `with_login` are those
    whose inventory says who logs in; `files` the inventory files, if it is such; `source` is for the history.
    """

    hosts: list[Host]
    variables: Mapping[str, Mapping[str, Any]]
    sources: Sources
    with_login: Sequence[str]
    source: str
    files: Sequence[str] = ()


def daemon_hosts(session: Session) -> list[Host]:
    """All hosts of the daemon, variables included; only for its administrators."""
    from msgspec import to_builtins

    from rm.core.model.host import Host
    from rm.typed import convert

    names = set(Host.__dataclass_fields__)
    found = []
    for one in session.client.hosts(variables=True):
        fields = {name: value for name, value in to_builtins(one).items() if name in names}
        fields["variables"] = list(fields.get("variables", {}).items())
        found.append(convert(fields, Host))
    return found


def known_hosts_of(
    session: Session, inventories: Sequence[str], configured: str, vault: Vault, playbook: Path
) -> KnownHosts:
    """The hosts that a playbook runs on. Raises ConfigError, UsageError, and Forbidden where the daemon's
    variables are not for this user."""
    if inventories:
        return _of_files(
            [os.path.expanduser(one) if "," not in one else one for one in inventories], vault, playbook
        )
    try:
        hosts = daemon_hosts(session)
    except Unreachable:
        if not configured:
            raise UsageError(
                "No inventory is named, and no daemon answers.",
                "Give --inventory FILE, start the daemon, or set hosts.inventory in rm.toml.",
            ) from None
        return _of_files([os.path.expanduser(configured)], vault, playbook)
    if not hosts:
        raise UsageError(
            "The daemon knows no host yet.", "Add some with `rmx host import`, or give --inventory FILE."
        )
    whose = _another_accounts(session) if os.geteuid() == 0 else ""
    if whose:
        _refuse_programs(hosts, whose)
        hosts = [_untemplated(host) for host in hosts]
    return _of_daemon(hosts, os.path.expanduser(configured), vault, playbook, trusted=not whose)


def _another_accounts(session: Session) -> str:
    """Why root does not take the daemon that answered for root's own; "" where it is. It is by who listens on
    the socket, and by the state directory, which a daemon of root's may have of another account."""
    from rm.adapters.owned_file import opened_directory
    from rm.client.unix_door import UnixDoor

    door, state_dir = session.connection.door, Path(session.config.daemon.state_dir)
    if not isinstance(door, UnixDoor):
        return f"may belong to another account ({session.connection.answers_at})"
    if others := door.uids - {0}:
        return f"belongs to the user id {min(others)}"
    try:
        with opened_directory(state_dir) as home:
            owner = os.fstat(home).st_uid
    except OSError as error:
        if door.uids and isinstance(error, FileNotFoundError):
            return ""
        return f"may belong to another account ({state_dir}: {error.strerror})"
    return f"belongs to the user id {owner} ({state_dir})" if owner else ""


def _refuse_programs(hosts: Sequence[Host], whose: str) -> None:
    """Root evaluates no template, and starts no program, that the daemon's account could have put into the
    variables of hosts. Raises UsageError."""
    from rm.adapters.playbook.roster import inventory_of
    from rm.playbook.model.connection import SSH_ARGS
    from rm.playbook.model.ssh_arguments import outside_program
    from rm.playbook.template.jinja import has_template

    for host in hosts:
        for name, value in inventory_of(host).items():
            runs_here = "local" in str(value) if name == "ansible_connection" else has_template(value)
            if runs_here or (name in SSH_ARGS and outside_program(str(value))):
                raise UsageError(
                    f"The variable {name} of host {host.name} could run programs here as root. It comes from "
                    f"the daemon, which {whose}.",
                    "Give --inventory FILE, or run the playbook as another user.",
                )


def _untemplated(host: Host) -> Host:
    """With the texts that become variables (`inventory_of`) as what is neither a template nor a condition."""
    from rm.playbook.model.located import Unsafe

    return replace(
        host, zone=Unsafe(host.zone), address=Unsafe(host.address), login=Unsafe(host.login),
        interface=Unsafe(host.interface), partitions=tuple(map(Unsafe, host.partitions)),
        features=tuple(map(Unsafe, host.features)),
    )  # fmt: skip


def _of_files(files: Sequence[str], vault: Vault, playbook: Path) -> KnownHosts:
    from rm.adapters.playbook.host_variables import InventoryVariables
    from rm.adapters.playbook.inventory_files import read_inventory
    from rm.playbook.inventory.hosts import to_hosts
    from rm.playbook.model.connection import settled

    inventory, beside = read_inventory(files, vault, programs=True)
    sources = InventoryVariables(inventory, beside, vault)
    hosts, directory = to_hosts(inventory), str(playbook.resolve().parent)
    variables = {host.name: sources.merged(host.name, (), directory) for host in hosts}
    with_login = [name for name, given in variables.items() if "ansible_user" in settled(given)]
    return KnownHosts(hosts, variables, sources, with_login, ",".join(files), files)


def _of_daemon(hosts: list[Host], configured: str, vault: Vault, playbook: Path, trusted: bool) -> KnownHosts:
    from rm.adapters.playbook.host_variables import DaemonVariables
    from rm.adapters.playbook.inventory_files import read_beside
    from rm.playbook.inventory.hosts import encode
    from rm.playbook.inventory.inventory import Beside

    place, directory = Path(configured), str(playbook.resolve().parent)
    sealed = read_beside(place if place.is_dir() else place.parent, vault) if configured else Beside()
    sources = DaemonVariables(hosts, sealed, vault, trusted)
    variables, grouped = {}, []
    for host in hosts:
        found = variables[host.name] = sources.merged(host.name, (), directory)
        named = {**dict(host.variables), "group_names": encode(found["group_names"])}
        grouped.append(replace(host, variables=tuple(named.items())))
    return KnownHosts(grouped, variables, sources, [host.name for host in hosts], DAEMON)
