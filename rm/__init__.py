"""rm: a network-aware batch resource manager for bare-metal GPU hosts."""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    """`rm.__version__`, found out when it is first wanted: most commands never ask git for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pathlib import Path

    from rm.version import version_of

    found = version_of(Path(__file__).parents[1])
    globals()["__version__"] = found
    return found
