"""The page of a real daemon with real tokens: who logs in, what the audit log says of it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.client.connection import Connection
from rm.errors import Unreachable
from tests.cluster import RMX, until
from tests.page_visitor import Visitor

RM_TOML = """
[daemon]
socket = "{0}/rm.sock"
state_dir = "{0}/state"
[ssh]
known_hosts = "{0}/known_hosts"
[jobs]
run_root_as = "nobody"
[monitor]
enabled = false
[web]
listen = "127.0.0.1:0"
"""


class House:
    def __init__(self, folder: Path, url: str) -> None:
        self.client = Connection(f"{folder}/rm.sock")
        self.url = url

    def token(self, scope: str) -> Any:
        return self.client.post("tokens", body={"scope": scope, "expires_s": 600})

    def audited(self) -> list[tuple[str, str, str]]:
        acts = self.client.get("audit")["acts"]
        return [(act["verb"], act["via"], act["outcome"]) for act in acts]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    (tmp_path / "rm.toml").write_text(RM_TOML.format(tmp_path))
    log = tmp_path / "log"
    with log.open("wb") as out:
        daemon = subprocess.Popen(
            [RMX, "--config", tmp_path / "rm.toml", "daemon"], stdout=out, stderr=out,
            env={**os.environ, "RM_CONFIG": ""},
        )  # fmt: skip
        try:
            found = until(lambda: re.search(r"(http://\S+)\s", log.read_text()), "the page listens")
            made = House(tmp_path, found[1])
            until(lambda: answers(made.client), "the daemon answers")
            yield made
            made.client.close()
        finally:
            daemon.terminate()
            daemon.wait(60)
    assert "Traceback" not in log.read_text()


def answers(client: Connection) -> bool:
    try:
        return bool(client.get("status"))
    except Unreachable:
        return False


def test_a_token_opens_the_page_as_far_as_its_scope_goes_and_until_it_is_revoked(house: House) -> None:
    submitting, reading = house.token("submit"), house.token("read")

    async def story() -> None:
        people = [Visitor(house.url) for _ in range(3)]
        user, reader, stranger = people
        try:
            assert (await stranger.log_in("rmt_nobody_knows")).status == 403
            assert (await user.log_in(submitting["text"])).where == "/"
            assert (await reader.log_in(reading["text"])).where == "/"
            script = "#!/bin/sh\ntrue\n"
            told = await user.send("/submit", script=script, name="mine")
            assert told.where == "/job/1", told.text
            refused = await reader.send("/submit", script=script, name="not mine")
            assert refused.status == 403
            assert "scope" in refused.text
            assert (await user.send("/do/drain?host=h1", host="h1")).status == 403
            held = await user.send("/do/hold?job=1", job="1")
            assert held.where == "/job/1"
            assert "true" in (await user.get("/job/1")).text
            await asyncio.to_thread(house.client.delete, "tokens", submitting["token"]["id"])
            while (await user.get("/")).where != "/login":  # who somebody is, is known for a second
                pass
            assert (await reader.get("/")).status == 200
        finally:
            for visitor in people:
                await visitor.session.close()

    asyncio.run(story())
    acts = house.audited()
    assert ("submit", "page", "done") in acts
    assert ("submit", "page", "refused") in acts
    assert ("hold", "page", "done") in acts
    assert ("drain", "page", "refused") in acts
    assert submitting["text"] not in str(house.client.get("audit"))
