"""`rmx check` on hosts that rm knows nothing of: what it finds, and that it changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from rm.lab import Lab
from tests.cluster import RMX
from tests.e2e.test_own_hosts import plain_inventory

pytestmark = pytest.mark.lab


def check(lab: Lab, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    inventory, config = tmp_path / "hosts.yml", tmp_path / "rm.toml"
    inventory.write_text(plain_inventory(lab.inventory))
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\n[ssh]\nknown_hosts = "{lab.known_hosts}"\n')
    argv = [str(RMX), "check", "--inventory", str(inventory), *words]
    return subprocess.run(
        lab.enter_command(argv), env={**os.environ, "RM_CONFIG": str(config)}, capture_output=True,
        text=True, check=False, timeout=100, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_hosts_are_looked_at_and_what_is_to_be_mended_is_named(lab: Lab, tmp_path: Path) -> None:
    one, two = (host.name for host in lab.hosts[:2])
    lab.exec(two, ["useradd", "--uid", "4711", "daemon-user-of-no-machine"])
    before = lab.exec(one, ["sh", "-c", "ls -lA /opt /var/lib /tmp"]).stdout
    done = check(lab, tmp_path, "--json", "--limit", f"{one},{two}")
    told = json.loads(done.stdout)
    about = told["hosts"][one]
    # also those that --limit leaves out: the next ones of the inventory
    others = sorted(host.name for host in lab.hosts[1:4])
    assert [(peer["name"], peer["interface"], peer["problem"]) for peer in about["peers"]] == [
        (name, "eth0", "") for name in others
    ]
    assert about["interfaces"]["eth0"]["mtu_bytes"] >= 1280
    assert (about["root"], about["python"].split(".")[0]) == (True, "3")
    assert abs(about["clock_us"][0]) <= about["clock_us"][1] + 50_000  # one machine, one clock
    assert done.returncode == int(any(finding["grave"] for finding in told["findings"]))
    assert lab.exec(one, ["sh", "-c", "ls -lA /opt /var/lib /tmp"]).stdout == before
    graves = {finding["topic"] for finding in told["findings"] if finding["grave"]}
    for topic in ("clock", "users"):
        some = check(lab, tmp_path, "--json", "--limit", f"{one},{two}", "--only", topic)
        assert {finding["topic"] for finding in json.loads(some.stdout)["findings"]} <= {topic}
        assert some.returncode == int(topic in graves)
    assert check(lab, tmp_path, "--only", "weather").returncode == 2
    shown = check(lab, tmp_path, "--limit", one)
    assert shown.stdout.splitlines()[0].split()[:4] == ["HOST", "PYTHON", "KERNEL", "CLOCK"]


def test_a_host_that_is_not_reached_is_a_finding_and_holds_up_no_other(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    done = check(
        lab, tmp_path, "--known-hosts", str(tmp_path / "none"), "--limit", lab.hosts[0].name, "--only=clock"
    )
    assert done.returncode == 1
    assert f"rmx host accept-key {lab.hosts[0].name} --inventory" in done.stdout


def test_a_login_that_could_not_start_the_agent_is_refused_with_what_is_missing(
    lab: Lab, tmp_path: Path
) -> None:
    one = lab.hosts[0].name
    inventory, config, key = tmp_path / "hosts.yml", tmp_path / "rm.toml", tmp_path / "key.pub"
    inventory.write_text(plain_inventory(lab.inventory))
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\n[ssh]\nknown_hosts = "{lab.known_hosts}"\n')
    key.write_text(lab.key.with_suffix(".pub").read_text())
    hidden = "for at in $(command -v sudo); do mv $at $at.away; done; mkdir -m 700 /root/own"
    own = 'ln -s "$(command -v python3)" /root/own/python3'
    sudo = "printf '#!/bin/sh' >/usr/bin/sudo; chmod 755 /usr/bin/sudo"
    words = ["playbook", "run", "login", "--inventory", str(inventory), "--limit", one, "--check"]
    for prepare, more, said in (
        (f"{hidden}; {own}", [], "The program sudo is missing: rmlogin starts the agent as root by it."),
        (sudo, ["-e", "ansible_python_interpreter=/root/own/python3"], "which only root can run."),
    ):
        assert lab.exec(one, ["sh", "-c", prepare]).returncode == 0
        done = subprocess.run(
            lab.enter_command([str(RMX), *words, "-e", f"rm_login_key={key}", *more]),
            env={**os.environ, "RM_CONFIG": str(config)}, capture_output=True,
            text=True, check=False, timeout=100, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told = done.stdout + done.stderr
        assert (done.returncode, said in told) == (2, True), told
