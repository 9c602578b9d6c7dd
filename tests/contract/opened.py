"""Stores and connections that a test opens; each is closed after the test, if it is open still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rm.adapters.store import opening
from rm.adapters.store.database import make_engine
from rm.adapters.store.opening import MIGRATIONS

_ends: list[Callable[[], None]] = []


def remembered(store: Any) -> Any:
    _ends.append(store.close)
    return store


def open_store(url: str, migrations: Path = MIGRATIONS) -> Any:
    """As the daemon opens it."""
    return remembered(opening.open_store(url, migrations))


def connected(url: str) -> sa.Connection:
    """A connection beside those of a store."""
    engine = make_engine(url)
    _ends.append(engine.dispose)
    return engine.connect()


def close_all() -> None:
    while _ends:
        _ends.pop()()
