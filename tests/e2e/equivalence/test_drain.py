"""The shipped playbook `drain` under ansible-core and under rm, which asks a daemon: as `test_shipped.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.shipped import shipped_directory
from rm.core.model.host import Host
from rm.core.model.snapshot import Free
from tests.e2e.equivalence.judge import compare
from tests.e2e.equivalence.recipe import Differs, Recipe
from tests.e2e.equivalence.stage import Stage
from tests.fake_service import serving

pytestmark = pytest.mark.lab
SMALL = "rm_burn_in_seconds=1 rm_burn_in_memory_percent=1 rm_burn_in_disk_mb=8"
WHY = "draining and returning change what the daemon knows"
PLAYBOOKS = shipped_directory("playbooks")
RECIPE = Recipe(
    PLAYBOOKS / "drain.yml",
    reads=(PLAYBOOKS,),
    arguments=("-e", SMALL, "-e", "rm_act={here}/act.yml"),
    differs=(
        Differs("first: one: recap changed", 1, 3, WHY),
        Differs("second: one: recap changed", 0, 2, WHY),
    ),
    check={"Return": "ok"},  # nothing is drained then
)


def test_both_act_alike_on_a_drained_host(make_module_lab: Any, tmp_path: Path) -> None:
    for tool in ("ansible", "rm"):
        (tmp_path / tool / RECIPE.name).mkdir(parents=True)
        act = "- name: Firmware\n  copy: {content: new, dest: /opt/firmware, mode: '0644'}\n"
        (tmp_path / tool / RECIPE.name / "act.yml").write_text(act)
    labs = [make_module_lab(zones=1, hosts=1) for _ in ("rm", "ansible")]
    with serving(tmp_path / "rm.sock") as daemon:
        service = daemon.service
        service.inventory = {"one": Host("one", "zone1", labs[0].hosts[0].address, 22, "root")}
        drained = []

        def hosts() -> list[tuple[Host, Free | None, tuple[int, ...]]]:
            drained.append(service.inventory["one"].drained_by)
            return [(service.inventory["one"], None, ())]

        service.hosts = hosts
        config = tmp_path / "rm.toml"
        config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\nsocket = "{daemon.socket}"\n')
        left = iter(labs)
        stage = Stage([[RECIPE]], lambda _: next(left), tmp_path, config)
        try:
            compare(stage, RECIPE)
        finally:
            stage.close()
    assert "maintenance (root)" in drained
    assert service.inventory["one"].drained_by == ""
