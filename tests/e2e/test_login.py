"""The daemon logs in as an ordinary account, whose key starts the agent and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rm.adapters.playbook.run import Report, run_playbook
from rm.adapters.playbook.shipped import shipped_directory
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests.cluster import Cluster, ssh_settings
from tests.e2e.conftest import MakeCluster

pytestmark = [pytest.mark.lab, pytest.mark.skipif(not shutil.which("sudo"), reason="needs sudo")]
LOGIN = "rmlogin"
SERVE = "python3 -S -E /opt/rm/agents/rm_agent.py --serve"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One host, and a key for it under its name."""
    cluster = make_cluster(zones=1, hosts=1)
    keys = cluster.directory / "keys"
    keys.mkdir()
    new_key(keys / name(cluster))
    return cluster


def new_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def name(cluster: Cluster) -> str:
    return cluster.lab.hosts[0].name


def play(cluster: Cluster, playbook: str, check: bool = False, **variables: Any) -> Report:
    """As root, with a key of root's own."""
    hosts = to_hosts(parse(cluster.lab.inventory.read_text(), "hosts.yml"))
    path = shipped_directory("playbooks") / f"{playbook}.yml"
    return run_playbook(path, hosts, ssh_settings(cluster.lab), variables=variables, check=check)


def set_up(cluster: Cluster, **variables: Any) -> Report:
    key = str(cluster.directory / "keys/{{ inventory_hostname }}.pub")
    report = play(cluster, "login", rm_login_key=key, **variables)
    assert report.ok, report.failures()
    return report


def inventory(cluster: Cluster) -> Path:
    """The lab's, with the daemon's own login and without the key that lets root in."""
    tree = yaml.safe_load(cluster.lab.inventory.read_text())

    def without(node: Any) -> Any:
        if isinstance(node, dict):
            gone = ("ansible_user", "ansible_ssh_private_key_file")
            return {key: without(value) for key, value in node.items() if key not in gone}
        return node

    tree = without(tree)
    tree["all"].setdefault("vars", {})["ansible_user"] = LOGIN
    file = cluster.directory / "hosts.yml"
    file.write_text(yaml.safe_dump(tree))
    return file


def words(cluster: Cluster, *asked: str, key: Path | None = None) -> list[str]:
    options = ["IdentitiesOnly=yes", "BatchMode=yes", f"UserKnownHostsFile={cluster.lab.known_hosts}"]
    door = ["ssh", "-F", "/dev/null", "-T", "-i", str(key or cluster.directory / "keys" / name(cluster))]
    where = f"{LOGIN}@{cluster.lab.hosts[0].address}"
    before = [word for word in asked if word.startswith("-")]
    return [*door, *(f"-o{o}" for o in options), *before, where, *asked[len(before) :]]


