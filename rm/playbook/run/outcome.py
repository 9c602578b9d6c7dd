"""Answers of the executor to a task's result: changed_when, failed_when, loops, hidden output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Task
from rm.playbook.model.steps import TaskResult
from rm.playbook.modules import called
from rm.playbook.run.compile import Flags, Item, Skip, Work
from rm.playbook.template.template import Layer, NeedResult, Scope, condition, evaluate

HIDDEN = "the output is hidden (no_log)"
TOOK_MOST_US = 1 << 50  # 35 years
PRINTED_MOST = 2000  # characters of what a failed command printed, its end


class Waiting(Protocol):
    @property
    def task(self) -> Task: ...
    @property
    def flags(self) -> Flags: ...
    @property
    def items(self) -> list[Item]: ...
    @property
    def scope(self) -> Scope: ...


def summarise(
    host: str, play: str, waiting: Waiting, answers: Mapping[int, dict[str, Any]]
) -> tuple[TaskResult, dict[str, Any]]:
    """The task's result and the value that `register` keeps."""
    task, flags = waiting.task, waiting.flags
    steps = [item.step for item in waiting.items if item.step is not None]
    took_us = min(TOOK_MOST_US, sum(_took_us(answers.get(step.id)) for step in steps))
    each = [_answer(task, item, answers, waiting.scope) for item in waiting.items]
    if task.loop and waiting.items[0].index >= 0:
        failed, skipped = (any(a.get("failed") for a in each), all(a.get("skipped") for a in each))
        said = "One or more items failed" if failed else "All items completed"
        registered: dict[str, Any] = {
            "results": each,
            "changed": any(a["changed"] for a in each),
            **({} if skipped else {"failed": failed}),
            "skipped": skipped,
            "msg": "All items skipped" if skipped else said,
        }
        facts = [a["ansible_facts"] for a in each if a.get("ansible_facts")]
        if facts:
            registered["ansible_facts"] = {k: v for one in facts for k, v in one.items()}
    elif task.loop:
        registered = {"results": [], **each[0]}
    else:
        registered = each[0]
    status = _status(registered)
    bad = [a for a in each if a.get("failed")] or each[:1]
    labels = zip(waiting.items, each, strict=True)
    hidden, var = flags.no_log, _var(waiting.items[0])
    result = TaskResult(
        host=host,
        play=play,
        task=name_of(task, waiting.scope),
        module=called(task.module),
        status=status,
        message=HIDDEN if hidden and status != "skipped" else _message(bad[0], status, var),
        ignored=status == "failed" and flags.ignore_errors,
        might_run=any(a.get("might_run") for a in each),
        handler=task.handler,
        diffs=() if hidden or not flags.diff else tuple(d for a in each for d in a.get("diff", ())),
        items=()
        if not task.loop or (hidden and task.no_log is True) or waiting.items[0].index < 0
        else tuple((i.label, _status(a), _message(a, _status(a))) for i, a in labels if not i.hidden),
        result={"censored": HIDDEN, "changed": registered["changed"]} if hidden else registered,
        line=task.line,
        file=task.file,
        fatal=flags.fatal,
        delegated=",".join(dict.fromkeys(item.target for item in waiting.items if item.target)),
        took_us=took_us,
    )
    return result, registered


def unreached(waiting: Waiting, message: str) -> tuple[tuple[tuple[str, str, str], ...], dict[str, Any]]:
    """The items of a task whose host was lost, and the value that `register` keeps."""
    lost = {"changed": False, "msg": message, "unreachable": True}
    loop = waiting.task.loop
    if not loop:
        return (), lost
    each = [
        _answer(waiting.task, item, {}, waiting.scope)
        if isinstance(item.work, Skip)
        else {**lost, loop.var: item.value, "ansible_loop_var": loop.var}
        for item in waiting.items
    ]
    states = ("skipped" if one.get("skipped") else "unreachable" for one in each)
    shown = tuple(
        (i.label, state, "") for i, state in zip(waiting.items, states, strict=True) if not i.hidden
    )
    registered = {"results": each, "changed": False, "skipped": False, "msg": "All items completed"}
    return shown, {**registered, "unreachable": True}


