"""Stores that a test opens; each is closed after the test, if the test has not done that itself."""

from __future__ import annotations

from typing import Any

from rm.adapters.store import opening

_open: list[Any] = []


def remembered(store: Any) -> Any:
    _open.append(store)
    return store


def open_store(url: str) -> Any:
    """As the daemon opens it."""
    return remembered(opening.open_store(url))


def close_all() -> None:
    while _open:
        _open.pop().close()
