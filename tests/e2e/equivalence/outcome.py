"""What a run came to, the same shape for both tools, and what differs between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

# moments, and where the file system happened to put something
VOLATILE = frozenset(
    {"start", "end", "delta", "elapsed", "atime", "mtime", "ctime", "inode", "dev", "version", "device_type",
     "blocks", "cache_update_time", "date", "last_modified"}
)  # fmt: skip
# whose texts are those of a package tool, which each calls in its own way
WORDY = frozenset({"apt", "package", "pip"})
TEXTS = frozenset({"stdout", "stdout_lines", "stderr", "stderr_lines", "cmd"})
SPOKEN = frozenset({"debug", "fail", "assert"})  # whose `msg` is the playbook's
# rm's own modules: an action of the test stands in for each under Ansible
OWN = frozenset({"rm_drain", "rm_resume", "rm_burn_in", "rm_burn_in_network"})
OUTPUT = frozenset({"stdout", "stdout_lines", "msg"})
COUNTERS = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One task on one host. `place` is file:line from the playbook's directory, `items` a loop's statuses."""

    place: str
    name: str
    module: str
    status: str
    ignored: bool
    items: tuple[str, ...]
    result: Mapping[str, Any]
    might_run: bool = False


@dataclass(slots=True)
class Run:
    """Outcomes per host in order, the recap's counters, and the exit code of the tool."""

    code: int
    tasks: dict[str, list[Outcome]] = field(default_factory=dict)
    recap: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    where: str
    ansible: Any
    rm: Any


def runs_differ(
    which: str, ansible: Run, rm: Run, moments: tuple[str, ...] = (), unordered: tuple[str, ...] = ()
) -> Iterator[Difference]:
    """`which` run it is: "first", "second". The output of the tasks `moments` is never the same twice; the
    items of the loops `unordered` are compared in order of their values."""
    if ansible.code != rm.code:
        yield Difference(f"{which}: exit code", ansible.code, rm.code)
    for host in sorted({*ansible.tasks, *rm.tasks}):
        mine, theirs = (
            [one for one in run.tasks.get(host, []) if one.module not in OWN] for run in (rm, ansible)
        )
        places = [f"{one.place} {one.name}" for one in mine], [f"{one.place} {one.name}" for one in theirs]
        if places[0] != places[1]:
            yield Difference(f"{which}: {host}: tasks", places[1], places[0])
            continue
        for one, other in zip(theirs, mine, strict=True):
            if one.name in unordered:
                one, other = _ordered(one), _ordered(other)
            skipped = OUTPUT if one.name in moments else frozenset()
            yield from _outcomes_differ(f"{which}: {host}: {one.name}", one, other, skipped)
    for host in sorted({*ansible.recap, *rm.recap}):
        for counter in COUNTERS:
            counts = [run.recap.get(host, {}).get(counter, 0) for run in (ansible, rm)]
            if counts[0] != counts[1]:
                yield Difference(f"{which}: {host}: recap {counter}", *counts)


def _outcomes_differ(where: str, ansible: Outcome, rm: Outcome, skipped: Set[str]) -> Iterator[Difference]:
    for what in ("module", "status", "ignored", "items"):
        one, other = getattr(ansible, what), getattr(rm, what)
        if one != other:
            yield Difference(f"{where}: {what}", one, other)
    spoken = ansible.module in SPOKEN and not (ansible.module == "debug" and ansible.status == "failed")
    wordings = {"diff", "censored"} | (set() if spoken else {"msg"})
    wordings |= {"src"} if ansible.module == "unarchive" else set()  # where Ansible put its copy
    wordings |= TEXTS if ansible.module in WORDY else set()
    yield from _results_differ(where, VOLATILE | wordings | skipped, ansible.result, rm.result)


def _results_differ(
    where: str, skipped: Set[str], ansible: Mapping[str, Any], rm: Mapping[str, Any]
) -> Iterator[Difference]:
    """Of what both registered: the values of the names that both know, but for `skipped`."""
    for key in sorted({*ansible} & {*rm}):
        one, other = ansible[key], rm[key]
        if key in skipped or key.startswith("_"):
            continue
        if _same_shape(one, other):
            for index, (left, right) in enumerate(zip(one, other, strict=True)):
                yield from _results_differ(f"{where}: {key}[{index}]", skipped, left, right)
        elif isinstance(one, dict) and isinstance(other, dict):
            yield from _results_differ(f"{where}: {key}", skipped, one, other)
        elif one != other:
            yield Difference(f"{where}: {key}", one, other)


def _ordered(outcome: Outcome) -> Outcome:
    results = sorted(outcome.result["results"], key=lambda result: str(result["item"]))
    return replace(outcome, items=tuple(sorted(outcome.items)), result={**outcome.result, "results": results})


def _same_shape(one: Any, other: Any) -> bool:
    """Two lists of as many mappings."""
    lists = isinstance(one, list) and isinstance(other, list) and len(one) == len(other)
    return lists and all(isinstance(item, dict) for item in (*one, *other))


def states_differ(
    which: str, host: str, ansible: Mapping[str, Any], rm: Mapping[str, Any], random: tuple[str, ...]
) -> Iterator[Difference]:
    for path in sorted({*ansible, *rm}):
        one, other = ansible.get(path), rm.get(path)
        if one is None or other is None:
            yield Difference(f"{which}: {host}: {path}", one, other)
            continue
        for fact in one:
            if one[fact] != other[fact] and not (fact == "content" and path in random):
                yield Difference(f"{which}: {host}: {path}: {fact}", one[fact], other[fact])
