"""A task and a scope to work for the executor: loop, `when`, arguments, module; all pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from jinja2.utils import missing

from rm.playbook.model.connection import SUDO
from rm.playbook.model.keywords import INCLUDES, WITHOUT_ASYNC
from rm.playbook.model.problems import BadArgument, TemplateProblem, sentence
from rm.playbook.model.schema import Loop, Task, Truth
from rm.playbook.model.steps import THE_HOSTS, Step, Way
from rm.playbook.module import WHOLE, CompileContext, argument_names, typed
from rm.playbook.modules import called, executor_of, registry
from rm.playbook.template.filters import FALSE, TRUE
from rm.playbook.template.jinja import bare, inlined
from rm.playbook.template.plain import plain
from rm.playbook.template.template import (
    OMIT,
    Layer,
    Scope,
    condition,
    evaluate,
    guarded,
    has_template,
)  # fmt: skip
from rm.quick_dataclass import dataclass

LOOP_MAX = 10_000
NUMBER_MAX = 1e9  # of seconds 31 years; no clock of Python's waits for far longer ones


class TaskProblem(Exception):
    """The task cannot be compiled for this host; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Work:
    op: str
    args: dict[str, Any]
    environment: dict[str, str]
    check: bool
    user: str  # "" = the one that the play logs in or becomes root as
    become: bool
    timeout_s: float = 0  # 0 = none
    background_s: float = 0  # 0 = somebody waits


@dataclass(frozen=True, slots=True)
class Skip:
    """A pass that is left out: the condition that says so, None where the list is empty."""

    condition: Truth | None


@dataclass(slots=True)
class Item:
    """One pass of a task: `label` names a loop's item. `work` None: `answer` already says it all.

    `target` is the host that does it, when that is another one (`delegate_to`); `way` leads there.
    """

    label: str
    work: Work | Skip | None
    answer: dict[str, Any] | None = None
    scope: Scope | None = None
    value: Any = None
    step: Step | None = None
    target: str = ""
    attempts: int = 0
    index: int = -1  # in a loop
    hidden: bool = False  # by a `no_log` that differs from item to item
    way: Way = THE_HOSTS


@dataclass(frozen=True, slots=True)
class Flags:
    """A task's switches, evaluated."""

    ignore_errors: bool = False
    ignore_unreachable: bool = False
    no_log: bool = False
    diff: bool = True
    fatal: bool = False
    delegate_facts: bool = False


def truth(value: Truth | None, scope: Scope, default: bool = False) -> bool:
    """A switch: true, false, or a template that gives one; raises TemplateProblem."""
    if value is None or isinstance(value, bool):
        return default if value is None else value
    found = evaluate(value, scope)
    return default if found is OMIT else _switch(value, found)


def _switch(name: str, found: Any) -> bool:
    """The truth that a template, or a variable of this name, gave; raises TemplateProblem."""
    text = str(found).strip().lower()
    if text not in TRUE and text not in FALSE:
        raise TemplateProblem(f"'{name}' gave {found!r}, not true or false")
    return text in TRUE


def hides(task: Task, scope: Scope) -> bool:
    """Is the output hidden (`no_log`)? It is, too, where that cannot be known. Raises NeedResult."""
    try:
        return truth(task.no_log, scope)
    except TemplateProblem:
        return True


def flags_of(task: Task, scope: Scope) -> Flags:
    """Raises TemplateProblem or NeedResult."""
    hidden = hides(task, scope)
    return Flags(
        truth(task.ignore_errors, scope),
        truth(task.ignore_unreachable, scope),
        hidden,
        truth(task.diff, scope, True),
        truth(task.any_errors_fatal, scope),
        truth(task.delegate_facts, scope),
    )


_PROBLEMS = (TemplateProblem, BadArgument, ValueError)  # ValueError: a text that is no Unicode


def compile_task(task: Task, context: CompileContext, check: bool) -> list[Item]:
    """Every item of the task, in order; raises TaskProblem or NeedResult. As in Ansible an item of a loop
    that cannot be compiled has failed, and the others are done."""
    scope = context.scope
    try:
        if task.loop is None:
            return [_one(task, scope, context, check)]
        try:
            values = loop_values(task.loop, context)
        except TemplateProblem:
            # an undefined list does not matter where the condition already says no
            reason = _refusal(task, scope)
            if reason is not None:
                return [Item("", Skip(reason), None, scope)]
            raise
        items: list[Item] = []
        facts: dict[str, Any] = {}  # a set_fact sees what its earlier items set
        for index, value in enumerate(values):
            inner = scope.above(Layer({**facts, **_bound(task.loop, values, index)}, False))
            try:
                item = _one(task, inner, context, check)
                label = evaluate(task.loop.label, inner) if task.loop.label is not None else value
            except _PROBLEMS as problem:
                if task.module in INCLUDES:
                    raise
                item = Item("", None, {"failed": True, "msg": sentence(problem), "uncompiled": True}, inner)
                label = value
            item.label, item.value, item.index = str(label), value, index
            items.append(item)
            if task.module == "set_fact" and isinstance(item.work, Work):
                facts.update(item.work.args["result"]["ansible_facts"])
        return items or [Item("", Skip(None), None, scope)]
    except _PROBLEMS as problem:
        raise TaskProblem(sentence(problem)) from None


