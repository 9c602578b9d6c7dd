"""Groups out of what an inventory program answers to `--list`, as `ansible-inventory --export` does too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rm.errors import ConfigError
from rm.playbook.inventory.inventory import GROUP_KEYS
from rm.playbook.model.located import Map, Unsafe

Decrypt = Callable[[str], str]
UNSAFE, VAULT = "__ansible_unsafe", "__ansible_vault"


def object_of(text: str, whose: str) -> dict[str, Any]:
    """An object of JSON. Raises ConfigError."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{whose} does not answer with JSON: {problem}.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{whose} answers with no object of JSON.")
    return found


def groups_of(
    answer: Mapping[str, Any],
    whose: str,
    of_host: Callable[[str], Mapping[str, Any]],
    decrypt: Decrypt | None,
) -> Map:
    """The groups as an inventory in YAML writes them. A group is a list of its hosts, an object with `hosts`,
    `children` and `vars`, or a host's variables, of which a group of that name holds the host. Variables of
    hosts stand in `_meta`, or `of_host` is asked for those of each. Raises ConfigError."""
    meta = answer.get("_meta")
    if meta is not None and not isinstance(meta, Mapping):
        raise ConfigError(f"{whose}: '_meta' is no object.")
    known = None if meta is None else meta.get("hostvars", {})
    if known is not None and not isinstance(known, Mapping):
        raise ConfigError(f"{whose}: 'hostvars' of '_meta' is no object.")
    asked: dict[str, Map] = {}

    def variables(host: str) -> Map:
        if host not in asked:
            given = of_host(host) if known is None else known.get(host, {})
            asked[host] = _variables(given, f"{whose}: the variables of host '{host}'", decrypt)
        return asked[host]

    found = _map({})
    for name, group in answer.items():
        if name == "_meta":
            continue
        if isinstance(group, list):
            group = {"hosts": group}
        elif isinstance(group, Mapping) and not {*GROUP_KEYS} & {*group}:
            group = {"hosts": [name], "vars": group}
        if not isinstance(group, Mapping):
            raise ConfigError(f"{whose}: the group '{name}' is neither a list of hosts nor an object.")
        hosts = _names(group, "hosts", f"{whose}: the group '{name}'")
        children = _names(group, "children", f"{whose}: the group '{name}'")
        found[name] = _map(
            {
                "hosts": _map({host: variables(host) for host in hosts}),
                "children": _map(dict.fromkeys(children)),
                "vars": _variables(
                    group.get("vars") or {}, f"{whose}: 'vars' of the group '{name}'", decrypt
                ),
            }
        )
    return found


def _map(given: Mapping[str, Any]) -> Map:
    found = Map(given)
    found.line = 1
    return found


def _names(group: Mapping[str, Any], key: str, whose: str) -> list[str]:
    given = group.get(key) or []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"{whose}: '{key}' is no list of names.")
    return given


def _variables(given: Any, whose: str, decrypt: Decrypt | None) -> Map:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{whose} are no object.")
    return _map({name: _value(value, decrypt) for name, value in given.items()})


def _value(value: Any, decrypt: Decrypt | None) -> Any:
    """A value without the objects in which Ansible's JSON has texts that are no templates, or sealed."""
    if isinstance(value, dict):
        if value.keys() == {UNSAFE} and isinstance(value[UNSAFE], str):
            return Unsafe(value[UNSAFE])
        if value.keys() == {VAULT} and isinstance(value[VAULT], str):
            return decrypt(value[VAULT]) if decrypt else value[VAULT]
        return {key: _value(inner, decrypt) for key, inner in value.items()}
    return [_value(inner, decrypt) for inner in value] if isinstance(value, list) else value