def ssh(cluster: Cluster, *asked: str, key: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a thief of the key can do with it."""
    argv = words(cluster, *asked, key=key)
    return subprocess.run(argv, input="", capture_output=True, text=True, check=False, timeout=60)


def ask(cluster: Cluster, *requests: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The answers of an agent that a thief of the key starts, by the requests' ids."""
    said: dict[int, dict[str, Any]] = {}
    with subprocess.Popen(words(cluster, SERVE), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write("".join(json.dumps(one) + "\n" for one in requests).encode())
        agent.stdin.flush()
        for line in agent.stdout:
            answer = json.loads(line)
            said.update({answer["id"]: answer} if "id" in answer else {})
            if len(said) == len(requests):
                agent.stdin.close()  # its end
    return said


def test_setting_it_up_is_foretold_and_happens_once(cluster: Cluster) -> None:
    key = str(cluster.directory / "keys/{{ inventory_hostname }}.pub")
    foretold = play(cluster, "login", check=True, rm_login_key=key)
    assert foretold.ok, foretold.failures()
    assert cluster.lab.exec(name(cluster), ["id", LOGIN]).returncode != 0
    assert set_up(cluster).recap()[name(cluster)].changed == foretold.recap()[name(cluster)].changed > 0
    assert set_up(cluster).recap()[name(cluster)].changed == 0
    two = cluster.directory / "two.pub"
    two.write_text((cluster.directory / "keys" / f"{name(cluster)}.pub").read_text() * 2)
    for wrong in ({"rm_login": "root"}, {"rm_login_from": '"x'}, {"rm_login_key": str(two)}):
        assert not play(cluster, "login", **{"rm_login_key": key, **wrong}).ok


def test_the_key_opens_no_shell_and_no_tunnel(cluster: Cluster) -> None:
    assert ssh(cluster, "true").returncode == 0
    for asked in (
        "",
        f"{SERVE}; id",
        f"{SERVE} --attend",
        f"env X=1 {SERVE}",
        SERVE.replace("rm_agent", "rm_steps"),
    ):
        refused = ssh(cluster, *filter(None, [asked]))
        assert refused.returncode == 1, asked
        assert (refused.stdout, "starts rm's agent and nothing else" in refused.stderr) == ("", True)
    assert "PTY allocation request failed" in ssh(cluster, "-tt").stderr
    back = ssh(cluster, "-oExitOnForwardFailure=yes", "-R0:127.0.0.1:22", "true")
    assert "remote port forwarding failed" in back.stderr
    through = ssh(cluster, "-W127.0.0.1:22")
    assert "administratively prohibited" in through.stderr
    assert "SSH-" not in through.stdout


def test_sudo_allows_the_account_the_agent_and_nothing_else(cluster: Cluster) -> None:
    def sudo(*words: str) -> bool:
        argv = ["runuser", "-u", LOGIN, "--", "sudo", "-n", *words]
        return cluster.lab.exec(name(cluster), argv, input=b"").returncode == 0

    python = cluster.lab.exec(name(cluster), ["sh", "-c", "command -v python3"]).stdout.decode().strip()
    agent = "/opt/rm/agents/rm_agent.py"
    assert sudo(python, "-S", "-E", agent, "--serve")
    assert not sudo(python, "-S", "-E", agent, "--attend", "--serve")
    assert not sudo("id")
    assert not sudo(python, "-c", "1")
    assert not sudo(python, "-S", "-E", agent)
    assert not sudo(python, "-S", "-E", agent, "--serve", "--jobs-only")
    assert not sudo("RM_AGENT_STATE=/tmp/x", python, "-S", "-E", agent, "--serve")
    argv = ["runuser", "-u", LOGIN, "--", "sh", "-c", "echo x >>/var/lib/rmlogin/.ssh/authorized_keys"]
    assert cluster.lab.exec(name(cluster), argv).returncode != 0


def test_the_daemon_works_through_it_and_playbooks_by_its_agents(cluster: Cluster, tmp_path: Path) -> None:
    text = cluster.config.read_text()
    cluster.config.write_text(
        text.replace("[ssh]\n", f'[ssh]\nidentity_files = ["{cluster.directory}/keys/%h"]\n')
    )
    cluster.restart()
    hosts = inventory(cluster)
    cluster.rmx("host", "import", hosts)
    cluster.all_up()
    job = cluster.post_job("id -un", user="nobody")
    assert cluster.wait(job)["state"] == "COMPLETED"
    assert cluster.log(job) == "nobody\n"
    assert cluster.rmx("run", "cat", input="every byte") == "every byte"
    connected = cluster.lab.exec(name(cluster), ["ps", "-o", "args=", "-U", "root"]).stdout.decode()
    assert f"sshd: {LOGIN}" in connected
    assert "rm_agent.py --serve" in connected
    play = tmp_path / "play.yml"
    play.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "  - command: id -un\n    become: true\n    register: who\n  - debug: {var: who.stdout}\n"
    )
    done = cluster.run("playbook", "run", play, "--inventory", hosts)
    assert "who.stdout: root" in done.stdout + done.stderr
    play.write_text(play.read_text().replace("gather_facts", "connection: ssh\n  gather_facts"))
    refused = cluster.run("playbook", "run", play, "--inventory", hosts)
    assert refused.returncode
    assert "starts rm's agent and nothing else" in refused.stdout + refused.stderr


def test_a_key_is_rotated_with_its_restrictions(cluster: Cluster) -> None:
    old, new = cluster.directory / "keys", cluster.directory / "new"
    new.mkdir()
    before = cluster.read(name(cluster), f"/var/lib/{LOGIN}/.ssh/authorized_keys")
    keys = [
        f"rm_{which}_key={place}/{{{{ inventory_hostname }}}}"
        for which, place in (("old", old), ("new", new))
    ]
    options = ["-e", "rm_make_keys=true", "-e", f"rm_known_hosts={cluster.lab.known_hosts}"]
    given = [word for key in keys for word in ("-e", json.dumps(dict([key.split("=", 1)])))]
    hosts = cluster.directory / "hosts.yml"
    cluster.rmx("playbook", "run", "rotate_keys", "--inventory", hosts, *options, *given)
    after = cluster.read(name(cluster), f"/var/lib/{LOGIN}/.ssh/authorized_keys")
    blobs = [(file / name(cluster)).with_suffix(".pub").read_text().split()[1] for file in (old, new)]
    assert after.split("ssh-ed25519")[0] == before.split("ssh-ed25519")[0]
    assert (blobs[0] in before, blobs[1] in before) == (True, False)
    assert (blobs[0] in after, blobs[1] in after) == (False, True)
    assert ssh(cluster, "true").returncode == 255
    assert ssh(cluster, "true", key=new / name(cluster)).returncode == 0
    os.replace(new / name(cluster), old / name(cluster))
    os.replace(new / f"{name(cluster)}.pub", old / f"{name(cluster)}.pub")


def test_agents_for_jobs_only_take_no_steps_and_no_root(cluster: Cluster) -> None:
    steps = [{"id": 1, "op": "command", "args": {"argv": ["id"]}}]
    requests: list[dict[str, Any]] = [
        {"id": 1, "op": "steps", "steps": steps, "check": False, "diff": False, "planned": {}},
        {"id": 2, "op": "ping"},
    ]
    assert "results" in ask(cluster, *requests)[1].get("result", {})
    set_up(cluster, rm_login_jobs_only=True, rm_login_from="10.0.0.0/8,127.0.0.1")
    refused = ask(cluster, *requests)
    assert (refused[1]["code"], refused[2]["ok"]) == ("no-such-op", True)
    cluster.restart()
    cluster.all_up()
    job = cluster.post_job("id -un", user="nobody")
    assert cluster.wait(job)["state"] == "COMPLETED"
    # the address that the key may come from
    set_up(cluster, rm_login_jobs_only=True, rm_login_from="192.0.2.1")
    assert "Permission denied" in ssh(cluster, "true").stderr


def test_it_is_taken_away_again(cluster: Cluster) -> None:
    for playbook, changed in (("uninstall", True), ("login", False)):
        report = play(cluster, playbook, rm_login_state="absent", rm_force=True)
        assert report.ok, report.failures()
        assert bool(report.recap()[name(cluster)].changed) is changed
    for path in ("/etc/sudoers.d/rmlogin", "/var/lib/rmlogin"):
        assert cluster.lab.exec(name(cluster), ["test", "-e", path]).returncode == 1
    assert cluster.lab.exec(name(cluster), ["id", LOGIN]).returncode != 0
