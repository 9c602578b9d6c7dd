"""Lists of tasks to tasks and blocks: keywords, what blocks hand down, imports and includes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from rm.compiled_later import compiled_later
from rm.hints import did_you_mean, nearest
from rm.playbook.model.connection import CONNECTIONS, SUDO
from rm.playbook.model.keywords import (
    BLOCK_KEYS,
    COMMON_KEYS,
    DYNAMIC_INCLUDES,
    INCLUDE_FILE_ARGS,
    INCLUDE_KEYS,
    INCLUDE_ROLE_ARGS,
    INCLUDES,
    LATER,
    LOOP_CONTROL_KEYS,
    WITHOUT_ASYNC,
    short,
)  # fmt: skip
from rm.playbook.model.located import Map, Seq
from rm.playbook.model.schema import Block, Loop, Node, Task
from rm.playbook.modules import called, executor_of, registry
from rm.playbook.read.own import CannotRun, defaults_name
from rm.playbook.read.read_arguments import arguments, module_names
from rm.playbook.read.reader import Reader
from rm.playbook.read.task_keys import TASK_KEYS, is_loop
from rm.playbook.read.words import key_values
from rm.playbook.template.template import has_template


class Library(Protocol):
    """Where imported files and roles come from; `rm/playbook/read/parse.py` has the one there is."""

    def tasks_file(self, reader: Reader, name: str, line: int, around: Task) -> tuple[Node, ...]: ...
    def imported_role(
        self, reader: Reader, given: Mapping[str, Any], line: int, around: Task
    ) -> tuple[Node, ...]: ...
    def known_now(self, reader: Reader, given: Any, line: int, owner: str, around: Task) -> Any:
        """The arguments of the import `owner` without templates."""
        ...

    def with_own_module(self, reader: Reader, body: Map, around: Task) -> Map:
        """The task with a module that is not rm's under the registry's name of it."""
        ...

    def own_name(self, reader: Reader, written: str, line: int, around: Task) -> str:
        """The registry's name of a module that is called `written` here; "" where nobody knows one."""
        ...

    def foresee(self, reader: Reader, task: Task) -> None:
        """Check what a dynamic include may bring, as far as its name is known."""
        ...


def common(reader: Reader, body: Map, around: Task, library: Library | None = None) -> dict[str, Any]:
    """The keywords that blocks hand down, of `body` on top of those around it."""
    method = body.get("become_method", around.become_method)
    if method not in SUDO and not has_template(method):
        raise reader.fail(body.line_of("become_method"), f"the become_method '{method}' is not supported.",
                          "Only sudo is.")  # fmt: skip
    connection = body.get("connection", around.connection)
    if connection is not None and connection not in CONNECTIONS:
        raise reader.fail(body.line_of("connection"), f"the connection '{connection}' is not supported.",
                          "Known: ssh, local.")  # fmt: skip
    return {
        "when": (*around.when, *(reader.conditions(body, "when") if "when" in body else ())),
        "become": reader.truth(body, "become", around.become),
        "become_user": reader.text(body, "become_user", around.become_user),
        "become_method": reader.text(body, "become_method", around.become_method),
        "environment": (*around.environment, *reader.environment(body)),
        "tags": (*around.tags, *reader.words(body, "tags")),
        "ignore_errors": reader.truth(body, "ignore_errors", around.ignore_errors),
        "ignore_unreachable": reader.truth(body, "ignore_unreachable", around.ignore_unreachable),
        "no_log": reader.truth(body, "no_log", around.no_log),
        "check_mode": reader.truth(body, "check_mode", around.check_mode),
        "diff": reader.truth(body, "diff", around.diff),
        "delegate_to": reader.text(body, "delegate_to", around.delegate_to),
        "delegate_facts": reader.truth(body, "delegate_facts", around.delegate_facts),
        "run_once": reader.truth(body, "run_once", around.run_once),
        "any_errors_fatal": reader.truth(body, "any_errors_fatal", around.any_errors_fatal),
        "throttle": reader.number(body, "throttle", around.throttle),
        "remote_user": reader.text(body, "remote_user", around.remote_user),
        "timeout": reader.number(body, "timeout", around.timeout),
        "collections": reader.words(body, "collections") if "collections" in body else around.collections,
        "connection": CONNECTIONS[connection] if connection is not None else None,
        "variables": {**around.variables, **reader.mapping(body, "vars")},
        "defaults": {**around.defaults, **_defaults(reader, body, around, library)},
    }


