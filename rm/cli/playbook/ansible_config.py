"""Which ansible.cfg holds, found in the order in which Ansible looks, and what it says."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

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
    for name in PLUGINS:
        for path in _code_in(getattr(found, name)):
            about = path.stat()
            if about.st_mode & stat.S_IWOTH or (ours and about.st_uid not in (0, os.geteuid())):
                distrusted = UsageError(
                    f"Others may write {path}, and a run would take code from there: "
                    f"'{name}' of Ansible's settings.",
                    f"chmod o-w {path}",
                )
                if refused is None:
                    raise distrusted
                refused(distrusted)
    if found.used:
        note(f"{file} sets {', '.join(found.used)}.")
    return found


def _code_in(directories: Sequence[str]) -> Iterator[Path]:
    """The directories that are there and have files, those below, and all that lies in them."""
    for top in map(Path, directories):
        inner = sorted(top.rglob("*")) if top.is_dir() else []
        if any(path.is_file() for path in inner):
            yield top
            yield from (path for path in inner if path.exists())


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
