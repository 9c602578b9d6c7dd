"""Two daemons of one cluster on this machine: at every door the one that waits says who leads, and clients go
there."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.client.connection import Connection
from rm.client.submission import submit
from tests import preloaded
from tests.certificates import Authority
from tests.cluster import RMX, raw, until
from tests.ports import Kept
from tests.ssh_server import SSHD, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to log in as other users"),
]
ACCOUNT = "games"  # an account of every Debian, which is nobody's
HERE = "127.0.0.1"
DOORS = ("https: port", "page's port")  # in the log, when they are open
ASK = b"GET /v1/status HTTP/1.1\r\nHost: rm\r\n\r\n"


class Daemon:
    """One of the two: doors and a state of its own, the database of both. `beside`: the ports of another."""

    def __init__(self, directory: Path, name: str, beside: Daemon | None = None) -> None:
        self.socket = str(directory / f"{name}.sock")
        self._kept = (Kept(), Kept()) if beside is None else beside._kept
        self.https, self.page = (one.number for one in self._kept)
        self.url = f"https://{HERE}:{self.https}"
        self._config = directory / f"{name}.toml"
        self._config.write_text(
            f'[daemon]\nsocket = "{self.socket}"\nstate_dir = "{directory}/{name}"\n'
            f'database = "sqlite:///{directory}/rm.sqlite3"\n'
            f'[https]\nlisten = "{HERE}:{self.https}"\n'
            f'certificate = "{directory}/cert.pem"\nkey = "{directory}/key.pem"\n'
            f'[web]\nlisten = "{HERE}:{self.page}"\n[jobs]\nallow_root = true\n'
            "[monitor]\nenabled = false\n[alerts]\nenabled = false\n"
        )
        self._log = directory / f"{name}.log"
        self._process: preloaded.Program | None = None

    def start(self, *words: str) -> None:
        """Until it says the words."""
        before = self._log.stat().st_size if self._log.exists() else 0
        self._process = preloaded.daemon(RMX, self._config, self._log)

        def said() -> bool:
            log = self._log.read_bytes()[before:].decode()
            assert self._process is not None
            assert self._process.poll() is None, log
            return all(word in log for word in words)

        until(said, f"the daemon says {words}")

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def says(self, words: str) -> bool:
        return words in self._log.read_text()

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def close(self) -> None:
        for one in self._kept:
            one.close()


class Pair:
    """`first` leads, `second` waits; clients have the token of ACCOUNT."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.authority.issue(directory / "cert.pem", directory / "key.pem")
        self.first, self.second = (Daemon(directory, name) for name in ("first", "second"))
        self.client = directory / "client.toml"
        self.client.write_text(f'[daemon]\npeers = ["{self.first.url}", "{self.second.url}"]\n')

    def rmx(self, daemon: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        told = {"RM_DAEMON": daemon, "RM_CA_FILE": str(self.authority.file), "HOME": str(self.directory)}
        env = {**os.environ, "RM_CONFIG": str(self.client), **told, **environment}
        return preloaded.run([RMX, *words], env=env, timeout=120)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="rm-standby-") as directory:
        Path(directory).chmod(0o755)
        made = Pair(Path(directory))
        try:
            made.first.start("leads with epoch")
            made.second.start("another daemon leads", *DOORS)
            yield made
        finally:
            for daemon in (made.second, made.first):
                daemon.end()
                daemon.close()


def test_at_every_door_it_says_who_leads(pair: Pair) -> None:
    leader = pair.first
    answer = raw(pair.second.socket, ASK)
    assert (answer.status, answer.headers["Rm-Leader"]) == (503, f"{socket.gethostname()} {leader.socket}")
    assert json.loads(answer.read())["error"]["kind"] == "Standby"

    trusted = ssl.create_default_context(cafile=str(pair.authority.file))
    by_https = http.client.HTTPSConnection(HERE, pair.second.https, context=trusted, timeout=60)
    by_https.request("GET", "/v1/status")
    answer = by_https.getresponse()
    assert (answer.status, answer.headers["Rm-Leader-Url"]) == (503, leader.url)
    assert f"another leads the cluster, at {leader.url}" in answer.read().decode()
    by_https.close()

    page = http.client.HTTPConnection(HERE, pair.second.page, timeout=60)
    page.request("GET", "/")
    answer = page.getresponse()
    assert answer.status == 503
    assert f'href="http://{HERE}:{leader.page}/"' in answer.read().decode()
    page.close()


