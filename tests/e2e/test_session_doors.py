"""Sessions of jobs through the doors of other machines, and for nobody but the jobs' owners."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.errors import Forbidden
from tests.certificates import Authority
from tests.cluster import RMX, ClientOf, Cluster
from tests.e2e.conftest import MakeCluster
from tests.ssh_server import SSHD, SshServer, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to ask as other users"),
    pytest.mark.skipif(not Path(SSHD).exists() or not shutil.which("ssh"), reason="needs OpenSSH"),
]
ANN, BOB = "games", "bin"  # accounts of every Debian, which are nobody's
EVERY_BYTE = bytes(range(256)) * 2_000  # several windows of a frame
PROGRAM = ("run", "sh", "-c", "cat; id -un >&2; exit 7")


class Https:
    """The daemon's HTTPS door, as a user's rmx reaches it."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        certificate, key = directory / "cert.pem", directory / "key.pem"
        authority.issue(certificate, key)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.settings = {"listen": address, "certificate": str(certificate), "key": str(key)}
        self.environment = {"RM_DAEMON": f"https://{address}", "RM_CA_FILE": str(authority.file)}


@pytest.fixture(scope="module")
def https() -> Iterator[Https]:
    with tempfile.TemporaryDirectory(prefix="rm-https-") as directory:
        yield Https(Path(directory))


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


def is_whole(done: subprocess.CompletedProcess[bytes]) -> None:
    assert done.stdout == EVERY_BYTE, done.stderr
    assert ANN.encode() in done.stderr.splitlines()
    assert done.returncode == 7


def test_a_session_goes_through_ssh(cluster: Cluster, server: SshServer) -> None:
    door = {**server.environment, "RM_DAEMON": f"ssh://{ANN}@control{cluster.socket}"}
    is_whole(rmx(door, *PROGRAM, data=EVERY_BYTE))


def test_a_session_goes_through_https(cluster: Cluster, https: Https) -> None:
    door = {**https.environment, "RM_TOKEN": token(cluster, ANN, "submit")}
    is_whole(rmx(door, *PROGRAM, data=EVERY_BYTE))


def test_nobody_else_enters_a_job(cluster: Cluster, https: Https) -> None:
    spec = {"name": "ann's", "script": "#!/bin/sh\nexec sleep 1000\n", "chdir": "/", "launch": "batch"}
    job = int(as_user(cluster, ANN).post("jobs", body={"spec": spec})["job"])
    cluster.wait(job, "RUNNING")
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
