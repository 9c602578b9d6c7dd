"""The files that describe a lab: its inventory, its host keys, its state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rm.lab.spec import LabHost, LabSpec
from rm.written_aside import written_aside

FILES = (
    "inventory.yml",
    "known_hosts",
    "id_ed25519",
    "id_ed25519.pub",
    "keeper.log",
    "lab.json",
    "lab.sock",
)


def write(directory: Path, spec: LabSpec, hosts: list[LabHost]) -> None:
    """`inventory.yml` (one group per zone) and `known_hosts` (the key of each host's first boot)."""
    import yaml

    groups: dict[str, Any] = {}
    for host in hosts:
        groups.setdefault(host.zone, {"hosts": {}})["hosts"][host.name] = {
            "ansible_host": host.address,
            "rm_zone": host.zone,
            **({"rm_leaf": host.leaf} if host.leaf else {}),
            # what is declared, not what a degraded link really carries: that is for rm to find out
            "rm_nic_mbps": round(spec.link_mbps) or 1,
            "rm_gpus": [{"uuid": uuid, "model": spec.gpu_model, "mem": spec.gpu_mem} for uuid in host.gpus],
        }
    tree = {
        "all": {
            "vars": {
                "ansible_port": 22,
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(directory / "id_ed25519"),
                "rm_cpus": spec.cpus,
                "rm_mem": spec.mem,
                "rm_interface": "eth0",
            },
            "children": groups,
        }
    }
    (directory / "inventory.yml").write_text(
        "# Written by `rmx lab up`; removed by `rmx lab down`.\n" + yaml.safe_dump(tree, sort_keys=False)
    )
    with open(directory / "known_hosts", "w") as known:
        for host in hosts:
            kind, key, *_ = (directory / "keys" / f"{host.name}.pub").read_text().split()
            known.write(f"{host.address} {kind} {key}\n")


def save_state(directory: Path, state: dict[str, Any]) -> None:
    with written_aside(directory / "lab.json") as file:
        file.write(json.dumps(state, indent=1).encode() + b"\n")


def load_state(directory: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads((directory / "lab.json").read_text())
        return state
    except (FileNotFoundError, NotADirectoryError):
        return None


def started(pid: int) -> int:
    """When a process started, in clock ticks since this machine's boot; 0 when it is none or has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    # a process that has ended stays listed until its parent asks, which may be late
    return 0 if fields[0] in "ZX" else int(fields[19])


def alive(state: dict[str, Any]) -> bool:
    """Whether the keeper that this state speaks of runs (and not another process with its number)."""
    return bool(state["keeper"]) and started(state["keeper"]) == state["keeper_started"]