def _refusal(task: Task, scope: Scope) -> Truth | None:
    """The condition that already says no, if one does without the list."""
    for one in task.when:
        try:
            if not condition(one, scope):
                return one
        except TemplateProblem:
            return None
    return None


def _bound(loop: Loop, values: list[Any], index: int) -> dict[str, Any]:
    bound: dict[str, Any] = {loop.var: values[index]}
    if loop.index_var:
        bound[loop.index_var] = index
    if loop.extended:
        count = len(values)
        about = {
            "index": index + 1, "index0": index, "first": index == 0, "last": index == count - 1,
            "length": count, "revindex": count - index, "revindex0": count - index - 1,
            **({"allitems": values} if loop.allitems else {}),
        }  # fmt: skip
        if index:
            about["previtem"] = values[index - 1]
        if index < count - 1:
            about["nextitem"] = values[index + 1]
        bound["ansible_loop"] = about
    bound["ansible_loop_var"] = loop.var
    return bound


_TAKE_RANGES = ("together", "nested", "cartesian")


def loop_values(loop: Loop, context: CompileContext) -> list[Any]:
    """The list that a loop goes through; raises TemplateProblem or NeedResult."""
    scope = context.scope
    values = evaluate(loop.values, scope, loop.kind.removeprefix("with_") in _TAKE_RANGES)
    if loop.kind != "loop":
        if scope.seek is None:
            raise TemplateProblem(f"'{loop.kind}' is not possible here")
        terms = values if isinstance(values, list) else [values]
        seek, name = scope.seek, loop.kind.removeprefix("with_")
        values = guarded(loop.kind, lambda: seek(name, terms, {}, scope))
    elif isinstance(values, (tuple, set)):
        values = list(values)
    if not isinstance(values, list):
        kind = type(values).__name__
        raise TemplateProblem(f"the loop needs a list, not {values!r} ({kind})")
    if len(values) > LOOP_MAX:
        raise TemplateProblem(f"the loop has {len(values)} items, more than {LOOP_MAX}")
    return values


def _one(task: Task, scope: Scope, context: CompileContext, check: bool) -> Item:
    for one in task.when:
        if not condition(one, scope):
            return Item("", Skip(one), None, scope)
    target = str(evaluate(task.delegate_to, scope)) if task.delegate_to else ""
    if task.module in INCLUDES:
        given = {k: evaluate(v, scope) for k, v in task.args.items() if k != "apply"}
        return Item("", None, {"include": given}, scope)
    if task.unknown:
        raise TemplateProblem(task.unknown.rstrip("."))
    module = registry()[task.module]
    args = module_arguments(task, scope, context)
    environment: dict[str, Any] = {}
    for part in task.environment:
        value = evaluate(part, scope)
        if value is OMIT or not value:
            continue
        if not isinstance(value, Mapping):
            raise TemplateProblem(f"'environment' must be a mapping, not {value!r}")
        environment.update(value)
    checking = check if task.check_mode is None else truth(task.check_mode, scope)
    become, user = _becomes(task, scope, context)
    text = {str(k): str(v) for k, v in environment.items() if v is not OMIT}
    patience_s, background_s = (_seconds(value, "async", scope) for value in (task.patience, task.background))
    if (patience_s or background_s) and task.module in WITHOUT_ASYNC:
        raise TemplateProblem(f"'async' is not possible with '{called(task.module)}'")
    limits = [_seconds(task.timeout, "timeout", scope), patience_s]
    timeout_s = min((limit for limit in limits if limit), default=0)
    work = Work(executor_of(module), args, text, checking, user, become, timeout_s, background_s)
    return Item("", work, None, scope, target=target)


def _seconds(value: Any, name: str, scope: Scope) -> float:
    found = evaluate(value, scope)
    number = number_from(found)
    if number is None:
        raise TemplateProblem(f"'{name}' is {found!r}, not a number of seconds")
    return 0 if found is OMIT else max(0.0, number)


