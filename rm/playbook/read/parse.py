"""Playbook text to frozen plays; every unknown word is refused with file, line and a hint.

The whole playbook is checked before any host is touched, with every file and role that it names
outright: keywords, modules, their arguments, and each template's syntax, filters and tests.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.playbook.model.hashes import HASHES
from rm.playbook.model.keywords import PLAY_KEYS, short
from rm.playbook.model.located import Map, Seq, load
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import (
    Node,
    Play,
    Playbook,
    PlayDefaults,
    Prompt,
    Role,
    Task,
    Unheard,
    tasks_of,
)  # fmt: skip
from rm.playbook.module import CompileContext, Files, typed
from rm.playbook.modules import registry
from rm.playbook.own.plugins import own_of
from rm.playbook.read.own import learn
from rm.playbook.read.read_tasks import beside, common, read_tasks
from rm.playbook.read.reader import Reader
from rm.playbook.read.roles import (
    load_mapping,
)  # fmt: skip
from rm.playbook.read.shelf import Shelf
from rm.playbook.read.static_names import Foreknown, StaticNames
from rm.playbook.template.template import Scope, has_template

_IMPORT = ("import_playbook", "ansible.builtin.import_playbook", "ansible.legacy.import_playbook")


class NoFiles:
    """For a playbook that stands alone."""

    decrypt = None

    def read(self, path: str, decrypt: bool = True) -> bytes:
        raise BadArgument(f"the local file {path} cannot be read")

    def glob(self, pattern: str) -> list[str]:
        return []

    def exists(self, path: str) -> bool:
        return False

    def tree(self, path: str, follow: bool) -> tuple[list[str], list[str], dict[str, str]]:
        return [], [], {}

    def mode(self, path: str) -> int:
        return 0

    def about(self, path: str) -> tuple[str, str, datetime]:
        return path, "", datetime(1970, 1, 1)


# -- plays ---------------------------------------------------------------------------------------


class _Plays:
    def __init__(self, files: Files, known: Foreknown, top: str) -> None:
        self.files, self.known = files, known
        self.directory = posixpath.dirname(top) or "."
        self.open: list[str] = []

    def playbook(self, reader: Reader, text: str, variables: Mapping[str, Any] | None = None) -> list[Play]:
        """`variables`: of the import that brings it."""
        document = load(text, reader.filename, decrypt=getattr(self.files, "decrypt", None))
        if not isinstance(document, Seq):
            raise reader.fail(1, "a playbook is a list of plays.", "Start with '- hosts: all'.")
        if reader.filename in self.open:
            raise reader.fail(1, f"the playbooks {' > '.join([*self.open, reader.filename])} form a loop.")
        self.open.append(reader.filename)
        plays: list[Play] = []
        for i, body in enumerate(document):
            line = document.lines[i]
            if not isinstance(body, Map):
                reader.complain(line, "a play is a mapping.", "Write 'hosts:' and 'tasks:'.")
                continue
            key = next((k for k in _IMPORT if k in body), "")
            with reader.going_on():
                if key:
                    plays += self.imported(reader, body, line, key)
                else:
                    plays.append(self.play(reader, body, line, variables or {}))
        self.open.pop()
        return plays

    def imported(self, reader: Reader, body: Map, line: int, key: str) -> list[Play]:
        reader.known(body, (*_IMPORT, "name", "when", "tags", "vars"), "playbook import")
        own = reader.mapping(body, "vars")
        names = StaticNames(self.files, self.directory, self.known, own)
        said = reader.text(body, key) or ""
        name = str(names.evaluated(reader, said, line, "import_playbook", Task("", "", {}, line)))
        path = beside(reader.filename, name)
        try:
            text = self.files.read(path).decode()
        except (BadArgument, UnicodeDecodeError) as problem:
            raise reader.fail(line, f"{problem}.", "Give the path of a YAML file.") from None
        around = common(reader, body, Task("", "", {}, line))
        plays = self.playbook(reader.of(path), text, own)
        return [_imported(play, around) for play in plays]

    def play(self, reader: Reader, body: Map, line: int, imported: Mapping[str, Any]) -> Play:
        learn(reader, self.files, posixpath.dirname(reader.filename) or ".", line)
        reader.known(body, PLAY_KEYS, "play")
        if body.get("hosts") is None:
            reader.complain(line, "the play does not say which hosts.", "Add 'hosts: all'.")
        hosts = body.get("hosts") or "all"
        hosts = ",".join(map(str, hosts)) if isinstance(hosts, list) else str(hosts)
        reader.templates(hosts, body.line_of("hosts"))
        plain = Task("", "", {}, line)
        directory = posixpath.dirname(reader.filename) or "."
        shelf = Shelf(self.files, directory, (reader.filename, line), reader.found, self.known)
        shared = reader.attempt(lambda: common(reader, body, plain, shelf), common(reader, Map(), plain))
        variables = shared.pop("variables")
        default: PlayDefaults = getattr(self.files, "play_defaults", PlayDefaults())
        if "user" in body:  # an old name
            if "remote_user" in body:
                reader.complain(body.line_of("user"), "'user' and 'remote_user' are the same.", "Give one.")
            shared["remote_user"] = reader.text(body, "user", None)
        around = replace(Task("", "", {}, line, reader.filename), **shared)
        files: tuple[tuple[str, ...], ...] = reader.attempt(lambda: self.vars_files(reader, body), ())
        shelf.names.variables, shelf.names.vars_files = {**imported, **variables}, files
        # Ansible reads the roles first: also names in pre_tasks may hold their variables
        shelf.names.roles = lambda: (*shelf.roles, *self.roles_of(reader, body, around, shelf))
        parts: list[tuple[Node, ...]] = [read_tasks(reader, body, "pre_tasks", around, shelf)]
        shelf.names.roles = tuple
        roles = _listed(reader, body, around, shelf)
        shelf.names.roles = lambda: shelf.roles
        parts.append((*roles, *read_tasks(reader, body, "tasks", around, shelf)))
        parts.append(read_tasks(reader, body, "post_tasks", around, shelf))
        own = tasks_of(read_tasks(reader, body, "handlers", around, shelf, True))
        handlers = (*shelf.handlers, *own, *shelf.imported)
        flush = Task("flush handlers", "meta", {"_raw": "flush_handlers"}, line, tags=("always",))
        tasks = tuple(node for part in parts for node in (*part, *([flush] if part else [])))
        strategy = short(str(body.get("strategy", "linear")))
        if strategy not in ("linear", "free", "host_pinned"):
            reader.complain(
                body.line_of("strategy"), f"unknown strategy '{strategy}'.", "Known: linear, free."
            )
        order = str(body.get("order", "inventory"))
        if order not in ("inventory", "sorted", "reverse_sorted", "reverse_inventory"):
            reader.complain(body.line_of("order"), f"the order '{order}' is not supported.",
                              "Known: inventory, sorted, reverse_sorted, reverse_inventory.")  # fmt: skip
        serial = body.get("serial")
        serial = tuple(serial) if isinstance(serial, list) else () if serial is None else (serial,)
        reader.templates(list(serial), body.line_of("serial"))
        play = Play(
            name=str(reader.text(body, "name") or hosts),
            hosts=hosts,
            line=line,
            tasks=tasks,
            file=reader.filename,
            handlers=handlers,
            gather_facts=reader.truth(body, "gather_facts", default.gather_facts),
            gathering=self.gathering(reader, body, around),
            gather_once=default.gather_once,
            variables=variables,
            files=files,
            prompts=reader.attempt(lambda: _prompts(reader, body), ()),
            roles=tuple(shelf.static),
            serial=serial,
            max_fail_percentage=reader.number(body, "max_fail_percentage", None),
            any_errors_fatal=reader.truth(body, "any_errors_fatal", default.any_errors_fatal),
            force_handlers=reader.truth(body, "force_handlers", default.force_handlers),
            strategy=strategy,
            order=order,
            common=around,
            error_on_missing_handler=default.error_on_missing_handler,
            shelf=shelf,
        )
        unheard = _unheard(play, shelf)
        for one in unheard:
            reader.of(one.file).note(one.line, f"no handler is called '{one.name}'.", one.hint)
        return replace(play, unheard=unheard)

    def roles_of(self, reader: Reader, body: Map, around: Task, shelf: Shelf) -> list[Role]:
        """The roles that a play lists, read for their variables."""
        other = Shelf(self.files, shelf.directory, shelf.play, None, self.known)
        other.names.variables, other.names.vars_files = shelf.names.variables, shelf.names.vars_files
        _listed(Reader(reader.filename, None, reader.own), body, around, other)
        return other.roles

    def gathering(self, reader: Reader, body: Map, around: Task) -> dict[str, Any]:
        """The arguments of the `setup` that a play begins with."""
        keys = ("gather_subset", "gather_timeout", "fact_path")
        found = {**around.defaults.get("gather_facts", {}), **around.defaults.get("setup", {})}
        for key in keys:
            if body.get(key) is not None:
                reader.templates(body[key], body.line_of(key))
                found[key] = body[key]
        if not has_template(found):
            try:
                module = registry()["setup"]
                module.compile(typed(module, found), CompileContext(Scope([]), self.files, ""))
            except BadArgument as problem:
                at = next((body.line_of(key) for key in keys if key in body), body.line)
                raise reader.fail(at, f"{problem}.") from None
        return found

    def vars_files(self, reader: Reader, body: Map) -> tuple[tuple[str, ...], ...]:
        listed = body.get("vars_files") or []
        listed = [listed] if isinstance(listed, str) else listed
        found = []
        for one in listed if isinstance(listed, list) else [listed]:
            choices = one if isinstance(one, list) else [one]
            if not all(isinstance(path, str) for path in choices):
                raise reader.fail(body.line_of("vars_files"), "'vars_files' must be a list of paths.")
            reader.templates(list(choices), body.line_of("vars_files"))
            if len(choices) == 1 and not has_template(choices[0]):
                path = beside(reader.filename, choices[0])
                with reader.going_on():
                    load_mapping(reader, self.files, path, body.line_of("vars_files"))
            found.append(tuple(beside(reader.filename, path) for path in choices))
        return tuple(found)


def _listed(reader: Reader, body: Map, around: Task, shelf: Shelf) -> list[Node]:
    """The tasks of the roles that a play lists."""
    listed = body.get("roles") or Seq()
    if not isinstance(listed, Seq):
        raise reader.fail(body.line_of("roles"), "'roles' must be a list of roles.")
    found: list[Node] = []
    for i, entry in enumerate(listed):
        with reader.going_on():
            found += shelf.listed_role(reader, entry, listed.lines[i], around)
    return found


_PROMPT_KEYS = ("name", "prompt", "default", "private", "confirm", "encrypt", "salt", "salt_size", "unsafe")


def _prompts(reader: Reader, body: Map) -> tuple[Prompt, ...]:
    listed = body.get("vars_prompt") or []
    if not isinstance(listed, list) or not all(isinstance(p, Map) and "name" in p for p in listed):
        raise reader.fail(
            body.line_of("vars_prompt"), "'vars_prompt' must be a list of mappings with 'name'."
        )
    for one in listed:
        reader.known(one, _PROMPT_KEYS, "prompt")
        for key in ("private", "confirm", "unsafe"):
            if has_template(one.get(key)):
                raise reader.fail(one.line_of(key), f"'{key}' of vars_prompt must be true or false.")
        kind = one.get("encrypt")
        if kind and kind not in HASHES:
            known = f"Known: {', '.join(HASHES)}."
            raise reader.fail(one.line_of("encrypt"), f"'{kind}' is not a kind of hash.", known)
    return tuple(
        Prompt(
            str(p["name"]),
            str(p.get("prompt", p["name"])),
            p.get("default"),
            bool(reader.truth(p, "private", True)),
            bool(reader.truth(p, "confirm", False)),
            str(p.get("encrypt") or ""),
            p.get("salt"),
            p.get("salt_size"),
            bool(reader.truth(p, "unsafe", False)),
        )
        for p in listed
    )


def _imported(play: Play, around: Mapping[str, Any]) -> Play:
    """A play of an imported playbook: the import's `when`, `tags` and `vars` are on everything in it."""
    if not (around["when"] or around["tags"] or around["variables"]):
        return play
    from rm.playbook.model.schema import Block

    def on(node: Node) -> Node:
        if isinstance(node, Block):
            block, rescue, always = (tuple(map(on, part)) for part in (node.block, node.rescue, node.always))
            return replace(node, block=block, rescue=rescue, always=always)
        outer = on(node.outer) if node.outer is not None else None
        assert outer is None or isinstance(outer, Task)
        when, tags = (*around["when"], *node.when), (*around["tags"], *node.tags)
        return replace(node, when=when, tags=tags, outer=outer)

    handlers = tuple(one for one in map(on, play.handlers) if isinstance(one, Task))
    variables = {**play.variables, **around["variables"]}
    return replace(play, tasks=tuple(map(on, play.tasks)), handlers=handlers, variables=variables)


