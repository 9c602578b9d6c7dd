"""`lookup(…)`, `query(…)` and the loops that stand for them (`with_items` and its like).

What they read of this machine (files, environment, commands, the clock) comes through `Control`.
"""

from __future__ import annotations

import glob
import itertools
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2.utils import missing

from rm.compiled_later import compiled_later
from rm.playbook.model.problems import BadArgument, TemplateProblem
from rm.playbook.module import Files
from rm.playbook.own.plugins import plugins_of
from rm.playbook.run import machine_lookups
from rm.playbook.run.file_lookups import FILE_LOOKUPS
from rm.playbook.run.sought import Control, Sought
from rm.playbook.template.filters import to_bool
from rm.playbook.template.filters.chance import UNVAULT, VAULT
from rm.playbook.template.filters.data import flatten, subelements
from rm.playbook.template.filters.paths import LOOK
from rm.playbook.template.filters.text import refuse_undefined
from rm.playbook.template.jinja import BUILTIN, OWN_LOOKUPS
from rm.playbook.template.plain import deeply
from rm.playbook.template.plugins import OWN
from rm.playbook.template.template import Layer, Scope, Seek
from rm.playbook.template.template_file import about_file, value_of_file


def seeker(files: Files, search: Sequence[str], control: Control | None) -> Seek:
    def seek(asked: str, terms: list[Any], options: dict[str, Any], scope: Scope) -> list[Any]:
        name = asked.removeprefix(BUILTIN)
        function = _LOOKUPS.get(name)
        try:
            if asked in OWN_LOOKUPS and (found := _own_lookup(name, terms, options, files)) is not None:
                return found
            if function is None:
                raise TemplateProblem(f"unknown lookup '{name}'")
            return function(Sought(terms, options, scope, files, search, control))
        except BadArgument as problem:
            said = f"the filter '{name[1:]}'" if name in (VAULT, UNVAULT) else f"lookup '{name}'"
            raise TemplateProblem(f"{said}: {problem}") from None

    return seek


def _items(call: Sought) -> list[Any]:
    return flatten(call.terms, 1, skip_nulls=False)


def _list(call: Sought) -> list[Any]:
    return list(call.terms)


def _dict(call: Sought) -> list[Any]:
    found = []
    for one in call.terms:
        if not isinstance(one, Mapping):
            raise BadArgument(f"it needs a mapping, not {one!r}")
        found += [{"key": key, "value": value} for key, value in one.items()]
    return found


def _fileglob(call: Sought) -> list[Any]:
    """Only the last part of a path is a pattern, as in Ansible."""
    found: list[str] = []
    for term in _flat(call.terms):
        folder, pattern = posixpath.split(term)
        if posixpath.isabs(term):
            found += call.files.glob(posixpath.join(glob.escape(folder), pattern))
            continue
        for place in call.search:
            near = [posixpath.join(glob.escape(posixpath.join(place, *way, folder)), pattern)
                    for way in (["files"], [])]  # fmt: skip
            hits = next(filter(None, map(call.files.glob, near)), [])
            if hits:
                found += map(posixpath.abspath, hits)
                break
    return found


def _flat(terms: list[Any]) -> list[str]:
    return [str(one) for one in flatten(terms)]


def _text(call: Sought, name: str, kind: str) -> str:
    path = call.path(name, kind)
    try:
        return call.files.read(path).decode()
    except UnicodeDecodeError:
        raise BadArgument(f"{path} is not UTF-8 text") from None


def _file(call: Sought) -> list[Any]:
    texts = [_text(call, term, "files") for term in _flat(call.terms)]
    if to_bool(call.options.get("lstrip", False)):
        texts = [text.lstrip() for text in texts]
    return [text.rstrip() if to_bool(call.options.get("rstrip", True)) else text for text in texts]


def _template(call: Sought) -> list[Any]:
    given = Layer(call.options.get("template_vars", {}), False)

    def read(name: str) -> str:
        return _text(call, name, "templates")

    def made(term: str) -> Any:
        about = about_file(call.path(term, "templates"), None, call.files, call.scope)
        return value_of_file(read(term), call.scope.above(given, about), call.options, read)

    return [made(term) for term in _flat(call.terms)]


