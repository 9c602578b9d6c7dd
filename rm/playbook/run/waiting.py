"""A compiled task whose answers are still to come, sent in one go or piece by piece.

A task goes in pieces when its items must not run together: `until` repeats one item, `delegate_to` may
send items to different hosts, `loop_control.pause` waits between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rm.playbook.model.flow import Frame
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Task
from rm.playbook.model.steps import Batch, Step
from rm.playbook.run.compile import Flags, Item, Skip, number_from, truth
from rm.playbook.run.outcome import apply, with_result
from rm.playbook.template.template import NeedResult, Scope, condition, evaluate
from rm.quick_dataclass import dataclass

RETRIES = 3


@dataclass(slots=True)
class Waiting:
    task: Task
    items: list[Item]
    scope: Scope
    frame: Frame
    flags: Flags
    once: bool = False
    pieces: list[list[Item]] = field(default_factory=list)
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)

    def steps(self) -> list[Step]:
        return [item.step for item in self.items if item.step is not None]


def in_pieces(waiting: Waiting) -> bool:
    task = waiting.task
    pause = task.loop.pause if task.loop else 0
    if task.loop and len({item.way for item in waiting.items if item.step is not None}) > 1:
        return True
    return bool(task.until is not None or task.retries is not None or task.delegate_to or pause
                or task.throttle or (task.loop and task.loop.break_when))  # fmt: skip


def split(waiting: Waiting) -> None:
    """Cut the items that have steps into what may go together."""
    task = waiting.task
    one_by_one = task.until is not None or task.retries is not None
    one_by_one = one_by_one or bool(task.loop and (task.loop.pause or task.loop.break_when))
    for item in waiting.items:
        if item.step is None:
            continue
        last = waiting.pieces[-1] if waiting.pieces else None
        if last is None or one_by_one or not _together(last[0], item):
            waiting.pieces.append([item])
        else:
            last.append(item)


def _becomes(item: Item) -> bool:
    return bool(getattr(item.work, "become", False))


def _together(one: Item, other: Item) -> bool:
    return (one.target, one.way, _becomes(one)) == (other.target, other.way, _becomes(other))


def piece_batch(waiting: Waiting, first: bool) -> Batch:
    """The next piece as a batch. Raises TemplateProblem."""
    piece, task = waiting.pieces[0], waiting.task
    delay = 0.0
    if piece[0].attempts:
        delay = _number(task.delay, waiting.scope)
    elif not first and task.loop and task.loop.pause:
        delay = _number(task.loop.pause, waiting.scope)
    for item in piece:
        item.attempts += 1 if task.until is not None or task.retries is not None else 0
    steps = tuple(item.step for item in piece if item.step is not None)
    throttle = int(_number(task.throttle, waiting.scope))
    return Batch(steps, _becomes(piece[0]), target=piece[0].target, delay_s=delay, way=piece[0].way,
                 throttle=throttle, where=waiting.frame.position)  # fmt: skip


def take(waiting: Waiting, answers: Mapping[int, dict[str, Any]]) -> None:
    """Keep a piece's answers; what `until` is not content with stays the next piece."""
    waiting.answers.update(answers)
    piece, task = waiting.pieces[0], waiting.task
    if (task.until is not None or task.retries is not None) and not _content(waiting, piece[0]):
        return
    waiting.pieces.pop(0)
    if task.loop and task.loop.break_when and _breaks(waiting, piece[0]):
        left = {id(item) for one in waiting.pieces for item in one}
        waiting.pieces.clear()
        waiting.items = [item for item in waiting.items if id(item) not in left]


def _content(waiting: Waiting, item: Item) -> bool:
    task = waiting.task
    assert item.step is not None
    answer = waiting.answers.get(item.step.id)
    if answer is None or answer.get("might_run"):  # in check mode nothing becomes what is waited for
        return True
    scope = item.scope or waiting.scope
    trial = {"changed": False, "failed": False, **answer, "attempts": item.attempts}
    apply(task, trial, scope)
    try:
        inner = with_result(task, trial, scope)
        done = all(condition(c, inner) for c in task.until) if task.until else not trial["failed"]
        allowed = RETRIES if task.retries is None else max(0, int(_number(task.retries, scope)))
    except (TemplateProblem, NeedResult) as problem:
        answer |= {"failed": True, "msg": f"until: {problem}."}
        return True
    if done:
        return True
    if item.attempts > allowed:
        answer |= {"failed": True, "exhausted": True}
        answer.setdefault("msg", "")
        item.attempts = allowed
        return True
    return False


def _breaks(waiting: Waiting, item: Item) -> bool:
    assert item.step is not None
    return breaks(waiting.task, item, waiting.scope, waiting.answers.get(item.step.id, {}))


def breaks(task: Task, item: Item, scope: Scope, answer: Mapping[str, Any]) -> bool:
    """Does the loop end after this item, by `loop_control.break_when`?"""
    assert task.loop is not None
    try:
        inner = with_result(task, {"changed": False, "failed": False, **answer}, item.scope or scope)
        return all(condition(c, inner) for c in task.loop.break_when)
    except (TemplateProblem, NeedResult):
        return False


def up_to_break(task: Task, items: list[Item], scope: Scope) -> list[Item]:
    """The items of a loop up to the first one that ends it, as far as they are done without the host."""
    if not (task.loop and task.loop.break_when):
        return items
    for i, item in enumerate(items):
        skipped = isinstance(item.work, Skip)
        if item.step is None and (skipped or item.answer is not None):
            answer = item.answer or {"skipped": skipped}
            if breaks(task, item, scope, answer):
                return items[: i + 1]
    return items


def _number(value: Any, scope: Scope) -> float:
    found = evaluate(value, scope)
    number = number_from(found)
    if number is None:
        raise TemplateProblem(f"'{value}' gave {found!r}, not a number")
    return number


__all__ = ["Waiting", "in_pieces", "piece_batch", "split", "take", "truth"]
