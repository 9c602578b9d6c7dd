"""The HTTPS door of a real daemon: tokens, rights, privacy and the audit log."""

from __future__ import annotations

import csv
import http.client
import io
import json
import os
import pwd
import socket
import sqlite3
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from rm.client.connection import Connection
from rm.errors import Forbidden, NotFound, Unreachable
from tests import preloaded
from tests.certificates import Authority
from tests.cluster import RMX, ClientOf, until
from tests.ports import Kept

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to ask as other users"),
]
ANN, BOB, OPERATOR = "games", "bin", "backup"  # accounts of every Debian, which are nobody's
SPEC = {
    "name": "secret-name", "script": "#!/bin/sh\ntrue\n", "hold": True, "chdir": "/secret/dir",
    "comment": "secret comment", "output": "/secret/out",
}  # fmt: skip


class Control:
    """A daemon without hosts, with an HTTPS door."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.serial = self.authority.issue(self.certificate, self.key)
        self.kept = Kept()
        self.port = self.kept.number
        self.socket = str(directory / "rm.sock")
        self.privacy = False
        self.process: preloaded.Program | None = None

    def start(self) -> None:
        (self.directory / "rm.toml").write_text(
            f'[daemon]\nsocket = "{self.socket}"\nstate_dir = "{self.directory}/state"\n'
            f'[https]\nlisten = "127.0.0.1:{self.port}"\n'
            f'certificate = "{self.certificate}"\nkey = "{self.key}"\n'
            f'[roles]\noperators = ["@{OPERATOR}"]\n[privacy]\njobs = {str(self.privacy).lower()}\n'
            "[monitor]\nenabled = false\n[alerts]\nenabled = false\n"
        )
        self.process = preloaded.daemon(RMX, self.directory / "rm.toml", self.directory / "log")

        def answers() -> Any:
            assert self.process is not None
            assert self.process.poll() is None, (self.directory / "log").read_text()[-2000:]
            try:
                return Connection(self.socket).get("status")
            except Unreachable:
                return None

        until(answers, "the daemon answers")

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)

    def as_user(self, user: str) -> Connection:
        return ClientOf(self.socket, pwd.getpwnam(user).pw_uid)

    def token(self, user: str, scope: str, expires_s: float = 3600) -> str:
        body = {"scope": scope, "expires_s": expires_s}
        return str(self.as_user(user).post("tokens", body=body)["text"])

    def call(
        self, method: str, path: str, token: str = "", body: Any = None, headers: Any = None,
        source: str = "127.0.0.1",
    ) -> tuple[int, Any, http.client.HTTPResponse]:  # fmt: skip
        trusted = ssl.create_default_context(cafile=str(self.authority.file))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=trusted, timeout=60, source_address=(source, 0)
        )
        given = {"Authorization": f"Bearer {token}"} if token else {}
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, given | (headers or {}))
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, json.loads(data), response

    def acts(self, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = Connection(self.socket).get("audit", limit=10_000, **query)["acts"]
        return found

    def rmx(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        url = {"RM_DAEMON": f"https://127.0.0.1:{self.port}", "RM_CA_FILE": str(self.authority.file)}
        kept = {**os.environ, "RM_CONFIG": "", "HOME": str(self.directory), **url, **environment}
        return preloaded.run([RMX, *words], env=kept)


@pytest.fixture(scope="module")
def control() -> Iterator[Control]:
    with tempfile.TemporaryDirectory(prefix="rm-https-") as directory:
        Path(directory).chmod(0o755)
        made = Control(Path(directory))
        made.start()
        try:
            yield made
        finally:
            made.stop()
            made.kept.close()


def test_a_token_is_its_owner_and_no_more_than_its_scope(control: Control) -> None:
    submitting, reading = control.token(ANN, "submit"), control.token(ANN, "read")
    assert control.call("GET", "/v1/me", submitting)[1]["user"] == ANN
    status, answer, _ = control.call("POST", "/v1/jobs", submitting, {"spec": SPEC})
    assert status == 201
    assert Connection(control.socket).get("jobs", answer["job"])["job"]["spec"]["user"] == ANN
    status, answer, _ = control.call("POST", "/v1/jobs", reading, {"spec": SPEC})
    assert (status, "needs the scope submit" in answer["error"]["message"]) == (403, True)
    admin = control.token(ANN, "admin")  # of an ordinary user: it makes none an administrator
    assert control.call("GET", "/v1/me", admin)[1]["role"] == "user"
    assert control.call("POST", "/v1/hosts/h/drain", admin, {})[0] == 403
    operator = control.token(OPERATOR, "operate")
    assert control.call("GET", "/v1/me", operator)[1]["role"] == "operator"
    assert control.call("POST", "/v1/hosts/h/drain", operator, {})[0] == 404
    assert control.call("POST", "/v1/hosts", operator, {"hosts": []})[0] == 403
    root = control.token("root", "read")
    assert control.call("GET", "/v1/audit", root)[0] == 403
    assert control.call("GET", "/v1/audit", control.token("root", "admin"))[0] == 200


def test_without_a_good_token_nothing_is_answered(control: Control) -> None:
    good = control.token(ANN, "read")
    for wrong in ("", "x", "rmt_", good[:-1], good + "x", good.upper(), "rmt_ffffffffff_" + "A" * 43):
        for path in ("/v1/status", "/metrics", "/v1/openapi.json", "/nothing"):
            status, answer, _ = control.call("GET", path, wrong)
            assert (status, answer["error"]["kind"]) == (401, "Unauthenticated"), (wrong, path)
    # neither a cookie, nor another name, nor the words of a program that is trusted count here
    for header in ({"Cookie": f"rm={good}"}, {"Rm-Acting-For": "root"}, {"Authorization": f"Basic {good}"}):
        assert control.call("GET", "/v1/status", headers=header)[0] == 401
    assert control.call("GET", "/v1/me", good, headers={"Rm-Acting-For": "root"})[1]["user"] == ANN
    _, _, response = control.call("GET", "/v1/status", good, headers={"Origin": "https://evil.example"})
    assert response.getheader("Access-Control-Allow-Origin") is None


def test_wrong_tokens_are_recorded_but_do_not_fill_the_log(control: Control) -> None:
    before = len(control.acts())
    for _ in range(40):
        assert control.call("GET", "/v1/status", "rmt_0_wrong", source="127.0.0.7")[0] == 401
    recorded = [act for act in control.acts()[before:] if act["outcome"] == "refused" and not act["user"]]
    assert len(recorded) <= 10
    assert control.call("GET", "/v1/status", control.token(ANN, "read"))[0] == 200


def test_tokens_end_and_are_revoked_by_their_owner_or_an_administrator(control: Control) -> None:
    ann, bob = control.as_user(ANN), control.as_user(BOB)
    text = control.token(ANN, "read")
    id = text.split("_")[1]
    assert control.call("GET", "/v1/status", text)[0] == 200
    with pytest.raises(NotFound):
        bob.delete("tokens", id)
    with pytest.raises(Forbidden):
        bob.post("tokens", body={"scope": "read", "expires_s": 60, "user": ANN})
    with pytest.raises(Forbidden):
        bob.get("tokens", user=ANN)
    seen = next(one for one in ann.get("tokens")["tokens"] if one["id"] == id)
    assert seen["used_from"] == "127.0.0.1"
    assert text not in json.dumps(seen)
    Connection(control.socket).delete("tokens", id)
    assert control.call("GET", "/v1/status", text)[0] == 401
    short = control.token(ANN, "read", 0.001)
    until(lambda: control.call("GET", "/v1/status", short)[0] == 401, "the token is over")
    # a token makes none that may more than itself
    made = control.call(
        "POST", "/v1/tokens", control.token(ANN, "submit"), {"scope": "admin", "expires_s": 9}
    )
    assert made[0] == 403


def test_the_database_holds_no_token(control: Control) -> None:
    text = control.token(ANN, "read")
    control.stop()
    held = b"".join(p.read_bytes() for p in (control.directory / "state").glob("rm.sqlite3*"))
    assert text.split("_", 2)[2].encode() not in held
    control.start()
    assert control.call("GET", "/v1/status", text)[0] == 200


def test_tokens_count_no_more_when_their_owner_is_another_account(control: Control) -> None:
    text = control.token(ANN, "read")
    id = text.split("_")[1]
    control.stop()
    with sqlite3.connect(control.directory / "state" / "rm.sqlite3") as database:
        body = json.loads(database.execute("SELECT body FROM tokens WHERE id = ?", (id,)).fetchone()[0])
        body["uid"] = 54321  # whoever had the name then
        database.execute("UPDATE tokens SET body = ? WHERE id = ?", (json.dumps(body), id))
    control.start()
    status, answer, _ = control.call("GET", "/v1/status", text)
    assert (status, "has no account any more" in answer["error"]["message"]) == (401, True)


def test_only_new_tls_is_spoken_and_a_silent_client_keeps_nobody_waiting(control: Control) -> None:
    old = ssl.create_default_context(cafile=str(control.authority.file))
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        socket.create_connection(("127.0.0.1", control.port)) as plain,
    ):
        old.wrap_socket(plain, server_hostname="127.0.0.1")
    silent = [socket.create_connection(("127.0.0.1", control.port)) for _ in range(20)]
    assert control.call("GET", "/v1/status", control.token(ANN, "read"))[0] == 200
    for one in silent:
        one.close()


def test_a_new_certificate_is_taken_and_a_wrong_one_is_not(control: Control) -> None:
    def served() -> int:
        text = ssl.get_server_certificate(("127.0.0.1", control.port))
        return x509.load_pem_x509_certificate(text.encode()).serial_number

    assert served() == control.serial
    good = control.key.read_bytes()
    control.key.write_text("nonsense")
    until(lambda: "the old certificate stays" in (control.directory / "log").read_text(), "it is refused")
    assert served() == control.serial
    control.key.write_bytes(good)
    control.serial = control.authority.issue(control.certificate, control.key)
    until(lambda: served() == control.serial, "the new certificate")


def test_the_command_line_takes_a_token_from_a_file_of_ones_own(control: Control) -> None:
    file = control.directory / "token"
    file.write_text(control.token(ANN, "submit") + "\n")
    file.chmod(0o644)
    refused = control.rmx("status", RM_TOKEN_FILE=str(file))
    assert (refused.returncode, "can be read by others" in refused.stderr) == (5, True)
    file.chmod(0o600)
    assert control.rmx("status", RM_TOKEN_FILE=str(file)).returncode == 0
    assert control.rmx("queue", RM_TOKEN=file.read_text().strip()).returncode == 0
    wrong = control.rmx("status", RM_TOKEN="rmt_0_wrong")
    assert (wrong.returncode, "is not valid" in wrong.stderr) == (5, True)
    stranger = control.rmx("status", RM_TOKEN="x", RM_CA_FILE="")
    assert (stranger.returncode, "is not trusted" in stranger.stderr) == (7, True)
    nothing = control.rmx("status")
    assert "needs a token" in nothing.stderr


def test_the_audit_log_tells_who_did_what_from_where(control: Control) -> None:
    ann = control.as_user(ANN)
    begun = control.acts()[-1]["seq"]
    text = control.token(ANN, "submit")
    control.call("POST", "/v1/jobs/77/hold", text)
    with pytest.raises(Forbidden):
        ann.post("hosts", "h", "drain", body={})
    with pytest.raises(Forbidden):
        ann.get("audit")
    found = {act["verb"]: act for act in control.acts(after=begun) if act["user"] == ANN}
    made, held, drained = found["create_token"], found["hold"], found["drain"]
    assert (made["outcome"], made["via"], text.split("_")[1] in made["target"]) == ("done", "unix", True)
    assert made["origin"] == f"uid {pwd.getpwnam(ANN).pw_uid} pid {os.getpid()}"
    assert (held["via"], held["origin"], held["token"]) == ("https", "127.0.0.1", text.split("_")[1])
    assert (held["target"], held["outcome"]) == ("job 77", "refused")
    assert (drained["target"], drained["outcome"], drained["role"]) == ("host h", "refused", "user")
    assert found["audit"]["outcome"] == "refused"
    everything = json.dumps(control.acts())
    assert SPEC["script"] not in everything
    assert text not in everything


def test_the_audit_log_is_exported(control: Control) -> None:
    control.token(ANN, "read")
    local = {"RM_DAEMON": "", "RM_DAEMON__SOCKET": control.socket}
    rows = list(csv.DictReader(io.StringIO(control.rmx("audit", "--csv", "--user", ANN, **local).stdout)))
    assert {row["user"] for row in rows} == {ANN}
    told = json.loads(control.rmx("audit", "--json", "--since", "1h", **local).stdout)
    assert {act["seq"] for act in told["acts"]} >= {int(row["seq"]) for row in rows}
    assert "create_token" in control.rmx("audit", **local).stdout


def test_no_route_changes_the_audit_log(control: Control) -> None:
    root = control.token("root", "admin")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert control.call(method, "/v1/audit", root, {})[0] == 405


def views(client: Connection, job: int) -> str:
    parts = [
        client.get("jobs", job),
        client.get("jobs", all=1),
        client.get("queue"),
        client.get("jobs", job, "why"),
    ]
    parts.append(client.get("jobs", job, "wait", timeout_s=0))
    return json.dumps(parts)


def test_paths_comments_and_errors_are_the_owners(control: Control) -> None:
    ann = control.as_user(ANN)
    job = int(ann.post("jobs", body={"spec": SPEC})["job"])
    for user, seen in ((ANN, True), (OPERATOR, True), ("root", True), (BOB, False)):
        told = views(control.as_user(user), job)
        for secret in ("/secret/dir", "secret comment", "/secret/out"):
            assert (secret in told) is seen, (user, secret)
    assert "secret-name" in views(control.as_user(BOB), job)
    assert "#!/bin/sh" not in views(control.as_user(OPERATOR), job)
    with pytest.raises(Forbidden):
        control.as_user(OPERATOR).get("jobs", job, "logs")
    control.as_user(OPERATOR).post("jobs", job, "release")
    control.as_user(OPERATOR).delete("jobs", job)
    assert "/secret/dir" not in views(control.as_user(BOB), job)
    read = [act for act in control.acts() if act["verb"] == "job" and act["target"] == f"job {job}"]
    assert {act["user"] for act in read} == {"root"}  # an administrator read another's script


def test_jobs_of_others_are_hidden_where_they_are_private(control: Control) -> None:
    job = int(control.as_user(ANN).post("jobs", body={"spec": SPEC})["job"])
    control.stop()
    control.privacy = True
    control.start()
    try:
        bob = control.as_user(BOB)
        for path in ((), ("wait",), ("why",), ("iterations",), ("logs",)):
            with pytest.raises(NotFound):
                bob.get("jobs", job, *path)
        with pytest.raises(NotFound):
            bob.delete("jobs", job)
        assert bob.get("jobs", all=1)["jobs"] == bob.get("queue")["jobs"] == []
        assert bob.get("jobs", user=ANN)["jobs"] == []
        assert "secret-name" in views(control.as_user(ANN), job)
        assert "secret-name" in views(control.as_user(OPERATOR), job)
    finally:
        control.stop()
        control.privacy = False
        control.start()