def _unheard(play: Play, shelf: Shelf) -> tuple[Unheard, ...]:
    """What is notified and no handler hears, as far as the text says it. Like Ansible, a run gets as far as
    a task that changes something."""
    if shelf.open_ended or any(has_template(h.name) for h in play.handlers):
        return ()
    known = {name for h in (*play.handlers, *shelf.foreseen) for name in handler_names(h)}
    found = []
    for task in (*tasks_of(play.tasks), *play.handlers):
        for name in task.notify:
            if name not in known and not has_template(name):
                hint = did_you_mean(name, known) if known else "The play has no handlers."
                found.append(Unheard(task.file, task.line, name, hint))
    return tuple(found)


def handler_names(handler: Task) -> set[str]:
    """What a `notify` may say to mean this handler."""
    named = {handler.name, *handler.listen}
    role = handler.role
    return named | ({f"{one} : {handler.name}" for one in (role.name, role.full_name)} if role else set())


def parse_playbook(
    text: str, filename: str, files: Files | None = None, found: list[UsageError] | None = None,
    known: Foreknown | None = None,
) -> Playbook:  # fmt: skip
    """A playbook from its text; raises UsageError with file, line and what to do. With a list all that is
    wrong is put there, and what could be read is returned. `known` is for the names of imports."""
    files = files or NoFiles()
    reader = Reader(filename, found, own_of(files))
    plays: list[Play] = []
    with reader.going_on():
        plays = _Plays(files, known or Foreknown(), filename).playbook(reader, text)
    return Playbook(filename, tuple(plays))
