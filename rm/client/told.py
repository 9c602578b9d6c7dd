"""What a daemon of this machine tells, as objects, at the least cost: for lists in scripts that loop.

`rm.client.Client` makes typed values of the same answers; to load its types takes most of such a command's
time.
"""

from __future__ import annotations

from rm.client.one_request import read
from rm.client.quick_json import objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Told(dict):  # type: ignore[type-arg]
    """A JSON object whose fields are attributes, too. One that was not told is None."""

    __slots__ = ()
    __getattr__ = dict.get


def told(path: str, target: str) -> Any:
    """The answer to `GET target`; None: `rm.client.Client` has to ask.

    Args:
        path: the daemon's socket.
        target: the path below the root, with the query.
    """
    answer = read(path, target)
    if answer is None:
        return None
    try:
        return objects(answer.decode(), Told)
    except (ValueError, RecursionError):
        return None
