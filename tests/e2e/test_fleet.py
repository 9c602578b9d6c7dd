"""The fleet over real sshd on lab hosts: what is refused, what is noticed when, and what survives."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.adapters.hosts import ssh
from rm.adapters.hosts.fleet import Fleet
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import HostKeyError, RmError, Unreachable
from rm.lab import Lab
from rm.protocol.attempts import Discard, Launch, Logs, Stop, Tasks, TaskState
from rm.protocol.codes import AgentError, Code, NotConnected
from rm.protocol.hosts import Ping
from rm.protocol.request import Answer, Request
from tests.agent_process import AGENTS, WAIT_S, launch_request
from tests.cluster import LOSING, ssh_settings, until

pytestmark = pytest.mark.lab


def settings_of(lab: Lab) -> SshSettings:
    return ssh_settings(lab, identity_files=(lab.key,), **LOSING["ssh"])


def host_of(lab: Lab, name: str) -> Host:
    return Host(name=name, zone="", address=lab.host(name).address)


def deploy(lab: Lab, name: str) -> None:
    connection = ssh.connect(host_of(lab, name), settings_of(lab))
    try:
        assert ssh.run(connection, "mkdir -p /opt/rm/agents", 10).code == 0
        for path in AGENTS.glob("*.py"):
            ssh.put(connection, path.read_bytes(), f"/opt/rm/agents/{path.name}", 0o644)
    finally:
        connection.close()


class Listener:
    """What a fleet said, and waiting for it."""

    def __init__(self, settings: SshSettings) -> None:
        self.said: list[tuple[str, str, Any]] = []
        self._changed = threading.Condition()
        self.fleet = Fleet(settings)
        self.fleet.start(
            on_event=lambda host, event: self._note(host, type(event).__name__.lower(), event),
            on_state=lambda host, up, why: self._note(host, "up" if up else "down", why),
        )

    def _note(self, host: str, kind: str, what: Any) -> None:
        with self._changed:
            self.said.append((host, kind, what))
            self._changed.notify_all()

    def wait(self, host: str, kind: str, after: int = 0) -> Any:
        """The first thing of that kind said after the first `after` things."""

        def found() -> list[Any]:
            return [what for h, k, what in self.said[after:] if (h, k) == (host, kind)]

        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), f"{host} was never {kind}: {self.said}"
            return found()[0]

    def call(self, host: str, request: Request[Answer]) -> Answer:
        return self.fleet.call(host, request, WAIT_S).result(WAIT_S)


@pytest.fixture
def listener(lab: Lab) -> Iterator[Listener]:
    listener = Listener(settings_of(lab))
    yield listener
    listener.fleet.close()


@pytest.fixture
def up(lab: Lab, listener: Listener) -> Callable[[str], Listener]:
    def connected(name: str) -> Listener:
        deploy(lab, name)
        listener.fleet.add(host_of(lab, name))
        assert listener.wait(name, "up") == ""
        return listener

    return connected


def launch(script: str, job: int, user: str = "nobody") -> Launch:
    asked = launch_request(
        "#!/bin/sh\n" + script, job, user=user, epoch=1, time_limit_us=0, not_after_us=1 << 53
    )
    return msgspec.convert(asked, Launch)


def test_commands_and_files(lab: Lab) -> None:
    connection = ssh.connect(host_of(lab, "z1h1"), settings_of(lab))
    try:
        assert ssh.run(connection, ssh.quote(["echo", "a'b; $(id)"]), 10) == ssh.Result(0, "a'b; $(id)\n", "")
        assert ssh.run(connection, "echo no >&2; exit 3", 10) == ssh.Result(3, "", "no\n")
        data = os.urandom(300_000)
        ssh.put(connection, data, "/root/a file; rm", 0o640)
        assert lab.exec("z1h1", ["cat", "/root/a file; rm"]).stdout == data
        assert lab.exec("z1h1", ["stat", "-c", "%a", "/root/a file; rm"]).stdout == b"640\n"
        with pytest.raises(RmError, match="/nowhere/x cannot be written"):
            ssh.put(connection, data, "/nowhere/x", 0o640)
        with pytest.raises(Unreachable, match="did not end within"):
            ssh.run(connection, "sleep 600.25", 0.2)
        gone = ["sh", "-c", "! pgrep -f '[s]leep 600.25'"]
        until(lambda: lab.exec("z1h1", gone).returncode == 0, "it is not left behind")
    finally:
        connection.close()
    with pytest.raises(Unreachable, match="closed"):
        ssh.run(connection, "true", 10)


def test_only_the_accepted_host_key_is_trusted(lab: Lab, tmp_path: Path) -> None:
    host = host_of(lab, "z1h2")
    settings = replace(settings_of(lab), known_hosts=tmp_path / "known_hosts")
    with pytest.raises(HostKeyError, match="rmx host accept-key z1h2") as unknown:
        ssh.connect(host, settings)
    _, fingerprint, _ = ssh.present_key(host, settings_of(lab))
    assert fingerprint in str(unknown.value)
    with pytest.raises(HostKeyError, match="nothing was accepted"):
        ssh.accept_key(host, "SHA256:" + "A" * 43, settings)
    assert not settings.known_hosts.exists()
    ssh.accept_key(host, fingerprint, settings)
    ssh.connect(host, settings).close()

    lab.change_host_key("z1h2")
    _, changed, _ = ssh.present_key(host, settings_of(lab))
    with pytest.raises(HostKeyError, match="CHANGED") as refused:
        ssh.connect(host, settings)
    assert fingerprint in str(refused.value)
    assert changed in str(refused.value)
    ssh.accept_key(host, changed, settings)
    ssh.connect(host, settings).close()
    ssh.accept_key(host, changed, settings_of(lab))  # for the tests after this one


def test_a_command_on_a_lost_host_has_an_unknown_outcome(lab: Lab) -> None:
    connection = ssh.connect(host_of(lab, "z1h1"), settings_of(lab))

    def lose() -> None:
        until(lambda: lab.exec("z1h1", ["test", "-e", "/tmp/begun"]).returncode == 0, "the command runs")
        lab.kill_sshd("z1h1")

    losing = threading.Thread(target=lose)
    losing.start()
    try:
        with pytest.raises(Unreachable, match="unknown"):
            ssh.run(connection, "touch /tmp/begun; sleep 60", 120)
    finally:
        losing.join()
        lab.start_sshd("z1h1")
        connection.close()


def test_a_host_without_agents_is_down_with_a_sentence(lab: Lab, listener: Listener) -> None:
    lab.exec("z2h2", ["rm", "-rf", "/opt/rm"])
    listener.fleet.add(host_of(lab, "z2h2"))
    why = listener.wait("z2h2", "down")
    assert "no working agent" in why
    assert "rmx playbook run" in why
    with pytest.raises(NotConnected, match="no working agent"):
        listener.call("z2h2", Ping())


def test_a_task_is_launched_and_its_end_is_told(up: Callable[[str], Listener]) -> None:
    fleet = up("z1h1")
    answer = fleet.call("z1h1", launch("id -un; exit 4", job=11))
    assert answer.tasks[0].state in (TaskState.RUNNING, TaskState.EXITED)
    assert fleet.wait("z1h1", "exit").code == 4
    log = fleet.call("z1h1", Logs(job=11, attempt=1, rank=0, stream="out", offset=0, limit=100))
    assert base64.b64decode(log.data) == b"nobody\n"
    with pytest.raises(AgentError, match="no-such-user-here") as refused:
        fleet.call("z1h1", launch("", job=12, user="no-such-user-here"))
    assert refused.value.code is Code.NO_SUCH_USER
    # measured right after the hello, in the background
    until(lambda: fleet.fleet.clock_offset_us("z1h1") is not None, "the clocks are compared")
    offset_us = fleet.fleet.clock_offset_us("z1h1")
    assert offset_us is not None
    assert abs(offset_us) < 60_000_000  # lab hosts have this machine's clock, which a busy one reads late


def test_many_requests_under_way_are_each_answered(up: Callable[[str], Listener]) -> None:
    fleet = up("z2h1").fleet
    futures = [fleet.call("z2h1", Ping()) for _ in range(500)]
    # larger than any socket's buffer: written in the background, in order
    refused = fleet.call("z2h1", launch("x" * 500_000, job=99, user="no-such-user-here"))
    futures += [fleet.call("z2h1", Ping()) for _ in range(500)]
    assert all(future.result(WAIT_S).now_us > 0 for future in futures)
    with pytest.raises(AgentError):
        refused.result(WAIT_S)


@pytest.mark.parametrize(
    ("harm", "mend"),
    [("cut", "heal"), ("freeze", "thaw"), ("crash", "boot"), ("kill_sshd", "start_sshd")],
)
def test_a_lost_host_is_noticed_and_found_again(
    lab: Lab, up: Callable[[str], Listener], harm: str, mend: str
) -> None:
    job = {"cut": 21, "freeze": 22, "crash": 23, "kill_sshd": 24}[harm]
    fleet = up("z2h1")
    task = fleet.call("z2h1", launch("sleep 0.5; exec sleep 600", job=job)).tasks[0]
    before = len(fleet.said)
    getattr(lab, harm)("z2h1")
    try:
        under_way = fleet.fleet.call("z2h1", Ping(), timeout_s=60)
        after = len(fleet.said)
        why = fleet.wait("z2h1", "down", after=before)  # stock Fabric would wait for minutes
        assert "lost" in why or "does not answer" in why or "ended" in why
        with pytest.raises(Unreachable):
            under_way.result(WAIT_S)
        with pytest.raises(NotConnected):
            fleet.call("z2h1", Ping())
    finally:
        getattr(lab, mend)("z2h1")
    fleet.wait("z2h1", "up", after=after)
    (found,) = [t for t in fleet.call("z2h1", Tasks()).tasks if t.job == job]
    if harm == "crash":
        assert found.state is TaskState.LOST
    else:
        assert (found.state, found.pid) == (TaskState.RUNNING, task.pid)
        fleet.call("z2h1", Stop(job=job, attempt=1, epoch=1, why="cancel", grace_us=1_000_000))
        assert fleet.wait("z2h1", "exit").why == "cancel"
    fleet.call("z2h1", Discard(job=job, attempt=1, epoch=1))


def test_a_full_disk_refuses_the_launch_by_a_sentence(lab: Lab, up: Callable[[str], Listener]) -> None:
    fleet = up("z1h1")
    lab.fill_disk("z1h1")
    try:
        with pytest.raises(AgentError, match="disk of host z1h1 is full") as refused:
            fleet.call("z1h1", launch("exit 0", job=31))
        assert refused.value.code is Code.NO_SPACE
    finally:
        lab.free_disk("z1h1")
    fleet.call("z1h1", launch("exit 0", job=31))
    assert fleet.wait("z1h1", "exit").code == 0


def test_an_agent_that_is_killed_is_no_lost_host(lab: Lab, up: Callable[[str], Listener]) -> None:
    fleet = up("z1h2")
    hello = fleet.fleet.hello("z1h2")
    assert hello is not None
    after = len(fleet.said)
    lab.exec("z1h2", ["kill", "-KILL", str(hello.pid)])
    assert fleet.wait("z1h2", "down", after=after) == "The agent on z1h2 was ended by a signal."
    fleet.wait("z1h2", "up", after=after)


def test_an_agent_that_hangs_is_replaced_and_its_tasks_run_on(lab: Lab) -> None:
    deploy(lab, "z1h2")
    watched = Listener(replace(settings_of(lab), agent_dead_after_s=12))
    try:
        watched.fleet.add(host_of(lab, "z1h2"))
        assert watched.wait("z1h2", "up") == ""
        task = watched.call("z1h2", launch("exec sleep 600", job=41)).tasks[0]
        hello = watched.fleet.hello("z1h2")
        assert hello is not None
        after = len(watched.said)
        lab.exec("z1h2", ["kill", "-STOP", str(hello.pid)])
        assert "hangs or was stopped" in watched.wait("z1h2", "down", after=after)
        watched.wait("z1h2", "up", after=after)
        (found,) = [t for t in watched.call("z1h2", Tasks()).tasks if t.job == 41]
        assert (found.state, found.pid) == (TaskState.RUNNING, task.pid)
        watched.call("z1h2", Stop(job=41, attempt=1, epoch=1, why="cancel", grace_us=1_000_000))
        assert watched.wait("z1h2", "exit", after=after).why == "cancel"
        lab.exec("z1h2", ["kill", "-CONT", str(hello.pid)])
    finally:
        watched.fleet.close()