def _defaults(reader: Reader, body: Map, around: Task, library: Library | None) -> dict[str, Any]:
    """`module_defaults` by what `defaults_name` says of their modules, of `library/` and collections, too."""
    found = {}
    defaults = reader.mapping(body, "module_defaults")
    for name, value in defaults.items():
        written, line = str(name), defaults.line_of(name)
        known = library.own_name(reader, written, line, around) if library else short(written)
        if known not in registry():
            raise reader.fail(line, f"unknown module '{name}'.", did_you_mean(name, registry().shipped()))
        found[defaults_name(known)] = value or {}
    return found


def read_tasks(
    reader: Reader, body: Map, key: str, around: Task, library: Library, handler: bool = False
) -> tuple[Node, ...]:
    """The tasks and blocks of `body[key]`."""
    value = body.get(key)
    if value is None:
        return ()
    if not isinstance(value, Seq):
        raise reader.fail(body.line_of(key), f"'{key}' must be a list of tasks.", "Start each with '- '.")
    return read_list(reader, value, around, library, handler)


def read_list(
    reader: Reader, value: Seq, around: Task, library: Library, handler: bool = False
) -> tuple[Node, ...]:
    found: list[Node] = []
    for i, one in enumerate(value):
        line = value.lines[i]
        if not isinstance(one, Map):
            reader.complain(line, "a task is a mapping.", "Write the module's name and a colon.")
            continue
        with reader.going_on():
            if "block" in one:
                found.append(_block(reader, one, line, around, library, handler))
            else:
                found += _task(reader, one, line, around, library, handler)
    return tuple(found)


def _block(reader: Reader, body: Map, line: int, around: Task, library: Library, handler: bool) -> Block:
    reader.known(body, BLOCK_KEYS, "block")
    fields = reader.attempt(lambda: common(reader, body, around, library), common(reader, Map(), around))
    inner = replace(around, **fields, notify=(*around.notify, *reader.words(body, "notify")))
    block, rescue, always = (
        read_tasks(reader, body, key, inner, library, handler) for key in ("block", "rescue", "always")
    )
    return Block(str(body.get("name") or ""), line, block, rescue, always)


def _task(
    reader: Reader, body: Map, line: int, around: Task, library: Library, handler: bool
) -> tuple[Node, ...]:
    body = _without_action(reader, body)
    try:
        body = library.with_own_module(reader, body, around)
    except CannotRun as problem:
        return _unknown(reader, body, line, around, library, problem.module, handler, problem.why)
    modules = registry()
    named = [k for k in body if k in modules or short(str(k)) in modules or short(str(k)) in INCLUDES]
    others = [k for k in body if k not in TASK_KEYS and k not in named and not is_loop(str(k), reader.own)]
    if not named and len(others) == 1 and others[0] not in LATER and _IS_MODULE.fullmatch(str(others[0])):
        return _unknown(reader, body, line, around, library, str(others[0]), handler)
    for key in others:
        with reader.going_on():
            _refuse(reader, str(key), body.line_of(key), bool(named))
    if not named and others:
        return ()
    if len(named) != 1:
        both = [called(str(one)) for one in named]
        what = f"two modules, '{both[0]}' and '{both[1]}', in one task." if named else "no module."
        raise reader.fail(line, f"the task has {what}", "A task calls exactly one module.")
    written = named[0]
    name = short(str(written))
    fields = reader.attempt(lambda: common(reader, body, around, library), common(reader, Map(), around))
    if name in INCLUDES:
        return _include(reader, body, line, around, library, fields, name, str(written), handler)
    patience, background = reader.number(body, "async", 0), 0
    if body.get("poll") in (0, "0"):
        patience, background = 0, patience
    own = modules.get(str(written)) or modules[name]
    shown = called(name)
    control = getattr(own, "CONTROL", False) or executor_of(own) == "note"
    for key, given in (("async", background or patience), ("timeout", body.get("timeout"))):
        # whether a template is more than 0 is known when the task is reached
        ansibles = key == "async" and name in WITHOUT_ASYNC and isinstance(given, (int, float))
        if given and (control or ansibles):
            raise reader.fail(
                body.line_of(key), f"'{key}' is not possible with '{shown}'.", f"Leave '{key}' out."
            )
    usual = fields["defaults"].get(defaults_name(str(written)), {})
    register = body.get("register") or ""
    if register and not str(register).isidentifier():
        raise reader.fail(body.line_of("register"), f"'{register}' is not a variable's name.")
    task = replace(
        around,
        **fields,
        name=str(reader.text(body, "name") or shown),
        module=name,
        args=reader.attempt(lambda: arguments(reader, shown, own, body, str(written), usual), {}),
        line=line,
        file=reader.filename,
        register=str(register),
        loop=reader.attempt(lambda: _loop(reader, body, line), None),
        notify=(*around.notify, *reader.words(body, "notify")),
        listen=reader.words(body, "listen"),
        changed_when=reader.conditions(body, "changed_when") if "changed_when" in body else None,
        failed_when=reader.conditions(body, "failed_when") if "failed_when" in body else None,
        until=reader.conditions(body, "until") if "until" in body else None,
        retries=reader.number(body, "retries", None),
        delay=reader.number(body, "delay", 5),
        background=background,
        patience=patience,
        handler=handler,
    )
    return (task,)


