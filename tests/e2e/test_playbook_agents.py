"""Playbooks over the agents' kept-open channels: no connections of the command line's own, nobody kept
waiting, and an end that leaves no half-done step."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.errors import Forbidden
from tests.cluster import RMX, WAIT_S, Cluster, until

pytestmark = pytest.mark.lab
SECRET = "correct horse battery"
# the step's command waits for who opens the fifo
WAITING = """
- hosts: all
  gather_facts: false
  tasks:
    - shell: rm -f /tmp/go; mkfifo /tmp/go; echo > /tmp/begun; cat /tmp/go; echo > /tmp/ended
    - copy: {content: x, dest: /tmp/never}
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: Any) -> Cluster:
    made: Cluster = make_cluster({"daemon": {"log_level": "debug"}}, zones=1, hosts=2)
    return made


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """A host for one test, without what the last one left in its /tmp."""
    host = cluster.lab.hosts[0].name
    cluster.all_up()
    cluster.lab.exec(host, ["sh", "-c", "rm -rf /tmp/*"])
    yield host
    cluster.tidy()


def argv(cluster: Cluster, playbook: Path, *more: str) -> list[str]:
    """A run that cannot open a connection of its own: it knows no host's key."""
    nobody = cluster.directory / "no_known_hosts"
    nobody.touch()
    given = ["playbook", "run", str(playbook), "-i", str(cluster.lab.inventory), "--known-hosts", str(nobody)]
    return [*given, *more]


