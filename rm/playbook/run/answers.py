"""The one gate for what hosts answer: an answer that does not fit fails that host's task, with a sentence.

A host may be broken or hostile. What comes through here is plain JSON of bounded depth and numbers; its
switches are true or false; it holds no key that only the control side sets; it brings the facts that its
module declares (`FACTS`) and no others; and what the control side reads from it is there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rm.playbook.facts import gather
from rm.playbook.facts.subset import chosen
from rm.playbook.model.connection import is_reserved
from rm.playbook.model.steps import Step
from rm.playbook.modules import called, control, facts_of, registry

DEPTH_MAX = 64
NUMBER_MAX = 1 << 64  # sizes of file systems are unsigned 64-bit numbers
GATHERS = ("setup", "gather_facts")
_SWITCHES = ("changed", "failed", "skipped", "might_run")
# keys that the control side sets itself
_OURS = ("uncompiled", "included_vars", "include", "nodes", "attempts", "failed_when_result", "add_host",
         "add_group", "parent_groups", "raw_facts", "ansible_loop_var", "id")  # fmt: skip
# operations whose answers the control side itself reads: key -> its type
_READS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "blob": {"size": int},
    "boot_id": {"boot_id": str},
    "network_pair": {"answered": bool},
    "read_part": {"data": str},
}
_FIRST_PART: Mapping[str, type] = {"size": int, "checksum": str}
_LEADS: Mapping[str, tuple[type, ...]] = {"loss_forward_pct": (int, float), "loss_backward_pct": (int, float)}
# facts that playbooks build the names of local files from
_NAMES = frozenset({
    "architecture", "distribution", "distribution_file_variety", "distribution_major_version",
    "distribution_minor_version", "distribution_release", "distribution_version", "domain", "fqdn",
    "hostname", "kernel", "machine", "machine_id", "nodename", "os_family", "pkg_mgr", "service_mgr",
    "system", "userspace_architecture", "userspace_bits", "virtualization_type",
})  # fmt: skip
_FLAT, _TEXT = frozenset((str, bool)), frozenset((str,))
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)


class Unfit(Exception):
    """The answer does not fit; the message is a clause about the host."""


def received(step: Step, module: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """A host's answer to a step of a task, as the rest may rely on it; a failed one where it does not fit.

    Of `setup` the raw texts become `ansible_facts`.
    """
    try:
        found = _checked(step.op, step.args, answer)
        if module not in registry() or control(module):
            return found
        raw = answer.get("raw_facts")
        found = {key: value for key, value in found.items() if key not in _OURS}
        if module in GATHERS and raw is not None:
            facts = chosen(facts_from(raw), step.args.get("subset", ()), step.args.get("filter", ()))
            found["ansible_facts"] = {f"ansible_{name}": value for name, value in facts.items()}
            return found
        declared = facts_of(module, step.args)
        more = found.get("ansible_facts", {})
        undeclared = [] if found["failed"] or "*" in declared else sorted(more.keys() - declared)
        if undeclared:
            raise Unfit(f"returns facts that '{called(module)}' does not provide: {_few(undeclared)}")
        _named({name.removeprefix("ansible_"): value for name, value in more.items()})
        return found
    except Unfit as problem:
        return refused(f"The host {problem}.")


def asked(op: str, args: Mapping[str, Any], results: Any) -> dict[str, Any]:
    """The same for one operation that the control side asks for by itself: its answer, out of `results`."""
    try:
        if not isinstance(results, list) or not results:
            raise Unfit(f"does not answer '{op}'")
        return _checked(op, args, results[0])
    except Unfit as problem:
        return refused(f"The host {problem}.")


def refused(said: str) -> dict[str, Any]:
    return {"changed": False, "failed": True, "msg": said}


def facts_from(raw: Any) -> dict[str, Any]:
    """Facts by their names without `ansible_`, from what `setup` answers. Raises Unfit."""
    try:
        found = gather(raw)
    except _UNREADABLE as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise Unfit(f"returns facts that cannot be read ({said[:200]})") from None
    _named(found)
    return found


def stored_facts(kept: dict[str, Any]) -> dict[str, Any]:
    """Facts of an earlier run, by their whole names. Raises Unfit where no host's answer may bring such."""
    plain_json(kept)
    _named({name.removeprefix("ansible_"): value for name, value in kept.items()})
    return kept


