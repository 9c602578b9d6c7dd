"""Which handlers a notification means, and the cursor that runs one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rm.playbook.model.flow import Bound, Frame
from rm.playbook.model.schema import Task


def due(handlers: Sequence[Task], notified: Iterable[str], name_of: Callable[[Task], str]) -> list[Task]:
    """The notified handlers. Of several with one name the last is meant; of a topic, all."""
    wanted: list[Task] = []
    for word in notified:
        named = [handler for handler in handlers if word in _names(handler, name_of)]
        wanted += named[-1:]
        topic = {
            handler.name or str(i): handler for i, handler in enumerate(handlers) if word in handler.listen
        }
        wanted += topic.values()
    return wanted


def _names(handler: Task, name_of: Callable[[Task], str]) -> set[str]:
    names = {handler.name, name_of(handler)}
    roles = {handler.role.name, handler.role.full_name} if handler.role else set()
    return names | {f"{role} : {name}" for name in names for role in roles}


def running(handler: Task, place: int, flush: Frame, bound: Bound) -> Frame:
    """The cursor that runs one handler and comes back to the flush, which may have another one then."""
    return Frame((handler,), 0, (*flush.position, place), flush, handlers=True, bound=bound)
