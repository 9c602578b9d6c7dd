"""The executor's files as one text for hosts without an agent, and requests in lines of bounded length.

`agents/rm_steps*.py` (and what they import of their siblings) travel as compressed objects; a small
loader on the host's command line feeds them to Python's import system, which compiles a file only when
an operation of it is called. First go those that every run needs, before a request the further ones that its
operations need.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from rm.adapters.playbook.shipped import shipped_directory
from rm.errors import Unreachable
from rm.playbook.run.answers import Unfit, asked, plain_json
from rm.python_text import parsed

_IMPORT = re.compile(r"^\s*(?:import|from) (rm_\w+)", re.MULTILINE)
REQUEST_BYTES = 4 << 20
PART_BYTES = 1 << 20
GRACE_S = 30.0  # for a host, after the time limits of its steps, to say that they are over
PART_S = 120.0  # for a host to keep one part of a long content, which no task limits
HINT = "Run the playbook again when the host is back."

# nothing is imported from the directory that the login starts in: that is left out before the first import
# of a file; read the length, then as many bytes; sources become importable; rm_steps runs as if it were the
# program. The classes of importlib.abc would take a third of its start: they load pathlib, tempfile and more
LOADER = """import sys;sys.path=[p for p in sys.path if p]
sys.version_info<(3,8) and sys.exit('its Python is %d.%d, and rm needs 3.8 or newer: '%sys.version_info[:2]+
 'name one in ansible_python_interpreter, or in hosts.python of rm.toml')
import json,zlib,importlib.machinery as M
f=sys.stdin.buffer;S=json.loads(zlib.decompress(f.read(int(f.readline()))))
class L:
 def find_spec(s,n,p=None,t=None):
  return M.ModuleSpec(n,s) if n in S else None
 def create_module(s,m):
  return None
 def exec_module(s,m):
  m.__file__='/dev/null/'+m.__name__+'.py';exec(compile(S[m.__name__],m.__file__,'exec'),m.__dict__)
sys.meta_path.insert(0,L())
import rm_steps
sys.exit(rm_steps.main([]))"""


@cache
def sources() -> dict[str, str]:
    """The executor: module name to source."""
    top = shipped_directory("agents")
    wanted = sorted(path.stem for path in top.glob("rm_steps*.py"))
    texts: dict[str, str] = {}
    while wanted:
        name = wanted.pop()
        texts[name] = (top / f"{name}.py").read_text(encoding="utf-8")
        wanted += {found for found in _IMPORT.findall(texts[name]) if found not in texts}
    return texts


FIRST = frozenset({"rm_steps"})  # with what these need


@cache
def files_for(operations: frozenset[str]) -> frozenset[str]:
    """The files that operations need, by name; none for operations that no file has."""
    return _with_imports(frozenset(place for place in map(places().get, operations) if place))


@cache
def places() -> dict[str, str]:
    """Operation -> the file that has it, as `rm_steps.PLACES` says."""
    table = parsed(sources()["rm_steps"])
    for statement in table.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "PLACES":
            found: dict[str, tuple[str, ...]] = ast.literal_eval(statement.value)
            return {name: place for place, names in found.items() for name in names}
    raise LookupError("rm_steps.py has no PLACES")


@cache
def _with_imports(names: frozenset[str]) -> frozenset[str]:
    texts, found, wanted = sources(), set[str](), list(names)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += _IMPORT.findall(texts[name])
    return frozenset(found)


class OutcomeUnknown(Unreachable):
    """A host was lost while steps ran there."""


def answers_within_s(request: dict[str, Any]) -> float | None:
    """How long the answer to a request of the operation `steps` may take; None: a step has no time limit.

    The host ends a step at its limit by itself, unless something has stopped its processes.
    """
    limits = [PART_S if step["op"] == "blob" else step.get("timeout") for step in request["steps"]]
    return sum(limits) + GRACE_S if limits and all(limits) else None


def late(host: str) -> OutcomeUnknown:
    """The answer did not come within `answers_within_s`."""
    said = f"Host {host} did not end steps within their time limits, nor {GRACE_S:g} s later"
    return OutcomeUnknown(f"{said}; their outcome is unknown.", HINT)


class Conversation:
    """What one program on a host is sent, which has at first only what every run needs."""

    def __init__(self) -> None:
        self._has = _with_imports(FIRST)

    def opening(self) -> bytes:
        """The payload that LOADER reads."""
        payload = _packed(self._has)
        return b"%d\n%s" % (len(payload), payload)

    def asking(self, request: dict[str, Any]) -> bytes:
        """The lines of one `steps` request, with the files that it is the first to need."""
        operations = frozenset(str(step["op"]) for step in request["steps"])
        needed = files_for(operations) - self._has
        self._has |= needed
        files = _line({"op": "files", "files": base64.b64encode(_packed(needed)).decode()}) if needed else b""
        return files + _line({"op": "steps", **request})


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


@cache
def _packed(names: frozenset[str]) -> bytes:
    """Name to source, compressed."""
    texts = sources()
    return zlib.compress(json.dumps({name: texts[name] for name in sorted(names)}).encode(), 9)


@cache
def digest() -> str:
    """The executor's content, as an agent names its own in the hello (`features.steps`)."""
    return hashlib.sha256(json.dumps(sources(), sort_keys=True).encode()).hexdigest()