_IS_MODULE = compiled_later(r"[a-z_][a-z0-9_]*(\.[a-z0-9_]+)*", re.IGNORECASE)


def _unknown(
    reader: Reader, body: Map, line: int, around: Task, library: Library, module: str, handler: bool,
    why: str = "",
) -> tuple[Node, ...]:  # fmt: skip
    """A task of a module that rm does not know, or does not run, as `why` says: it may never be reached, on
    this distribution for one."""
    near = nearest(module, (*registry().shipped(), *TASK_KEYS, *INCLUDES, "block"))
    hint = f"Did you mean '{near}'?" if near else "See the list of modules in docs/playbooks.md."
    said, hint = (why, "") if why else (f"unknown module '{module}'.", hint)
    reader.note(body.line_of(module), said, hint)
    task = replace(
        around,
        **common(reader, body, around, library),
        name=str(reader.text(body, "name") or module),
        module=module,
        args={},
        line=line,
        file=reader.filename,
        register=str(body.get("register") or ""),
        loop=_loop(reader, body, line),
        notify=(*around.notify, *reader.words(body, "notify")),
        listen=reader.words(body, "listen"),
        handler=handler,
        unknown=f"{said} {hint}".rstrip(),
    )
    return (task,)


def _without_action(reader: Reader, body: Map) -> Map:
    """`action: copy src=a dest=b` and `local_action: …` as the tasks they mean."""
    key = next((k for k in ("action", "local_action") if k in body), "")
    if not key:
        return body
    value, line = body[key], body.line_of(key)
    rest: Map | str | None
    if isinstance(value, Map) and isinstance(value.get("module"), str):
        module, rest = value["module"], Map({k: v for k, v in value.items() if k != "module"})
        rest.line, rest.lines = value.line, value.lines
    elif isinstance(value, str) and value.strip():
        module, _, said = value.strip().partition(" ")
        rest = said or None
    else:
        raise reader.fail(line, f"'{key}' must name a module and its arguments.")
    found = Map({k: v for k, v in body.items() if k != key})
    found.line, found.lines = body.line, {**body.lines, module: line}
    found[module] = rest
    if key == "local_action":
        found["delegate_to"] = "localhost"
    return found


def _loop(reader: Reader, body: Map, line: int) -> Loop | None:
    kinds = [k for k in body if is_loop(str(k), reader.own)]
    control = reader.mapping(body, "loop_control")
    for key in control:
        if key not in LOOP_CONTROL_KEYS:
            hint = did_you_mean(str(key), LOOP_CONTROL_KEYS)
            raise reader.fail(control.line_of(key), f"unknown key '{key}' in loop_control.", hint)
    if not kinds:
        return None
    if len(kinds) > 1:
        raise reader.fail(line, f"the task has both '{kinds[0]}' and '{kinds[1]}'.", "Keep one.")
    reader.templates(body[kinds[0]], body.line_of(kinds[0]))
    var, index = str(control.get("loop_var", "item")), str(control.get("index_var", ""))
    for name in (var, *([index] if index else [])):
        if not name.isidentifier() and not has_template(name):
            raise reader.fail(control.line, f"'{name}' is not a variable's name.")
    return Loop(
        kind=kinds[0],
        values=body[kinds[0]],
        var=var,
        label=control.get("label"),
        index_var=index,
        pause=control.get("pause", 0),
        extended=bool(reader.truth(control, "extended", False)),
        allitems=bool(reader.truth(control, "extended_allitems", True)),
        break_when=reader.conditions(control, "break_when") if "break_when" in control else (),
    )