def replaced(names: Iterable[str], written: Iterable[Mapping[str, Any]]) -> str:
    """A fact's variable that has the name of a variable that the admin wrote; "" = none. A reserved name
    is none: no fact becomes a variable of such a name."""
    layers = list(written)
    return next((n for n in names if any(n in one for one in layers) and not is_reserved(n)), "")


def _checked(op: str, args: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """The answer with its switches set. Raises Unfit."""
    if not isinstance(answer, Mapping):
        raise Unfit(f"answers '{op}' with something other than a result")
    plain_json(answer)
    found: dict[str, Any] = {"changed": False, "failed": False, **answer}
    for name in _SWITCHES:
        if not isinstance(found.get(name, False), bool):
            raise Unfit(f"answers '{op}' with '{name}' that is neither true nor false")
    diff = found.get("diff", [])
    if not isinstance(diff, list) or not all(isinstance(one, str) for one in diff):
        raise Unfit(f"answers '{op}' with a 'diff' that is not a list of texts")
    facts = found.get("ansible_facts")
    if facts is None:
        found.pop("ansible_facts", None)
    elif not isinstance(facts, dict):
        raise Unfit(f"answers '{op}' with 'ansible_facts' that is not a mapping")
    if found["failed"]:
        return {"msg": "it says no more", **found}
    wanted = dict(_READS.get(op, {}))
    if op == "read_part" and args.get("offset") == 0:
        wanted |= _FIRST_PART
    if op == "network_pair" and found.get("answered") is True:
        wanted |= {"throughput_bps": int, **(_LEADS if args.get("leads") else {})}
    for name, kind in wanted.items():
        value = found.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Unfit(f"answers '{op}' without a plausible '{name}'")
        if isinstance(value, (int, float)) and value < 0:
            raise Unfit(f"answers '{op}' with '{name}' below 0")
    return found


def plain_json(answer: Any) -> None:
    """Raises Unfit where something else than bounded JSON is in an answer."""
    level = [answer]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for value in level:
            if value is None or type(value) in _FLAT:  # most of them: this is done for each answer
                continue
            if isinstance(value, (int, float)):
                if not -NUMBER_MAX <= value <= NUMBER_MAX:  # and what is not a number
                    raise Unfit(f"answers with {'NaN' if value != value else 'a number beyond 64 bits'}")
            elif isinstance(value, list):
                below += value
            elif isinstance(value, Mapping):
                if not _TEXT.issuperset(map(type, value)) and not all(isinstance(key, str) for key in value):
                    raise Unfit("answers with a mapping whose keys are no texts")
                below += value.values()
            elif not isinstance(value, str):
                raise Unfit("answers with something other than JSON")
        if not below:
            return
        level = below
    raise Unfit(f"answers with more than {DEPTH_MAX} levels of lists and mappings")


def _named(facts: Mapping[str, Any]) -> None:
    """Facts that names of files are made of lead nowhere else. Raises Unfit."""
    for name in _NAMES & facts.keys():
        value = facts[name]
        if value is None:
            continue
        text = str(value)
        if text.startswith("/") or ".." in text.split("/") or any(ord(sign) < 32 for sign in text):
            raise Unfit(f"says that its '{name}' is {text[:80]!r}, which is not a name")


def _few(names: list[str]) -> str:
    shown = ", ".join(name[:60] for name in names[:3])
    return f"{shown}, …" if len(names) > 3 else shown