def submitted(pair: Pair, daemon: str, **environment: str) -> tuple[str, str]:
    """The name and the owner of a job that the daemon at an address was given, as the leader knows them."""
    sent = pair.rmx(
        daemon, "submit", "--parsable", "--hold", "--wrap=true", f"-J{daemon.split(':')[0]}", **environment
    )
    assert sent.returncode == 0, sent.stderr
    shown = pair.rmx(pair.first.socket, "show", sent.stdout.strip(), "--json")
    spec = json.loads(shown.stdout)["job"]["spec"]
    return spec["name"], spec["user"]


def test_what_is_submitted_at_its_socket_is_the_leaders(pair: Pair) -> None:
    assert submitted(pair, f"unix://{pair.second.socket}") == ("unix", "root")


def test_what_is_submitted_at_its_https_door_is_the_leaders(pair: Pair) -> None:
    made = pair.rmx(pair.first.socket, "token", "create", "--scope=submit", f"--user={ACCOUNT}")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert submitted(pair, pair.second.url, RM_TOKEN=token) == ("https", ACCOUNT)
    # to a leader that the user has not named no token goes
    refused = pair.rmx(pair.second.url, "status", RM_TOKEN=token, RM_CONFIG="/dev/null")
    assert refused.returncode == 8
    assert f'peers = ["{pair.first.url}"]' in refused.stderr


@pytest.mark.skipif(not Path(SSHD).exists(), reason="needs OpenSSH")
def test_what_is_submitted_by_ssh_is_the_leaders_from_the_same_account(pair: Pair) -> None:
    with ssh_server(pair.directory / "ssh") as server:
        # the leader is named by its machine, which is this one
        settings = server.directory / "ssh_config"
        settings.write_text(
            settings.read_text().replace("Host control", f"Host control {socket.gethostname()}")
        )
        daemon = f"ssh://{ACCOUNT}@control{pair.second.socket}"
        assert submitted(pair, daemon, **server.environment) == ("ssh", ACCOUNT)
        assert server.logins() == 2


def test_when_it_leads_it_answers_itself_and_the_other_waits(pair: Pair) -> None:
    pair.first.end()
    until(lambda: pair.rmx(pair.second.socket, "status").returncode == 0, "the second leads")
    pair.first.start("another daemon leads", *DOORS)
    pair.first, pair.second = pair.second, pair.first
    test_at_every_door_it_says_who_leads(pair)


def test_a_daemon_leads_without_the_ports_of_a_leader_that_stands_still(pair: Pair, tmp_path: Path) -> None:
    """They are of one machine, and it has the ports until it is woken; then it ends, and the doors open. Who
    had been sent to it goes on at the other, with one job for one submission."""
    pair.authority.issue(tmp_path / "cert.pem", tmp_path / "key.pem")
    still = Daemon(tmp_path, "still")
    heir = Daemon(tmp_path, "heir", beside=still)
    try:
        still.start("leads with epoch")
        heir.start("another daemon leads")
        client = Connection(heir.socket)
        assert client.get("status")["daemon"]["epoch"]
        assert client.answers_at.path == still.socket
        still.signal(signal.SIGSTOP)
        job = submit(client, {"name": "late", "script": "#!/bin/sh\ntrue\n", "user": "root", "chdir": "/"})
        assert client.answers_at.path == heir.socket
        assert [one["id"] for one in client.get("jobs")["jobs"]] == [job]
        client.close()
        until(lambda: heir.says("leads with epoch"), "the other one leads")
        assert heir.says("The daemon leads without it, and tries again")
        still.signal(signal.SIGCONT)
        until(lambda: heir.says("is open for tokens") and heir.says("the page is at"), "its doors are open")
    finally:
        still.signal(signal.SIGCONT)
        heir.end()
        still.end()
        still.close()
