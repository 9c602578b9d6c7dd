"""What is put into the leader's inbox with the promise of an answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rm.adapters.store.audit_scope import Deed, current_deed
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.scheduling.cycle import Cycle
from rm.core.store import Batch
from rm.errors import Unreachable


@dataclass(slots=True)
class Request:
    """Something the leader is asked to do, with the promise to answer after the commit.

    `make` turns the state into events in the leader's thread (it may raise RmError to refuse);
    `answer` turns the state after the commit into the result. Those of one turn are all made of the state
    before it: `alone` is what says how something is to be as a whole, such as the tree of accounts, so that
    it would undo what another request of its turn changes of that.
    """

    make: Callable[[ClusterState], list[ev.Event]]
    answer: Callable[[ClusterState], Any]
    weight: int = 1  # how many events it makes, about
    alone: bool = False  # it is the first of its turn, and the only one of its kind
    done: Future[Any] = field(default_factory=Future)
    deed: Deed | None = field(default_factory=current_deed)


@dataclass(slots=True)
class Question:
    """A read that needs the leader's consistent state; nothing is committed for it."""

    ask: Callable[[Cycle, int], Any]
    done: Future[Any] = field(default_factory=Future)


@dataclass(slots=True)
class Keep:
    """What to make durable besides the state; nothing is decided from it."""

    batch: Batch
    done: Future[Any] = field(default_factory=Future)
    deed: Deed | None = field(default_factory=current_deed)


def begin(item: Request | Question | Keep) -> bool:
    """Answer it from now on in any case; False when the asker has given up."""
    return item.done.set_running_or_notify_cancel()


def refuse(item: Any, error: Exception) -> None:
    if isinstance(item, Request | Question | Keep) and not item.done.done():
        item.done.set_exception(error)


def weight_of(item: Any) -> int:
    return item.weight if isinstance(item, Request) else 1


def stopping() -> Unreachable:
    return Unreachable("The daemon is stopping.", "Try again.")
