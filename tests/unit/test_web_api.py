"""The HTTP API: its JSON, its errors, and who may do what."""

import asyncio
import http.client
import json
import os
import pwd
import socket
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.api.people import ACTING_FOR
from rm.api.routes import JOBS_MOST
from rm.config import Config, DaemonConfig, JobsConfig, RolesConfig
from rm.core.model.job import JobState
from rm.core.people.rights import Role
from rm.errors import ConfigError, Conflict, Forbidden, Unauthenticated
from rm.web.callers import identity
from rm.web.callers.accounts import Accounts
from rm.web.doors.listener import bind
from tests.fake_service import Daemon, serving

SPEC = {"name": "train", "script": "#!/bin/sh\ntrue\n"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    config = Config(
        daemon=DaemonConfig(admins=("boss",)),
        jobs=JobsConfig(
            time_limit="2h",
            output="x-%j",
            run_root_as="rmjob",
            fence="60s",
            partition_fences=("gpu=30s", "debug=0"),
        ),
    )
    with serving(tmp_path / "rm.sock", config) as daemon:
        yield daemon


def call(
    daemon: Daemon, method: str, path: str, body: Any = None, raw: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:  # fmt: skip
    connection = http.client.HTTPConnection("rm")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(daemon.socket)
    payload = raw if raw is not None else None if body is None else json.dumps(body)
    connection.request(method, path, payload, headers or {})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, json.loads(data)


def as_user(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    """Tests run as one uid only: the right to act is checked after the kernel's answer."""

    async def caller(_: Any, keeper: identity.Doorkeeper) -> identity.Caller:
        return identity.Caller(12345, user, await keeper.accounts.role_of(user))

    monkeypatch.setattr("rm.web.callers.access.caller_of", caller)


def test_submit_knows_the_user_by_the_socket_and_fills_defaults(daemon: Daemon) -> None:
    assert call(daemon, "POST", "/v1/jobs", {"spec": SPEC}) == (201, {"version": 1, "job": 1})
    spec = daemon.service.table[1].spec
    assert (spec.user, spec.output, spec.time_limit_us) == (
        pwd.getpwuid(os.geteuid()).pw_name,
        "x-%j",
        7_200_000_000,
    )
    asked = {**SPEC, "output": "", "time_limit_us": None, "env": [["A", "1"]], "hosts_only": ["h1"]}
    status, answer = call(daemon, "POST", "/v1/jobs", {"specs": [asked, SPEC]})
    assert (status, answer["jobs"]) == (201, [2, 3])
    spec = daemon.service.table[2].spec
    assert (spec.output, spec.time_limit_us, spec.env, spec.hosts_only) == ("", None, (("A", "1"),), ("h1",))


@pytest.mark.parametrize(
    ("asked", "fence_s"),
    [
        ({}, 60),
        ({"partition": "other"}, 60),
        ({"partition": "gpu"}, 30),
        ({"partition": "debug"}, 0),
        ({"partition": "debug,gpu"}, 30),
        ({"partition": "gpu", "fence_us": 0}, 0),
        ({"partition": "debug", "fence_us": 20_000_000}, 20),
    ],
)
def test_a_job_has_the_lease_that_it_names_or_its_partitions(
    daemon: Daemon, asked: dict[str, Any], fence_s: int
) -> None:
    assert call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, **asked}})[0] == 201
    assert daemon.service.table[1].spec.fence_us == fence_s * 1_000_000


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            {"spec": {**SPEC, "ntask": 3}},
            "Unknown field 'ntask' in the job specification. Did you mean 'ntasks'?",
        ),
        (
            {"spec": {**SPEC, "ntasks": "3"}},
            "field 'ntasks' of the job specification is wrong: expected 'int', got 'str'",
        ),
        ({"spec": {"script": "#!"}}, "missing required field 'name'"),
        ({"spec": {**SPEC, "ntasks": 0}}, "ntasks is 0"),
        ({"spec": {**SPEC, "fence_us": 5_000_000}}, "fence_us is 5000000, and must be 0, or from 10000000"),
        ({"spec": {**SPEC, "hosts_min": 2}}, "1 tasks cannot use 2 hosts"),
        ({"spec": {**SPEC, "script": " "}}, "the script is empty"),
        ({"spec": {**SPEC, "script_args": ["a\0b"]}}, "NUL"),
        ({"spec": {**SPEC, "env": [["A=B", "1"]]}}, "environment"),
        ({"spec": {**SPEC, "chdir": "here"}}, "absolute path"),
        (
            {
                "spec": {
                    **SPEC,
                    "traffic": {
                        "period_us": 5,
                        "phases": [{"offset_us": 5, "duration_us": 1, "rate_bps": 1}],
                    },
                }
            },
            "does not fit into the period",
        ),
        ({"spec": SPEC, "specs": [SPEC]}, "either"),
        ({"specs": []}, "at least one"),
        ({"spek": SPEC}, "Unknown field 'spek' in the request. Did you mean 'spec'?"),
        ([], "must be a JSON object"),
    ],
)
def test_malformed_submissions_are_told(daemon: Daemon, body: Any, sentence: str) -> None:
    status, answer = call(daemon, "POST", "/v1/jobs", body)
    error = answer["error"]
    assert (status, error["kind"], answer["version"]) == (400, "UsageError", 1)
    assert sentence in f"{error['message']} {error['hint']}"
    assert daemon.service.table == {}


