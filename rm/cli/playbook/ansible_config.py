"""Which ansible.cfg holds, found in the order in which Ansible looks, and what it says."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rm.adapters.playbook.installed import with_folders
from rm.adapters.playbook.trust import closing, ways_to
from rm.cli.output import note
from rm.errors import UsageError
from rm.playbook.read.ansible_settings import PLUGINS, Settings, read

SYSTEM = Path("/etc/ansible/ansible.cfg")


def ansible_settings(
    environment: Mapping[str, str], shipped: bool, refused: Callable[[UsageError], None] | None = None,
    ours: bool = False,
) -> Settings:  # fmt: skip
    """Tells on standard error which file counts. `shipped`: the playbook comes with rm, so that the current
    directory is nothing that the caller chose to trust. `ours`: code that others than root and this user
    own is refused, too. Raises UsageError; `refused` is given each refused setting instead."""
    home = os.path.expanduser("~")
    file = _found(environment, Path(home), shipped)
    try:
        text = file.read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file} cannot be read: {problem}.") from None
    found = read(text, str(file or ""), environment, home, os.getcwd(), refused)
    for path, name, commands in _distrusted_code(found, ours):
        distrusted = UsageError(
            f"Others may write {path}, and a run would take code from there: '{name}' of Ansible's settings.",
            commands,
        )
        if refused is None:
            raise distrusted
        refused(distrusted)
    if found.used:
        note(f"{file} sets {', '.join(found.used)}.")
    return found


def _distrusted_code(found: Settings, ours: bool) -> Iterator[tuple[str, str, str]]:
    """What others may write of the directories with code and of what leads there, with the setting and the
    commands that end it."""
    told, seen = set[str](), set[str]()
    for name in PLUGINS:
        for path in _code_in(getattr(found, name), deep=name == "module_utils"):
            ways = [one for one in ways_to(path, seen) if one != path]
            for one, far in ((path, False), *((way, True) for way in ways)):
                if one not in told and (commands := closing(one, far, owned=ours)):
                    told.add(one)
                    yield one, name, commands


def _code_in(directories: Sequence[str], deep: bool) -> Iterator[str]:
    """The directories that are there and from which code is taken, those to which links lead among them, and
    their files. `deep`: packages may lie in packages."""
    for top in directories:
        inner: list[str] = []
        for folder in _below(top) if deep else with_folders([top]):
            inner.append(folder)  # without a file too: one may be put there before the run looks
            for files in (folder, os.path.join(folder, "__pycache__")):  # Python may take a module from there
                names = (
                    sorted(os.listdir(files)) if os.path.isdir(files) and os.access(files, os.R_OK) else []
                )
                paths = [os.path.join(files, name) for name in names]
                inner += [files, *filter(os.path.isfile, paths)] if paths else []
        yield from dict.fromkeys(inner)


def _below(top: str) -> Iterator[str]:
    entered = set[str]()
    for folder, below, _ in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:  # by a link
            below.clear()
        else:
            entered.add(real)
            below.sort()
            yield folder


def _found(environment: Mapping[str, str], home: Path, shipped: bool) -> Path | None:
    named = environment.get("ANSIBLE_CONFIG", "")
    first = Path(named).expanduser() if named else None
    if first is not None and first.is_dir():
        first = first / "ansible.cfg"
    here = Path.cwd() / "ansible.cfg"
    for file in (first, here, home / ".ansible.cfg", SYSTEM):
        if file is None or not (file.is_file() and os.access(file, os.R_OK)):
            continue
        if file is here and file != first and (why := _distrusted(here, shipped)):
            note(f"{here} is ignored: {why}. ANSIBLE_CONFIG={here} names it.")
            continue
        return file.absolute()
    return None


def _distrusted(file: Path, shipped: bool) -> str:
    folder, owner = file.parent.stat(), file.stat()
    if folder.st_mode & stat.S_IWOTH:
        return "others may write to its directory"
    if shipped and {folder.st_uid, owner.st_uid} - {0, os.getuid()}:
        return "it is another user's, and the playbook comes with rm"
    return ""
