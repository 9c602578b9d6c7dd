"""What the playbooks that come with rm must share with its programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rm.adapters.playbook.control import rm_burn_in_network
from rm.daemon.monitoring import probe as monitor_probe
from rm.playbook.modules import rm_burn_in_network as burn_in

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