Send = Callable[[dict[str, Any]], dict[str, Any]]


def in_parts(
    request: dict[str, Any], send: Send, request_bytes: int = REQUEST_BYTES, part_bytes: int = PART_BYTES
) -> dict[str, Any]:
    """Send a request of the operation `steps` in lines of some `request_bytes` at most: contents longer than
    `part_bytes` first, in parts, then the steps in as many requests as it takes. The answer is as if it had
    been one. Raises what `send` raises."""
    texts: dict[str, str] = {}
    steps = [_with_blobs(step, texts, part_bytes) for step in request["steps"]]
    answer: dict[str, Any] = {"results": [], "planned": request["planned"]}
    failed: int | None = request.get("failed_task")
    while True:
        count = _fitting(steps, request_bytes)
        for name in _blobs(steps[:count]) & texts.keys():
            _store(name, texts[name], send, part_bytes)
        part = {**request, "steps": steps[:count], "planned": answer["planned"]}
        if failed is not None:
            part["failed_task"] = failed
        got = _checked(send(part))
        answer["results"] += got["results"]
        answer["planned"], failed = got["planned"], got.get("failed_task")
        if got.get("cut"):  # the reply would have become too long
            count = len(got["results"])
            if not count:
                raise Unreachable("The host ended the steps early.")
        steps = steps[count:]
        if not steps or (failed is not None and steps[0]["task"] != failed):
            return answer


def _checked(answer: Any) -> dict[str, Any]:
    """An answer that has the shape of one; a host may say anything. Raises Unreachable."""
    found = answer if isinstance(answer, dict) else {}
    results, planned = found.get("results"), found.get("planned")
    fits = isinstance(results, list) and isinstance(planned, dict)
    if not fits or not all(isinstance(one, dict) and type(one.get("id")) is int for one in results or ()):
        raise Unreachable("The host returns something other than step results.")
    try:
        plain_json(planned)
    except Unfit as problem:
        raise Unreachable(f"The host {problem}.") from None
    return found


def _fitting(steps: list[dict[str, Any]], request_bytes: int) -> int:
    """How many of the steps go into one request; at least one. None needs a part that another one of them
    takes away."""
    size, taken = 0, set[str]()
    for count, step in enumerate(steps):
        size += len(json.dumps(step, separators=(",", ":")))
        names = _blobs([step])
        if count and (size > request_bytes or taken & names):
            return count
        taken |= names
    return len(steps)


def _contents(args: Any) -> list[Any]:
    """The texts among a step's arguments that may be long."""
    if not isinstance(args, dict):
        return []
    return [args.get("content"), *(args.get("files") or {}).values()]


def _blobs(steps: list[dict[str, Any]]) -> set[str]:
    """The names of the parts that steps take."""
    found = (text for step in steps if step.get("parts") for text in _contents(step["args"]))
    return {text[5:] for text in found if isinstance(text, str) and text.startswith("blob:")}


def _with_blobs(step: dict[str, Any], texts: dict[str, str], part_bytes: int) -> dict[str, Any]:
    """The step with contents longer than `part_bytes` replaced by "blob:SHA256"; they go to `texts`."""
    args = step["args"]
    if not any(isinstance(text, str) and len(text) > part_bytes for text in _contents(args)):
        return step

    def named(text: Any) -> Any:
        if not isinstance(text, str) or len(text) <= part_bytes:
            return text
        name = hashlib.sha256(text.encode()).hexdigest()
        texts[name] = text
        return f"blob:{name}"

    new = dict(args)
    if "content" in args:
        new["content"] = named(args["content"])
    if args.get("files"):
        new["files"] = {name: named(text) for name, text in args["files"].items()}
    return {**step, "args": new, "parts": True}


def _store(name: str, text: str, send: Send, part_bytes: int) -> None:
    whole = text.encode()
    have, data = -1, ""
    while have < len(whole):
        args = {"name": name, "offset": max(0, have), "data": data}
        step = {"id": 0, "task": 0, "op": "blob", "args": args, "check": False}
        answer = _checked(send({"steps": [step], "check": False, "diff": False, "planned": {}}))
        result = asked("blob", args, answer["results"])
        if result.get("failed"):
            raise Unreachable(f"A long file cannot be sent: {result['msg']}")
        if data and result["size"] <= have:
            raise Unreachable("A long file cannot be sent: the host does not take its parts.")
        have = result["size"]
        data = whole[have : have + part_bytes].decode(errors="ignore")  # without a character's first half
