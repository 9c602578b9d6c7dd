"""The playbooks that may be started from the page and the API: those of one folder, and some of rm's own.

A name is looked up in this list and never becomes a part of a path. A playbook that belongs to others than
root and the daemon's user, or that everybody may write, is refused: it would run as the daemon's user. So is
one whose survey file does: the file says which variables people may set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rm.adapters.playbook.shipped import shipped_directory, shipped_playbook
from rm.adapters.playbook.trust import closing, ways_to
from rm.errors import Forbidden, NotFound, UsageError
from rm.hints import did_you_mean
from rm.quick_dataclass import dataclass

if TYPE_CHECKING:  # the engine is loaded when a playbook is first read
    from rm.adapters.playbook.files import LocalFiles
    from rm.playbook.read.questions import Question

ENDINGS = (".yml", ".yaml")
SURVEY = ".survey"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Listed:
    """A playbook by its name, without the ending; `about` is its first line if that is a comment."""

    name: str
    path: Path
    about: str = ""


def _must_be_ours(path: Path | str, far: bool = False) -> None:
    """Raises Forbidden where others could write it, or put something else there."""
    if commands := closing(path, far):
        raise Forbidden(
            f"Others than root and the daemon's user may write {path}, which this user would run.",
            commands,
        )


class Catalogue:
    """`directory` "": none but the `shipped` ones, which come first where a file has the name of one."""

    def __init__(self, directory: str, shipped: Sequence[str] = ()) -> None:
        self._directory = Path(directory).expanduser() if directory else None
        self._shipped = tuple(shipped)

    def listed(self) -> list[Listed]:
        """By name. Raises UsageError where the folder cannot be read."""
        found = {path.name.partition(".")[0]: path for path in self._of_folder()}
        own = shipped_directory("playbooks")
        found |= {name: own / f"{name}.yml" for name in self._shipped if (own / f"{name}.yml").is_file()}
        return [Listed(name, path, _about(path)) for name, path in sorted(found.items())]

    def unknown(self) -> list[str]:
        """Names of `shipped` that do not come with rm."""
        own = shipped_directory("playbooks")
        return [name for name in self._shipped if not (own / f"{name}.yml").is_file()]

    def _of_folder(self) -> list[Path]:
        if self._directory is None:
            return []
        try:
            entries = sorted(self._directory.iterdir())
        except OSError as problem:
            raise UsageError(
                f"The folder of the playbooks, {self._directory}, cannot be read: {problem.strerror}.",
                "playbooks.directory of rm.toml names it.",
            ) from None
        return [
            path
            for path in entries
            if path.suffix in ENDINGS
            and NAME.fullmatch(path.stem)
            and "." not in path.stem
            and path.is_file()
            and path.resolve().parent == self._directory.resolve()
        ]

    def find(self, name: str) -> Listed:
        """Raises NotFound, and Forbidden where others could have written it."""
        listed = self.listed()
        found = next((one for one in listed if one.name == name), None)
        if found is None:
            hint = did_you_mean(name, [one.name for one in listed]) if listed else ""
            raise NotFound(
                f"There is no playbook '{name:.100}' that may be started here.",
                hint or "An administrator names their folder in rm.toml: playbooks.directory.",
            )
        survey = _survey_file(found)
        own = (found.path.parent, found.path, *([survey] if survey else ()))
        for path in own if found.path.parent == self._directory else ():
            _must_be_ours(path)
        return found

    def check_maintenance(self, given: str, any_file: bool) -> None:
        """Of a maintenance: the name of a playbook that comes with rm, or the whole path of a file of the
        folder; with `any_file`, for whom the daemon's machine is his own anyway, of any file.

        Raises:
            UsageError: there is no such file.
            NotFound, Forbidden: it may not be started.
        """
        named = os.sep not in given
        path = shipped_playbook(given) if named else Path(given)
        if not named and not any_file:
            if not path.is_absolute() or path.parent != self._directory or self.find(path.stem).path != path:
                raise Forbidden(
                    f"'{given:.200}' would run with the daemon's rights, and is no playbook of its folder.",
                    "Name one that comes with rm, or a file of the folder that rm.toml names. "
                    "Root, and the user who runs the daemon, may name any file.",
                )
        elif not path.is_absolute() or not os.path.isfile(path):  # also one whose name no file can have
            raise UsageError(
                f"There is no playbook '{given:.200}' on the daemon's machine.",
                "Write its whole path there, or the name of one that comes with rm: rmx playbook list.",
            )
        elif not named:
            self.check_unchanged(given)

    def check_unchanged(self, given: str) -> None:
        """The same when its window opens: nobody may have put another file in its place.

        Raises:
            Forbidden: others could have written it.
            OSError: it is not there.
        """
        if os.sep in given:
            path = Path(given)
            near = (path, path.parent, path.resolve().parent)
            for each in near:
                _must_be_ours(each)
            for way in ways_to(path, set()):
                _must_be_ours(way, far=True)

    def questions(self, found: Listed, files: LocalFiles | None = None) -> list[Question]:
        """The survey of the playbook. Names of what it imports may hold the survey's defaults, and no
        lookups, which would run here. Raises UsageError where it, or its survey file, is wrong."""
        from rm.adapters.playbook.files import LocalFiles, read_playbook
        from rm.playbook.read.questions import questions_of
        from rm.playbook.read.static_names import Foreknown

        local = files or LocalFiles()
        survey = _survey(found, local)
        known = Foreknown({one.name: one.default for one in survey or () if one.default is not None})
        return questions_of(read_playbook(found.path, local, known=known), survey)


def _survey_file(found: Listed) -> Path | None:
    named = (found.path.with_name(found.path.stem + SURVEY + ending) for ending in ENDINGS)
    return next((path for path in named if path.is_file()), None)


def _survey(found: Listed, files: LocalFiles) -> list[Question] | None:
    path = _survey_file(found)
    if path is None:
        return None
    from rm.playbook.model.located import load
    from rm.playbook.read.questions import survey_of

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"The survey file {path} cannot be read: {problem}.") from None
    return survey_of(load(text, str(path), decrypt=files.decrypt), str(path))


def _about(path: Path) -> str:
    from rm.adapters.playbook.vault import HEADER

    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline(500).strip()
    except OSError:
        return ""
    return first.lstrip("# ").strip() if first.startswith("#") and not first.startswith(HEADER) else ""