def number_from(found: Any) -> float | None:
    """What a keyword counts or waits for; None where it is no number, or beyond use."""
    try:
        number = float(found or 0)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= NUMBER_MAX else None  # not a number is not less, either


def own_conditions(value: Any, scope: Scope, names: tuple[str, ...] = ()) -> Any:
    """Conditions as the admin wrote them, here or in a variable named here (`names` lead to it). What else a
    template gives may come from a host, so it is true or false, never a condition.

    Raises TemplateProblem or NeedResult."""
    if not has_template(value):
        return value
    if isinstance(value, list):
        return [own_conditions(one, scope, names) for one in value]
    if not isinstance(value, str):  # no condition: who asks for one says so
        return evaluate(value, scope)
    name = bare(value).strip()
    if name == value.strip() and not has_template(inlined(value)):  # templates in its texts only
        return value
    layer = next((layer for layer in scope.layers if name in layer.values), None)
    if layer is not None and layer.trusted:
        if name in names:
            raise TemplateProblem(f"the variables {' > '.join([*names, name])} form a loop")
        return own_conditions(layer.values[name], scope, (*names, name))
    found = evaluate(value, scope)
    if any(isinstance(one, str) for one in (found if isinstance(found, list) else [found])):
        raise TemplateProblem(f"'{value}' gave a text, where a condition is written")
    return found


def module_arguments(task: Task, scope: Scope, context: CompileContext) -> dict[str, Any]:
    """The executor's arguments; raises BadArgument, TemplateProblem or NeedResult."""
    module = registry()[task.module]
    expressions = getattr(module, "EXPRESSIONS", ())
    named = getattr(module, "NAMES", False)
    given = {
        evaluate(k, scope) if named else k: _argument(k, v, expressions, scope)
        for k, v in task.args.items()
        if k != WHOLE
    }
    if WHOLE in task.args:
        given = {**_whole(task, scope), **given}
    given = {k: plain(v) for k, v in given.items() if v is not OMIT}
    try:
        if scope is not context.scope or task is not context.task:
            context = replace(context, scope=scope, task=task)
        found: dict[str, Any] = module.compile(typed(module, given), context)
        return found
    except (BadArgument, ValueError) as problem:  # ValueError: a host's text may hold what is no Unicode
        raise BadArgument(f"{called(task.module)}: {problem}") from None


def _argument(name: str, value: Any, expressions: Collection[str], scope: Scope) -> Any:
    return own_conditions(value, scope) if name in expressions else evaluate(value, scope)


def _whole(task: Task, scope: Scope) -> dict[str, Any]:
    """The arguments that templates give, the last strongest, on top of module_defaults. No conditions are
    among them: they may come from a host. Raises BadArgument, TemplateProblem or NeedResult."""
    module, name_of = registry()[task.module], called(task.module)
    expressions = getattr(module, "EXPRESSIONS", ())
    defaults, *templates = task.args[WHOLE]
    given = {k: _argument(k, v, expressions, scope) for k, v in defaults.items()}
    names = {*argument_names(module), getattr(module, "FREE_FORM", "")} - {""}
    for template in templates:
        found = evaluate(template, scope)
        if not isinstance(found, Mapping):
            raise BadArgument(f"the arguments of '{name_of}' must be a mapping, not {found!r}")
        for name in found:
            if name not in names and not getattr(module, "ANY_ARGUMENT", False):
                raise BadArgument(f"'{name_of}' has no argument '{name}'")
            if name in expressions and found[name] not in (True, False):
                raise BadArgument(f"'{name}' of '{name_of}' is a condition, which is written in the task")
        given |= found
    return given


def _becomes(task: Task, scope: Scope, context: CompileContext) -> tuple[bool, str]:
    """Whether root is needed, and the user to become when it is not root; variables beat keywords, and
    these beat the command line."""
    become: Any = scope.lookup("ansible_become")
    if become is missing:
        needs_root = truth(task.become, scope, context.become)
    else:  # it has been evaluated, and may hold a host's text
        needs_root = context.become if become in (None, OMIT) else _switch("ansible_become", become)
    method, said = scope.lookup("ansible_become_method"), "ansible_become_method"
    if method is missing and needs_root:
        method, said = evaluate(task.become_method, scope), "become_method"
    if needs_root and method not in (*SUDO, None, OMIT):
        raise TemplateProblem(f"{said} is '{method}': only sudo is known")
    user = scope.lookup("ansible_become_user")
    if user is missing:
        user = evaluate(task.become_user, scope) if task.become_user is not None else context.become_user
    name = "root" if user in (None, OMIT, "") else str(user)
    return needs_root, name if needs_root and name != "root" else ""
