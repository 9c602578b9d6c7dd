"""Inventories from this machine's files: one or several, directories of them, and what stands beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rm.adapters.hosts.route import arguments
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.inventory_programs import is_program, of_plugin, of_program
from rm.adapters.playbook.vault import HEADER, Vault
from rm.core.model.host import Host
from rm.errors import ConfigError, UsageError
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import (
    WRITE_OUT,
    Beside,
    Inventory,
    InventoryHost,
    parse_all,
    plugin_of,
)
from rm.playbook.model.connection import PASSWORDS, REACH, refusal
from rm.playbook.model.located import Map, load
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.template.template import Layer, Scope, evaluate, has_template

_IGNORED = ("~", ".orig", ".bak", ".cfg", ".retry", ".pyc", ".swp", ".md", ".txt", ".rst", ".csv")
_ENDINGS = ("", ".yml", ".yaml", ".json")


def read_inventory(
    sources: Sequence[str], vault: Vault | None = None, programs: bool = False
) -> tuple[Inventory, Beside]:
    """All sources as one inventory, its group_vars/ and host_vars/ merged in; and those by themselves.

    A source is a file, a directory of inventory files, or names with commas (`gpu01,gpu02`). Without a
    vault, encrypted files are left out and encrypted values stay so. `programs`: those that are programs, or
    for inventory plug-ins, are run; else refused.
    """
    texts: list[tuple[str | Map, str]] = []
    places: list[Path] = []
    asked: list[str] = []  # the sources so far, as ansible-inventory takes them
    decrypt = vault if vault and vault.passwords else None
    for source in sources:
        if "," in source:
            names = [name.strip() for name in source.split(",") if name.strip()]
            texts.append(("\n".join(names), "the list of hosts"))
            asked.append(",".join([*names, ""]))
            continue
        path = Path(source).expanduser()
        places.append(path if path.is_dir() else path.parent)
        for file in _files(path):
            asked.append(str(file))
            if programs and is_program(file):
                texts.append((of_program(file, decrypt), f"the answer of {file}"))
            elif plugin_of(text := _text(file), str(file)) and programs:
                groups = of_plugin(asked, file, vault.passwords if vault else (), decrypt)
                texts.append((groups, f"the answer of ansible-inventory for {file}"))
            else:
                texts.append((text, str(file)))
    beside = Beside()
    for place in dict.fromkeys(places):
        beside = joined(beside, read_beside(place, vault))
    inventory = parse_all(texts, decrypt)
    return inventory.with_beside(beside), beside


def joined(first: Beside, second: Beside) -> Beside:
    groups = {
        n: {**first.groups.get(n, {}), **second.groups.get(n, {})} for n in {**first.groups, **second.groups}
    }
    hosts = {
        n: {**first.hosts.get(n, {}), **second.hosts.get(n, {})} for n in {**first.hosts, **second.hosts}
    }
    return Beside(groups, hosts)


def read_beside(directory: Path, vault: Vault | None = None) -> Beside:
    """group_vars/ and host_vars/ of a directory: a file, or a directory of files, for each name."""
    return Beside(_variables(directory / "group_vars", vault), _variables(directory / "host_vars", vault))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = []
    for one in sorted(path.iterdir()):
        if one.name in ("group_vars", "host_vars") or one.name.startswith(".") or one.name.endswith(_IGNORED):
            continue
        found += _files(one)
    if not found:
        raise ConfigError(f"The inventory directory {path} holds no inventory.", "Give a file.")
    return found


def _text(path: Path) -> str:
    try:
        if is_program(path):
            raise ConfigError(
                f"The inventory {path} is a program.",
                WRITE_OUT.format(path),
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"The inventory {path} cannot be read: {why}.") from None


def _variables(top: Path, vault: Vault | None) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in sorted(top.iterdir()) if top.is_dir() else ():
        if one.name.startswith(".") or one.name.endswith("~"):
            continue
        if one.is_dir():
            files = [
                p for p in sorted(one.rglob("*")) if p.is_file() and p.suffix in _ENDINGS and p.name[0] != "."
            ]
            name = one.name
        elif one.suffix in (".yml", ".yaml", ".json"):
            files, name = [one], one.stem
        else:
            files, name = [one], one.name
        for file in files:
            found.setdefault(name, {}).update(_mapping(file, vault))
    return found


def _mapping(path: Path, vault: Vault | None) -> dict[str, Any]:
    text = _text(path)
    if text.startswith(HEADER):
        if vault is None:
            return {}
        try:
            text = vault.open_file(text.encode()).decode()
        except UsageError as problem:
            raise ConfigError(f"{path}: {problem.what}", problem.hint) from None
    value = load(text, str(path), ConfigError, vault if vault and vault.passwords else None)
    if not isinstance(value, (dict, type(None))):
        raise ConfigError(f"{path}: variables are a mapping.", "Write 'name: value'.")
    return dict(value or {})


def opened(value: Any, vault: Vault) -> Any:
    """A value with what ansible-vault sealed in it opened, where there is a password; raises ConfigError."""
    if isinstance(value, str) and value.startswith(HEADER) and vault.passwords:
        try:
            return vault(value)
        except UsageError as problem:
            raise ConfigError(f"A variable of the daemon's hosts: {problem.what}", problem.hint) from None
    if isinstance(value, dict):
        return {key: opened(inner, vault) for key, inner in value.items()}
    return [opened(inner, vault) for inner in value] if isinstance(value, list) else value


def hosts_for_daemon(source: str) -> tuple[list[Host], list[str]]:
    """The hosts of an inventory as the daemon may know them: without the connection's passwords in plain
    text, which the database must not hold; what ansible-vault sealed stays. And the variables left out.
    Templates that say how a host is reached are evaluated, since the daemon evaluates none. Raises
    ConfigError, also for what rm does not follow."""
    dropped: set[str] = set()

    def kept(variable: tuple[str, str]) -> bool:
        name, text = variable
        plain = name in PASSWORDS and not text.startswith((HEADER, "{{"))
        dropped.update([name] if plain else [])
        return not plain

    inventory = read_inventory([source])[0]
    for entry in inventory.hosts.values():
        _settle(entry)
    hosts = [replace(host, variables=tuple(filter(kept, host.variables))) for host in to_hosts(inventory)]
    for host in hosts:
        arguments(host, SshSettings(Path()))
    if not hosts:
        raise ConfigError(f"The inventory {source} holds no host.")
    return hosts, sorted(dropped)


def _settle(entry: InventoryHost) -> None:
    scope = Scope([Layer({"inventory_hostname": entry.name}, False), Layer(entry.variables, True)])
    for name in REACH:
        if has_template(entry.variables.get(name)):
            try:
                entry.variables[name] = evaluate(entry.variables[name], scope)
            except TemplateProblem as problem:
                raise ConfigError(f"{name} of host '{entry.name}': {problem}.") from None
    for name, value in entry.variables.items():
        wrong, hint = refusal(name, value) if name.startswith("ansible_") else ("", "")
        if wrong:
            raise ConfigError(f"Host '{entry.name}': {wrong}", hint)
