"""What the options of `rmx playbook` name: the inventory, vault passwords, variables, the playbook."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.session import Session
from rm.errors import ConfigError, UsageError
from rm.playbook.model.vault_id import split_vault_id
from rm.quick_dataclass import dataclass

if TYPE_CHECKING:
    from rm.adapters.hosts.settings import SshSettings
    from rm.adapters.playbook.vault import Vault
    from rm.cli.playbook.login import Login
    from rm.core.model.host import Host
    from rm.playbook.inventory.sources import Sources
    from rm.playbook.read.ansible_settings import Settings


@dataclass(frozen=True, slots=True)
class Fleet:
    """Where a playbook runs. `variables` are all of each host's as the playbook begins, group_vars/ and
    host_vars/ included; `sources` give them anew."""

    hosts: list[Host]
    settings: SshSettings
    variables: Mapping[str, Mapping[str, Any]]
    sources: Sources
    source: str
    magic: Mapping[str, Any]


def playbook_path(file: str) -> Path:
    """A bare word is a playbook that comes with rm, also beside a local file of that name, since
    others may write there; a local file has a directory (`./site`) or `.yml` or `.yaml` in its name."""
    from rm.adapters.playbook.shipped import shipped_playbook

    named = file.endswith((".yml", ".yaml"))
    if os.sep in file or (named and os.path.isfile(file)):
        return Path(file)
    shipped = shipped_playbook(file)
    passed_over = [] if named else [name for name in (file, f"{file}.yml") if os.path.isfile(name)]
    if not shipped.exists():
        hint = "`rmx playbook list` shows those that come with rm."
        if passed_over:
            hint = f"For the file here write ./{passed_over[0]}. {hint}"
        raise UsageError(f"There is no playbook {file} that comes with rm.", hint)
    for name in passed_over:
        said = f"The playbook {file} comes with rm; the file {name} here is ignored (./{name} names it)."
        click.echo(said, err=True)
    return shipped


def is_asked_for(vault_id: str) -> bool:
    """Is the password of this id of the vault typed, not in a file?"""
    return split_vault_id(vault_id)[1] == "prompt"


def vault_of(files: Sequence[str], ask: bool) -> Vault:
    """The vault with the passwords that the files hold, or that are typed. A file may stand after `NAME@`,
    the id of its password; every password is tried, whatever its id. `NAME@prompt`, or `prompt`, asks."""
    from rm.adapters.playbook.vault import Vault, read_password

    asked = [one for one in files if is_asked_for(one)]
    passwords = [read_password(one) for one in files if one not in asked]
    for one in asked:
        text = f"Vault password ({split_vault_id(one)[0] or 'default'})"
        passwords.append(click.prompt(text, hide_input=True, err=True).encode())
    if ask:
        passwords.append(click.prompt("Vault password", hide_input=True, err=True).encode())
    return Vault(passwords)


def fleet_of(
    session: Session,
    inventories: Sequence[str],
    known_hosts: str | None,
    private_key: str | None,
    vault: Vault,
    playbook: Path,
    login: Login,
    ansible: Settings,
) -> Fleet:
    """The inventory's hosts, and how to reach them; raises ConfigError or UsageError."""
    from rm.adapters.hosts.settings import SshSettings
    from rm.cli.playbook.inventory import known_hosts_of
    from rm.playbook.model.connection import SSH_ARGS, refusal

    config = session.config
    inventories = inventories or ansible.inventory
    private_key = private_key or ansible.private_key_file
    identity = (private_key,) if private_key else config.ssh.identity_files
    given_args = {name: getattr(ansible, name.removeprefix("ansible_")) for name in SSH_ARGS}
    if not ansible.host_key_checking:  # named where a key is not known
        given_args["ansible_ssh_args"] += " -o StrictHostKeyChecking=no"
    settings = SshSettings(
        known_hosts=Path(known_hosts or config.ssh.known_hosts).expanduser(),
        identity_files=tuple(Path(one).expanduser() for one in identity),
        connect_timeout_s=ansible.timeout_s or config.ssh.connect_timeout_s,
        dead_after_s=config.ssh.dead_after_s,
        python=config.hosts.python if (ansible.python or "auto").startswith("auto") else str(ansible.python),
        weak_algorithms=config.ssh.weak_algorithms,
        config=config.ssh.config,
        arguments=tuple((name, text) for name, text in given_args.items() if text),
        trusts_inventory=True,
        users_known_hosts=True,
        key_options=key_options(inventories, known_hosts),
    )
    found = known_hosts_of(session, inventories, config.hosts.inventory, vault, playbook)
    for name, given in found.variables.items():
        for key, value in given.items():
            problem, hint = refusal(key, value) if key.startswith("ansible_") else ("", "")
            if problem:
                raise UsageError(f"Host '{name}': {problem}", hint)
    first = "" if not found.files or "," in found.files[0] else os.path.abspath(found.files[0])
    magic = {
        "inventory_file": first,
        "inventory_dir": first if os.path.isdir(first) else os.path.dirname(first),
        "ansible_inventory_sources": [os.path.abspath(one) for one in found.files],
    }
    hosts = as_configured(found.hosts, found.with_login, settings) if login.user is None else found.hosts
    return Fleet(
        login.as_user(hosts, found.with_login), settings, found.variables, found.sources, found.source, magic
    )


