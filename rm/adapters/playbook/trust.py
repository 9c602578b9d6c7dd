"""Whether others than root and this user can change a file, or put another one in its place."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path


def others_may_write(path: Path | str, far: bool = False, owned: bool = True) -> bool:
    """Whether everybody may write it or, with `owned`, it or the link that it is belongs to others. In a
    directory like /tmp nobody moves what is another's: one `far` above a file may be such. Raises OSError."""
    return bool(closing(path, far, owned))


def closing(path: Path | str, far: bool = False, owned: bool = True) -> str:
    """The commands after which others may not write it; "" where they may not now. In the place
    of a link a new one comes, by a command that shows where another has led it. Raises OSError."""
    name = shlex.quote(os.fspath(path))
    about, itself, trusted = os.stat(path), os.lstat(path), {0, os.geteuid()}
    commands = []
    if owned and itself.st_uid not in trusted and stat.S_ISLNK(itself.st_mode):
        commands.append(f"ln -sfn -- {shlex.quote(os.readlink(path))} {name}")
    if owned and about.st_uid not in trusted:
        commands.append(f"chown root {name}")
    if about.st_mode & stat.S_IWOTH and not (far and about.st_mode & stat.S_ISVTX):
        commands.append(f"chmod o-w {name}")
    return " && ".join(commands)


def ways_to(path: Path | str, seen: set[str]) -> Iterator[str]:
    """It, and what leads there: the directories above it, and those of every link on the way. Whoever may
    write one of these may put another file there. What is in `seen` is left out, and put there."""
    todo = [os.path.join(os.getcwd(), path)]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        yield one
        above = os.path.dirname(one)
        todo.append(above)
        if os.path.islink(one):
            todo.append(os.path.join(above, os.readlink(one)))
