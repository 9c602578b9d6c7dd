"""What the playbooks that come with rm must share with its programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from rm.adapters.playbook.control import rm_burn_in_network
from rm.daemon.monitoring import probe as monitor_probe
from rm.playbook.modules import COLLECTIONS, registry
from rm.playbook.modules import rm_burn_in_network as burn_in
from rm.playbook.read.task_keys import TASK_KEYS

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"


def variables(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PLAYBOOKS / f"{name}.yml").read_text())[0]["vars"]
    return found


@pytest.mark.parametrize("name", ["bootstrap", "uninstall"])
def test_the_ports_that_are_opened_are_those_that_are_probed(name: str) -> None:
    first, last = map(int, variables(name)["rm_ports"].split("-"))
    opened = range(first, last + 1)
    begin = burn_in.ARGS["port"].default
    probed = {*monitor_probe.PORTS, *range(begin, begin + rm_burn_in_network.PORTS)}
    probed.add(variables("probes")["rm_probe_port"])
    assert probed <= {*opened}
    assert {min(opened), max(opened)} <= probed  # and no more


def test_programs_are_removed_only_where_there_are_others_to_install() -> None:
    tasks = yaml.safe_load((PLAYBOOKS / "tasks" / "agents.yml").read_text())
    (removes,) = (task for task in tasks if task["name"] == "No programs of another rm")
    assert "'rm_agent.py' in rm_names" in removes["when"]


FILES = sorted(path for path in PLAYBOOKS.rglob("*.yml") if ".survey" not in path.name)
FULL = ("ansible.builtin", *COLLECTIONS)


def named(path: Path) -> Iterator[dict[str, Any]]:
    """The plays, tasks and handlers of a file."""
    for entry in yaml.safe_load(path.read_text()):
        yield entry
        for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
            yield from entry.get(part, ())


def modules(entry: dict[str, Any]) -> list[str]:
    """The keys of a task that name what it does."""
    if "hosts" in entry:
        return []
    return [key for key in entry if key not in TASK_KEYS and not key.startswith("with_")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_playbooks_are_written_as_ansible_lint_asks(path: Path) -> None:
    for entry in named(path):
        assert entry["name"][0].isupper(), entry["name"]
        for module in modules(entry):
            collection, _, short = module.rpartition(".")
            assert collection in FULL or (module in registry() and short.startswith("rm_")), module
            if short in ("command", "shell"):
                creates = isinstance(entry[module], dict) and "creates" in entry[module]
                assert creates or "changed_when" in entry, entry["name"]


def script(path: str, task: str) -> str:
    """What the task hands to a shell."""
    (found,) = (one for one in named(PLAYBOOKS / path) if one["name"] == task)
    return Environment().from_string(found["ansible.builtin.shell"]).render(rm_ports="8620-8959")


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("Status: inactive", ""),
        ("Status: active\n8620:8959/udp ALLOW Anywhere\n8620:8959/tcp DENY Anywhere", "ufw tcp"),
        ("Status: active\n8620:8959/udp ALLOW Anywhere\n8620:8959/tcp ALLOW Anywhere", "ufw"),
    ],
)
def test_what_ufw_does_not_let_through_is_found_and_what_it_does_is_closed(
    tool: Callable[[str, str], Path], status: str, found: str
) -> None:
    tool("firewall-cmd", "exit 252")
    log = tool("ufw", f"[ \"$1\" != status ] || echo '{status}'")
    seen = subprocess.run(["sh", "-c", script("bootstrap.yml", "Look for a firewall")], capture_output=True)
    assert (seen.returncode, seen.stdout.decode().split()) == (0, found.split())
    closes = subprocess.run(["sh", "-c", script("uninstall.yml", "Close the firewall")], capture_output=True)
    assert closes.returncode == 0
    deleted = [line.rpartition("/")[2] for line in log.read_text().splitlines() if "delete" in line]
    assert deleted == [kind for kind in ("udp", "tcp") if f"/{kind} ALLOW" in status]
    assert closes.stdout.decode().split() == ["closed"] * len(deleted)
