"""The HTTP API of a real daemon answers as its table says, whatever comes: requests are made from OpenAPI."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from http.cookiejar import DefaultCookiePolicy
from itertools import count
from typing import Any

import hypothesis
import msgspec
import pytest
import requests
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from rm import __version__
from rm.api.openapi import document
from rm.client.connection import Connection
from rm.errors import Unreachable
from tests import preloaded
from tests.cluster import RMX, until
from tests.examples import SHARE

DOCUMENT = msgspec.json.decode(document(__version__))
OPERATIONS = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]
RM_TOML = """
[daemon]
socket = "{0}/rm.sock"
state_dir = "{0}/state"
[ssh]
known_hosts = "{0}/known_hosts"
[jobs]
run_root_as = "nobody"
[hosts]
inventory = "{0}/hosts.ini"
[playbooks]
directory = "{0}/playbooks"
[monitor]
enabled = false
[[monitor.mesh]]
name = "latency"
[[monitor.mesh]]
name = "throughput"
tests = ["throughput"]
"""
# nothing listens at port 1: the hosts are known, and never up
HOSTS = "[z1]\nh1\nh2\n[all:vars]\nansible_host=127.0.0.1\nansible_port=1\n"
PLAYBOOK = "- hosts: all\n  vars_prompt: [{name: a, private: false}]\n  tasks:\n    - ping:\n"
PATIENCE_S = 60
EXAMPLES = max(1, round(4 * SHARE))  # drawn for each operation
# schemathesis lists thousands of cases: one of EVERY cases is sent
EVERY = max(1, round(1 / SHARE**2))
SPEC = {"name": "train", "script": "#!/bin/sh\ntrue\n", "env": [["TOKEN", "s3cret"]]}


class UnixConnection(HTTPConnection):
    """Its host is the path of a socket."""

    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE_S)
        made.connect(self.host)
        return made


class UnixPool(HTTPConnectionPool):
    ConnectionCls = UnixConnection


class UnixAdapter(HTTPAdapter):
    """All requests go to one Unix socket, whatever their URL."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._pool = UnixPool(path)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> UnixPool:
        return self._pool

    def close(self) -> None:
        self._pool.close()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[requests.Session]:
    """A daemon with two hosts that do not answer, jobs that wait for them, and meshes."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "rm.toml").write_text(RM_TOML.format(folder))
    (folder / "hosts.ini").write_text(HOSTS)
    (folder / "playbooks").mkdir()
    (folder / "playbooks" / "0.yml").write_text(PLAYBOOK)
    daemon = preloaded.daemon(RMX, folder / "rm.toml", folder / "log")
    try:
        client = Connection(f"{folder}/rm.sock")

        def answers() -> Any:
            assert daemon.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                return client.get("status")
            except Unreachable:  # it binds its socket before it listens
                return None

        until(answers, "the daemon answers")
        for _ in range(3):
            client.post("jobs", body={"spec": SPEC})
        client.post("playbooks", "0", "start", body={"answers": {"a": "x"}})
        client.post("playbook-schedules", body={"playbook": "0", "cron": "0 0 1 1 *", "answers": {"a": 1}})
        with requests.Session() as session:
            session.trust_env = False  # no search for proxies at each request: an eighth of them
            session.mount("http://", UnixAdapter(f"{folder}/rm.sock"))
            # what it closes after an error is never mistaken for a connection that can be used again
            session.headers = CaseInsensitiveDict({"Connection": "close"})
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # no case sees another's
            yield session
    finally:
        daemon.terminate()
        daemon.wait(60)
    assert "Traceback" not in (folder / "log").read_text()


@pytest.fixture(scope="module")
def schema() -> Any:
    import schemathesis  # which only the worker that has this file is to load

    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_comes_is_answered_as_the_table_says(
    operation: str, schema: Any, session: requests.Session
) -> None:
    """Not by schemathesis' `parametrize`: each worker that collects tests would make all requests (3 s)."""
    from schemathesis.pytest.lazy import get_all_tests

    settings = hypothesis.settings(max_examples=EXAMPLES, suppress_health_check=list(hypothesis.HealthCheck))
    made = get_all_tests(
        schema=schema.include(name=operation), test_func=_ask, settings=settings, given_kwargs={}
    )
    (found,) = made
    _, ask = found.ok()
    # left out here, for hypothesis takes longer to begin a case than most take
    ask.hypothesis_explicit_examples = list(_some(ask.hypothesis_explicit_examples))
    ask(session=session)


def _some(listed: Iterable[Any]) -> Iterator[Any]:
    """One of EVERY of what schemathesis lists, and all examples of the document itself."""
    number = count()
    for one in listed:
        if one.kwargs["case"].meta.phase.name.value != "coverage" or next(number) % EVERY == 0:
            yield one


def _ask(case: Any, session: requests.Session) -> None:
    from schemathesis.specs.openapi import checks

    query = dict(case.query or {})
    query.pop("follow", None)
    if case.operation.label.endswith("/wait"):  # nobody waits for the end of a job
        query["timeout_s"] = "0"
    case.query = query
    response = case.call(base_url="http://rm", session=session, timeout=PATIENCE_S)
    assert response.status_code != 500, response.text
    case.validate_response(
        response,
        checks=[
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
        ],
    )
