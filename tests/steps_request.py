"""For tests of the executor: tasks compiled as by a playbook, and run by agents/rm_steps.py right here."""

from __future__ import annotations

import importlib
import json
import stat
import sys
from pathlib import Path
from typing import Any

from rm.adapters.playbook.files import LocalFiles
from rm.playbook.module import CompileContext, typed
from rm.playbook.modules import executor_of, registry
from rm.playbook.template.template import Layer, Scope

AGENTS = Path(__file__).parents[1] / "agents"
if str(AGENTS) not in sys.path:
    sys.path.insert(0, str(AGENTS))
rm_steps = importlib.import_module("rm_steps")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def step(number: int, module: str, task: int | None = None, **given: Any) -> dict[str, Any]:
    """One step as it would travel; raises BadArgument as compiling does. `_directory`: the playbook's."""
    found = registry()[module]
    directory = str(given.pop("_directory", "/nonexistent"))
    variables = given.pop("_variables", {})
    context = CompileContext(Scope([Layer(variables, False)]), LocalFiles(), directory)
    args = found.compile(typed(found, given), context)
    return {"id": number, "task": number if task is None else task, "op": executor_of(found), "args": args}


def run(
    *steps: dict[str, Any], check: bool = False, planned: Any = None, diff: bool = True, **more: Any
) -> dict[str, Any]:
    """The executor's answer, through JSON both ways."""
    request = {"steps": list(steps), "check": check, "diff": diff, "planned": planned or {}, **more}
    reply = rm_steps.steps_operation(json.loads(json.dumps(request)))
    answer: dict[str, Any] = json.loads(json.dumps(reply))
    return answer


def one(module: str, check: bool = False, **given: Any) -> dict[str, Any]:
    """The result of a single step."""
    result: dict[str, Any] = run(step(1, module, **given), check=check)["results"][0]
    return result


def done(module: str, **given: Any) -> dict[str, Any]:
    """A step that changes something: check mode foretells it with its diff, repeating changes nothing."""
    foretold = one(module, check=True, **given)
    first = one(module, **given)
    assert not first["failed"], first
    assert first["changed"], first
    assert foretold["changed"], foretold
    assert foretold.get("diff") == first.get("diff")
    again = one(module, **given)
    assert not again["failed"], again
    assert not again["changed"], again
    assert not one(module, check=True, **given)["changed"]
    return first


def kept(module: str, **given: Any) -> dict[str, Any]:
    """A step that finds everything as it should be."""
    result = one(module, **given)
    assert not result["failed"], result
    assert not result["changed"], result
    return result


def refused(module: str, check: bool = False, **given: Any) -> str:
    """The message of a step that fails."""
    result = one(module, check=check, **given)
    assert result["failed"], result
    assert not result["changed"]
    return str(result["msg"])
