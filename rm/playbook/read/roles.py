"""Where a role lies and what its directory holds: defaults, vars, handlers, dependencies, tasks."""

from __future__ import annotations

import glob
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from rm.hints import did_you_mean
from rm.playbook.model.located import Map, Seq, load
from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Files
from rm.playbook.own.place import collection_tops, role_in_collection
from rm.playbook.read.reader import Reader
from rm.quick_dataclass import dataclass

ENDINGS = ("", ".yml", ".yaml", ".json")


def find_role(
    reader: Reader, files: Files, name: str, line: int, directory: str, from_role: str,
    collections: Sequence[str] = (),
) -> str:  # fmt: skip
    """The role's directory; raises UsageError that names the places that were searched. One of `collections`
    is stronger than others of its short name."""
    for full in [name] if name.count(".") == 2 else [f"{one}.{name}" for one in collections]:
        found = role_in_collection(files, full, directory) if "/" not in full else ""
        if found:
            return found
    if posixpath.isabs(name):
        places = [name]
    else:
        tops = [posixpath.join(directory, "roles"), *([posixpath.dirname(from_role)] if from_role else []),
                *getattr(files, "role_path", ()), directory]  # fmt: skip
        places = [posixpath.join(top, name) for top in dict.fromkeys(tops)]
        if name.count(".") == 2:
            space, collection, _ = name.split(".")
            below = ", ".join(collection_tops(files, directory))
            hint = f"Install the collection {space}.{collection}; looked below {below}."
            raise reader.fail(line, f"there is no role '{name}'.", hint)
    for place in places:
        if any(files.exists(posixpath.join(place, part)) for part in
               ("tasks", "meta", "defaults", "vars", "handlers", "templates", "files")):  # fmt: skip
            return posixpath.normpath(place)
    known = sorted(
        {posixpath.basename(posixpath.dirname(posixpath.dirname(p)))
         for place in places for p in files.glob(f"{posixpath.dirname(place)}/*/tasks/main.y*ml")}
    )  # fmt: skip
    hint = did_you_mean(name, known) if known else f"Looked for {', '.join(places)}."
    raise reader.fail(line, f"there is no role '{name}'.", hint)


def role_files(files: Files, path: str, part: str, name: str) -> list[str]:
    """The files of `tasks/main` and the like; `defaults` and `vars` may be a directory of files."""
    base = posixpath.join(path, part, name)
    for ending in ENDINGS[1:] if name == "main" else ENDINGS:
        if files.exists(base + ending) and not _is_directory(files, base + ending):
            return [base + ending]
    if part in ("defaults", "vars"):
        return [p for p in files.glob(f"{glob.escape(base)}/**") if p.endswith((".yml", ".yaml", ".json"))]
    return []


def _is_directory(files: Files, path: str) -> bool:
    return bool(files.glob(f"{glob.escape(path)}/*"))


def load_mapping(reader: Reader, files: Files, path: str, line: int, owner: str = "") -> Map:
    """A file of variables; raises UsageError with the file's own name and line."""
    document = load_file(reader, files, path, line)
    if document is None:
        return Map()
    if not isinstance(document, Map):
        raise reader.of(path).fail(
            1, f"{owner or 'a file of variables'} must be a mapping.", "Write 'name: value'."
        )
    reader.of(path).templates(document, 1)
    return document


def load_list(reader: Reader, files: Files, path: str, line: int) -> Seq:
    document = load_file(reader, files, path, line)
    if document is None:
        return Seq()
    if not isinstance(document, Seq):
        raise reader.of(path).fail(1, "a file of tasks is a list of tasks.", "Start each with '- '.")
    return document


def load_file(reader: Reader, files: Files, path: str, line: int) -> Any:
    try:
        text = files.read(path).decode()
    except UnicodeDecodeError:
        raise reader.fail(line, f"the file {path} is not UTF-8 text.") from None
    except BadArgument as problem:
        raise reader.fail(line, f"{problem}.") from None
    return load(text, path, decrypt=getattr(files, "decrypt", None))


def variables_of(reader: Reader, files: Files, path: str, part: str, name: str, line: int) -> dict[str, Any]:
    """The merged variables of `defaults/NAME` or `vars/NAME`; a name other than main must exist."""
    found = role_files(files, path, part, name)
    if not found and name != "main":
        raise reader.fail(line, f"the role {posixpath.basename(path)} has no {part}/{name}.yml.")
    merged: dict[str, Any] = {}
    for one in found:
        merged.update(load_mapping(reader, files, one, line))
    return merged


@dataclass(frozen=True, slots=True)
class Meta:
    """What meta/main.yml says: `dependencies` with their lines, the file, and more."""

    entries: Sequence[Any] = ()
    lines: Sequence[int] = ()
    file: str = ""
    allow_duplicates: bool = False
    collections: tuple[str, ...] = ()


def meta_of(reader: Reader, files: Files, path: str, line: int) -> Meta:
    for one in role_files(files, path, "meta", "main"):
        meta = load_mapping(reader, files, one, line)
        entries = meta.get("dependencies") or []
        if not isinstance(entries, list):
            raise reader.of(one).fail(meta.line_of("dependencies"), "'dependencies' must be a list of roles.")
        lines = list(getattr(entries, "lines", [1] * len(entries)))
        known = reader.of(one).words(meta, "collections")
        return Meta(list(entries), lines, one, bool(meta.get("allow_duplicates", False)), known)
    return Meta()


def role_entry(reader: Reader, entry: Any, line: int) -> Map:
    """One entry of `roles:` or of `dependencies` as a mapping with `role`."""
    if isinstance(entry, str):
        found = Map({"role": entry})
    elif isinstance(entry, Map):
        found = Map({("role" if k == "name" and "role" not in entry else k): v for k, v in entry.items()})
        found.lines = dict(entry.lines)
    else:
        raise reader.fail(line, "a role is a name, or a mapping with 'role:'.")
    found.line = line
    if not isinstance(found.get("role"), str):
        raise reader.fail(line, "the role has no name.", "Write 'role: NAME'.")
    return found


def names(given: Mapping[str, Any], part: str) -> str:
    return str(given.get(f"{part}_from") or "main")
