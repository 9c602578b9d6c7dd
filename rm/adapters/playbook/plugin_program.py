"""Runs filters and tests that playbooks bring along: a program of its own, with Ansible's Python.

JSON lines in, JSON lines out. {"op": "names", "kind": "filter", "file": …} -> {"names": […]};
{"op": "call", "kind", "file", "name", "args", "kwargs"} -> {"value": …}; or {"error": "a clause"}. The
text is an argument of `python -c`, without the current directory in `sys.path`: nothing beside this file can
be imported by a plug-in.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Any

LOADED: dict[tuple[str, str], dict[str, Any]] = {}


def load(kind: str, path: str, module: str) -> dict[str, Any]:
    """The functions of a file of plug-ins, by name."""
    key = (kind, path)
    if key not in LOADED:
        if module:
            found = importlib.import_module(module)
        else:
            name = f"rm_plugin_{len(LOADED)}"
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            found = importlib.util.module_from_spec(spec)
            sys.modules[name] = found
            spec.loader.exec_module(found)
        if kind == "filter":
            LOADED[key] = found.FilterModule().filters()
        else:
            LOADED[key] = found.TestModule().tests()
    return LOADED[key]


def plain(value: Any) -> Any:
    """A value as JSON has it; raises TypeError for what it has not."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        return {str(key) if isinstance(key, str) else key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) or hasattr(value, "__next__"):
        return [plain(one) for one in value]
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):
        return {key: plain(value[key]) for key in list(value)}
    raise TypeError(f"it gives a {type(value).__name__}, which is no plain value")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    functions = load(request["kind"], request["file"], request.get("module") or "")
    if request["op"] == "names":
        return {"names": sorted(functions)}
    function = functions[request["name"]]
    if getattr(function, "jinja_pass_arg", None) or hasattr(function, "environmentfilter"):
        return {"error": "it asks for Jinja2's own context, which rm does not hand out"}
    return {"value": plain(function(*request["args"], **request["kwargs"]))}


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what plug-ins print is no answer
    sys.path += sys.argv[1:]
    for line in sys.stdin:
        try:
            text = json.dumps(answer(json.loads(line)))
        except Exception as problem:
            said = str(problem).strip() or type(problem).__name__
            text = json.dumps({"error": f"{type(problem).__name__}: {said}"})
        out.write(text + "\n")
        out.flush()


if __name__ == "__main__":
    main()
