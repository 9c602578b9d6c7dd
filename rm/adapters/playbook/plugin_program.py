"""Runs filters, tests and lookups that playbooks bring along: a program of its own, with Ansible's Python.

JSON lines in, JSON lines out. {"op": "names", "kind": "filter", "file": …} -> {"names": […]};
{"op": "call", "kind", "file", "module", "top", "name", "args", "kwargs"} -> {"value": …}; or
{"error": "a clause"}. The text is an argument of `python -c`, without the current directory in `sys.path`:
nothing beside this file can be imported by a plug-in. A mapping with keys that are no texts is
{PAIRS: [[key, value], …]}. The program ends with its standard input, whatever a plug-in is doing.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import queue
import sys
import threading
import types
from typing import Any

PAIRS = "\0pairs"
SEEN: set[str] = set()  # directories of lookups
LOADED: dict[tuple[str, str], dict[str, Any]] = {}


def wired(value: Any) -> Any:
    """A value for JSON, which has texts alone as keys. Raises TypeError."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and PAIRS not in value:
            return {key: wired(one) for key, one in value.items()}
        for key in value:
            if key is not None and not isinstance(key, (str, int, float)):
                raise TypeError(
                    f"a mapping has a key that is a {type(key).__name__}, which is no plain value"
                )
        return {PAIRS: [[key, wired(one)] for key, one in value.items()]}
    return [wired(one) for one in value] if isinstance(value, (list, tuple)) else value


def unwired(found: dict[str, Any]) -> dict[Any, Any]:
    """The mapping that an object of JSON stands for."""
    return dict(found[PAIRS]) if PAIRS in found else found


def collections(tops: list[str]) -> None:
    """Collections are found below these directories, the first first, also where a package of this name is
    installed."""
    found = sys.modules.setdefault("ansible_collections", types.ModuleType("ansible_collections"))
    places = [os.path.join(top, "ansible_collections") for top in tops]
    known = list(getattr(found, "__path__", ()))
    found.__path__ = places + [one for one in known if one not in places]


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


def lookup(path: str, name: str, module: str) -> Any:
    """What a lookup does, made as Ansible makes it, with the options that its text declares. `module` of a
    collection's is the Python module."""
    from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
    from ansible.plugins.loader import lookup_loader  # type: ignore[import-untyped]

    if module:
        found = importlib.import_module(module)
        lookup_loader._load_config_defs(name, found, path)
        made = found.LookupModule(loader=DataLoader(), templar=None)
        lookup_loader._update_object(obj=made, name=name, path=path, resolved=name)
        return made.run
    directory = os.path.dirname(path)
    if directory not in SEEN:
        SEEN.add(directory)
        lookup_loader.add_directory(directory)
    return lookup_loader.get(name, loader=DataLoader(), templar=None).run


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
    raise TypeError(f"it gives {type(value).__name__}, which is no plain value")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("top"):
        collections([request["top"]])
    if request["kind"] == "lookup":
        run = lookup(request["file"], request["name"], request.get("module") or "")
        return {"value": plain(run(request["args"], variables={}, **request["kwargs"]))}
    functions = load(request["kind"], request["file"], request.get("module") or "")
    if request["op"] == "names":
        return {"names": sorted(functions)}
    function = functions[request["name"]]
    if getattr(function, "jinja_pass_arg", None) or hasattr(function, "environmentfilter"):
        return {"error": "it asks for Jinja2's own context, which rm does not hand out"}
    return {"value": plain(function(*request["args"], **request["kwargs"]))}


def listen(requests: Any, lines: queue.SimpleQueue[str]) -> None:
    """Who asks may be gone while a plug-in runs without end."""
    for line in requests:
        lines.put(line)
    os._exit(0)


def main() -> None:
    requests, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # requests are nothing for plug-ins, or what they start, to read
    os.close(nothing)
    os.dup2(2, 1)  # what plug-ins print is no answer
    sys.path += sys.argv[1:]
    collections(sys.argv[1:])
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(requests, lines), daemon=True).start()
    while True:
        try:
            text = json.dumps(wired(answer(json.loads(lines.get(), object_hook=unwired))))
        except Exception as problem:
            said = str(problem).strip() or type(problem).__name__
            text = json.dumps({"error": f"{type(problem).__name__}: {said}"})
        out.write(text + "\n")
        out.flush()


if __name__ == "__main__":
    main()
