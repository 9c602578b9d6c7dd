"""Which private keys log in to a host: its own, those of rm.toml, or the user's as ssh takes them."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from rm.adapters.hosts.route import Route
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Identities:
    """Private keys to try, in order.

    Attributes:
        named: somebody named them for this host, so each must be usable.
        agent: the keys of an SSH agent are tried as well.
    """

    files: tuple[Path, ...]
    named: bool
    agent: bool


def identities(host: Host, settings: SshSettings, route: Route) -> Identities:
    """The keys for the host.

    Raises:
        ConfigError: a key that somebody named is open to other users of this machine.
    """
    given = dict(host.variables)
    own = given.get("ansible_ssh_private_key_file") or given.get("ansible_private_key_file")
    named = [Path(own).expanduser()] if own else [_named(file, host) for file in settings.identity_files]
    for file in named:
        if _open_to_others(file):
            raise ConfigError(
                f"The SSH identity {file} of host {host.name} is open to other users of this machine.",
                f"Run: chmod 600 {shlex.quote(str(file))}",
            )
    if named:
        return Identities(tuple(named), named=True, agent=False)
    if route.identity_files:  # ssh passes over those that are not there
        return Identities(_usable(route.identity_files), named=False, agent=not route.identities_only)
    # the user's own keys, as ssh takes them
    usual = tuple(Path.home() / ".ssh" / f"id_{kind}" for kind in ("ed25519", "ecdsa", "rsa"))
    return Identities(_usable(usual), named=False, agent=True)


def _named(file: Path, host: Host) -> Path:
    """The file with the host's name for %h, and % for %%; no name leads out of its folder."""
    name = host.name.replace("/", "_")
    return Path(re.sub("%[%h]", lambda found: "%" if found[0] == "%%" else name, str(file)))


def _usable(files: tuple[Path, ...]) -> tuple[Path, ...]:
    # a folder that this user may not enter has no keys: os.access says so, where Path.is_file fails
    return tuple(
        file for file in files if os.access(file, os.R_OK) and file.is_file() and not _open_to_others(file)
    )


def _open_to_others(file: Path) -> bool:
    """May others read or write a private key of this user? ssh refuses such a key, too."""
    try:
        found = file.stat()
    except OSError:
        return False  # reported where it is opened
    return found.st_uid == os.getuid() and bool(found.st_mode & 0o077)
