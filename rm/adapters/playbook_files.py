"""The control machine's files for playbooks: the playbook itself and what it copies."""

from __future__ import annotations

import glob
import os
import stat
from functools import cache
from pathlib import Path

from rm.errors import UsageError
from rm.playbook.module import BadArgument
from rm.playbook.parse import parse_playbook
from rm.playbook.schema import Playbook


class LocalFiles:
    """The control machine's files, each read once per run."""

    def __init__(self) -> None:
        self.read = cache(self._read)

    def _read(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as problem:
            raise BadArgument(f"the local file {path} cannot be read: {problem.strerror}") from None

    def glob(self, pattern: str) -> list[str]:
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def mode(self, path: str) -> int:
        return stat.S_IMODE(os.stat(path).st_mode)


def read_playbook(path: str | Path, files: LocalFiles | None = None) -> Playbook:
    """Parse and check a playbook; raises UsageError with file, line and what to do."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"The playbook {path} cannot be read: {why}.", "Give the path of a YAML file."
        ) from None
    return parse_playbook(text, str(path), files or LocalFiles())