def _env(call: Sought) -> list[Any]:
    found: list[Any] = []
    for name in _flat(call.terms):
        value = call.control.environment(name) if call.control else None
        found.append(call.options.get("default", "") if value is None else value)
    return found


def _pipe(call: Sought) -> list[Any]:
    if call.control is None:
        raise BadArgument("no commands run here")
    return [call.control.pipe(command).rstrip() for command in _flat(call.terms)]


def _lines(call: Sought) -> list[Any]:
    return [line for text in _pipe(call) for line in str(text).splitlines()]


def _now(call: Sought) -> list[Any]:
    if call.control is None:
        raise BadArgument("there is no clock here")
    return [call.control.now()]


def _vars(call: Sought) -> list[Any]:
    found = []
    for name in _flat(call.terms):
        value = call.scope.lookup(name)
        if value is missing:
            if "default" not in call.options:
                raise BadArgument(f"'{name}' is undefined")
            value = call.options["default"]
        found.append(value)
    return found


def _varnames(call: Sought) -> list[Any]:
    layers = reversed(call.scope.layers)  # in the order in which Ansible puts variables together
    known = dict.fromkeys(name for layer in layers for name in layer.values if isinstance(name, str))
    return [name for pattern in _flat(call.terms) for name in known if re.search(pattern, name)]


def _first_found(call: Sought) -> list[Any]:
    names: list[str] = []
    skip = bool(call.options.get("skip", False))
    places: list[str] = []
    for term in flatten([*call.terms, *([dict(call.options)] if "files" in call.options else [])]):
        if isinstance(term, Mapping):
            files, paths = term.get("files", []), term.get("paths", [])
            files = re.split(r"[,;:]", files) if isinstance(files, str) else files
            paths = re.split(r"[,;:]", paths) if isinstance(paths, str) else paths
            names += [posixpath.join(p, f) for p in paths for f in files] if paths else list(files)
            skip = skip or bool(term.get("skip", False))
        else:
            names.append(str(term))
    for name in names:
        if posixpath.isabs(name):
            candidates = [name]
        else:
            candidates = [
                posixpath.join(place, kind, name)
                for place in call.search
                for kind in ("files", "vars", "templates", "tasks", "")
            ]
        for path in candidates:
            if call.files.exists(path):
                return [posixpath.abspath(path)]  # which any directory may be given to
        places += candidates[:1]
    if skip:
        return []
    raise BadArgument(f"none of the files exists: {', '.join(names)}")


_SEQUENCE = compiled_later(r"(?:(\w+)-)?(\w+)(?:/(\w+))?(?::(.+))?\Z")


def _sequence(call: Sought) -> list[Any]:
    found: list[Any] = []
    for term in call.terms or [dict(call.options)]:
        given: dict[str, Any] = {"start": 1, "stride": None, "format": "%d"}
        if isinstance(term, Mapping):
            given.update(term)
        elif "=" in str(term):
            given.update({k: v for k, _, v in (word.partition("=") for word in str(term).split())})
        else:
            match = _SEQUENCE.match(str(term))
            if match is None:
                raise BadArgument(f"'{term}' is not a sequence such as start=1 end=5")
            parts = {"start": match[1], "end": match[2], "stride": match[3], "format": match[4]}
            given.update({key: value for key, value in parts.items() if value is not None})
        try:
            start = int(str(given["start"]))
            stride = 1 if given["stride"] is None else int(str(given["stride"]))
            if "count" in given:
                count = int(str(given["count"]))
                end = start + (count - 1) * stride
                if count == 0:
                    continue
            else:
                end = int(str(given["end"]))
            if stride == 0 or abs(end - start) // abs(stride) > 100_000:
                raise ValueError
            span = range(start, end + (1 if stride > 0 else -1), stride)
            found += [str(given["format"]) % number for number in span]
        except (ValueError, TypeError, KeyError):
            raise BadArgument(f"'{term}' is not a sequence such as start=1 end=5") from None
    return found


