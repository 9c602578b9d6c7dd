"""What a settled task leaves behind: facts, registered results, notifications, variables for includes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm.playbook.compile import Item
from rm.playbook.facts import gather
from rm.playbook.flow import Bound
from rm.playbook.schema import Task
from rm.playbook.template import PENDING, NeedResult, TemplateProblem, evaluate
from rm.playbook.variables import HostState
from rm.playbook.waiting import Waiting

GATHERS = ("setup", "gather_facts")
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


def learn(
    made: Waiting, registered: dict[str, Any], host: HostState, states: Mapping[str, HostState]
) -> dict[str, Any]:
    """Facts, included variables and the registered result go to the host; returns what was learnt."""
    task = made.task
    learnt: dict[str, Any] = {}
    each = registered.get("results", [registered]) if task.loop else [registered]
    for item, answer in zip(made.items, each, strict=False):
        raw = answer.pop("raw_facts", None) if task.module in GATHERS else None
        target = states.get(item.target, host) if made.flags.delegate_facts else host
        if raw is not None:
            target.add_facts(gather(raw))
            target.gathered = True
        more = answer.get("ansible_facts")
        if more and not answer["failed"] and task.module == "set_fact":
            target.learnt.update(more)
            learnt.update(more if target is host else {})
        elif more and not answer["failed"]:
            names = {name: name.removeprefix("ansible_") for name in more}
            facts = {short: more[name] for name, short in names.items()}
            target.add_facts(facts, (name for name, short in names.items() if name == short))
        brought = answer.pop("included_vars", None)
        if brought and task.module == "include_vars":  # they may hold templates: no host may send any
            host.included.update(brought)
            learnt[INCLUDED] = {**learnt.get(INCLUDED, {}), **brought}
    if task.register:
        host.learnt[task.register] = learnt[task.register] = registered
    return learnt


def bound_of(task: Task, item: Item) -> Bound:
    """What an included list of tasks sees: the loop's item, and the include's own `vars`."""
    own: dict[str, Any] = {}
    if task.outer is not None and task.module == "include_tasks":
        own = {k: v for k, v in task.variables.items() if task.outer.variables.get(k, PENDING) is not v}
    looped: dict[str, Any] = {}
    if task.loop is not None and item.index >= 0:
        looped = {task.loop.var: item.value, "ansible_loop_var": task.loop.var}
        looped |= {task.loop.index_var: item.index} if task.loop.index_var else {}
    return tuple(one for one in ((looped, False), (own, True)) if one[0])
