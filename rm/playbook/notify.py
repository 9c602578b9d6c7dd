"""Which handlers a notification means, and the cursor that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rm.playbook.flow import Frame
from rm.playbook.schema import Task


def due(handlers: Sequence[Task], notified: Iterable[str], name_of: Callable[[Task], str]) -> list[int]:
    """The notified handlers' places. Of several with one name the last is meant; of a topic, all."""
    wanted: set[int] = set()
    for word in notified:
        named = [i for i, h in enumerate(handlers) if word in _names(h, name_of)]
        wanted |= set(named[-1:])
        wanted |= {i for i, h in enumerate(handlers) if word in h.listen}
    return sorted(wanted)


def _names(handler: Task, name_of: Callable[[Task], str]) -> set[str]:
    names = {handler.name, name_of(handler)}
    return names | {f"{handler.role.name} : {name}" for name in names} if handler.role else names


def flushing(handlers: Sequence[Task], places: Sequence[int], flush: Frame, turn: int) -> Frame:
    """The cursor that runs these handlers and comes back to the flush, which may have new ones then."""
    cursor = flush
    for place in reversed(places):
        handler = handlers[place]
        nodes = (handler,)
        cursor = Frame(nodes, 0, (*flush.position, turn, place), cursor, handlers=True, bound=flush.bound)
    return cursor
