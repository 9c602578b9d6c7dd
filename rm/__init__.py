"""rm: a network-aware batch resource manager for bare-metal GPU hosts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rm.client import Client as Client

__version__: str


def __getattr__(name: str) -> Any:
    """`rm.__version__` and `rm.Client`, found when they are first wanted: most commands never ask git for the
    version, and some need no client."""
    if name == "Client":
        from rm.client import Client

        return Client
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pathlib import Path

    from rm.version import version_of

    found = version_of(Path(__file__).parents[1])
    globals()["__version__"] = found
    return found
