"""The hosts' facts between runs: `fact_caching = jsonfile` of ansible.cfg, in files as those of ansible-core
2.19."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rm.adapters.playbook.trust import others_may_write
from rm.errors import UsageError
from rm.playbook.run.answers import Unfit, replaced, stored_facts
from rm.playbook.run.learning import add_facts
from rm.playbook.template.variables import HostState
from rm.written_aside import written_aside

SCHEMA = "s1_"  # before a host's name, since ansible-core 2.19
GATHERED = "_ansible_facts_gathered"
MARKS = (GATHERED, "module_setup", "gather_subset")  # Ansible's own, which are no facts of rm's
MODE = 0o640  # as Ansible's


class FactCache:
    """A directory with a file for each host. `tell` is given what is passed over."""

    def __init__(self, directory: str, prefix: str, timeout_s: int) -> None:
        """`timeout_s`: how old facts may be, 0 for any age. Raises UsageError."""
        self._directory, self._prefix, self._timeout_s = Path(directory), prefix, timeout_s
        self._loaded: dict[str, dict[str, Any]] = {}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            _must_be_ours(self._directory)
        except OSError as problem:
            raise UsageError(
                f"The directory of the fact cache, {directory}, cannot be used: {problem.strerror}.",
                "fact_caching_connection of Ansible's settings names it.",
            ) from None

    def _file(self, host: str, schema: str = SCHEMA) -> Path:
        return self._directory / f"{self._prefix}{schema}{host}"

    def load(self, states: Mapping[str, HostState], tell: Callable[[str], None]) -> None:
        """Hosts get the facts that are kept of them. Raises UsageError where others may write a file."""
        for name, state in states.items():
            if "/" in name:
                continue
            for path in (self._file(name), self._file(name, "")):
                try:
                    kept = self._read(path)
                except (ValueError, OSError, Unfit) as problem:
                    tell(f"The cached facts {path} are passed over: {_why(problem)}.")
                    continue
                if kept is not None:
                    self._give(state, kept, path, tell)
                    break

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            with path.open(encoding="utf-8") as file:
                _must_be_ours(path)
                if self._timeout_s and time.time() - os.fstat(file.fileno()).st_mtime > self._timeout_s:
                    return None
                found = json.load(file)
        except FileNotFoundError:
            return None
        if isinstance(found, dict) and isinstance(found.get("__payload__"), str):
            found = json.loads(found["__payload__"])
        found = _untagged(found)
        if not isinstance(found, dict):
            raise ValueError("it is not a mapping")
        return stored_facts(found)

    def _give(self, state: HostState, kept: dict[str, Any], path: Path, tell: Callable[[str], None]) -> None:
        gathered = bool(kept.get(GATHERED))
        facts = {name: value for name, value in kept.items() if name not in MARKS}
        while clash := replaced(facts, [state.inventory, state.added]):
            tell(f"{path}: '{clash}' is passed over, as the inventory has a variable of that name.")
            del facts[clash]
        add_facts(state, facts)
        state.gathered = gathered
        self._loaded[state.name] = dict(state.facts or {})

    def save(self, states: Mapping[str, HostState], tell: Callable[[str], None]) -> None:
        """Keep what has become known of hosts, and forget what was cleared."""
        for name, state in states.items():
            before = self._loaded.get(name)
            if "/" in name or state.facts == before:
                continue
            try:
                if state.facts is None:
                    for schema in (SCHEMA, ""):
                        self._file(name, schema).unlink(missing_ok=True)
                else:
                    self._write(name, state)
            except (OSError, TypeError, ValueError) as problem:
                tell(f"The facts of {name} are not kept in {self._directory}: {_why(problem)}.")

    def _write(self, name: str, state: HostState) -> None:
        named = {
            one if one in state.bare else f"ansible_{one}": value
            for one, value in (state.facts or {}).items()
        }
        if state.gathered:
            named |= {GATHERED: True, "module_setup": True}
        text = json.dumps({"__payload__": json.dumps(named)})
        with written_aside(self._file(name), 0o600) as file:
            os.fchmod(file.fileno(), MODE)
            file.write(text.encode())


def _must_be_ours(path: Path) -> None:
    if others_may_write(path):
        raise UsageError(
            f"Others than root and you may write {path}, which holds facts that runs rely on.",
            f"chmod o-w {path}, and give it your user; or name another directory in fact_caching_connection.",
        )


def _untagged(value: Any) -> Any:
    """Without what ansible-core 2.19 notes of where a value is from."""
    if isinstance(value, dict):
        if "__ansible_type" in value:
            if "value" not in value:
                raise ValueError(f"it holds a value of the type {value['__ansible_type']!r}")
            return _untagged(value["value"])
        return {key: _untagged(one) for key, one in value.items()}
    return [_untagged(one) for one in value] if isinstance(value, list) else value


def _why(problem: Exception) -> str:
    said = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return f"the cache {said}" if isinstance(problem, Unfit) else said.rstrip(".")
