"""Answers of the executor to a task's result: changed_when, failed_when, loops, hidden output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rm.playbook.compile import Item, Skip
from rm.playbook.schema import Task
from rm.playbook.steps import TaskResult
from rm.playbook.template import Layer, NeedResult, Scope, TemplateProblem, condition, evaluate

HIDDEN = "the output is hidden (no_log)"


class Waiting(Protocol):
    @property
    def task(self) -> Task: ...
    @property
    def handler(self) -> bool: ...
    @property
    def items(self) -> list[Item]: ...
    @property
    def scope(self) -> Scope: ...


def summarise(
    host: str, play: str, waiting: Waiting, answers: Mapping[int, dict[str, Any]]
) -> tuple[TaskResult, dict[str, Any]]:
    """The task's result and the value that `register` keeps."""
    task = waiting.task
    each = [_answer(task, item, answers, waiting.scope) for item in waiting.items]
    if task.loop_kind and not (len(each) == 1 and waiting.items[0].value is None):
        registered: dict[str, Any] = {
            "results": each,
            "changed": any(a["changed"] for a in each),
            "failed": any(a["failed"] for a in each),
            "skipped": all(a.get("skipped") for a in each),
            "msg": "All items completed",
        }
    elif task.loop_kind:
        registered = {"results": [], **each[0]}
    else:
        registered = each[0]
    status = _status(registered)
    bad = [a for a in each if a["failed"]] or each[:1]
    labels = zip(waiting.items, each, strict=True)
    result = TaskResult(
        host=host,
        play=play,
        task=_name(task, waiting.scope),
        module=task.module,
        status=status,
        message=HIDDEN if task.no_log and status != "skipped" else _message(bad[0], status, _var(task)),
        ignored=status == "failed" and task.ignore_errors,
        might_run=any(a.get("might_run") for a in each),
        handler=waiting.handler,
        diffs=() if task.no_log else tuple(d for a in each for d in a.get("diff", ())),
        items=()
        if not task.loop_kind or task.no_log
        else tuple((item.label, _status(a), _message(a, _status(a))) for item, a in labels),
        result={"censored": HIDDEN} if task.no_log else registered,
        line=task.line,
    )
    return result, registered


def _var(task: Task) -> str:
    return str(task.args.get("var", "")) if task.module == "debug" else ""


def _name(task: Task, scope: Scope) -> str:
    """The name as the admin would read it; as it is written where its variables are not known."""
    try:
        return str(evaluate(task.name, scope))
    except (TemplateProblem, NeedResult):
        return task.name


def _answer(task: Task, item: Item, answers: Mapping[int, dict[str, Any]], scope: Scope) -> dict[str, Any]:
    if isinstance(item.work, Skip):
        answer: dict[str, Any] = {"skipped": True, "skip_reason": "Conditional result was False"}
        answer["false_condition"] = item.work.reason
    elif item.answer is not None:
        answer = dict(item.answer)
    else:
        assert item.step is not None
        if item.step.op == "note":
            note = item.step.args
            answer = {"failed": bool(note.get("failed")), **note["result"]}
            answer |= {"skipped": True} if note.get("skipped") else {}
        else:
            answer = answers.get(item.step.id) or {"failed": True, "msg": "the host did not answer this step"}
            answer.pop("id", None)
    answer.setdefault("changed", False)
    answer.setdefault("failed", False)
    if task.loop_kind and item.work is not None:
        answer[task.loop_var] = item.value
        answer["ansible_loop_var"] = task.loop_var
    if not answer.get("skipped") and item.answer is None:
        _apply(task, answer, item.scope or scope)
    return answer


def _apply(task: Task, answer: dict[str, Any], scope: Scope) -> None:
    own = {task.register: answer} if task.register else {}
    inner = Scope([Layer(own, False), *scope.layers])
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
        text = f"{text}: {extra[-2000:]}" if text else extra[-2000:]
    return text