def test_errors_keep_their_class_and_defects_keep_their_details(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, answer = call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "ntasks": 101}})
    assert (status, answer["error"]["kind"]) == (422, "ImpossibleRequest")
    assert call(daemon, "GET", "/v1/jobs/99")[1]["error"]["kind"] == "NotFound"
    assert call(daemon, "GET", "/v1/nothing")[0] == 404
    assert call(daemon, "PUT", "/v1/jobs")[0] == 405
    assert "not JSON" in call(daemon, "POST", "/v1/jobs", raw=b"{\xff")[1]["error"]["message"]
    monkeypatch.setattr(daemon.service, "status", lambda: 1 / 0)
    status, answer = call(daemon, "GET", "/v1/status")
    assert status == 500
    assert "division" not in json.dumps(answer)


def test_numbers_that_are_too_large_are_no_defect(daemon: Daemon) -> None:
    assert call(daemon, "GET", f"/v1/jobs/{'9' * 5000}")[0] == 404
    assert call(daemon, "GET", f"/v1/jobs/{'9' * 18}")[1]["error"]["kind"] == "NotFound"
    # a database and a slice have 64 bits for them; a list of jobs has its own bound
    for path, most in (("jobs", JOBS_MOST + 1), ("queue", 1 << 53)):
        assert call(daemon, "GET", f"/v1/{path}?limit=1e300")[0] == 200
        assert most in daemon.service.log[-1]
    assert "must be a number" in call(daemon, "GET", "/v1/queue?limit=1e999")[1]["error"]["message"]


def test_jobs_are_listed_by_pages(daemon: Daemon) -> None:
    call(daemon, "POST", "/v1/jobs", {"specs": [SPEC] * 5})

    def page(query: str) -> tuple[list[int], bool]:
        answer = call(daemon, "GET", f"/v1/jobs?{query}")[1]
        return [job["id"] for job in answer["jobs"]], answer["more"]

    assert page("limit=2") == ([4, 5], True)
    assert page("limit=2&before=4") == ([2, 3], True)
    assert page("limit=2&before=2") == ([1], False)
    assert page("limit=2&before=1") == ([], False)
    assert page("limit=5") == page("") == page("limit=0&before=0") == ([1, 2, 3, 4, 5], False)


def test_a_job_in_json(daemon: Daemon) -> None:
    call(daemon, "POST", "/v1/jobs", {"specs": [SPEC, {**SPEC, "env": [["TOKEN", "s3cret"]]}]})
    daemon.service.run(2)
    daemon.service.finish(2, 3)
    job = call(daemon, "GET", "/v1/jobs/2")[1]["job"]
    shown = {key: job[key] for key in ("id", "state", "short_state", "exit", "hosts", "reason")}
    assert shown == {
        "id": 2, "state": "FAILED", "short_state": "F", "exit": "3:0", "hosts": ["h1"], "reason": None,
    }  # fmt: skip
    assert job["spec"]["env"] == {"TOKEN": "s3cret"}
    assert job["schedule"]["shift_us"] == 40_000
    assert job["progress"] == {"served_us": 60_000_000, "remaining_us": 3_540_000_000}
    assert "progress" not in call(daemon, "GET", "/v1/jobs/1")[1]["job"]
    listed = call(daemon, "GET", "/v1/jobs?state=f,PENDING&limit=5&all=1")[1]["jobs"]
    assert [(job["id"], "env" in job["spec"]) for job in listed] == [(1, False), (2, False)]
    assert daemon.service.log[-1] == ("jobs", frozenset({JobState.FAILED, JobState.PENDING}), "", "", 6, True)
    call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "priority": 9}})
    waiting = [j["id"] for j in call(daemon, "GET", "/v1/queue?limit=1&user=root")[1]["jobs"]]
    assert waiting == [3]
    assert daemon.service.log[-1] == ("queue", "root", 1)
    assert "'limit' is '-1'" in call(daemon, "GET", "/v1/queue?limit=-1")[1]["error"]["message"]
    assert "not a job state" in call(daemon, "GET", "/v1/jobs?state=RUNING")[1]["error"]["message"]


