"""What both tools are given to run a playbook, and a run under `ansible-playbook` as users start it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rm.lab import Lab
from tests.cluster import SETTINGS
from tests.e2e.equivalence.outcome import Outcome, Run
from tests.e2e.equivalence.recipe import Recipe

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
SELF = "EQUIVALENCE"  # which stands for it in what is compared
PATIENCE_S = 500
PREFIXES = ("ansible.builtin.", "ansible.legacy.", "ansible.posix.")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tool runs a playbook: hosts of a lab under the names of the recipe, and a directory of its own.

    `directory` is known to the playbook as the variable `here`. In what is read, addresses and directories
    are replaced by what they stand for, so that it can be compared.
    """

    lab: Lab
    hosts: Mapping[str, str]  # the recipe's name of a host to the lab's
    directory: Path
    config: Path | None = None  # an rm.toml of the caller's

    def inventory(self) -> Path:
        """The file that says how to reach the hosts."""
        path = self.directory.with_suffix(".yml")
        reach = {
            name: {
                "ansible_host": self.lab.host(host).address,
                "ansible_user": "root",
                "ansible_python_interpreter": "/usr/bin/python3",
            }
            for name, host in self.hosts.items()
        }
        path.write_text(json.dumps({"all": {"hosts": reach}}))  # which is YAML, too
        return path

    def plain(self, value: Any) -> Any:
        text = json.dumps(value, default=str)
        for name, host in self.hosts.items():
            found = self.lab.host(host)
            text = re.sub(rf"\b{re.escape(found.address)}\b", f"ADDRESS-OF-{name}", text)
            text = text.replace(found.mac, f"MAC-OF-{name}")
        network = ".".join(self.lab.hosts[0].address.split(".")[:2])
        text = re.sub(rf"\b{re.escape(network)}\.", "LAB.", text)
        text = text.replace(str(self.lab.known_hosts), "KNOWN-HOSTS")
        text = re.sub(r"ssh-ed25519 \S+ rm-lab-client", "KEY-OF-THE-LAB", text)
        text = text.replace(str(HERE), SELF)
        return json.loads(text.replace(str(self.directory), "HERE"))


def arguments(recipe: Recipe, place: Place) -> list[str]:
    """What both tools are given."""
    place.directory.mkdir(exist_ok=True)
    argv = ["-i", str(recipe.beside)] if recipe.beside.exists() else []
    argv += ["-i", str(place.inventory()), "--private-key", str(place.lab.key)]
    argv += ["-e", f"here={place.directory}"]
    for word in recipe.arguments:
        argv.append(
            word.replace("{here}", str(place.directory)).replace("{known_hosts}", str(place.lab.known_hosts))
        )
    return [*argv, str(recipe.path)]


def run_ansible(recipe: Recipe, place: Place) -> Run:
    record = place.directory.with_suffix(".json")
    record.unlink(missing_ok=True)
    env = {
        **environment(),
        "ANSIBLE_CONFIG": config(recipe, place),
        "ANSIBLE_STDOUT_CALLBACK": "record",
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
        "ANSIBLE_ACTION_PLUGINS": str(HERE / "action"),
        "ANSIBLE_HOME": str(place.directory.parent / "ansible"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_TIMEOUT": f"{SETTINGS['ssh']['connect_timeout_s']:g}",
        "ANSIBLE_SSH_COMMON_ARGS": f"-F none -o UserKnownHostsFile={place.lab.known_hosts}",
        "ANSIBLE_DEVEL_WARNING": "0",
        "RECORD": str(record),
    }
    argv = place.lab.enter_command([str(BIN / "ansible-playbook"), *arguments(recipe, place)])
    done = _call(argv, env, recipe)
    assert record.exists(), f"ansible-playbook said nothing:\n{done.stdout}\n{done.stderr}"
    told = place.plain(json.loads(record.read_text()))
    run = Run(done.returncode, recap={host: _counters(counts) for host, counts in told["recap"].items()})
    for one in told["tasks"]:
        if short(one["module"]) == "meta":
            continue  # told of where its condition left it out, and counted nowhere
        if short(one["module"]) == "gather_facts":
            one["module"] = "setup"  # which it calls
        run.tasks.setdefault(one["host"], []).append(
            Outcome(
                place=place_of(one["path"], recipe),
                name=one["name"],
                module=short(one["module"]),
                status=one["status"],
                ignored=one["ignored"],
                items=tuple(_status(item) for item in one["result"].get("results", ()) if _is_item(item)),
                result=one["result"],
            )
        )
    return run


def _call(argv: Sequence[str], env: Mapping[str, str], recipe: Recipe) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=env, check=False, capture_output=True, text=True, timeout=PATIENCE_S,
        cwd=recipe.path.parent, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def config(recipe: Recipe, place: Place) -> str:
    """An ansible.cfg that is neither the user's nor the system's."""
    path = place.directory.with_suffix(".cfg")
    path.write_text(recipe.config or "[defaults]\n")
    return str(path)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "RM_"))}
    return {**kept, "LC_ALL": "C.UTF-8"}


def place_of(path: str, recipe: Recipe) -> str:
    name, _, line = path.replace(SELF, str(HERE)).rpartition(":")
    return f"{os.path.relpath(os.path.join(recipe.path.parent, name), recipe.path.parent)}:{line}"


def short(module: str) -> str:
    for prefix in PREFIXES:
        module = module.removeprefix(prefix)
    return module


def _is_item(item: Any) -> bool:
    return isinstance(item, dict) and "ansible_loop_var" in item


def _status(item: Mapping[str, Any]) -> str:
    for status in ("unreachable", "failed", "skipped", "changed"):
        if item.get(status):
            return status
    return "ok"


def _counters(counts: Mapping[str, int]) -> dict[str, int]:
    return {"failed" if name == "failures" else name: count for name, count in counts.items()}
