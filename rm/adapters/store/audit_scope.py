"""The request that runs now, for the audit log.

The web sets it; what makes a change durable takes it along into the same transaction. It follows a
request through coroutines and `asyncio.to_thread`, as context variables do, so that no use case in between
has to pass it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from rm.core.people.audit import Act, clean


@dataclass(slots=True)
class Deed:
    """`act` as far as it is known; `recorded` when it is, or will be with the change itself."""

    act: Act
    recorded: bool = False


_current: ContextVar[Deed | None] = ContextVar("deed", default=None)


def current_deed() -> Deed | None:
    """The request's, unless it is recorded."""
    deed = _current.get()
    return None if deed is None or deed.recorded else deed


def about(target: str) -> None:
    """What the request that runs now is about, where its path does not say so."""
    deed = current_deed()
    if deed is not None:
        deed.act = replace(deed.act, target=clean(target))


@contextmanager
def deed(act: Act) -> Iterator[Deed]:
    made = Deed(act)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)
