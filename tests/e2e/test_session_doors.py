"""Sessions of jobs through the doors of other machines, and for nobody but the jobs' owners."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rm.client.websocket import TEXT, WebSocket
from rm.errors import Forbidden
from tests.certificates import Authority
from tests.cluster import RMX, ClientOf, Cluster
from tests.e2e.conftest import MakeCluster
from tests.ports import Kept
from tests.ssh_server import SSHD, SshServer, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to ask as other users"),
    pytest.mark.skipif(not Path(SSHD).exists() or not shutil.which("ssh"), reason="needs OpenSSH"),
]
ANN, BOB = "games", "bin"  # accounts of every Debian, which are nobody's
EVERY_BYTE = bytes(range(256)) * 2_000  # several windows of a frame
PROGRAM = ("sh", "-c", "cat; id -un >&2; exit 7")
WAYS = {"run": ("run", *PROGRAM), "alloc": ("alloc", "srun", *PROGRAM)}


class Https:
    """The daemon's HTTPS door, as a user's rmx reaches it."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        certificate, key = directory / "cert.pem", directory / "key.pem"
        authority.issue(certificate, key)
        self.kept = Kept()
        address = f"127.0.0.1:{self.kept.number}"
        self.settings = {"listen": address, "certificate": str(certificate), "key": str(key)}
        self.environment = {"RM_DAEMON": f"https://{address}", "RM_CA_FILE": str(authority.file)}


@pytest.fixture(scope="module")
def https() -> Iterator[Https]:
    with tempfile.TemporaryDirectory(prefix="rm-https-") as directory:
        made = Https(Path(directory))
        yield made
        made.kept.close()


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, https: Https) -> Cluster:
    return make_cluster({"https": https.settings}, zones=1, hosts=1)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[SshServer]:
    with ssh_server(cluster.directory / "ssh") as server:
        yield server


def as_user(cluster: Cluster, user: str) -> ClientOf:
    return ClientOf(cluster.socket, pwd.getpwnam(user).pw_uid)


def token(cluster: Cluster, user: str, scope: str) -> str:
    return str(as_user(cluster, user).post("tokens", body={"scope": scope, "expires_s": 3600})["text"])


def rmx(environment: dict[str, str], *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    kept = {**os.environ, "RM_CONFIG": "", **environment}
    return subprocess.run([RMX, *words], env=kept, input=data, capture_output=True, timeout=120)


def attended(cluster: Cluster, user: str, job: int, count: int) -> list[WebSocket]:
    """That many sessions of a job, begun at once by its user."""

    def begun(number: int) -> WebSocket:
        socket: WebSocket = as_user(cluster, user).upgraded("jobs", job, "session")
        begin = {"argv": ["sh", "-c", f"echo {user}; exec sleep 1000"]}
        socket.send(json.dumps({"session": f"{user}{number:08d}", "begin": begin}).encode(), TEXT)
        heard: list[bytes] = []
        while not heard:
            heard = socket.heard()
        assert json.loads(heard[0]) == {"ok": True}
        return socket

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begun, range(count)))


def is_whole(done: subprocess.CompletedProcess[bytes]) -> None:
    assert done.stdout == EVERY_BYTE, done.stderr
    assert ANN.encode() in done.stderr.splitlines()
    assert done.returncode == 7


def running(cluster: Cluster, user: str) -> int:
    spec = {"name": "waits", "script": "#!/bin/sh\nexec sleep 1000\n", "chdir": "/", "launch": "batch"}
    job = int(as_user(cluster, user).post("jobs", body={"spec": spec})["job"])
    cluster.wait(job, "RUNNING")
    return job


@pytest.mark.parametrize("way", WAYS)
def test_a_session_goes_through_ssh(cluster: Cluster, server: SshServer, way: str) -> None:
    door = {**server.environment, "RM_DAEMON": f"ssh://{ANN}@control{cluster.socket}"}
    is_whole(rmx(door, *WAYS[way], data=EVERY_BYTE))


@pytest.mark.parametrize("way", WAYS)
def test_a_session_goes_through_https(cluster: Cluster, https: Https, way: str) -> None:
    door = {**https.environment, "RM_TOKEN": token(cluster, ANN, "submit")}
    is_whole(rmx(door, *WAYS[way], data=EVERY_BYTE))


def test_nobody_else_enters_a_job(cluster: Cluster, https: Https) -> None:
    job = running(cluster, ANN)
    for user, scope, told in ((BOB, "submit", b"belongs to"), (ANN, "read", b"needs the scope submit")):
        door = {**https.environment, "RM_TOKEN": token(cluster, user, scope)}
        assert told in rmx(door, "shell", str(job), "id").stderr
    without = rmx({**https.environment, "RM_TOKEN": "rmt_ffffffffff_" + "A" * 43}, "shell", str(job), "id")
    assert b"not valid" in without.stderr
    with pytest.raises(Forbidden, match="belongs to"):
        as_user(cluster, BOB).get("jobs", job, "session")
    entered = rmx(
        {**https.environment, "RM_TOKEN": token(cluster, ANN, "submit")}, "shell", str(job), "id", "-un"
    )
    assert entered.stdout.split() == [ANN.encode()], entered.stderr
    cluster.client.delete("jobs", job)


def test_thirty_sessions_are_attended_on_one_host_beside_its_agent(cluster: Cluster) -> None:
    """Its sshd takes ten channels on a connection: one user took all nine that the agent left."""
    jobs = {user: running(cluster, user) for user in (ANN, BOB)}
    sockets = attended(cluster, ANN, jobs[ANN], 24) + attended(cluster, BOB, jobs[BOB], 6)
    for job in jobs.values():  # the agent hears of it, with all of them open
        cluster.client.delete("jobs", job)
        cluster.wait(job, "CANCELLED")
    for one in sockets:
        one.close()
