"""Ansible inventories, YAML and INI, to hosts with merged variables.

Precedence as Ansible's: variables of `all`, then of parent groups before child groups (a group's
depth is its longest way from `all`), equals by `ansible_group_priority` and in alphabetical order,
then the host's own. What group_vars/ and host_vars/ say goes between, see `Inventory.merged`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from rm.compiled_later import compiled_later
from rm.errors import ConfigError
from rm.hints import did_you_mean
from rm.playbook.inventory.sources import GroupTree
from rm.playbook.model.located import Map, load
from rm.python_text import literal
from rm.quick_dataclass import dataclass

HOSTS_MAX = 65_536
WRITE_OUT = "Write its hosts to a file: ansible-inventory -i {} --list --yaml > hosts.yml"
GROUP_KEYS = ("hosts", "children", "vars")
_RANGE = compiled_later(r"\[([0-9]+|[A-Za-z]):([0-9]+|[A-Za-z])(?::([0-9]+))?\]")
_SECTION = compiled_later(r"\[([^\]:]+)(?::(\w+))?\]\s*(?:[#;].*)?\Z")
_NAME = compiled_later(r"[A-Za-z0-9_.-]+\Z")


@dataclass(slots=True)
class InventoryHost:
    """One host: `variables` are merged, `groups` all it belongs to (sorted, without `all`)."""

    name: str
    line: int
    variables: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """What group_vars/ and host_vars/ of one place hold, by the name of the group or host."""

    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Inventory:
    """Hosts in the order of the file, and each group's hosts (children's included).

    `own` are the hosts' variables as the inventory itself gives them, `ranks` each host's groups, the
    weakest first, `above` the groups that hold a group.
    """

    filename: str
    hosts: dict[str, InventoryHost]
    groups: dict[str, tuple[str, ...]]
    group_variables: dict[str, dict[str, Any]] = field(default_factory=dict)
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    ranks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    children: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tree(self) -> GroupTree:
        tree = GroupTree(priorities={name: _priority(given) for name, given in self.group_variables.items()})
        for name, children in self.children.items():
            for child in children:
                tree.add(child, (name,))
        return tree

    def merged(
        self, host: str, inventory: Beside, playbook: Beside, ranked: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """A host's variables with those beside the inventory and beside the playbook. `ranked` are its
        groups, the weakest first, where they are not those of the inventory."""
        ranked = self.ranks[host] if ranked is None else ranked
        found: dict[str, Any] = {}
        for names, source in (
            (("all",), self.group_variables),
            (ranked, self.group_variables),
            (("all",), inventory.groups),
            (("all",), playbook.groups),
            (ranked, inventory.groups),
            (ranked, playbook.groups),
        ):
            for name in names:
                found.update(source.get(name, {}))
        for one in (self.own, inventory.hosts, playbook.hosts):
            found.update(one.get(host, {}))
        return found

    def with_beside(self, beside: Beside) -> Inventory:
        """The same with every host's variables merged with those beside the inventory."""
        for name, entry in self.hosts.items():
            entry.variables = self.merged(name, beside, Beside())
        return self


@dataclass(slots=True)
class _Group:
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