def _together(call: Sought) -> list[Any]:
    return [list(one) for one in itertools.zip_longest(*call.terms)]


def _nested(call: Sought) -> list[Any]:
    lists = [one if isinstance(one, list) else [one] for one in call.terms]
    return [flatten(one, 1) for one in itertools.product(*lists)]


def _subelements(call: Sought) -> list[Any]:
    if len(call.terms) < 2:
        raise BadArgument("it needs a list and the name of what is inside")
    flags = call.terms[2] if len(call.terms) > 2 else {}
    path = call.terms[1]
    found = subelements(call.terms[0], path, bool(flags.get("skip_missing")))
    return [[_without(item, path.split(".")), one] for item, one in found]


def _without(item: Any, words: list[str]) -> Any:
    """An item but for what is looped over; other than with the filter of this name."""
    rest = {key: value for key, value in item.items() if key != words[0]}
    return {**rest, words[0]: _without(item[words[0]], words[1:])} if words[1:] else rest


def _indexed(call: Sought) -> list[Any]:
    return [list(one) for one in enumerate(_items(call))]


def _inventory_hostnames(call: Sought) -> list[Any]:
    from rm.errors import UsageError
    from rm.playbook.inventory.pattern import select

    groups = call.scope.lookup("groups")
    names = list(groups.get("all", ()))
    try:
        # as Ansible: a name that the inventory lacks means nobody
        return [name for term in _flat(call.terms) for name in select(term, names, groups, growing=True)]
    except UsageError as problem:
        raise BadArgument(problem.what.rstrip(".")) from None


def _own_plugin(kind: str) -> Callable[[Sought], list[Any]]:
    """A filter or test that is not rm's: what it makes of its arguments; nothing where this run has none."""

    def call(sought: Sought) -> list[Any]:
        name, args = sought.terms
        plugins = plugins_of(sought.files)
        try:
            if plugins is None or not plugins.has(kind, name):
                return []
            if args:
                refuse_undefined(args[0])
            return [plugins.call(kind, name, [deeply(one) for one in args], deeply(dict(sought.options)))]
        except BadArgument as problem:
            raise TemplateProblem(f"the {kind} '{name}': {problem}") from None

    return call


def _own_lookup(name: str, terms: list[Any], options: Mapping[str, Any], files: Files) -> list[Any] | None:
    """What a lookup of `lookup_plugins/` gives; None where this run has none of the name. Raises
    BadArgument."""
    plugins = plugins_of(files)
    if plugins is None or not plugins.has("lookup", name):
        return None
    for term in terms:
        refuse_undefined(term)
    found = plugins.call("lookup", name, [deeply(one) for one in terms], deeply(dict(options)))
    if not isinstance(found, list):
        raise BadArgument("it gives no list")
    return found


_LOOKUPS: dict[str, Callable[[Sought], list[Any]]] = {
    "items": _items, "list": _list, "dict": _dict, "fileglob": _fileglob, "file": _file, "unvault": _file,
    "template": _template, "env": _env, "pipe": _pipe, "lines": _lines, "now": _now, "vars": _vars,
    "varnames": _varnames, "first_found": _first_found, "sequence": _sequence, "together": _together,
    "nested": _nested, "cartesian": _nested, "subelements": _subelements, "indexed_items": _indexed,
    **dict.fromkeys(("flattened", "community.general.flattened"), lambda call: flatten(call.terms)),
    "inventory_hostnames": _inventory_hostnames, **FILE_LOOKUPS,
    **dict.fromkeys(("filetree", "community.general.filetree"), machine_lookups.filetree),
    "random_choice": machine_lookups.chosen,
    "url": machine_lookups.url, "password": machine_lookups.password, "random": machine_lookups.drawn,
    "shuffle": machine_lookups.shuffled, "password_hash": machine_lookups.hashed,
    VAULT: machine_lookups.sealed, UNVAULT: machine_lookups.unsealed,
    LOOK: machine_lookups.looked,
    OWN["filter"]: _own_plugin("filter"), OWN["test"]: _own_plugin("test"),
}  # fmt: skip
