"""The files and roles that a play names: what imports and includes bring, read once and checked."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rm.compiled_later import compiled_later
from rm.errors import UsageError
from rm.playbook.model.keywords import COMMON_KEYS, short
from rm.playbook.model.located import Map, Seq, load
from rm.playbook.model.schema import Block, Node, Role, Task, tasks_of
from rm.playbook.module import Files
from rm.playbook.own.place import collection_of
from rm.playbook.own.plugins import own_of
from rm.playbook.read.own import learn, own_name, with_own_module
from rm.playbook.read.read_tasks import beside, common, include_context, read_list
from rm.playbook.read.reader import Reader
from rm.playbook.read.roles import (
    find_role,
    load_list,
    load_mapping,
    meta_of,
    names,
    role_entry,
    role_files,
    variables_of,
)  # fmt: skip
from rm.playbook.read.specifications import validates, validation
from rm.playbook.read.static_names import Foreknown, StaticNames
from rm.playbook.template.template import has_template

DEPTH_MAX = 40
_PLACED = compiled_later(r"\{\{\s*(role_path|playbook_dir)\s*\}\}")


class Shelf:
    """The files and roles of one play, which stands in a file at a line (`play`); also asked while it runs,
    for includes with templated names."""

    def __init__(
        self,
        files: Files,
        directory: str,
        play: tuple[str, int] = ("", 0),
        found: list[UsageError] | None = None,
        known: Foreknown | None = None,
    ) -> None:
        self.files, self.directory, self.play, self.found = files, directory, play, found
        self.roles: list[Role] = []  # whose variables the whole play sees, some only once they are included
        self.static: list[Role] = []  # those that it sees from its start
        self.names = StaticNames(
            files, directory, known or Foreknown(), load=lambda path: self.variables(path, 0)
        )
        self.handlers: list[Task] = []  # of the roles that the play lists
        self.imported: list[Task] = []  # of those that tasks import
        self.foreseen: list[Task] = []  # of those that tasks may include
        self.named: list[str] = []  # the roles that the play lists or imports, and includes while it runs
        self.dependent: list[str] = []  # those that these depend on
        self._with_handlers: dict[tuple[str, str], tuple[Task, ...]] = {}
        self._met: list[Task] = []  # the handlers of the roles of the running expansion
        self._met_roles: list[Role] = []  # and those of its roles that are public
        self._loaded: set[tuple[str, str]] = set()
        self._depth = 0
        self._importing = self._including = 0
        self._expanded: dict[
            tuple[int, str], tuple[tuple[Node, ...], tuple[Task, ...], tuple[Role, ...]]
        ] = {}
        self._variables: dict[str, Mapping[str, Any]] = {}
        self.open_ended = False  # some include's name is known only while the play runs

    def _reader(self, path: str) -> Reader:
        return Reader(path, self.found, own_of(self.files))

    def variables(self, path: str, line: int) -> Mapping[str, Any]:
        """A file of variables, read once; raises UsageError."""
        if path not in self._variables:
            self._variables[path] = load_mapping(self._reader(path), self.files, path, line)
        return self._variables[path]

    def with_own_module(self, reader: Reader, body: Map, around: Task) -> Map:
        """The task with a module that is not rm's under the registry's name of it."""
        known = reader.words(body, "collections") if "collections" in body else around.collections
        return with_own_module(reader, body, self.files, self.directory, self._role_paths(around), known)

    def own_name(self, reader: Reader, written: str, line: int, around: Task) -> str:
        """The registry's name of a module."""
        roles = self._role_paths(around)
        return own_name(reader, written, line, self.files, self.directory, roles, around.collections)

    def _role_paths(self, around: Task) -> list[str]:
        roles = [around.role.path] if around.role else []
        return roles + [one.path for one in self.roles if one.path not in roles]

    # -- files of tasks ------------------------------------------------------------------------

    def tasks_file(self, reader: Reader, name: str, line: int, around: Task) -> tuple[Node, ...]:
        path = self.locate(reader, name, line, around)
        self._deeper(reader, line)
        try:
            return read_list(reader.of(path), load_list(reader, self.files, path, line), around, self,
                             around.handler)  # fmt: skip
        finally:
            self._depth -= 1

    def _deeper(self, reader: Reader, line: int) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise reader.fail(line, "the includes form a loop.")

    def _placed(self, name: str, around: Task) -> str:
        """A path or a name with the two variables that are known while a file is read."""
        known = {
            "role_path": around.role.whole_path if around.role else "",
            "playbook_dir": posixpath.abspath(self.directory),
        }
        return _PLACED.sub(lambda match: known[match[1]], name)

    def locate(self, reader: Reader, name: str, line: int, around: Task) -> str:
        """An included file: beside the file that names it, in the role's tasks/, beside the playbook."""
        role, name = around.role, self._placed(name, around)
        places = [beside(reader.filename, name)]
        if role:
            places += [posixpath.join(role.path, "tasks", name), posixpath.join(role.path, name)]
        places += [posixpath.join(self.directory, "tasks", name), posixpath.join(self.directory, name)]
        for place in places:
            if self.files.exists(place):
                return posixpath.normpath(place)
        raise reader.fail(line, f"there is no file {name} to include.", f"Looked for {places[0]}.")

    def known_now(self, reader: Reader, given: Any, line: int, owner: str, around: Task) -> Any:
        """The arguments of the import `owner` without templates. Raises UsageError."""
        return self.names.evaluated(reader, given, line, owner, around)

    # -- roles ---------------------------------------------------------------------------------

    def role(
        self, reader: Reader, given: Mapping[str, Any], line: int, around: Task, public: bool,
        params: Mapping[str, Any] | None = None, once: str | None = None, dependency: bool = False,
    ) -> tuple[Node, ...]:  # fmt: skip
        """The tasks of a role, those of its dependencies first; its handlers go to the play's. `once`: not
        again in this play with the same word, unless the role allows it."""
        parent = around.role
        name = self._placed(str(given["name"]), around)
        path = find_role(reader, self.files, name, line, self.directory, parent.path if parent else "",
                         around.collections)  # fmt: skip
        if public:
            home = collection_of(path)
            self.use(f"{home}.{posixpath.basename(path)}" if home else posixpath.basename(path), dependency)
        self._deeper(reader, line)
        try:
            return self._role(reader, given, line, around, public, params or {}, once, path, dependency)
        finally:
            self._depth -= 1

    def _role(
        self, reader: Reader, given: Mapping[str, Any], line: int, around: Task, public: bool,
        params: Mapping[str, Any], once: str | None, path: str, dependency: bool,
    ) -> tuple[Node, ...]:  # fmt: skip
        parent = around.role
        learn(reader, self.files, path, line)
        meta = meta_of(reader, self.files, path, line)
        later: tuple[str, str] | None = None  # whether a host does it is known when it comes there
        again = False
        if once is not None and not meta.allow_duplicates:
            again = (path, once) in self._loaded
            if self._including:
                later = (path, once)
            else:
                self._loaded.add((path, once))

        def own(part: str) -> dict[str, Any]:
            return reader.attempt(
                lambda: variables_of(reader, self.files, path, part, names(given, part), line), {}
            )

        own_vars, own_defaults = own("vars"), own("defaults")
        above = (parent.variables, parent.defaults, parent.params) if parent else ({}, {}, {})
        role = Role(
            posixpath.basename(path), path, {**above[0], **own_vars}, {**above[1], **own_defaults},
            {**above[2], **params}, (*parent.parents, parent.full_name) if parent else (),
            _included_by(parent, dependency), collection_of(path),
        )  # fmt: skip
        home = (role.collection, *meta.collections) if role.collection else meta.collections
        around = replace(around, collections=tuple(dict.fromkeys(home)))  # never those of the play
        before: list[Node] = []
        for entry, at in zip(meta.entries, meta.lines, strict=True):
            with reader.going_on():
                before += self.listed_role(
                    reader.of(meta.file), entry, at, replace(around, role=role), public, True
                )
        if again:  # what it depends on may be allowed again
            return tuple(before)
        for other in self.roles:  # a role sees what its dependencies define, its own first
            if parent is None and role.full_name in other.parents:
                role = replace(
                    role,
                    variables={**other.variables, **role.variables},
                    defaults={**other.defaults, **role.defaults},
                )
        told = (role.path, role.variables, role.defaults)
        if public and all((one.path, one.variables, one.defaults) != told for one in self.roles):
            self.roles.append(role)
            if not self._including:
                self.static.append(role)
        if public:
            self._met_roles.append(role)
        inner = replace(around, role=role)
        for part in role_files(self.files, path, "handlers", names(given, "handlers")):
            # a role that is there twice with other variables has its handlers twice: the last are meant
            what = once if once is not None else repr(_sorted(around.variables))
            if (part, what) not in self._with_handlers:
                self._with_handlers[part, what] = ()
                listed = load_list(reader, self.files, part, line)
                plain = replace(inner, tags=(), notify=())
                number = len(self._with_handlers)
                read = tasks_of(read_list(reader.of(part), listed, plain, self, True))
                self._with_handlers[part, what] = tuple(replace(one, listed=number) for one in read)
                self._brought().extend(self._with_handlers[part, what])
            self._met += self._with_handlers[part, what]
        wanted = names(given, "tasks")
        found = role_files(self.files, path, "tasks", wanted)
        if not found and wanted != "main":
            raise reader.fail(line, f"the role {role.name} has no tasks/{wanted}.yml.")
        tasks: tuple[Node, ...] = ()
        if validates(reader, given, line):
            tasks = validation(reader, self.files, inner, wanted, self.play)
        for one in found:
            tasks += read_list(reader.of(one), load_list(reader, self.files, one, line), inner, self)
        return (*before, Block("", line, tasks, once=later)) if later else (*before, *tasks)

    def listed_role(
        self, reader: Reader, entry: Any, line: int, around: Task, public: bool = True,
        dependency: bool = False,
    ) -> tuple[Node, ...]:  # fmt: skip
        """One entry of `roles:` or of a role's dependencies."""
        body = role_entry(reader, entry, line)
        params = {k: v for k, v in body.items() if k not in (*COMMON_KEYS, "role", "src", "version", "scm")}
        reader.templates(params, line)
        inner = replace(around, **common(reader, body, around, self))
        own = [params, *(body.get(word) or () for word in ("vars", "when", "tags"))]
        word = None if body.get("allow_duplicates") is True else repr([_sorted(one) for one in own])
        plain = Task("", "", {}, line)
        name = str(self.known_now(reader, self._placed(body["role"], around), line, "roles", plain))
        return self.role(reader, {"name": name}, line, inner, public, params, word, dependency)

    def imported_role(
        self, reader: Reader, given: Mapping[str, Any], line: int, around: Task
    ) -> tuple[Node, ...]:
        """The tasks of a role that a task imports."""
        self._importing += 1
        try:
            return self.role(reader, given, line, around, True)
        finally:
            self._importing -= 1

    def _brought(self) -> list[Task]:
        """Where the handlers of the role that is read now belong."""
        if self._including:
            return self.foreseen
        return self.imported if self._importing else self.handlers

    def use(self, name: str, dependency: bool = False) -> None:
        """A role is one of the play's."""
        names = self.dependent if dependency else self.named
        if name not in names:
            names.append(name)

    # -- includes while the play runs ----------------------------------------------------------

    def foresee(self, reader: Reader, task: Task) -> None:
        name = str(task.args.get("name" if task.module == "include_role" else "file"))
        if task.apply is not None and not isinstance(task.apply, Map):
            raise reader.fail(task.line, "'apply' must be a mapping of keywords.")
        if task.apply is not None:
            reader.known(task.apply, (*COMMON_KEYS, "notify"), "'apply'")
        if not has_template(_PLACED.sub("", name)):
            if self._depth < DEPTH_MAX - 1:  # a file may include itself, under a condition
                self.expand(task, task.args)
            return
        self.open_ended = True
        if task.module != "include_tasks":
            return
        pattern = re.sub(r"\{\{.*?\}\}", "*", name)
        top = posixpath.dirname(task.file)
        for path in self.files.glob(posixpath.join(top, pattern)):
            if path.endswith((".yml", ".yaml")) and path != task.file and pattern.strip("*") not in ("", "."):
                document = load_list_or_none(reader, self.files, path, task.line)
                if document is not None:
                    self.expand(task, {**task.args, "file": path.removeprefix(top).removeprefix("/")})

    def expand(self, task: Task, args: Mapping[str, Any]) -> tuple[Node, ...]:
        """The nodes that an include brings with these evaluated arguments; raises UsageError."""
        return self._expand(task, args)[0]

    def handlers_of(self, task: Task, args: Mapping[str, Any]) -> tuple[Task, ...]:
        """The handlers of the roles that an include brings."""
        return self._expand(task, args)[1]

    def public_roles(self, task: Task, args: Mapping[str, Any]) -> tuple[Role, ...]:
        """The roles that an include brings whose variables the rest of the play sees."""
        return self._expand(task, args)[2]

    def _expand(
        self, task: Task, args: Mapping[str, Any]
    ) -> tuple[tuple[Node, ...], tuple[Task, ...], tuple[Role, ...]]:
        plain = {k: v for k, v in args.items() if k != "apply"}
        key = (id(task), repr(sorted(plain.items())))
        if key in self._expanded:
            return self._expanded[key]
        outer, self._met = self._met, []
        outer_roles, self._met_roles = self._met_roles, []
        self._including += 1
        try:
            nodes = self._included(task, args, plain)
        finally:
            self._including -= 1
        self._expanded[key] = found = (nodes, tuple(self._met), tuple(self._met_roles))
        self._met = [*outer, *self._met]
        self._met_roles = outer_roles
        return found

    def _included(self, task: Task, args: Mapping[str, Any], plain: Mapping[str, Any]) -> tuple[Node, ...]:
        reader = self._reader(task.file)
        inner = include_context(task, task.apply, reader, self)
        if task.module == "include_role":
            own = {k: v for k, v in task.variables.items() if k not in inner.variables}
            inner = replace(inner, variables={**inner.variables, **own})
            return self.role(reader, plain, task.line, inner, bool(args.get("public", False)))
        inner = replace(inner, handler=task.handler)
        return self.tasks_file(reader, str(plain["file"]), task.line, inner)


def _included_by(parent: Role | None, dependency: bool) -> tuple[str, ...]:
    """As Ansible tells a role: what depends on it is none of its parents."""
    if parent is None:
        return ()
    return parent.included_by if dependency else (*parent.included_by, parent.full_name)


def _sorted(value: Any) -> Any:
    return sorted(value.items(), key=repr) if isinstance(value, Mapping) else value


def load_list_or_none(reader: Reader, files: Files, path: str, line: int) -> Seq | None:
    document = load(files.read(path).decode(errors="replace"), path, decrypt=getattr(files, "decrypt", None))
    tasks = isinstance(document, Seq) and all(isinstance(one, Map) for one in document)
    return document if tasks and not any(_is_play(one) for one in document) else None


def _is_play(entry: Map) -> bool:
    """A playbook may lie beside files of tasks."""
    return "hosts" in entry or any(short(str(key)) == "import_playbook" for key in entry)
