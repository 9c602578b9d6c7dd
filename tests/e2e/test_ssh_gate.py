"""SSH to a host only with a job there, as a part of that job: a real sshd, with PAM and without."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.run import Report, run_playbook
from rm.adapters.playbook.shipped import shipped_directory
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests.cluster import Cluster, ssh_settings, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab
USER, OTHER, OPERATOR = "news", "games", "uucp"  # accounts of this machine and of its lab hosts
GROUP = "gatekeepers"
SETTINGS = "/etc/ssh/sshd_config"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    cluster = make_cluster(zones=1, hosts=1)
    name = cluster.lab.hosts[0].name
    public = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(cluster.lab.key)], check=True, capture_output=True
    ).stdout
    for user in (USER, OTHER, OPERATOR):
        script = (
            f"set -e; usermod -s /bin/sh -d /home/{user} {user}; install -d -o {user} -m 755 /home/{user};"
            f"install -d -o {user} -m 700 /home/{user}/.ssh; cat >/home/{user}/.ssh/authorized_keys;"
            f"chown {user} /home/{user}/.ssh/authorized_keys; chmod 600 /home/{user}/.ssh/authorized_keys"
        )
        done = cluster.lab.exec(name, ["sh", "-c", script], input=public)
        assert done.returncode == 0, done.stderr
    cluster.lab.exec(name, ["sh", "-c", f"groupadd {GROUP}; usermod -aG {GROUP} {OPERATOR}"])
    authority = Path(cluster.lab.key).with_name("authority")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", authority], check=True)
    cluster.write(name, "/etc/ssh/authority.pub", authority.with_suffix(".pub").read_text())
    trusts = f"echo TrustedUserCAKeys /etc/ssh/authority.pub >>{SETTINGS}; kill -HUP $(cat /run/sshd.pid)"
    cluster.lab.exec(name, ["sh", "-c", trusts])
    return cluster


def play(cluster: Cluster, check: bool = False, **variables: str) -> Report:
    report = played(cluster, check, **variables)
    assert report.ok, report.failures()
    return report


def played(cluster: Cluster, check: bool = False, **variables: str) -> Report:
    hosts = to_hosts(parse(cluster.lab.inventory.read_text(), "hosts.yml"))
    given = {"rm_ssh_gate_exempt": GROUP, **variables}
    path = shipped_directory("playbooks") / "ssh_gate.yml"

    def tried() -> Report | None:
        report = run_playbook(path, hosts, ssh_settings(cluster.lab), variables=given, check=check)
        # sshd may just be reading its settings
        return None if any(recap.unreachable for recap in report.recap().values()) else report

    report: Report = until(tried, "sshd answers")
    return report


@pytest.fixture(scope="module", params=["keys", "PAM"])
def gated(cluster: Cluster, request: Any) -> Iterator[Cluster]:
    """The host with its gate, which the playbook sets up and takes off again."""
    name = cluster.lab.hosts[0].name
    if request.param == "PAM":
        if cluster.lab.exec(name, ["test", "-e", "/etc/pam.d/sshd"]).returncode:
            pytest.skip("this machine's sshd has no PAM")
        reads = "grep -q user_readenv=1 /etc/pam.d/sshd ||"  # Debian 12 has the line, others had it
        reads += "echo 'session required pam_env.so user_readenv=1' >>/etc/pam.d/sshd"
        script = f"{reads}; sed -i 's/^UsePAM no/UsePAM yes/' {SETTINGS}; kill -HUP $(cat /run/sshd.pid)"
        cluster.lab.exec(name, ["sh", "-c", script])
    before = {file: cluster.read(name, file) for file in (SETTINGS, "/etc/pam.d/sshd")}
    assert play(cluster, check=True).recap()[name].changed
    assert {file: cluster.read(name, file) for file in before} == before
    foretold = play(cluster, check=True).recap()[name].changed
    reload = request.param == "keys"  # of sshd: a command that check mode cannot foretell
    assert play(cluster).recap()[name].changed == foretold + reload
    assert play(cluster).recap()[name].changed == 0
    # a reload of sshd is a signal: until it has heard it, the door is as it was
    until(lambda: log_in(cluster, USER).returncode == 255, "the door is shut")
    yield cluster
    assert play(cluster, rm_ssh_gate_state="absent").recap()[name].changed
    assert {file: cluster.read(name, file) for file in before} == before
    until(lambda: log_in(cluster, USER).returncode == 0, "the door is open")


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def words(cluster: Cluster, user: str, command: str) -> list[str]:
    options = ["IdentitiesOnly=yes", "BatchMode=yes", f"UserKnownHostsFile={cluster.lab.known_hosts}"]
    door = ["ssh", "-F", "/dev/null", "-T", "-i", str(cluster.lab.key), *(f"-o{o}" for o in options)]
    return [*door, f"{user}@{cluster.lab.hosts[0].address}", command]


def log_in(cluster: Cluster, user: str, command: str = "cat /proc/self/cgroup") -> Any:
    def tried() -> Any:
        done = subprocess.run(words(cluster, user, command), capture_output=True, text=True, check=False)
        # sshd may just be reading its settings
        return done if "Connection refused" not in done.stderr else None

    return until(tried, "sshd answers")


def start(cluster: Cluster, user: str = USER) -> int:
    job = cluster.post_job("sleep 600", user=user)
    cluster.all_started(job)
    return job


def test_without_a_job_nobody_but_admins_comes_in(gated: Cluster) -> None:
    start(gated, OTHER)  # somebody else's does not help
    refused = log_in(gated, USER)
    assert refused.returncode == 255
    assert refused.stdout == ""
    assert "has no job that runs on" in refused.stderr or "only while a job of theirs" in refused.stderr
    assert log_in(gated, OPERATOR).returncode == 0
    assert log_in(gated, "root").returncode == 0


def test_a_session_belongs_to_the_newest_job_and_ends_with_it(gated: Cluster, tmp_path: Path) -> None:
    older, newer = start(gated), start(gated)
    inside = log_in(gated, USER)
    assert f"/rm/job_{newer}_1\n" in inside.stdout
    # in every group that the task is in: of memory, devices, processes …
    task = ["sh", "-c", "cat /proc/$(pgrep -n -x sleep)/cgroup"]

    def groups() -> str:
        told = gated.lab.exec(gated.lab.hosts[0].name, task).stdout.decode()
        return told if f"job_{newer}_1" in told else ""

    told = until(groups, "the newer job sleeps")
    assert {one for one in told.splitlines() if f"job_{newer}_1" in one} <= {*inside.stdout.splitlines()}
    terminal = [word if word != "-T" else "-tt" for word in words(gated, USER, "tty")]
    done = subprocess.run(terminal, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.stdout.startswith("/dev/pts/"), done.stderr
    with subprocess.Popen(words(gated, USER, "echo in; exec sleep 600"), stdout=subprocess.PIPE) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"in\n"
        gated.client.delete("jobs", newer)
        assert session.wait(60) != 0
    until(lambda: not gated.alive(gated.lab.hosts[0].name, "^sleep 600$")[1:], "only the older job's is left")
    gated.wait(newer)
    until(lambda: f"/rm/job_{older}_1\n" in log_in(gated, USER).stdout, "the door is the older job's")
    gated.client.delete("jobs", older)
    gated.wait(older)
    until(lambda: log_in(gated, USER).returncode == 255, "without a job the door is shut")


def test_what_a_session_leaves_behind_ends_with_the_job(gated: Cluster) -> None:
    name = gated.lab.hosts[0].name
    job = start(gated)
    assert log_in(gated, USER, "setsid sleep 4321 >/dev/null 2>&1 &").returncode == 0
    until(lambda: gated.alive(name, "^sleep 4321$"), "it was started")
    gated.client.delete("jobs", job)
    gated.wait(job)
    until(lambda: not gated.alive(name, "^sleep 4321$"), "it is gone, too")
    until(lambda: not gated.lab.exec(name, ["ls", "/var/lib/rm/jobs"]).stdout, "the host has forgotten it")
    script = f"ls -d /sys/fs/cgroup/rm/job_{job}_1 /sys/fs/cgroup/*/rm/job_{job}_1 2>/dev/null"
    assert gated.lab.exec(name, ["sh", "-c", script]).stdout == b""


def test_root_runs_nothing_with_an_environment_that_a_user_wrote(gated: Cluster) -> None:
    name, home = gated.lab.hosts[0].name, f"/home/{USER}"
    # the loader of each dynamic program writes such a file, with the rights of who runs it
    wanted = f"LD_DEBUG DEFAULT=libs\nLD_DEBUG_OUTPUT DEFAULT={home}/loaded\n"
    gated.write(name, f"{home}/.pam_environment", wanted)
    gated.lab.exec(name, ["chown", USER, home, f"{home}/.pam_environment"])
    try:
        start(gated)
        assert log_in(gated, USER).returncode == 0
        written = ["find", home, "-name", "loaded*", "-user", "root"]
        assert gated.lab.exec(name, written).stdout == b""
    finally:
        gated.lab.exec(name, ["sh", "-c", f"rm -f {home}/.pam_environment {home}/loaded*"])


def test_a_certificate_needs_a_job_too(gated: Cluster, tmp_path: Path) -> None:
    key, authority = tmp_path / "key", Path(gated.lab.key).with_name("authority")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signs = ["ssh-keygen", "-q", "-s", authority, "-I", "test", "-n", f"{USER},root", f"{key}.pub"]
    subprocess.run(signs, check=True)

    def log_in_with_it(user: str) -> int:
        said = [str(key) if word == str(gated.lab.key) else word for word in words(gated, user, "true")]
        return subprocess.run(said, capture_output=True, check=False).returncode

    assert log_in_with_it("root") == 0
    assert log_in_with_it(USER) == 255


def test_where_sshd_reads_another_part_of_pam_the_playbook_says_so(gated: Cluster) -> None:
    name = gated.lab.hosts[0].name
    if "\nUsePAM yes" not in gated.read(name, SETTINGS):
        pytest.skip("the gate without PAM")
    gated.lab.exec(name, ["mv", "/etc/pam.d/sshd", "/etc/pam.d/sshd.moved"])
    try:
        report = played(gated, check=True)
        assert not report.ok
        assert "/usr/lib/pam.d/sshd" in str(report.failures())
    finally:
        gated.lab.exec(name, ["mv", "/etc/pam.d/sshd.moved", "/etc/pam.d/sshd"])


def test_where_the_agents_are_older_the_playbook_says_what_to_run_first(gated: Cluster) -> None:
    report = played(gated, rm_gate="sh -c 'exit 2'")  # as one does that is asked what it does not know
    assert not report.ok
    assert "Run the playbook agents first" in str(report.failures())