def _var(item: Item) -> str:
    """The variable that a `debug` shows; "" where it shows a message, and of another task."""
    work = item.work
    return str(work.args.get("var", "")) if isinstance(work, Work) and work.op == "note" else ""


def name_of(task: Task, scope: Scope) -> str:
    """The name as the admin would read it; as it is written where its variables are not known."""
    try:
        name = str(evaluate(task.name, scope))
    except (TemplateProblem, NeedResult):
        name = task.name
    return f"{task.role.full_name} : {name}" if task.role and task.module != "include_role" else name


def _answer(task: Task, item: Item, answers: Mapping[int, dict[str, Any]], scope: Scope) -> dict[str, Any]:
    if isinstance(item.work, Skip):
        answer: dict[str, Any] = {"skipped": True, "skip_reason": "Conditional result was False"}
        answer["false_condition"] = item.work.condition
        if item.work.condition is None:
            answer = {"skipped": True, "skipped_reason": "No items in the list"}
    elif item.answer is not None:
        answer = dict(item.answer)
    else:
        assert item.step is not None
        answer = answers.get(item.step.id) or {"failed": True, "msg": "the host did not answer this step"}
        answer.pop("id", None)
        answer.pop("took_us", None)
        if task.patience:
            answer = _waited_for(answer)
    answer.setdefault("changed", False)
    if not isinstance(item.work, Skip):  # as in Ansible: what is skipped says nothing of it
        answer.setdefault("failed", False)
    if task.loop and item.index >= 0:
        answer[task.loop.var] = item.value
        answer["ansible_loop_var"] = task.loop.var
    if item.attempts:
        answer["attempts"] = item.attempts
    if not answer.get("skipped") and not answer.get("uncompiled"):
        apply(task, answer, item.scope or scope)
    return answer


def _took_us(answer: Mapping[str, Any] | None) -> int:
    """By the host, which may say anything."""
    told = (answer or {}).get("took_us", 0)
    return told if type(told) is int and 0 <= told <= TOOK_MOST_US else 0


def _waited_for(answer: dict[str, Any]) -> dict[str, Any]:
    """What `async` with a `poll` adds: the step is over, or its time is."""
    if "timedout" in answer:
        period = answer["timedout"].get("period", 0) if isinstance(answer["timedout"], Mapping) else 0
        return {"failed": True, "msg": f"async task did not complete within the requested time - {period:g}s"}
    return {**answer, "started": True, "finished": True}


def apply(task: Task, answer: dict[str, Any], scope: Scope) -> None:
    inner = with_result(task, answer, scope)
    try:
        if task.failed_when is not None:
            answer["failed"] = bool(task.failed_when) and all(condition(c, inner) for c in task.failed_when)
            answer["failed_when_result"] = answer["failed"]
        if task.changed_when is not None:
            answer["changed"] = all(condition(c, inner) for c in task.changed_when)
    except TemplateProblem as problem:
        answer |= {"failed": True, "msg": f"{problem}."}
    except NeedResult as needed:
        answer |= {"failed": True, "msg": f"'{needed}' is not known here."}


def with_result(task: Task, answer: Mapping[str, Any], scope: Scope) -> Scope:
    """The scope in which `changed_when`, `failed_when` and `until` are evaluated."""
    return scope.above(Layer({task.register: answer}, False)) if task.register else scope


def _status(answer: Mapping[str, Any]) -> str:
    for status in ("failed", "skipped", "changed"):
        if answer.get(status):
            return status
    return "ok"


def _message(answer: Mapping[str, Any], status: str, var: str = "") -> str:
    if var in answer and status == "ok":  # debug: var=…
        return f"{var}: {answer[var]}"
    said = answer.get("msg", "")
    text = said if isinstance(said, str) else repr(said)
    if status == "failed" and answer.get("failed_when_result") and not text:
        text = "failed_when says so"
    extra = str(answer.get("stderr") or answer.get("stdout") or "").strip() if status == "failed" else ""
    if extra and extra not in text:
        text = f"{text}: {extra[-PRINTED_MOST:]}" if text else extra[-PRINTED_MOST:]
    return text