class _Builder:
    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.groups: dict[str, _Group] = {"all": _Group()}
        self.hosts: dict[str, InventoryHost] = {}

    def fail(self, line: int, what: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.filename}:{line}: {what}", hint)

    def group(self, name: str, line: int) -> _Group:
        if not _NAME.match(name):
            raise self.fail(line, f"'{name}' is not a group name.", "Use letters, digits and underscores.")
        return self.groups.setdefault(name, _Group())

    def add_hosts(self, pattern: str, group: str, line: int) -> list[InventoryHost]:
        found = []
        for name in self.expand(pattern, line):
            if not _NAME.match(name):
                raise self.fail(
                    line, f"'{name}' is not a host name.", "Use letters, digits, dots and dashes."
                )
            found.append(self.hosts.setdefault(name, InventoryHost(name, line)))
            self.group(group, line).hosts[name] = None
        if len(self.hosts) > HOSTS_MAX:
            raise self.fail(line, f"more than {HOSTS_MAX} hosts.", "Check the range.")
        return found

    def expand(self, pattern: str, line: int) -> list[str]:
        match = _RANGE.search(pattern)
        if match is None:
            return [pattern]
        first, last, step = match[1], match[2], int(match[3] or 1)
        if first.isdigit() != last.isdigit() or step < 1:
            raise self.fail(line, f"'{match[0]}' is not a range.", "Write [01:16], [a:d] or [1:9:2].")
        low, high = (int(first), int(last)) if first.isdigit() else (ord(first), ord(last))
        if low > high or (high - low) // step >= HOSTS_MAX:
            raise self.fail(
                line, f"the range '{match[0]}' is empty or too long.", "Write it as [first:last]."
            )
        width = len(first) if first.isdigit() and first.startswith("0") else 0
        rest = self.expand(pattern[match.end() :], line)
        middle = (str(n).zfill(width) if first.isdigit() else chr(n) for n in range(low, high + 1, step))
        return [pattern[: match.start()] + m + r for m in middle for r in rest]

    def finish(self) -> Inventory:
        depth = {"all": 0}
        above: dict[str, set[str]] = {}

        def descend(name: str, path: tuple[str, ...]) -> None:
            for child, line in self.groups[name].children.items():
                if child in path:
                    raise self.fail(line, f"the groups {' > '.join((*path, child))} form a loop.")
                above.setdefault(child, set()).update(path)
                depth[child] = max(depth.get(child, 0), len(path))
                descend(child, (*path, child))

        inner = {c for g in self.groups.values() for c in g.children}
        for name in self.groups:
            if name != "all" and name not in inner:
                self.groups["all"].children.setdefault(name, 0)
        descend("all", ("all",))
        for name in self.groups:
            if name not in depth:  # reached from nowhere: only a loop can be so
                descend(name, (name,))
        owned: dict[str, dict[str, Any]] = {}
        ranks: dict[str, tuple[str, ...]] = {}
        member: dict[str, set[str]] = {h: set() for h in self.hosts}
        for name, group in self.groups.items():
            for host in group.hosts:
                member[host] |= {name, *above.get(name, ())} - {"all"}
        for entry in self.hosts.values():
            own, own_lines = entry.variables, entry.lines
            entry.variables, entry.lines = {}, {}
            ranked = sorted(
                member[entry.name], key=lambda g: (depth.get(g, 1), _priority(self.groups[g].variables), g)
            )
            owned[entry.name], ranks[entry.name] = own, tuple(ranked)
            for name in ["all", *ranked]:
                entry.variables.update(self.groups[name].variables)
                entry.lines.update(self.groups[name].lines)
            entry.variables.update(own)
            entry.lines.update(own_lines)
            entry.groups = tuple(sorted(member[entry.name]))
        groups = {g: tuple(h for h in self.hosts if g in member[h]) for g in self.groups if g != "all"}
        if "ungrouped" in self.groups:
            groups["ungrouped"] = tuple(h for h in self.hosts if member[h] <= {"ungrouped"})
        given = {name: group.variables for name, group in self.groups.items()}
        children = {name: tuple(group.children) for name, group in self.groups.items()}
        hosts = {"all": tuple(self.hosts), **groups}
        return Inventory(self.filename, self.hosts, hosts, given, owned, ranks, children)


def _priority(variables: Mapping[str, Any]) -> int:
    """`ansible_group_priority`: of groups of one depth the higher wins."""
    text = str(variables.get("ansible_group_priority", 1))
    return int(text) if text.lstrip("-").isdigit() else 1


def parse(text: str, filename: str, decrypt: Callable[[str], str] | None = None) -> Inventory:
    """An inventory from its text; raises ConfigError with file and line."""
    return parse_all([(text, filename)], decrypt)


def parse_all(
    texts: Sequence[tuple[str | Map, str]], decrypt: Callable[[str], str] | None = None
) -> Inventory:
    """One inventory from several texts, or groups that are read already, and their filenames; of equal
    variables the later file's win."""
    build = _Builder(texts[0][1] if texts else "")
    for text, filename in texts:
        build.filename = filename
        _read(build, text, filename, decrypt)
    return build.finish()


def plugin_of(text: str, filename: str) -> str:
    """The inventory plug-in for which a file is, or "". Raises ConfigError."""
    if "plugin" not in text or not _is_yaml(text, filename):
        return ""
    document = load(text, filename, ConfigError)
    plugin = document.get("plugin") if isinstance(document, Map) else None
    return plugin if isinstance(plugin, str) else ""


