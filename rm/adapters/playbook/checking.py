"""All that is wrong with a playbook or a role, at once and without a host: for `rmx playbook check`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rm.adapters.playbook.files import LocalFiles, foreknown, read_playbook
from rm.adapters.playbook.sources import source_problems
from rm.errors import UsageError
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import tasks_of
from rm.playbook.read.parse import parse_playbook
from rm.playbook.run.reach import check_settings
from rm.quick_dataclass import dataclass

_PLACE = re.compile(r"(.+?):(\d+): (.*)", re.DOTALL)
_PARTS = ("tasks", "handlers", "meta", "defaults", "vars")


@dataclass(frozen=True, slots=True)
class Problem:
    """`line` 0: the whole file. `hint` says what to write instead, "" where that is plain."""

    file: str
    line: int
    what: str
    hint: str = ""


def problems_of(path: Path, files: LocalFiles, variables: Mapping[str, Any] | None = None) -> list[Problem]:
    """The problems of a playbook's file or a role's directory, in the order of files and lines. Raises
    UsageError where there is neither. `variables` are those of the command line."""
    if path.is_dir():
        if not any((path / part).is_dir() for part in _PARTS):
            raise UsageError(f"{path} is a directory, and not one of a role.", "Name a playbook or a role.")
        text, name = _play_of(path.resolve()), str(_where_plays_are(path) / f"role {path.name}")
        files.directory = os.path.dirname(os.path.abspath(name))
    else:
        try:
            text, name = files.read(str(path)).decode(), str(path)
        except BadArgument as problem:
            raise UsageError(f"{problem}.", "Name a playbook, or the directory of a role.") from None
        except UnicodeDecodeError:
            return [Problem(str(path), 0, "the file is not UTF-8 text.")]
    found: list[UsageError] = []
    playbook = parse_playbook(text, name, files, found, foreknown(files, variables or {}))
    directory = os.path.dirname(os.path.abspath(name))
    for play in playbook.plays:
        found += source_problems(play, files, directory)
        try:
            check_settings(play)
        except UsageError as problem:
            found.append(problem)
    unique = dict.fromkeys(_problem(one, name) for one in found)
    return sorted(unique, key=lambda one: (one.file, one.line))


def check_syntax(path: Path, files: LocalFiles, variables: Mapping[str, Any]) -> None:
    """As ansible-playbook --syntax-check: raises UsageError at the first thing that cannot be read, and at a
    module that nobody knows, reached or not."""
    for play in read_playbook(path, files, variables).plays:
        for task in (*tasks_of(play.tasks), *play.handlers):
            if task.unknown:
                raise UsageError(f"{task.file}:{task.line}: {task.unknown}")


def _problem(error: UsageError, name: str) -> Problem:
    match = _PLACE.fullmatch(error.what)
    if match is None:
        return Problem(name, 0, error.what, error.hint)
    return Problem(os.path.relpath(match[1]), int(match[2]), match[3], error.hint)


def _where_plays_are(role: Path) -> Path:
    """Where a role's playbooks are as a rule: beside the directory `roles` that it is in, perhaps deeper. The
    roles, modules and filters of its project are found from there."""
    for above in role.absolute().parents:
        if above.name == "roles":
            return above.parent
    return role.parent


def _play_of(role: Path) -> str:
    """A play that imports each file of tasks and of handlers that a role has."""
    lines = ["- hosts: all", "  gather_facts: false", "  tasks:"]
    for argument, part in (("tasks_from", "tasks"), ("handlers_from", "handlers")):
        for name in _names(role / part) or ["main"]:
            lines.append(f"  - import_role: {json.dumps({'name': str(role), argument: name})}")
    return "\n".join(lines) + "\n"


def _names(directory: Path) -> list[str]:
    found = sorted(path for path in directory.rglob("*") if path.suffix in (".yml", ".yaml"))
    return [str(path.relative_to(directory).with_suffix("")) for path in found]
