"""Playbook text to frozen plays and tasks; every unknown word is refused with file, line and a hint.

The whole file is checked before any host is touched: keywords, modules, their arguments, and each
template's syntax, filters and tests.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rm.errors import UsageError
from rm.playbook.located import Map, Seq, load, nearest
from rm.playbook.module import BadArgument, registry, typed
from rm.playbook.template import TemplateProblem, check, has_template

PLAY_KEYS = (
    "name", "hosts", "gather_facts", "become", "become_user", "become_method", "vars", "tasks", "handlers",
    "pre_tasks", "post_tasks", "serial", "tags", "environment", "any_errors_fatal", "ignore_errors",
)  # fmt: skip
TASK_KEYS = (
    "name", "when", "register", "loop", "loop_control", "with_items", "with_fileglob", "notify", "listen",
    "changed_when", "failed_when", "become", "become_user", "environment", "tags", "ignore_errors", "no_log",
    "vars", "args", "check_mode",
)  # fmt: skip
# Ansible's words that a later version will know: said as such, not as a spelling mistake
LATER = (
    "roles", "vars_files", "vars_prompt", "max_fail_percentage", "strategy", "block", "rescue", "always",
    "until", "retries", "delay", "delegate_to", "run_once", "async", "poll", "include_tasks", "import_tasks",
    "import_role", "include_role", "import_playbook", "include_vars", "delegate_facts", "throttle",
    "with_dict", "module_defaults", "collections", "remote_user", "connection", "diff", "action",
    "local_action", "include", "order", "debugger", "force_handlers", "port", "timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """One task or handler; conditions and arguments are still templates."""

    name: str
    module: str
    args: Mapping[str, Any]
    line: int
    when: tuple[str | bool, ...] = ()
    register: str = ""
    loop: Any = None
    loop_kind: str = ""  # "", "loop", "with_items", "with_fileglob"
    loop_var: str = "item"
    loop_label: str = ""
    index_var: str = ""
    notify: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    changed_when: tuple[str | bool, ...] | None = None
    failed_when: tuple[str | bool, ...] | None = None
    become: bool | str | None = None
    become_user: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    ignore_errors: bool = False
    no_log: bool = False
    check_mode: bool | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Play:
    """One play; `tasks` are pre_tasks, tasks and post_tasks, with a handler flush between."""

    name: str
    hosts: str
    line: int
    tasks: tuple[Task, ...]
    handlers: tuple[Task, ...] = ()
    gather_facts: bool = True
    become: bool | str = False
    become_user: str = "root"
    variables: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    serial: tuple[int | str, ...] = ()
    any_errors_fatal: bool = False


@dataclass(frozen=True, slots=True)
class Playbook:
    filename: str
    plays: tuple[Play, ...]


class _Reader:
    def __init__(self, filename: str) -> None:
        self.filename = filename

    def fail(self, line: int, what: str, hint: str = "") -> UsageError:
        return UsageError(f"{self.filename}:{line}: {what}", hint)

    def unknown(self, key: str, line: int, known: tuple[str, ...], owner: str) -> UsageError:
        if key in LATER:
            return self.fail(line, f"'{key}' is not supported.", f"A {owner} knows: {', '.join(known)}.")
        return self.fail(line, f"unknown keyword '{key}' in a {owner}.", nearest(key, known))

    def mapping(self, body: Map, key: str) -> Map:
        value = body.get(key)
        if value is None:
            return Map()
        if not isinstance(value, Map):
            raise self.fail(body.line_of(key), f"'{key}' must be a mapping.")
        self.templates(value, body.line_of(key))
        return value

    def words(self, body: Map, key: str) -> tuple[str, ...]:
        value = body.get(key, ())
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")] if key == "tags" else [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, (str, int)) for v in value):
            raise self.fail(body.line_of(key), f"'{key}' must be a name or a list of names.")
        return tuple(str(v) for v in value)

    def truth(self, body: Map, key: str, default: Any) -> Any:
        value = body.get(key, default)
        if value is not default and not isinstance(value, bool):
            raise self.fail(body.line_of(key), f"'{key}' must be true or false, not {value!r}.")
        return value

    def templates(self, value: Any, line: int) -> None:
        """Check every template in a value."""
        if isinstance(value, str):
            if "{{" in value or "{%" in value:
                try:
                    check(value)
                except TemplateProblem as problem:
                    raise self.fail(line, f"{problem}".rstrip(".") + ".") from None
        elif isinstance(value, dict):
            for key, inner in value.items():
                self.templates(inner, value.line_of(key) if isinstance(value, Map) else line)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                self.templates(inner, value.lines[i] if isinstance(value, Seq) else line)

    def conditions(self, body: Map, key: str) -> tuple[str | bool, ...]:
        value = body[key]
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                try:
                    check(one, expression=True)
                except TemplateProblem as problem:
                    hint = "A condition is written without {{ }}." if "{{" in one else ""
                    what = f"{problem}".rstrip(".") + "."
                    raise self.fail(body.line_of(key), what, hint) from None
            elif not isinstance(one, bool):
                raise self.fail(body.line_of(key), f"'{key}' must be an expression, not {one!r}.")
        return tuple(value) if isinstance(value, list) else (value,)

    # -- plays ---------------------------------------------------------------------------------

    def playbook(self, document: Any) -> Playbook:
        if not isinstance(document, Seq):
            raise self.fail(1, "a playbook is a list of plays.", "Start with '- hosts: all'.")
        plays = [self.play(body, document.lines[i]) for i, body in enumerate(document)]
        return Playbook(self.filename, tuple(plays))

    def play(self, body: Any, line: int) -> Play:
        if not isinstance(body, Map):
            raise self.fail(line, "a play is a mapping.", "Write 'hosts:' and 'tasks:'.")
        for key in body:
            if key not in PLAY_KEYS:
                raise self.unknown(str(key), body.line_of(key), PLAY_KEYS, "play")
        if "hosts" not in body:
            raise self.fail(line, "the play does not say which hosts.", "Add 'hosts: all'.")
        hosts = body["hosts"]
        hosts = ",".join(map(str, hosts)) if isinstance(hosts, list) else str(hosts)
        inherited = self.words(body, "tags")
        tasks: list[Task] = []
        for key in ("pre_tasks", "tasks", "post_tasks"):
            part = self.tasks(body, key, inherited)
            if part and tasks:
                tasks.append(
                    Task("flush handlers", "meta", {"_raw": "flush_handlers"}, line, tags=("always",))
                )
            tasks += part
        serial = body.get("serial", ())
        self.templates(hosts, body.line_of("hosts"))
        ignore = self.truth(body, "ignore_errors", False)
        if ignore:
            raise self.fail(body.line_of("ignore_errors"), "'ignore_errors' belongs to a task.")
        return Play(
            name=str(body.get("name", hosts)),
            hosts=hosts,
            line=line,
            tasks=tuple(tasks),
            handlers=tuple(self.tasks(body, "handlers", inherited)),
            gather_facts=self.truth(body, "gather_facts", True),
            become=self.truth(body, "become", False),
            become_user=str(body.get("become_user", "root")),
            variables=self.mapping(body, "vars"),
            environment=self.mapping(body, "environment"),
            serial=tuple(serial) if isinstance(serial, (list, tuple)) else (serial,),
            any_errors_fatal=self.truth(body, "any_errors_fatal", False),
        )

    def tasks(self, body: Map, key: str, tags: tuple[str, ...]) -> list[Task]:
        value = body.get(key)
        if value is None:
            return []
        if not isinstance(value, Seq):
            raise self.fail(body.line_of(key), f"'{key}' must be a list of tasks.", "Start each with '- '.")
        return [self.task(one, value.lines[i], tags) for i, one in enumerate(value)]

    # -- tasks ---------------------------------------------------------------------------------

    def task(self, body: Any, line: int, inherited: tuple[str, ...]) -> Task:
        if not isinstance(body, Map):
            raise self.fail(line, "a task is a mapping.", "Write the module's name and a colon.")
        modules = registry()
        named = [k for k in body if k in modules]
        for key in body:
            if key not in TASK_KEYS and key not in modules:
                self.refuse(str(key), body.line_of(key), bool(named))
        if len(named) != 1:
            what = f"two modules, '{named[0]}' and '{named[1]}', in one task." if named else "no module."
            raise self.fail(line, f"the task has {what}", "A task calls exactly one module.")
        name = named[0]
        args = self.arguments(name, modules[name], body)
        kinds = [k for k in ("loop", "with_items", "with_fileglob") if k in body]
        if len(kinds) > 1:
            raise self.fail(line, f"the task has both '{kinds[0]}' and '{kinds[1]}'.", "Keep one.")
        control = self.mapping(body, "loop_control")
        for key in control:
            if key not in ("loop_var", "label", "index_var", "pause", "extended"):
                hint = nearest(str(key), ("loop_var", "label", "index_var"))
                raise self.fail(control.line_of(key), f"unknown key '{key}' in loop_control.", hint)
        if kinds:
            self.templates(body[kinds[0]], body.line_of(kinds[0]))
        for key in ("name", "become_user"):
            self.templates(body.get(key), body.line_of(key))
        register = body.get("register", "")
        if register and not str(register).isidentifier():
            raise self.fail(body.line_of("register"), f"'{register}' is not a variable's name.")
        return Task(
            name=str(body.get("name") or name),
            module=name.rpartition(".")[2],
            args=args,
            line=line,
            when=self.conditions(body, "when") if "when" in body else (),
            register=str(register),
            loop=body[kinds[0]] if kinds else None,
            loop_kind=kinds[0] if kinds else "",
            loop_var=str(control.get("loop_var", "item")),
            loop_label=str(control.get("label", "")),
            index_var=str(control.get("index_var", "")),
            notify=self.words(body, "notify"),
            listen=self.words(body, "listen"),
            changed_when=self.conditions(body, "changed_when") if "changed_when" in body else None,
            failed_when=self.conditions(body, "failed_when") if "failed_when" in body else None,
            become=self.truth(body, "become", None),
            become_user=str(body["become_user"]) if "become_user" in body else None,
            environment=self.mapping(body, "environment"),
            tags=(*inherited, *self.words(body, "tags")),
            ignore_errors=self.truth(body, "ignore_errors", False),
            no_log=self.truth(body, "no_log", False),
            check_mode=self.truth(body, "check_mode", None),
            variables=self.mapping(body, "vars"),
        )

    def refuse(self, key: str, line: int, has_module: bool) -> None:
        if key in LATER:
            raise self.fail(line, f"'{key}' is not supported.", f"Modules: {_module_names()}.")
        if has_module:
            raise self.unknown(key, line, TASK_KEYS, "task")
        near = nearest(key, (*registry(), *TASK_KEYS))
        hint = near if "mean" in near else f"Modules: {_module_names()}."
        raise self.fail(line, f"unknown module or keyword '{key}'.", hint)

    def arguments(self, name: str, module: ModuleType, body: Map) -> Mapping[str, Any]:
        value, line = body[name], body.line_of(name)
        free = getattr(module, "FREE_FORM", "")
        if value is None:
            given = Map()
        elif isinstance(value, Map):
            given = value
        elif free and isinstance(value, (str, int)):
            given = Map({free: str(value)})
        elif isinstance(value, str) and "=" in value:
            try:
                pairs = [word.partition("=") for word in shlex.split(value)]
            except ValueError as problem:
                raise self.fail(line, f"the arguments of '{name}' cannot be read: {problem}.") from None
            given = Map({k: v for k, _, v in pairs})
        else:
            raise self.fail(line, f"the arguments of '{name}' must be a mapping, not {value!r}.")
        extra = self.mapping(body, "args")
        known = {n: arg for n, arg in module.ARGS.items() if not n.startswith("_")}
        names = {a for n, arg in known.items() for a in (n, *arg.aliases)}
        for source in (given, extra):
            for key in source:
                if key not in names and key != free and not getattr(module, "ANY_ARGUMENT", False):
                    at = getattr(source, "lines", {}).get(key, line)
                    raise self.fail(at, f"'{name}' has no argument '{key}'.", nearest(str(key), names))
        merged = {**extra, **given}
        for n, arg in module.ARGS.items():
            if arg.required and not any(a in merged for a in (n, *arg.aliases)):
                raise self.fail(line, f"'{name}' needs the argument '{n.lstrip('_')}'.")
        expressions = getattr(module, "EXPRESSIONS", ())
        for key, item in merged.items():
            if key in expressions:
                self.conditions(given if key in given else extra, key)
            else:
                at = getattr(given if key in given else extra, "lines", {}).get(key, line)
                self.templates(item, at)
        if not any(has_template(item) for item in merged.values()):
            try:
                typed(module, merged)
            except BadArgument as problem:
                raise self.fail(line, f"{name}: {problem}.") from None
        return merged


def _module_names() -> str:
    return ", ".join(sorted(name for name in registry() if "." not in name))


def parse_playbook(text: str, filename: str) -> Playbook:
    """A playbook from its text; raises UsageError with file, line and what to do."""
    return _Reader(filename).playbook(load(text, filename))
