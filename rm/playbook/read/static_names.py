"""Templates in names of imports: evaluated while the playbook is read, before there are hosts."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play, Role, Task
from rm.playbook.module import Files
from rm.playbook.read.reader import Reader
from rm.playbook.template.template import NeedResult, Scope, Seek, evaluate, has_template
from rm.playbook.template.variables import ANSIBLE_VERSION, Given, HostState, layers_of
from rm.quick_dataclass import dataclass

_OF_HOSTS = ("groups", "hostvars", "group_names", "play_hosts", "environment", "role_names")


@dataclass(frozen=True, slots=True)
class Foreknown:
    """What is known before there are hosts: the variables of the command line, and `seek`, which makes the
    lookups that search these directories."""

    extra: Mapping[str, Any] = field(default_factory=dict)
    seek: Callable[[Sequence[str]], Seek] | None = None


@dataclass(slots=True)
class StaticNames:
    """The variables that names of imports may hold in one play: as in Ansible those of the play and of its
    vars_files, of roles, and of the command line."""

    files: Files
    directory: str
    known: Foreknown = field(default_factory=Foreknown)
    variables: Mapping[str, Any] = field(default_factory=dict)  # of the play, or beside an import
    vars_files: Sequence[Sequence[str]] = ()
    load: Callable[[str], Mapping[str, Any]] = lambda path: {}  # a file of variables
    roles: Callable[[], Sequence[Role]] = tuple  # those whose variables the play sees by now

    def evaluated(self, reader: Reader, value: Any, line: int, owner: str, task: Task) -> Any:
        """`value`, an argument of the import `owner`. Raises UsageError."""
        if not has_template(value):
            return value
        try:
            return evaluate(value, self._scope(task))
        except NeedResult as problem:
            why = f"{problem} is known only while the play runs"
        except TemplateProblem as problem:
            why = str(problem).rstrip(".")
        instead = "" if owner == "import_playbook" else f" Or use {owner.replace('import', 'include')}."
        instead = "" if not owner.startswith("import_") else instead
        hint = "It may hold variables of the play, its vars_files and roles, and those of -e." + instead
        raise reader.fail(line, f"'{owner}' depends on what is not known yet: {why}.", hint)

    def _scope(self, task: Task) -> Scope:
        play = Play("", "", 0, (), variables=self.variables, roles=tuple(self.roles()))
        role = [task.role.path] if task.role else []
        search = list(dict.fromkeys([*role, posixpath.dirname(task.file) or ".", self.directory]))
        seek = self.known.seek(search) if self.known.seek else None
        magic = {
            "playbook_dir": posixpath.abspath(self.directory),
            "ansible_playbook_python": sys.executable,
            "ansible_version": ANSIBLE_VERSION,
        }

        def scope(files: Mapping[str, Any]) -> Scope:
            given = Given(self.known.extra, magic, files)
            return Scope(layers_of(play, task, HostState("", {}), given, (), {}), _of_a_host, seek)

        return scope(self._files_of(scope({}))) if self.vars_files else scope({})

    def _files_of(self, scope: Scope) -> dict[str, Any]:
        """Of each entry of `vars_files` the first file that there is; as in Ansible without those whose name
        is not known yet."""
        merged: dict[str, Any] = {}
        for choices in self.vars_files:
            for choice in choices:
                try:
                    path = str(evaluate(choice, scope))
                except (TemplateProblem, NeedResult):
                    break
                if self.files.exists(path):
                    merged.update(self.load(path))
                    break
        return merged


def _of_a_host(name: str) -> bool:
    return name.startswith(("ansible_", "inventory_")) or name in _OF_HOSTS
