"""The variables that a task of a host sees, where its local files are looked for, what is still to come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rm.playbook.model.connection import is_reserved
from rm.playbook.model.flow import Frame, Position
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play, Role, Task
from rm.playbook.model.steps import Way
from rm.playbook.module import CompileContext, Files
from rm.playbook.run.crew import Crew, Options
from rm.playbook.run.lookups import seeker
from rm.playbook.run.reach import IMPLICIT, for_host, way_of
from rm.playbook.template.template import PENDING, NeedResult, Scope, evaluate
from rm.playbook.template.variables import Active, Given, HostState, HostVars, layers_of


class Scoping:
    """Makes scopes for one host in one play. `foreseen` are variables that tasks of the running batch will
    set; `pending_facts`: facts are being gathered."""

    def __init__(self, play: Play, host: HostState, files: Files, options: Options, crew: Crew) -> None:
        self.play, self.host, self.files, self.options, self.crew = play, host, files, options, crew
        self.foreseen: dict[str, Any] = {}
        self.pending_facts = False
        self.looked = False  # at the variables of another host, since somebody asked
        self.roles: list[Role] = []  # included ones whose variables the rest of the play sees

    def gathering(self) -> None:
        """The host is asked for its facts: nobody may look at those of before."""
        self.pending_facts = True
        self.foreseen.update(dict.fromkeys(("ansible_facts", *self.host.injected()), PENDING))

    def settled(self) -> None:
        """All answers are there: nothing is to come any more. The scopes of the tasks that gave them hold the
        same mapping: `changed_when` looks at what earlier tasks registered."""
        self.foreseen.clear()
        self.pending_facts = False

    def magic(self) -> dict[str, Any]:
        host = self.host
        return {
            **self.options.magic,
            "inventory_hostname": host.name,
            "inventory_hostname_short": host.name.partition(".")[0],
            "ansible_check_mode": self.options.check,
            "playbook_dir": self.options.directory,
            "ansible_play_name": self.play.name,
        }

    def plain(self) -> Scope:
        late = Active({}, frozenset, self.options.late)
        given = Given(self.options.extra, self.magic(), {}, late, self.options.prompted, self.roles)
        return Scope(layers_of(self.play, None, self.host, given, (), {}))

    def scope(self, task: Task, frame: Frame | None) -> Scope:
        where = frame.position if frame is not None else ()
        seek = seeker(self.files, self.search(task), self.options.control)
        magic = self.magic()

        def behind(name: str) -> bool:
            self.looked = self.looked or name != self.host.name
            return self.crew.behind(name, where)

        shared = {k: v for k, v in self.options.magic.items() if k in ("groups", "inventory_dir")}
        magic["hostvars"] = HostVars(self.crew.states, shared, behind, seek, self.options.extra)
        active = Active(self.options.active, lambda: self._alive(where), self.options.late)
        given = Given(self.options.extra, magic, {}, active, self.options.prompted, self.roles)
        bound = frame.bound if frame is not None else ()
        pending = self.pending_facts

        def to_come(name: str) -> bool:
            return pending and _may_be_fact(name)

        last = _connection(self.play, self.host, task)
        scope = Scope(layers_of(self.play, task, self.host, given, bound, self.foreseen), to_come, seek, last)
        if self.play.files:
            files = self._vars_files(scope)
            given = replace(given, files=files)
            layers = layers_of(self.play, task, self.host, given, bound, self.foreseen)
            scope = Scope(layers, to_come, seek, last)
        return scope

    def way(self, task: Task, scope: Scope, target: str, become: bool) -> Way:
        """How this task gets to `target` ("" = this host). Raises TemplateProblem or NeedResult."""
        if not target or target == self.host.name:
            return way_of(task, scope, self.host, become)
        other = self.crew.states.get(target)
        if other is None:
            other = HostState(target, {"ansible_connection": "local"} if target in IMPLICIT else {})
        return way_of(task, for_host(scope, self.host, other), other, become)

    def _alive(self, where: Position) -> frozenset[str]:
        if not self.crew.reached(self.host.name, where):
            raise NeedResult("ansible_play_hosts")
        return frozenset(n for n, one in self.crew.states.items() if not one.out and not one.ended)

    def _vars_files(self, scope: Scope) -> dict[str, Any]:
        """`vars_files`: of each entry the first file that exists; names that need unknown facts are left."""
        merged: dict[str, Any] = {}
        for choices in self.play.files:
            for choice in choices:
                try:
                    path = str(evaluate(choice, scope))
                except (TemplateProblem, NeedResult):
                    continue
                if self.files.exists(path):
                    merged.update(self.play.shelf.variables(path, self.play.line))
                    break
        return merged

    def search(self, task: Task) -> tuple[str, ...]:
        places = [self.options.directory]
        if task.role is not None:
            places.insert(0, task.role.path)
        beside = task.file.rpartition("/")[0]
        if beside and beside not in places:
            places.insert(1 if task.role else 0, beside)
        return tuple(places)

    def context(self, task: Task, scope: Scope) -> CompileContext:
        given = self.options
        return CompileContext(scope, self.files, given.directory, self.search(task), task, given.become,
                              given.become_user)  # fmt: skip


def _may_be_fact(name: str) -> bool:
    return name.startswith("ansible_") and not is_reserved(name)


_LOCAL, _SSH = {"ansible_connection": "local"}, {"ansible_connection": "ssh"}
_SAID: dict[str, Any] = {}  # somebody says it


def _connection(play: Play, host: HostState, task: Task) -> dict[str, Any]:
    """`ansible_connection`, which nobody has to set."""
    if "ansible_connection" in host.inventory or "ansible_connection" in host.added:
        return _SAID
    here = task.connection == "local" or task.delegate_to in IMPLICIT
    return _LOCAL if here or play.common.connection == "local" else _SSH