@pytest.mark.parametrize("offset", [(1 << 63) - 1, 1 << 63, 10**300])
def test_a_log_ends_before_an_offset_that_no_file_has(daemon: Daemon, offset: int) -> None:
    call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
    daemon.service.run(1)
    call(daemon, "GET", f"/v1/jobs/1/logs?task=9&offset={offset}")
    asked = daemon.service.log[-1]
    assert asked[:4] == ("logs", 1, 9, "out")
    with tempfile.TemporaryFile() as file:
        assert os.pread(file.fileno(), 65_536, asked[4]) == b""


def test_files_on_this_machine_are_made_only_for_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator writes neither as root nor as another user, and nobody chooses the file's name."""
    config = Config(daemon=DaemonConfig(admins=("boss",)), jobs=JobsConfig(run_root_as="rmjob"))
    with serving(tmp_path / "rm.sock", config) as daemon:

        def delivered_as(**fields: Any) -> str:
            spec = {**SPEC, "submit_host": os.uname().nodename, **fields}
            status, answer = call(daemon, "POST", "/v1/jobs", {"spec": spec})
            assert status == 201, answer
            return daemon.service.table[answer["job"]].spec.deliver

        as_user(monkeypatch, "boss")
        assert delivered_as(chdir="/home/boss") == "rm-%j.out"
        assert delivered_as(user="boss") == "rm-%j.out"
        assert delivered_as(user="root", chdir="/etc/cron.d") == ""
        assert delivered_as(user="ann", chdir="/home/ann/.ssh") == ""
        assert delivered_as(submit_host="laptop") == ""  # whose directory is not here
        assert delivered_as(output="") == ""
        for name in ("authorized_keys", "", "rm-%j.out"):
            status, answer = call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "deliver": name}})
            assert status == 400
            assert "Unknown field 'deliver'" in answer["error"]["message"]

        async def with_token(*_: Any) -> identity.Caller:
            return identity.Caller(12345, "ann", via="unix", token="t1")

        monkeypatch.setattr(
            "rm.web.callers.access.caller_of", with_token
        )  # whoever holds it, on this machine
        assert delivered_as(chdir="/home/ann") == ""

        async def root(*_: Any) -> identity.Caller:
            return identity.Caller(0, "root", Role.ADMIN)

        monkeypatch.setattr("rm.web.callers.access.caller_of", root)
        assert delivered_as() == ""


def test_only_the_owner_and_administrators_change_a_job(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user(monkeypatch, "ann")
    call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "env": [["TOKEN", "s3cret"]]}})
    assert call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "user": "root"}})[0] == 403
    as_user(monkeypatch, "bob")
    for method, path in (
        ("DELETE", "/v1/jobs/1"),
        ("POST", "/v1/jobs/1/hold"),
        ("POST", "/v1/jobs/1/release"),
        ("POST", "/v1/jobs/1/requeue"),
        ("GET", "/v1/jobs/1/logs"),
    ):
        status, answer = call(daemon, method, path)
        assert (status, answer["error"]["message"]) == (403, "Job 1 belongs to ann, and you are bob.")
    seen = call(daemon, "GET", "/v1/jobs/1")
    assert seen[0] == 200
    assert "s3cret" not in json.dumps(seen)
    as_user(monkeypatch, "boss")
    assert call(daemon, "POST", "/v1/jobs/1/hold")[1]["job"]["held"] is True
    assert call(daemon, "DELETE", "/v1/jobs/1?signal=10")[1]["job"]["state"] == "PENDING"
    assert call(daemon, "DELETE", "/v1/jobs/1")[1]["job"]["state"] == "CANCELLED"
    assert call(daemon, "DELETE", "/v1/jobs/1")[0] == 409
    assert daemon.service.log[-2] == ("cancel", 1, "boss", None, "steps")
    assert call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "user": "ann"}})[0] == 201
    assert daemon.service.table[2].spec.user == "ann"


