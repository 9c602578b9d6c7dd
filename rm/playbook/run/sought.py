"""What a lookup is asked, and what of this machine it may use."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from rm.playbook.module import Files
from rm.playbook.template.template import Scope
from rm.quick_dataclass import dataclass


class Chance(Protocol):
    """Python's `random.Random`, as far as it is used."""

    def randrange(self, start: int, stop: int, step: int) -> int: ...
    def choice(self, seq: Sequence[Any]) -> Any: ...
    def shuffle(self, x: list[Any]) -> None: ...


class Control(Protocol):
    """This machine, for lookups that ask it."""

    def environment(self, name: str) -> str | None: ...
    def looks(self, kind: str, path: str, other: str) -> Any:
        """Is there something of this kind (of `rm/playbook/template/filters/paths.py`) at a path? `other` is
        the second path of "same_file". Raises BadArgument."""
        ...

    def pipe(self, command: str) -> str:
        """Run a command here; raises BadArgument when it fails."""
        ...

    def now(self) -> datetime: ...
    def chance(self, seed: Any) -> Chance:
        """With a seed the same numbers each time."""
        ...

    def crypt(self, secret: str, setting: str) -> str:
        """crypt(3); raises BadArgument where it is not there, or does not know the setting."""
        ...

    def seal(self, plain: str, password: str, salt: str | None, label: str) -> str:
        """A text in ansible-vault's format; a drawn salt where none is given. Raises BadArgument."""
        ...

    def unseal(self, sealed: str, password: str) -> str:
        """What is in ansible-vault's format, opened; from now on it is a secret. Raises BadArgument."""
        ...

    def fetch(self, url: str, options: Mapping[str, Any]) -> bytes:
        """What a web server has; raises BadArgument."""
        ...

    def keep(self, path: str, content: Callable[[str | None], str]) -> None:
        """Bring a private file to what `content` makes of its old content (None: there is none), while no
        other run does. Raises BadArgument."""
        ...


@dataclass(frozen=True, slots=True)
class Sought:
    """One call of a lookup."""

    terms: list[Any]
    options: Mapping[str, Any]
    scope: Scope
    files: Files
    search: Sequence[str]
    control: Control | None

    def path(self, name: str, kind: str) -> str:
        return find(self.files, self.search, name, kind)


def find(files: Files, search: Sequence[str], name: str, kind: str) -> str:
    """A local file: in `<kind>/` of each place, then in the place itself; else where it should be."""
    if posixpath.isabs(name):
        return name
    for place in search:
        for path in (posixpath.join(place, kind, name), posixpath.join(place, name)):
            if files.exists(path):
                return path
    return posixpath.join(search[0], kind, name) if search else name
