"""The SSH door: a daemon of another machine, reached by the user's own ssh and a real sshd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RMX, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.ssh_server import SSHD, SshServer, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not Path(SSHD).exists() or not shutil.which("ssh"), reason="needs OpenSSH"),
]
ACCOUNT = "games"  # an account of every Debian, which is nobody's


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(zones=1, hosts=1)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[SshServer]:
    with ssh_server(cluster.directory / "ssh") as server:
        yield server


@pytest.fixture
def door(cluster: Cluster) -> str:
    return f"ssh://{ACCOUNT}@control{cluster.socket}"


def test_the_caller_is_the_account_that_logged_in(cluster: Cluster, server: SshServer, door: str) -> None:
    refused = server.rmx(door, "host", "drain", "z1h1")
    assert refused.returncode == 5
    assert "games is none" in refused.stderr
    script = "#!/bin/sh\n#SBATCH --job-name=far\nid -un\n"
    sent = server.rmx(door, "submit", "--wait", text=script)
    assert (sent.returncode, "Submitted batch job" in sent.stdout) == (0, True), sent.stderr
    assert "puts no log here" in sent.stderr
    job = int(sent.stdout.split()[-1])
    assert cluster.client.get("jobs", job)["job"]["spec"]["user"] == ACCOUNT
    assert server.rmx(door, "logs", str(job)).stdout == f"{ACCOUNT}\n"
    assert server.rmx(door, "queue", "--all", "--json").returncode == 0


def test_a_log_is_followed(server: SshServer, door: str) -> None:
    sent = server.rmx(door, "submit", "--parsable", "--wrap", "echo begun; sleep 600")
    job = sent.stdout.strip()
    follower = subprocess.Popen(
        [RMX, "logs", "--follow", job], env={**server.environment, "RM_DAEMON": door}, stdout=subprocess.PIPE
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"begun\n"
    assert server.rmx(door, "cancel", job).returncode == 0
    assert follower.wait(60) == 0


def test_one_connection_serves_many_commands(server: SshServer, door: str) -> None:
    before = server.logins()
    server.hang_up()
    commands = [
        subprocess.Popen(
            [RMX, "status"], env={**server.environment, "RM_DAEMON": door}, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    assert [command.wait(60) for command in commands] == [0, 0, 0, 0]
    for command in commands:
        command.communicate()
    assert server.rmx(door, "status").returncode == 0
    assert server.logins() == before + 1


def test_an_administrator_runs_playbooks_through_it(cluster: Cluster, server: SshServer) -> None:
    book = cluster.directory / "book.yml"
    book.write_text("- hosts: all\n  tasks:\n    - command: id -un\n      register: who\n")
    ran = server.rmx(
        f"ssh://root@control{cluster.socket}", "--config", str(cluster.config),
        "playbook", "run", str(book), "-i", str(cluster.lab.inventory), "-v",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "No steps travel" not in ran.stderr


def test_what_is_wrong_is_said(cluster: Cluster, server: SshServer, door: str) -> None:
    missing = server.rmx(f"{door}.old", "status")
    assert missing.returncode == 7
    assert "no daemon listens on" in missing.stderr
    stranger = server.rmx(f"ssh://nosuchuser@control{cluster.socket}", "status")
    assert stranger.returncode == 7
    assert "Permission denied" in stranger.stderr
    assert "ssh could not connect to 127.0.0.1" in server.rmx("ssh://127.0.0.1:1", "status").stderr
    no_ssh = server.rmx(f"ssh://bin@control{cluster.socket}", "status", PATH="/nowhere")
    assert "ssh is not on this machine's PATH" in no_ssh.stderr
    secrets = server.rmx("ssh://a:b@control", "status")
    assert (secrets.returncode, "password" in secrets.stderr) == (2, True)


def test_the_connection_is_made_again_after_it_was_lost(server: SshServer, door: str) -> None:
    assert server.rmx(door, "status").returncode == 0
    masters = server.masters()
    assert masters
    for pid in masters:
        os.kill(pid, signal.SIGKILL)  # it leaves its sockets behind
    until(lambda: server.rmx(door, "status").returncode == 0, "a new connection")


def test_an_open_connection_that_stands_still_is_replaced(server: SshServer, door: str) -> None:
    """Its socket is there and takes connections: nobody behind it answers."""
    server.hang_up()
    assert server.rmx(door, "status").returncode == 0
    masters = server.masters()
    assert masters
    for pid in masters:
        os.kill(pid, signal.SIGSTOP)
    try:
        for local in (server.directory / "run" / "rm" / "ssh").glob("*.????????"):
            local.unlink()
        assert server.rmx(door, "status").returncode == 0
    finally:
        for pid in masters:
            os.kill(pid, signal.SIGKILL)


def test_an_sshd_that_forbids_forwarding_is_named(cluster: Cluster) -> None:
    with ssh_server(cluster.directory / "strict", "AllowStreamLocalForwarding no") as strict:
        refused = strict.rmx(f"ssh://{ACCOUNT}@control{cluster.socket}", "status")
    assert refused.returncode == 7
    assert "AllowStreamLocalForwarding" in refused.stderr


def test_a_directory_that_others_may_write_to_is_refused(server: SshServer, door: str) -> None:
    with tempfile.TemporaryDirectory() as runtime:
        place = Path(runtime) / "rm" / "ssh"
        place.mkdir(parents=True)
        place.chmod(0o777)
        refused = server.rmx(door, "status", XDG_RUNTIME_DIR=runtime)
    assert refused.returncode == 8
    assert "must be yours alone" in refused.stderr


def test_the_address_may_stand_in_the_configuration(server: SshServer, door: str, tmp_path: Path) -> None:
    config = tmp_path / "rm.toml"
    config.write_text(f'[daemon]\nurl = "{door}"\n')
    told = server.rmx("", "--config", str(config), "status", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["daemon"]["version"]
