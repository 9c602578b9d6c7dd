"""Hosts as an Ansible inventory, YAML or INI, from which ansible-inventory and rm read the same hosts again.

Groups are written flat and every host has all its variables: which group a value came from is not kept.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from rm.core.model.host import Host
from rm.playbook.inventory.hosts import decode

UNGROUPED = "ungrouped"
VAULT = "$ANSIBLE_VAULT;"
_NOTHING: dict[str, Any] = {"cpus": 0, "mem_bytes": 0, "gpus": (), "nic_bps": 0, "interface": ""}
_MEBI = 1_000_000
_UNITS = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


class _Sealed(str):
    """A value that ansible-vault sealed: it stays so, with its tag."""


# the dumper in Python writes some of Unicode's line ends wrong
class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(_Sealed, lambda dumper, text: dumper.represent_scalar("!vault", str(text), style="|"))


def groups_of(host: Host) -> tuple[str, ...]:
    """The host's groups, without `all` and `ungrouped`."""
    named = decode(dict(host.variables).get("group_names", "[]"))
    return tuple(name for name in named if name != UNGROUPED)


def variables_of(host: Host) -> dict[str, Any]:
    """What the inventory says of a host: what `to_hosts` would read, without its defaults, and without what
    the host's agent found, which a new import would otherwise declare for good."""
    gpus_have = host.gpu_features
    for name in host.found:
        host = replace(host, **{name: _NOTHING[name]})
    found: dict[str, Any] = {}
    if host.address != host.name:
        found["ansible_host"] = host.address
    if host.port != 22:
        found["ansible_port"] = host.port
    found["ansible_user"] = host.login
    found["rm_zone"] = host.zone
    if host.cpus:
        found["rm_cpus"] = host.cpus
    if host.mem_bytes:
        found["rm_mem"] = _size(host.mem_bytes)
    if host.gpus:
        found["rm_gpus"] = [
            {key: value for key, value in (("uuid", gpu.uuid), ("model", gpu.model)) if value}
            | ({"mem": _size(gpu.mem_bytes)} if gpu.mem_bytes else {})
            for gpu in host.gpus
        ]
    if host.nic_bps:
        whole, rest = divmod(host.nic_bps, _MEBI)
        found["rm_nic_mbps"] = host.nic_bps / _MEBI if rest else whole
    if host.interface:
        found["rm_interface"] = host.interface
    if host.partitions:
        found["rm_partitions"] = list(host.partitions)
    if features := [name for name in host.features if name not in gpus_have]:
        found["rm_features"] = features
    for name, text in host.variables:
        if name != "group_names":
            found[name] = decode(text)
    return found


def as_yaml(hosts: Sequence[Host]) -> str:
    """All variables stand beside the hosts of `all`; the groups name their hosts."""
    children: dict[str, dict[str, Any]] = {}
    for host in hosts:
        for group in groups_of(host):
            children.setdefault(group, {"hosts": {}})["hosts"][host.name] = {}
    written: dict[str, Any] = {"hosts": {host.name: _sealed(variables_of(host)) for host in hosts}}
    if children:
        written["children"] = dict(sorted(children.items()))
    text: str = yaml.dump(
        {"all": written},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=hasattr(yaml, "CSafeDumper"),
        width=100,
        default_flow_style=False,
    )
    return "---\n" + text


def as_ini(hosts: Sequence[Host]) -> str:
    """Values are Python literals, as Ansible reads them in an INI inventory."""
    lines = []
    members: dict[str, list[str]] = {}
    for host in hosts:
        words = [shlex.quote(f"{name}={_literal(value)}") for name, value in variables_of(host).items()]
        lines.append(" ".join([host.name, *words]))
        for group in groups_of(host):
            members.setdefault(group, []).append(host.name)
    for group, names in sorted(members.items()):
        lines += ["", f"[{group}]", *names]
    return "\n".join(lines) + "\n"


def _size(size: int) -> str:
    for factor, unit in _UNITS:
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def _sealed(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(VAULT):
        return _Sealed(value)
    if isinstance(value, dict):
        return {key: _sealed(inner) for key, inner in value.items()}
    return [_sealed(inner) for inner in value] if isinstance(value, list) else value


def _literal(value: Any) -> str:
    """A Python literal that `ast.literal_eval` reads; infinity has none but a number too large."""
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return repr(value)
