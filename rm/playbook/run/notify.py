"""Which handlers a notification means, and the cursor that runs one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rm.playbook.model.flow import Bound, Frame
from rm.playbook.model.schema import Task


def due(handlers: Sequence[Task], notified: Iterable[str], name_of: Callable[[Task], str]) -> list[Task]:
    """The notified ones of `handlers`, whose lists stand the weakest first. Where several have
    one name, the strongest list counts, and the first in it; of a topic, all do."""
    lists = [list(one) for _, one in groupby(handlers, lambda handler: handler.listed)]
    strongest = [handler for one in reversed(lists) for handler in one]
    wanted: list[Task] = []
    for word in notified:
        wanted += [handler for handler in strongest if word in _names(handler, name_of)][:1]
        topic: dict[str, Task] = {}
        for i, handler in enumerate(strongest):
            if word in handler.listen:
                topic.setdefault(handler.name or str(i), handler)
        wanted += topic.values()
    return wanted


def _names(handler: Task, name_of: Callable[[Task], str]) -> set[str]:
    names = {handler.name, name_of(handler)}
    roles = {handler.role.name, handler.role.full_name} if handler.role else set()
    return names | {f"{role} : {name}" for name in names for role in roles}


def running(handler: Task, place: int, flush: Frame, bound: Bound) -> Frame:
    """The cursor that runs one handler and comes back to the flush, which may have another one then."""
    return Frame((handler,), 0, (*flush.position, place), flush, handlers=True, bound=bound)