def _read(build: _Builder, text: str | Map, filename: str, decrypt: Callable[[str], str] | None) -> None:
    if isinstance(text, Map) or _is_yaml(text, filename):
        document = text if isinstance(text, Map) else load(text, filename, ConfigError, decrypt)
        if document is not None:
            if not isinstance(document, Map):
                raise build.fail(1, "an inventory is a mapping of groups.", "Start with 'all:' and 'hosts:'.")
            if isinstance(plugin := document.get("plugin"), str):
                what = f"this is for the inventory plug-in '{plugin}'."
                raise build.fail(document.line_of("plugin"), what, WRITE_OUT.format(filename))
            for name, body in document.items():
                _yaml_group(build, str(name), body, document.line_of(name))
    else:
        _ini(build, text)


def _is_yaml(text: str, filename: str) -> bool:
    if filename.endswith((".yml", ".yaml", ".json")):
        return True
    if filename.endswith((".ini", ".cfg")):
        return False
    significant = (line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;")
    first = next(significant, "---")
    return first.startswith(("---", "{")) or re.match(r"[\w.-]+:\s*(#.*)?\Z", first) is not None


def _yaml_group(build: _Builder, name: str, body: Any, line: int) -> None:
    group = build.group(name, line)
    if body is None:
        return
    if not isinstance(body, Map):
        raise build.fail(line, f"the group '{name}' must be a mapping.", "It holds hosts, children and vars.")
    for key, value in body.items():
        at = body.line_of(key)
        if key not in GROUP_KEYS:
            raise build.fail(
                at, f"unknown key '{key}' in group '{name}'.", did_you_mean(str(key), GROUP_KEYS)
            )
        if value is None:
            continue
        if not isinstance(value, Map):
            raise build.fail(at, f"'{key}' of group '{name}' must be a mapping.", "Add a colon to each name.")
        if key == "vars":
            group.variables.update(value)
            group.lines.update(value.lines)
        elif key == "children":
            for child, inner in value.items():
                group.children[str(child)] = value.line_of(child)
                _yaml_group(build, str(child), inner, value.line_of(child))
        else:
            for pattern, variables in value.items():
                where = value.line_of(pattern)
                if variables is not None and not isinstance(variables, Map):
                    raise build.fail(where, f"the variables of host '{pattern}' must be a mapping.")
                for host in build.add_hosts(str(pattern), name, where):
                    host.variables.update(variables or {})
                    host.lines.update(variables.lines if variables else {})


def _ini(build: _Builder, text: str) -> None:
    section, kind = "ungrouped", ""
    for line, raw in enumerate(text.splitlines(), 1):
        written = raw.strip()
        if not written or written[0] in "#;":
            continue
        if written.startswith("["):
            match = _SECTION.match(written)
            if match is not None:
                section, kind = match[1].strip(), match[2] or ""
                if kind not in ("", "children", "vars"):
                    hint = did_you_mean(kind, ("children", "vars"))
                    raise build.fail(line, f"unknown section kind '{kind}'.", hint)
                build.group(section, line)
                continue
            if not _RANGE.match(written):
                raise build.fail(line, f"'{written}' is not a section.", "Write [group].")
        if kind == "vars":
            key, equals, value = written.partition("=")
            if not equals:
                raise build.fail(line, f"'{written}' sets nothing.", "Write name=value.")
            build.groups[section].variables[key.strip()] = _literal(value.strip())
            build.groups[section].lines[key.strip()] = line
            continue
        try:
            words = shlex.split(written, comments=True)
        except ValueError as problem:
            raise build.fail(line, f"{problem}.", "Close the quotation mark.") from None
        if kind == "children":
            build.group(words[0], line)
            build.groups[section].children[words[0]] = line
            continue
        hosts = build.add_hosts(words[0], section, line)
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals:
                raise build.fail(line, f"'{word}' after host '{words[0]}' sets nothing.", "Write name=value.")
            for host in hosts:
                host.variables[key] = _literal(value)
                host.lines[key] = line


def _literal(text: str) -> Any:
    """INI values are Python literals where they can be, else strings (Ansible's rule)."""
    try:
        return literal(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