def key_options(inventories: Sequence[str], known_hosts: str | None) -> str:
    """What `rmx host accept-key NAME` needs besides to pin the keys that this command looks for."""
    named = [("--inventory", one) for one in inventories]
    named += [("--known-hosts", known_hosts)] if known_hosts else []
    return "".join(f" {option} {shlex.quote(value)}" for option, value in named)


def as_configured(hosts: Sequence[Host], named: Sequence[str], settings: SshSettings) -> list[Host]:
    """The hosts whose inventory names nobody (they are not among `named`) with the login that the
    configuration of ssh names. Raises ConfigError."""
    from rm.adapters.hosts.route import configured, login_of

    if not configured(settings.config):
        return list(hosts)
    left = set(named)
    return [
        host if host.name in left else replace(host, login=login_of(host, settings) or host.login)
        for host in hosts
    ]


def words(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.strip() for one in given for word in one.split(",") if word.strip())


def extra_variables(given: Sequence[str], vault: Vault) -> dict[str, Any]:
    """`-e`: name=value pairs (text), a JSON object (typed), or @file with YAML or JSON."""
    from rm.adapters.playbook.vault import HEADER
    from rm.playbook.model.located import load
    from rm.playbook.read.words import assigned, words_of

    decrypt = vault if vault.passwords else None
    found: dict[str, Any] = {}
    for text in given:
        if text.startswith(("@", "{", "[")):
            try:
                body = Path(text[1:]).expanduser().read_text(encoding="utf-8") if text[0] == "@" else text
            except (OSError, UnicodeDecodeError) as problem:
                why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
                raise UsageError(f"-e {text}: {why}.") from None
            if body.startswith(HEADER):
                body = vault.open_file(body.encode()).decode()
            value = load(body, text[1:] if text[0] == "@" else "-e", decrypt=decrypt)
            if not isinstance(value, dict):
                raise UsageError(f"-e {text} is not a mapping.", "Write names and their values.")
            found.update(value)
            continue
        try:
            pairs = [(word, assigned(word)) for word, _ in words_of(text)]
        except ValueError as problem:
            raise UsageError(f"-e {text!r}: {problem}.") from None
        for word, pair in pairs:
            if pair is None or not pair[0].isidentifier():
                raise UsageError(f"-e {word!r} sets nothing.", "Write name=value.")
            found[pair[0]] = pair[1]
    return found


__all__ = [
    "ConfigError",
    "Fleet",
    "extra_variables",
    "fleet_of",
    "is_asked_for",
    "playbook_path",
    "vault_of",
    "words",
]
