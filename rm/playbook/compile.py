"""A task and a scope to work for the executor: loop, `when`, arguments, module; all pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rm.playbook.module import BadArgument, CompileContext, executor_of, registry, typed
from rm.playbook.schema import Play, Task
from rm.playbook.steps import Step
from rm.playbook.template import OMIT, Layer, Scope, TemplateProblem, condition, evaluate

LOOP_MAX = 10_000


class TaskProblem(Exception):
    """The task cannot be compiled for this host; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Work:
    op: str
    args: dict[str, Any]
    environment: dict[str, str]
    check: bool
    user: str  # "" = the one that the play logs in or becomes root as


@dataclass(frozen=True, slots=True)
class Skip:
    reason: str


@dataclass(slots=True)
class Item:
    """One pass of a task: `label` names a loop's item. `work` None: `answer` already says it all."""

    label: str
    work: Work | Skip | None
    answer: dict[str, Any] | None = None
    scope: Scope | None = None
    value: Any = None
    step: Step | None = None


def compile_task(play: Play, task: Task, context: CompileContext, check: bool) -> list[Item]:
    """Every item of the task, in order; raises TaskProblem or NeedResult."""
    scope = context.scope
    try:
        if task.loop_kind:
            try:
                values = _loop(task, context)
            except TemplateProblem:
                # an undefined list does not matter where the condition already says no
                if task.when and not all(condition(one, scope) for one in task.when):
                    return [Item("", Skip(_why(task, scope)), None, scope)]
                raise
            items = []
            for index, value in enumerate(values):
                bound = {task.loop_var: value, **({task.index_var: index} if task.index_var else {})}
                inner = scope.above(Layer(bound, False))
                label = evaluate(task.loop_label, inner) if task.loop_label else value
                item = _one(play, task, inner, context, check)
                item.label, item.value = str(label), value
                items.append(item)
            return items or [Item("", Skip("the list is empty"), None, scope)]
        return [_one(play, task, scope, context, check)]
    except (TemplateProblem, BadArgument) as problem:
        raise TaskProblem(f"{problem}.") from None


def _why(task: Task, scope: Scope) -> str:
    return next(str(one) for one in task.when if not condition(one, scope))


def _loop(task: Task, context: CompileContext) -> list[Any]:
    values = evaluate(task.loop, context.scope)
    if task.loop_kind == "with_fileglob":
        patterns = values if isinstance(values, list) else [values]
        paths = [context.source(str(pattern), "files") for pattern in patterns]
        values = [path for one in paths for path in context.files.glob(one)]
    elif task.loop_kind == "with_items":
        values = values if isinstance(values, list) else [values]
        values = [x for value in values for x in (value if isinstance(value, list) else [value])]
    if not isinstance(values, list):
        kind = type(values).__name__
        raise TemplateProblem(f"the loop needs a list, not {values!r} ({kind})")
    if len(values) > LOOP_MAX:
        raise TemplateProblem(f"the loop has {len(values)} items, more than {LOOP_MAX}")
    return values


def _one(play: Play, task: Task, scope: Scope, context: CompileContext, check: bool) -> Item:
    for one in task.when:
        if not condition(one, scope):
            return Item("", Skip(str(one)), None, scope)
    module = registry()[task.module]
    expressions = getattr(module, "EXPRESSIONS", ())
    given = {k: v if k in expressions else evaluate(v, scope) for k, v in task.args.items()}
    given = {k: v for k, v in given.items() if v is not OMIT}
    inner = CompileContext(scope, context.files, context.directory)
    try:
        args = module.compile(typed(module, given), inner)
    except BadArgument as problem:
        raise BadArgument(f"{task.module}: {problem}") from None
    environment = {**evaluate(dict(play.environment), scope), **evaluate(dict(task.environment), scope)}
    checking = check if task.check_mode is None else task.check_mode
    user = ""
    if play.become if task.become is None else task.become:
        user = str(evaluate(play.become_user if task.become_user is None else task.become_user, scope))
    text = {str(k): str(v) for k, v in environment.items() if v is not OMIT}
    return Item(
        "", Work(executor_of(module), args, text, checking, "" if user == "root" else user), None, scope
    )
