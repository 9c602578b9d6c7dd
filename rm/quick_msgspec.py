"""msgspec at a third of what loading it takes: it looks for `typing_extensions`, which SQLAlchemy brings, and
takes of that what this Python's `typing` has itself."""

from __future__ import annotations

import sys

OTHERS = "typing_extensions"


def load_msgspec() -> None:
    """Before anybody imports it, while no other thread imports anything."""
    if "msgspec" in sys.modules or OTHERS in sys.modules:
        return
    sys.modules[OTHERS] = None  # type: ignore[assignment]  # as if it was not installed
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[OTHERS]