def begin(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [RMX, "--config", cluster.config, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def there(cluster: Cluster, host: str, path: str) -> bool:
    return cluster.lab.exec(host, ["test", "-e", path]).returncode == 0


def release(cluster: Cluster, host: str) -> None:
    cluster.lab.exec(host, ["sh", "-c", "echo > /tmp/go"])


def write(cluster: Cluster, name: str, text: str) -> Path:
    path = cluster.directory / f"{name}.yml"
    path.write_text(text)
    return path


def test_a_playbook_needs_no_connection_of_its_own(cluster: Cluster, name: str) -> None:
    (cluster.directory / "long").write_text("ä line of text\n" * 150_000)
    playbook = write(
        cluster,
        "plays",
        "- hosts: all\n  tasks:\n"
        "    - user: {name: worker, system: true}\n"
        "    - copy: {content: '{{ secret }}', dest: /tmp/secret, mode: '0600'}\n      no_log: true\n"
        f"    - copy: {{src: {cluster.directory}/long, dest: /tmp/long}}\n"
        "    - shell: id -un; cat /proc/self/cgroup; exec 2>/tmp/left; setsid sleep 600 >/dev/null &\n"
        "      become: true\n      become_user: worker\n      register: who\n"
        "    - copy: {content: '{{ who.stdout }}', dest: '/tmp/who'}\n",
    )
    done = cluster.run(*argv(cluster, playbook, "-e", f"secret='{SECRET}'"))
    assert done.returncode == 0, done.stderr
    again = cluster.run(*argv(cluster, playbook, "-e", f"secret='{SECRET}'"))
    assert again.returncode == 0, again.stderr
    assert cluster.read(name, "/tmp/secret") == SECRET
    assert cluster.read(name, "/tmp/long") == (cluster.directory / "long").read_text()
    first, *groups = cluster.read(name, "/tmp/who").splitlines()
    assert first == "worker"
    assert not [line for line in groups if "/rm" in line]  # what steps start is not part of the agent

    # the same with a connection of its own is refused: it would not know whom it talks to
    text = playbook.read_text().replace("- hosts: all\n", "- hosts: all\n  connection: ssh\n")
    refused = cluster.run(*argv(cluster, write(cluster, "own", text), "-e", "secret=x"))
    assert refused.returncode == 4
    assert "not known" in refused.stderr + refused.stdout

    kept = [cluster.log_file, *(cluster.directory / "state").rglob("*")]
    assert [path for path in kept if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    assert cluster.log_file.stat().st_size > 0
    cluster.lab.exec(name, ["pkill", "-f", "^sleep 600"])


def test_only_administrators_may(cluster: Cluster, name: str) -> None:
    user = cluster.client_of("nobody")
    with pytest.raises(Forbidden, match="administrator"):
        user.get("channels")
    (host,) = (host for host in cluster.lab.hosts if host.name == name)
    door = {"address": host.address, "port": 22, "login": "root"}
    steps = [{"id": 1, "task": 1, "op": "command", "args": {"argv": ["touch", "/tmp/never"]}}]
    request = {"steps": steps, "check": False, "diff": False, "planned": {}}
    with pytest.raises(Forbidden, match="administrator"):
        user.post("channels", name, "steps", body={**door, **request})
    elsewhere = cluster.client.post("channels", name, "steps", body={**door, "port": 2222, **request})
    assert "No agent" in elsewhere["unsent"]
    assert not there(cluster, name, "/tmp/never")


def test_a_long_step_is_in_nobodys_way(cluster: Cluster, name: str) -> None:
    long = begin(cluster, *argv(cluster, write(cluster, "wait", WAITING), "--limit", name))
    until(lambda: there(cluster, name, "/tmp/begun"), "the step has begun")
    job = cluster.post_job("echo hello", hosts_only=[name])
    assert cluster.wait(job)["state"] == "COMPLETED"
    other = write(cluster, "ping", "- hosts: all\n  gather_facts: false\n  tasks: [ping: ]\n")
    assert cluster.run(*argv(cluster, other, "--limit", name)).returncode == 0
    assert not there(cluster, name, "/tmp/ended")
    assert long.poll() is None
    release(cluster, name)
    _, said = long.communicate(timeout=WAIT_S)
    assert long.returncode == 0, said
    assert there(cluster, name, "/tmp/never")


def test_an_interrupted_run_finishes_the_step_that_it_is_at(cluster: Cluster, name: str) -> None:
    run = begin(cluster, *argv(cluster, write(cluster, "wait", WAITING), "--limit", name))
    until(lambda: there(cluster, name, "/tmp/begun"), "the step has begun")
    run.send_signal(signal.SIGINT)
    out, said = run.communicate(timeout=WAIT_S)
    assert run.returncode == 130, said
    assert name in out
    until(lambda: f"steps on {name} are given up" in cluster.log_file.read_text(), "the daemon noticed")
    # the agent takes its requests in order: when this is answered, it has heard that too
    other = write(cluster, "ping", "- hosts: all\n  gather_facts: false\n  tasks: [ping: ]\n")
    assert cluster.run(*argv(cluster, other, "--limit", name)).returncode == 0
    release(cluster, name)
    until(lambda: there(cluster, name, "/tmp/ended"), "the step is finished")
    until(lambda: not cluster.alive(name, "cat /tmp/go"), "nothing runs any more")
    assert not there(cluster, name, "/tmp/never")


def test_it_is_the_same_over_a_connection_of_its_own(cluster: Cluster, name: str) -> None:
    sessions = cluster.alive(name, "^sshd[^ ]*: root@notty")  # the daemon's
    playbook = write(
        cluster, "own_wait", WAITING.replace("- hosts: all\n", "- hosts: all\n  connection: ssh\n")
    )
    given = ["-i", str(cluster.lab.inventory), "--limit", name]
    run = begin(cluster, "playbook", "run", str(playbook), *given)
    until(lambda: there(cluster, name, "/tmp/begun"), "the step has begun")
    assert len(cluster.alive(name, "^sshd[^ ]*: root@notty")) == len(sessions) + 1
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=WAIT_S)
    assert run.returncode == 130, said
    until(lambda: cluster.alive(name, "^sshd[^ ]*: root@notty") == sessions, "the host noticed")
    release(cluster, name)
    until(lambda: there(cluster, name, "/tmp/ended"), "the step is finished")
    until(lambda: not cluster.alive(name, "python3 -S -E -c"), "nothing runs any more")
    assert not there(cluster, name, "/tmp/never")


def test_a_daemon_that_is_lost_leaves_the_outcome_unknown_and_the_next_run_finishes(
    cluster: Cluster, name: str
) -> None:
    playbook = write(cluster, "wait", WAITING)
    run = begin(cluster, *argv(cluster, playbook, "--limit", name))
    until(lambda: there(cluster, name, "/tmp/begun"), "the step has begun")
    cluster.restart()
    out, said = run.communicate(timeout=WAIT_S)
    assert run.returncode == 4, said
    assert "is unknown" in said + out
    assert "Run the playbook again" in said + out
    release(cluster, name)
    until(lambda: there(cluster, name, "/tmp/ended"), "the step is finished")
    cluster.all_up()
    cluster.lab.exec(name, ["sh", "-c", "rm -f /tmp/begun"])
    again = begin(cluster, *argv(cluster, playbook, "--limit", name))
    until(lambda: there(cluster, name, "/tmp/begun"), "the step has begun")
    release(cluster, name)
    _, said = again.communicate(timeout=WAIT_S)
    assert again.returncode == 0, said
    assert there(cluster, name, "/tmp/never")