def test_hosts_are_administered_by_administrators(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str, Any]] = [
        ("POST", "/v1/hosts", {"hosts": [{"name": "h3", "cpus": 4, "variables": {"password": "x"}}]}),
        ("POST", "/v1/hosts/h3/drain", {"reason": "cable"}),
        ("POST", "/v1/hosts/h3/resume", {}),
        ("POST", "/v1/hosts/h3/key", {"fingerprint": "SHA256:abc"}),
        ("GET", "/v1/hosts/h3/key", None),
        ("POST", "/v1/network/measure", {"zone": None}),
        ("DELETE", "/v1/hosts/h3", None),
    ]
    as_user(monkeypatch, "ann")
    assert [call(daemon, *request)[0] for request in requests] == [403] * len(requests)
    as_user(monkeypatch, "boss")
    assert [call(daemon, *request)[0] for request in requests] == [201, 200, 200, 200, 200, 200, 200]
    assert "h3" not in daemon.service.inventory
    bad = call(daemon, "POST", "/v1/hosts", {"hosts": [{"name": "h4", "state": "UP"}]})
    assert "Unknown field 'state' in the host" in bad[1]["error"]["message"]
    hosts = call(daemon, "GET", "/v1/hosts")[1]["hosts"]
    assert (hosts[0]["name"], hosts[0]["free"], hosts[0]["jobs"]) == (
        "h1", {"cpus": 6, "mem_bytes": 32 << 30, "gpus": [1], "gpu_mem": [], "strays": []}, [1],
    )  # fmt: skip
    assert "variables" not in hosts[0]


def test_wait_is_a_long_poll(daemon: Daemon) -> None:
    call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
    answer = call(daemon, "GET", "/v1/jobs/1/wait?timeout_s=0.01")[1]
    assert (answer["final"], answer["job"]["state"]) == (False, "PENDING")
    daemon.call(daemon.service.finish, 1, waiting=1)
    assert call(daemon, "GET", "/v1/jobs/1/wait?timeout_s=60")[1]["final"] is True
    assert call(daemon, "GET", "/v1/jobs/1/wait?timeout_s=-1")[0] == 400
    assert call(daemon, "GET", "/v1/jobs/1/wait?timeout_s=nan")[0] == 400


