"""What a settled task leaves behind: facts, registered results, notifications, variables for includes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rm.playbook.model.flow import Bound
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play, Task
from rm.playbook.module import WHOLE
from rm.playbook.modules import called, registry
from rm.playbook.run.answers import GATHERS, received, refused, replaced
from rm.playbook.run.compile import Item, Work
from rm.playbook.run.waiting import Waiting
from rm.playbook.template.template import PENDING, NeedResult, evaluate
from rm.playbook.template.variables import HostState

_WHOLE = ("ansible_local",)  # facts that keep their whole name in `ansible_facts`
INCLUDED = "\0included"  # a key that no variable has


def told(made: Waiting) -> frozenset[str]:
    found: list[str] = []
    for name in made.task.notify:
        try:
            value = evaluate(name, made.scope)
        except (TemplateProblem, NeedResult):
            value = name
        found += [str(one) for one in value] if isinstance(value, list) else [str(value)]
    return frozenset(found)


def accepted(
    made: Waiting, answers: Mapping[int, dict[str, Any]], play: Play, host: HostState,
    states: Mapping[str, HostState],
) -> dict[int, dict[str, Any]]:  # fmt: skip
    """The answers to a task's steps as the rest may rely on them; others are left out."""
    task, found = made.task, {}
    for item in made.items:
        if item.step is None or item.step.id not in answers:
            continue
        answer = received(item.step, task.module, answers[item.step.id])
        target = states.get(item.target, host) if made.flags.delegate_facts else host
        written = [target.inventory, target.added, *(role.defaults for role in play.roles)]
        written += [task.role.defaults] if task.role else []
        if clash := replaced(answer.get("ansible_facts") or (), written):
            answer = refused(
                f"The host returns the fact '{clash}', and the inventory or a role's defaults have a "
                f"variable of that name. A host cannot replace a variable: give it another name."
            )
        found[item.step.id] = answer
    return found


def learn(
    made: Waiting, registered: dict[str, Any], host: HostState, states: Mapping[str, HostState]
) -> dict[str, Any]:
    """Facts, included variables and the registered result go to the host; returns what was learnt."""
    task = made.task
    learnt: dict[str, Any] = {}
    each = registered.get("results", [registered]) if task.loop else [registered]
    for item, answer in zip(made.items, each, strict=False):
        target = states.get(item.target, host) if made.flags.delegate_facts else host
        more = answer.get("ansible_facts")
        if more and not answer.get("failed") and task.module == "set_fact":
            target.learnt.update(more)
            learnt.update(more if target is host else {})
            if cacheable(item):
                add_facts(target, more)
        elif more and not answer.get("failed"):
            add_facts(target, more)
            target.gathered = target.gathered or task.module in GATHERS
        if task.module in GATHERS and not task.register:
            answer.pop("ansible_facts", None)  # long, and nobody asked for it
        brought = answer.pop("included_vars", None)
        if brought and task.module == "include_vars":  # they may hold templates: no host may send any
            host.included.update(brought)
            learnt[INCLUDED] = {**learnt.get(INCLUDED, {}), **brought}
    if task.register:
        host.learnt[task.register] = learnt[task.register] = registered
    return learnt


def cacheable(item: Item) -> bool:
    """Does a `set_fact` give facts, too?"""
    return isinstance(item.work, Work) and bool(item.work.args["cacheable"])


def add_facts(host: HostState, named: Mapping[str, Any]) -> None:
    """Facts as a module names them."""
    names = {name: name if name in _WHOLE else name.removeprefix("ansible_") for name in named}
    facts = {short: named[name] for name, short in names.items()}
    host.add_facts(facts, (name for name, short in names.items() if name == short))


def failed_task(made: Waiting) -> dict[str, Any]:
    """`ansible_failed_task`: its arguments as they are written, without those that only an item of its loop
    knows."""
    known = made.task.module in registry()  # not an include, nor a module that nobody knows
    free = getattr(registry()[made.task.module], "FREE_FORM", "") if known else ""
    name, args = made.task.name, {}
    with suppress(TemplateProblem, NeedResult):
        name = str(evaluate(name, made.scope))
    for key, value in made.task.args.items():
        with suppress(TemplateProblem, NeedResult):
            args["_raw_params" if key == free else key] = evaluate(value, made.scope)
    args.pop(WHOLE, None)
    return {"name": name, "action": called(made.task.module), "args": args}


def bound_of(task: Task, item: Item) -> Bound:
    """What an included list of tasks, or a role, sees: the loop's item, and the include's own `vars`."""
    own: dict[str, Any] = {}
    if task.outer is not None:
        own = {k: v for k, v in task.variables.items() if task.outer.variables.get(k, PENDING) is not v}
    looped: dict[str, Any] = {}
    if task.loop is not None and item.index >= 0:
        looped = {task.loop.var: item.value, "ansible_loop_var": task.loop.var}
        looped |= {task.loop.index_var: item.index} if task.loop.index_var else {}
        if task.loop.extended and item.scope is not None:
            looped["ansible_loop"] = item.scope.lookup("ansible_loop")
    return tuple(one for one in ((looped, False), (own, True)) if one[0])
