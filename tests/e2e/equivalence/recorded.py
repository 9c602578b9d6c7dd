"""What Ansible's runs of the corpus, and of the shipped playbooks, came to: each costs Ansible seconds, and
none changes.

A record holds for one content of the playbook, of what it reads and of this comparison, for one version of
ansible-core, and for one system of the hosts. For any other, Ansible is asked. A record only ever shows that
both tools did the same: where rm did something else, Ansible runs the playbook before the test fails.

    RM_TEST_ANSIBLE=live    asks Ansible, whatever is recorded
    RM_TEST_ANSIBLE=record  asks it, and writes down what both did alike (`make records`)
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.e2e.equivalence.outcome import VOLATILE, Outcome, Run
from tests.e2e.equivalence.recipe import Recipe
from tests.e2e.equivalence.snapshot import State

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
RECORDS = HERE / "records"
MODE = os.environ.get("RM_TEST_ANSIBLE", "")
COMPARISON = ("callback/record.py", "outcome.py", "snapshot.py", "stage.py", "tools.py")


class NotRecorded(Exception):
    """rm touched what the record does not know of."""


class Recorded:
    """Runs of a playbook, and the hosts' states after each; `seen` are facts, per run and host, of paths that
    Ansible left alone."""

    def __init__(self, runs: list[Run], states: list[dict[str, State]], seen: list[dict[str, State]]) -> None:
        self.runs, self.states, self._seen = runs, states, seen

    def seen(self, index: int, host: str, paths: list[str]) -> State:
        """Raises NotRecorded for a path that nobody looked at when this was recorded."""
        known = self._seen[index].get(host, {})
        if unknown := [path for path in paths if path not in known]:
            raise NotRecorded(f"{host}: {unknown}")
        return {path: known[path] for path in paths if known[path]}


def content(recipe: Recipe) -> str:
    """A digest of the playbook, of what it reads, and of how it is compared."""
    digest = hashlib.sha256()
    read = {HERE / name for name in COMPARISON}
    if recipe.path.parent == CORPUS:
        read |= {recipe.path, *_shared(recipe), recipe.beside, *recipe.beside.rglob("*")}
        read |= {*(CORPUS / "only" / recipe.name).rglob("*")}
    else:
        digest.update(repr(recipe.arguments).encode())
    of = [(HERE, path) for path in sorted(read)]
    of += [(top.parent, path) for top in recipe.reads for path in sorted({top, *top.rglob("*")})]
    for top, path in of:
        if _written(path):
            digest.update(f"{path.relative_to(top)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _shared(recipe: Recipe) -> set[Path]:
    """The files that playbooks share and this one, or one of them, names: a role, a file of tasks, …"""
    tops = {top for kind in CORPUS.iterdir() if kind.is_dir() and kind.name not in ("inventories", "only")
            for top in kind.iterdir() if top.name != "__pycache__"}  # fmt: skip
    found: set[Path] = set()
    read, left = recipe.path.read_text(), set(tops)
    while named := {top for top in left if top.name.partition(".")[0] in read}:
        left -= named
        more = {path for top in named for path in (top, *top.rglob("*")) if _written(path)}
        found |= more
        read = "\n".join(path.read_text(errors="replace") for path in more)
    return found


def _written(path: Path) -> bool:
    """A file that somebody wrote: whether Python has compiled it changes nothing."""
    return path.is_file() and "__pycache__" not in path.parts


def is_of(recipe: Recipe) -> bool:
    """Is there a record of this very playbook?"""
    path = RECORDS / f"{recipe.name}.json"
    return path.exists() and json.loads(path.read_text())["content"] == content(recipe)


@cache
def system() -> str:
    """The versions of Ansible and of what it finds on the hosts, which see this machine's programs."""
    below = Path("ansible_collections/ansible/posix/MANIFEST.json")
    manifests = [Path(path, below) for path in sys.path if Path(path, below).exists()]
    posix = json.loads(manifests[0].read_text())["collection_info"]["version"] if manifests else ""
    python = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=True).stdout
    found = platform.freedesktop_os_release()
    return f"{version('ansible-core')} {posix} {python} {found['ID']} {found.get('VERSION_ID')}"


def read(recipe: Recipe) -> Recorded | None:
    """The record of this very playbook on such a system, if there is one, and Ansible is not to be asked."""
    if MODE or not lasts(recipe) or not is_of(recipe):
        return None
    told = json.loads((RECORDS / f"{recipe.name}.json").read_text())
    if told["system"] != system():
        return None
    return Recorded([_run(one) for one in told["runs"]], told["states"], told["seen"])


def write(
    recipe: Recipe, runs: list[Run], states: list[dict[str, State]], seen: list[dict[str, State]]
) -> None:
    """Keeps what Ansible did, where it is asked to be kept."""
    if MODE != "record" or not lasts(recipe):
        return
    told = {"content": content(recipe), "system": system(), "states": states, "seen": seen}
    told["runs"] = [_plain(run, recipe) for run in runs]
    RECORDS.mkdir(exist_ok=True)
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    (RECORDS / f"{recipe.name}.json").write_text(text + "\n")


def lasts(recipe: Recipe) -> bool:
    """Is it known what it reads, and the same on other machines?"""
    return (recipe.path.parent == CORPUS or bool(recipe.reads)) and not recipe.of_machine


def _plain(run: Run, recipe: Recipe) -> dict[str, Any]:
    tasks = {host: [_steady(asdict(one)) for one in outcomes] for host, outcomes in run.tasks.items()}
    if recipe.facts_of_machine:
        for one in (one for outcomes in tasks.values() for one in outcomes if one["module"] == "setup"):
            one["result"].pop("ansible_facts", None)
    return {"code": run.code, "recap": run.recap, "tasks": tasks}


def _run(told: Mapping[str, Any]) -> Run:
    tasks = {host: [Outcome(**{**one, "items": tuple(one["items"])}) for one in outcomes]
             for host, outcomes in told["tasks"].items()}  # fmt: skip
    return Run(told["code"], tasks, told["recap"])


def _steady(value: Any) -> Any:
    """Without what is never compared."""
    if isinstance(value, dict):
        return {name: _steady(one) for name, one in value.items() if name not in {*VOLATILE, "invocation"}}
    return [_steady(one) for one in value] if isinstance(value, list | tuple) else value
