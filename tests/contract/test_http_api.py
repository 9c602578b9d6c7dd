"""The HTTP API of a real daemon answers as its table says, whatever comes: requests are made from OpenAPI."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import hypothesis
import msgspec
import pytest
import schemathesis
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi import checks

from rm import __version__
from rm.api.openapi import document
from rm.client.connection import Connection
from rm.errors import Unreachable
from tests.cluster import RMX, until

DOCUMENT = msgspec.json.decode(document(__version__))
OPERATIONS = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]
CHECKS = [
    checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance,
]  # fmt: skip
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
SPEC = {"name": "train", "script": "#!/bin/sh\ntrue\n", "env": [["TOKEN", "s3cret"]]}


async def relay(path: str) -> tuple[asyncio.Server, str]:
    """A TCP port for a Unix socket, for clients that know nothing else; and its URL."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, ours), pump(theirs, writer))

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon with two hosts that do not answer, jobs that wait for them, and meshes."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "rm.toml").write_text(RM_TOML.format(folder))
    (folder / "hosts.ini").write_text(HOSTS)
    (folder / "playbooks").mkdir()
    (folder / "playbooks" / "0.yml").write_text(PLAYBOOK)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [RMX, "--config", folder / "rm.toml", "daemon"], stdout=log, stderr=log,
            env={**os.environ, "RM_CONFIG": ""},
        )  # fmt: skip
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
            client.post(
                "playbook-schedules", body={"playbook": "0", "cron": "0 0 1 1 *", "answers": {"a": 1}}
            )
            server, url = asyncio.run_coroutine_threadsafe(relay(client.address.path), loop).result(60)
            yield url
            loop.call_soon_threadsafe(server.close)
        finally:
            daemon.terminate()
            daemon.wait(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
    assert "Traceback" not in (folder / "log").read_text()


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_comes_is_answered_as_the_table_says(operation: str, schema: Any, url: str) -> None:
    """Not by schemathesis' `parametrize`: each worker that collects tests would make all requests (3 s)."""
    settings = hypothesis.settings(max_examples=4, suppress_health_check=list(hypothesis.HealthCheck))
    made = get_all_tests(
        schema=schema.include(name=operation), test_func=_ask, settings=settings, given_kwargs={}
    )
    (found,) = made
    _, ask = found.ok()
    ask(url=url)


def _ask(case: Any, url: str) -> None:
    query = dict(case.query or {})
    query.pop("follow", None)
    if case.operation.label.endswith("/wait"):  # nobody waits for the end of a job
        query["timeout_s"] = "0"
    case.query = query
    response = case.call(base_url=url, timeout=60)
    assert response.status_code != 500, response.text
    case.validate_response(response, checks=CHECKS)