@pytest.mark.parametrize("path", ["wait?timeout_s=60", "logs?follow=1"])
def test_a_client_that_goes_away_is_nothing_to_log(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    monkeypatch.setattr("rm.web.handling.STILL_THERE_S", 0.01)
    call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
    client = socket.socket(socket.AF_UNIX)
    client.connect(daemon.socket)
    client.sendall(f"GET /v1/jobs/1/{path} HTTP/1.1\r\nHost: rm\r\n\r\n".encode())
    while not daemon.service.waiting:
        time.sleep(0.001)
    client.close()
    while daemon.service.waiting:  # the daemon notices, and stops waiting for the job
        time.sleep(0.001)
    assert call(daemon, "GET", "/v1/status")[0] == 200
    assert caplog.records == []


def test_the_explanations_have_reasons_with_named_numbers(daemon: Daemon) -> None:
    call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
    why = call(daemon, "GET", "/v1/jobs/1/why")[1]
    reason = {
        "code": "Resources",
        "message": "No host has 9 free processors.",
        "numbers": {"wanted": 9, "free": 8},
    }
    assert why["reasons"] == [reason]
    assert why["verdicts"] == [{"host": "h1", "refused": reason, "scores": []}]
    plan = call(daemon, "POST", "/v1/plan", {"spec": SPEC})[1]
    assert plan["placement"] == {"tasks": [{"rank": 0, "host": "h1", "gpus": [0]}]}
    assert plan["alignment"]["score"] == 100.0
    assert daemon.service.table.keys() == {1}


def test_the_socket_is_not_taken_from_a_living_daemon(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="already listens"):
        bind(daemon.socket)
    stale = str(tmp_path / "stale.sock")
    bind(stale).close()
    bind(stale).close()  # what a killed daemon left behind is replaced
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ConfigError, match="not a socket"):
        bind(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "precious"


def test_the_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock"):
        assert (tmp_path / "rm.sock").is_socket()
    assert not (tmp_path / "rm.sock").exists()


def caller_of(request: Any, *admins: str) -> identity.Caller:
    accounts = Accounts(Config(roles=RolesConfig(admins=admins)))
    keeper = identity.Doorkeeper(accounts, SimpleNamespace(tokens=None))
    return asyncio.run(identity.caller_of(request, keeper))


def test_a_caller_without_peer_credentials_needs_a_token() -> None:
    tcp = Transport(SimpleNamespace(family=socket.AF_INET))
    with pytest.raises(Unauthenticated, match="needs a token"):
        caller_of(SimpleNamespace(transport=tcp, headers={}))


def test_who_has_gone_before_the_request_is_looked_at_is_nobody_and_no_defect() -> None:
    with pytest.raises(Unauthenticated, match="needs a token"):
        caller_of(SimpleNamespace(transport=None, headers={}))
    assert identity.origin_of(SimpleNamespace(transport=None, headers={}, remote=None)) == "unknown"  # type: ignore[arg-type]


def test_a_caller_whom_the_daemons_user_namespace_does_not_know_is_nobody_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = SimpleNamespace(family=socket.AF_UNIX, getsockopt=lambda *_: struct.pack("3i", 1, 65534, 65534))
    request: Any = SimpleNamespace(transport=Transport(peer), headers={})
    uid_map = tmp_path / "uid_map"
    monkeypatch.setattr(identity, "UID_MAP", str(uid_map))
    uid_map.write_text("         0          0 4294967295\n")
    assert caller_of(request).user == "nobody"
    uid_map.write_text("         0       1002          1\n         1     165536      65535\n")
    with pytest.raises(Forbidden, match="without the caller's id"):
        caller_of(request)


class Transport:
    """Of one connection, with this socket."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer

    def get_extra_info(self, name: str) -> Any:
        return self._peer


def peer_of(uid: int, **headers: str) -> Any:
    """A request whose peer has this user id."""
    peer = SimpleNamespace(family=socket.AF_UNIX, getsockopt=lambda *_: struct.pack("3i", 1, uid, uid))
    return SimpleNamespace(transport=Transport(peer), headers=headers)


def test_only_the_daemons_own_user_acts_for_others_and_passes_no_right_on() -> None:
    own, somebody = os.geteuid(), {ACTING_FOR: "daemon"}
    acting = caller_of(peer_of(own, **somebody), "boss")
    assert (acting.user, acting.admin, acting.role) == ("daemon", False, "user")
    assert caller_of(peer_of(own, **somebody), "daemon").role == "admin"
    assert caller_of(peer_of(own, **{ACTING_FOR: "root"})).admin is False
    stranger = next(p.pw_uid for p in pwd.getpwall() if p.pw_uid not in (0, own))
    with pytest.raises(Forbidden, match="may act for others"):
        caller_of(peer_of(stranger, **somebody))
    with pytest.raises(Forbidden, match="no account 'no such'"):
        caller_of(peer_of(own, **{ACTING_FOR: "no such"}))


def test_nobody_in_particular_only_looks(daemon: Daemon) -> None:
    call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, "env": [["TOKEN", "s3cret"]]}})
    nobody = {ACTING_FOR: ""}
    assert call(daemon, "GET", "/v1/me", headers=nobody)[1] == {"version": 1, "user": "", "role": "nobody"}
    assert call(daemon, "GET", "/v1/me")[1]["role"] == "admin"
    assert call(daemon, "GET", "/v1/jobs", headers=nobody)[0] == 200
    status, answer = call(daemon, "GET", "/v1/jobs/1", headers=nobody)
    assert status == 200
    assert "s3cret" not in json.dumps(answer)
    for method, path, body in (
        ("POST", "/v1/jobs", {"spec": SPEC}), ("POST", "/v1/plan", {"spec": SPEC}),
        ("DELETE", "/v1/jobs/1", None), ("GET", "/v1/jobs/1/logs", None), ("POST", "/v1/jobs/1/hold", None),
        ("POST", "/v1/hosts/h1/drain", {}), ("GET", "/v1/hosts?variables=1", None),
        ("GET", "/v1/channels", None),
    ):  # fmt: skip
        status, answer = call(daemon, method, path, body, headers=nobody)
        assert (status, answer["error"]["message"]) == (403, "An anonymous caller may only look."), path
