"""`re`, imported when something of it is first asked for: few of the commands that scripts call in loops need
it, and it takes a sixth of their time."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import re as re
    from typing import Any


class ImportedLater:
    """Stands for a module of the standard library."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(__import__(self.__name__), name)
        setattr(self, name, found)  # found at once the next time
        return found


if not TYPE_CHECKING:
    re = ImportedLater("re")
