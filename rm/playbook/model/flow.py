"""Where a host is in its play: a cursor that never changes, so that it can be kept and gone back to.

A position is a tuple of numbers that grows along the way a host takes, and names the same place on
every host: comparing positions says who is behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rm.playbook.model.schema import Block, Node, Task
from rm.quick_dataclass import dataclass

Position = tuple[int, ...]
END: Position = (1 << 60,)
BLOCK, RESCUE, ALWAYS = 0, 1, 2
# variables that includes brought, the nearest first; whether they may hold templates
Bound = tuple[tuple[Mapping[str, Any], bool], ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A list of tasks, the next one in it, and the list that it belongs into.

    `bound` is what the includes on the way here brought; `failing`: this is the `always` of
    a block that failed.
    """

    nodes: tuple[Node, ...]
    at: int = 0
    where: Position = ()
    up: Frame | None = None
    block: Block | None = None
    phase: int = BLOCK
    failing: bool = False
    handlers: bool = False
    bound: Bound = ()

    @property
    def position(self) -> Position:
        return (*self.where, self.at)

    @property
    def task(self) -> Task:
        node = self.nodes[self.at]
        assert isinstance(node, Task)
        return node

    def after(self) -> Frame:
        return replace(self, at=self.at + 1)


def to_task(frame: Frame | None) -> tuple[Frame | None, bool]:
    """The cursor at the next task, into blocks and out of finished ones; and whether the host failed."""
    while frame is not None:
        if frame.at < len(frame.nodes):
            node = frame.nodes[frame.at]
            if not isinstance(node, Block):
                return frame, False
            frame = _part(frame.after(), node, BLOCK, (*frame.position, BLOCK), frame)
        elif frame.block is None:
            frame = frame.up
        elif frame.phase != ALWAYS and frame.block.always:
            frame = _part(frame.up, frame.block, ALWAYS, (*frame.where[:-1], ALWAYS), frame)
        elif frame.failing:
            frame = on_failure(frame.up)
            if frame is None:
                return None, True
        else:
            frame = frame.up
    return None, False


def on_failure(frame: Frame | None) -> Frame | None:
    """Where a host goes on after a failure here; None: it has failed."""
    while frame is not None:
        block = frame.block
        if block is not None and frame.phase == BLOCK and block.rescue:
            return _part(frame.up, block, RESCUE, (*frame.where[:-1], RESCUE), frame)
        if block is not None and frame.phase != ALWAYS and block.always:
            part = _part(frame.up, block, ALWAYS, (*frame.where[:-1], ALWAYS), frame)
            return replace(part, failing=True)
        frame = frame.up
    return None


def rescues(frame: Frame | None) -> bool:
    """Will a failure here be rescued?"""
    after = on_failure(frame)
    while after is not None and after.failing:
        after = on_failure(after.up)
    return after is not None


def _part(up: Frame | None, block: Block, phase: int, where: Position, like: Frame) -> Frame:
    nodes = (block.block, block.rescue, block.always)[phase]
    return Frame(nodes, 0, where, up, block, phase, handlers=like.handlers, bound=like.bound)


def first_time(nodes: tuple[Node, ...], done: set[tuple[str, str]]) -> tuple[Node, ...]:
    """The list without the tasks of roles that are `done`, to which its others are added. Positions stay."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Block) and node.once:
            again = node.once in done
            done.add(node.once)
            node = replace(node, block=() if again else first_time(node.block, done))
        found.append(node)
    return tuple(found)


def included(frame: Frame, parts: list[tuple[tuple[Node, ...], Bound]]) -> Frame:
    """The cursor that does these lists, one after the other, before it goes on after the task at `frame`."""
    cursor = frame.after()
    for index, (nodes, bound) in reversed(list(enumerate(parts))):
        cursor = Frame(
            nodes, 0, (*frame.position, index), cursor,
            handlers=frame.handlers, bound=(*bound, *frame.bound),
        )  # fmt: skip
    return cursor
