"""How one task gets to the host that does it: the variables and keywords that say so, evaluated.

As with Ansible a variable is stronger than a keyword, wherever it was set: play, block, task, role, file of
variables, include, set_fact. What the inventory or add_host says of a host is the runner's to look up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm.errors import UsageError
from rm.playbook.model.connection import (
    BECOME_PASSWORDS,
    CONNECTIONS,
    LOGIN_PASSWORDS,
    REACH,
    SSH_ARGS,
    refusal,
    settled,
)
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play, Task, tasks_of
from rm.playbook.model.ssh_arguments import outside_program
from rm.playbook.model.steps import Way
from rm.playbook.template.template import OMIT, Layer, Scope, evaluate, has_template
from rm.playbook.template.variables import HostState

IMPLICIT = ("localhost", "127.0.0.1", "::1")
_ASKED = frozenset((*REACH, *LOGIN_PASSWORDS, *BECOME_PASSWORDS))


def way_of(task: Task, scope: Scope, host: HostState, become: bool) -> Way:
    """`scope` is the task's for this host. Raises TemplateProblem or NeedResult."""
    own: dict[str, Layer] = {}
    for layer in scope.layers:
        if layer.values is host.inventory or layer.values is host.added or _ASKED.isdisjoint(layer.values):
            continue
        for name in _ASKED:
            if name in layer.values and name not in own:
                own[name] = layer
    if not own:
        return _of_keywords(task, host)
    found: dict[str, str] = {}
    for name in sorted(own, key=BECOME_PASSWORDS.__contains__):  # whether sudo is needed is known before
        if name in BECOME_PASSWORDS and not (become and _login(found, task, host) != "root"):
            continue
        value = evaluate("{{ " + name + " }}", scope)
        if value in (None, OMIT, ""):
            continue
        problem, hint = refusal(name, value)
        if problem:
            raise TemplateProblem(f"{problem} {hint}".rstrip("."))
        if name in SSH_ARGS:
            _check_arguments(name, value, own[name])
        found[name] = value if isinstance(value, str) else str(value)  # an Unsafe text remains one
    plain = settled(found)
    keywords = _of_keywords(task, host)
    connection = keywords.connection
    if "ansible_connection" in plain:
        connection = CONNECTIONS[plain.pop("ansible_connection")] or "auto"
    login = plain.pop("ansible_user", keywords.login)
    rest = {**plain, **{name: value for name, value in found.items() if name not in REACH}}
    return Way(login, connection, tuple(sorted(rest.items())))


def for_host(scope: Scope, host: HostState, other: HostState) -> Scope:
    """The scope of a task of `host` that `other` does: of what hosts have, the other's."""
    of: dict[int, Mapping[str, Any]] = {
        id(host.learnt): other.learnt,
        id(host.included): other.included,
        id(host.added): other.added,
        id(host.inventory): other.inventory,
        id(host.found): other.found,
    }
    layers = [Layer(of.get(id(layer.values), layer.values), layer.trusted) for layer in scope.layers]
    here = {"inventory_hostname": other.name, "inventory_hostname_short": other.name.partition(".")[0]}
    return Scope([Layer(here, False), *layers], scope.pending, scope.seek)


def _login(found: Mapping[str, str], task: Task, host: HostState) -> str:
    return str(settled(found).get("ansible_user") or _of_keywords(task, host).login or host.login)


def _of_keywords(task: Task, host: HostState) -> Way:
    given = {*host.inventory, *host.added} if task.connection or task.remote_user else set()
    implicit = host.name in IMPLICIT and host.inventory.get("ansible_connection") == "local"
    connection = "" if implicit or "ansible_connection" in given else task.connection or ""
    named = host.login_named or not given.isdisjoint(_LOGIN_ADDED & host.added.keys())
    return Way("" if named else task.remote_user or "", connection)


_LOGIN_ADDED = frozenset(("ansible_user", "ansible_ssh_user"))


def _check_arguments(name: str, value: Any, layer: Layer) -> None:
    """Options of ssh can run programs on this machine: no host's text becomes one."""
    if not layer.trusted:
        raise TemplateProblem(f"{name} comes from a task; write it in the inventory, the playbook or -e")
    if has_template(layer.values[name]) and (option := outside_program(str(value))):
        raise TemplateProblem(f"{name} is a template that gives '{option}'; write that option out")


def check_settings(play: Play) -> None:
    """What the text of a play already says that rm does not follow. Raises UsageError."""
    seen: set[int] = set()

    def look(values: Mapping[str, Any], file: str, line: int) -> None:
        if id(values) in seen:
            return
        seen.add(id(values))
        for name in values:
            if name.startswith("ansible_"):
                problem, hint = refusal(name, values[name])
                if problem:
                    raise UsageError(f"{file}:{line}: {problem}", hint)

    look(play.variables, play.file, play.line)
    for choices in play.files:
        if len(choices) == 1 and not has_template(choices[0]):
            look(play.shelf.variables(choices[0], play.line), choices[0], 1)
    for role in play.roles:
        for values in (role.variables, role.defaults, role.params):
            look(values, role.path, 1)
    for task in (*tasks_of(play.tasks), *play.handlers):
        look(task.variables, task.file, task.line)
        if task.module in ("set_fact", "add_host"):
            look(task.args, task.file, task.line)