def _include(
    reader: Reader,
    body: Map,
    line: int,
    around: Task,
    library: Library,
    fields: dict[str, Any],
    name: str,
    written: str,
    handler: bool,
) -> tuple[Node, ...]:
    is_role = name.endswith("role")
    known = INCLUDE_ROLE_ARGS if is_role else INCLUDE_FILE_ARGS
    value, where = body[written], body.line_of(written)
    if isinstance(value, str):
        if is_role or value.startswith("file="):
            try:
                value = Map(key_values(value))
            except ValueError as problem:
                raise reader.fail(where, f"the arguments of '{name}' cannot be read: {problem}.") from None
        else:
            value = Map({"file": value})
    if not isinstance(value, Map):
        raise reader.fail(where, f"the arguments of '{name}' must be a mapping, not {value!r}.")
    given = Map({**reader.mapping(body, "args"), **value})
    if is_role and "role" in given:  # its other name
        given = Map({"name": given["role"], **{key: given[key] for key in given if key != "role"}})
    for key in given:
        if key not in known:
            raise reader.fail(where, f"'{name}' has no argument '{key}'.", did_you_mean(str(key), known))
    needed = "name" if is_role else "file"
    if not isinstance(given.get(needed), str):
        raise reader.fail(where, f"'{name}' needs the argument '{needed}'.")
    reader.templates(dict(given), where)
    if reader.truth(given, "allow_duplicates", True) is not True:
        what = f"'allow_duplicates' of '{name}' is always true: the role runs again."
        raise reader.fail(where, what, "List it in 'roles:', where a role runs once, or write a condition.")
    own = reader.mapping(body, "vars")
    if name in DYNAMIC_INCLUDES:
        _of_the_include(reader, body, name, written, handler)
        # what is written on the include is about the include itself; `apply` and the blocks around go inside
        task = replace(
            around,
            **{**fields, "variables": {**around.variables, **own}},
            name=str(reader.text(body, "name") or (f"{name} : {given['name']}" if is_role else name)),
            module=name,
            args=given,
            line=line,
            file=reader.filename,
            register=str(body.get("register") or ""),
            loop=_loop(reader, body, line),
            outer=around,
            apply=given.get("apply"),
        )
        library.foresee(reader, task)
        return (task,)
    loop = next((key for key in body if is_loop(str(key), reader.own)), "")
    if loop:
        raise reader.fail(body.line_of(loop), f"'{name}' cannot loop.", f"Use include_{name[7:]}.")
    inner = replace(around, **fields)
    given = library.known_now(reader, given, where, name, inner)
    if is_role:
        return library.imported_role(reader, given, line, inner)
    return library.tasks_file(reader, str(given["file"]), line, inner)


def _of_the_include(reader: Reader, body: Map, name: str, written: str, handler: bool) -> None:
    """Complains of keywords of a dynamic include that would be without effect."""
    known = (written, *INCLUDE_KEYS, *(("listen",) if handler else ()))
    for key in body:
        if key in known or is_loop(str(key), reader.own):
            continue
        hint = f"Use import_{name[8:]}, or write it in the tasks inside."
        if key in (*COMMON_KEYS, "notify"):
            hint = "Write it below 'apply', which gives it to the tasks inside, or on a block around."
        reader.complain(body.line_of(key), f"'{name}' has no keyword '{key}'.", hint)


def include_context(task: Task, apply: Map | None, reader: Reader, library: Library) -> Task:
    """What the tasks of a dynamic include inherit."""
    assert task.outer is not None
    outer = task.outer
    if apply is not None:
        notify = (*outer.notify, *reader.words(apply, "notify"))
        outer = replace(outer, **common(reader, apply, outer, library), notify=notify)
    return outer


def _refuse(reader: Reader, key: str, line: int, has_module: bool) -> None:
    if key in LATER:
        hint = LATER[key] or f"A task knows: {', '.join(TASK_KEYS)}."
        raise reader.fail(line, f"'{key}' is not supported.", hint)
    if has_module:
        raise reader.fail(line, f"unknown keyword '{key}' in a task.", did_you_mean(key, TASK_KEYS))
    near = nearest(key, (*registry().shipped(), *TASK_KEYS, *INCLUDES, "block"))
    hint = f"Did you mean '{near}'?" if near else f"Modules: {module_names()}."
    raise reader.fail(line, f"unknown module or keyword '{key}'.", hint)


def beside(file: str, name: str) -> str:
    """A path relative to the directory of a file."""
    return (
        name if posixpath.isabs(name) else posixpath.normpath(posixpath.join(posixpath.dirname(file), name))
    )
