"""A file that is written aside and takes another's place when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import BinaryIO


@contextmanager
def written_aside(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file, with this mode as far as the umask leaves it, that replaces `path` at the end, synced. What
    is raised meanwhile leaves `path` as it was. Raises OSError."""
    directory, name = os.path.split(os.fspath(path))
    aside = os.path.join(directory, f".{name[:200]}.{token_hex(4)}.rm-new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(aside, flags, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
