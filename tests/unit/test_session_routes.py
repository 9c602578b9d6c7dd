"""The WebSocket of a session: who attends it has a token that counts, as long as they attend."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rm.client.connection import Connection
from rm.client.websocket import TEXT, WebSocket
from rm.config import Config, JobsConfig
from rm.core.people.rights import Role
from rm.errors import Forbidden, Unauthenticated
from rm.web.callers import access, identity
from rm.web.routes import lasting
from tests.fake_service import serving
from tests.fakes import PATIENCE_S
from tests.unit.test_web_api import SPEC, call


class Way:
    """A session whose program says nothing."""

    def __init__(self) -> None:
        self.left = threading.Event()

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def write(self, data: bytes) -> None: ...

    async def away(self) -> None:
        self.left.set()

    @asynccontextmanager
    async def attend(self, *what: Any) -> AsyncIterator[Way]:
        yield self


def changing(monkeypatch: pytest.MonkeyPatch, change: str, token: str) -> threading.Event:
    """Ann, who administers until the event is set."""
    changed = threading.Event()

    async def caller(request: Any, keeper: Any) -> identity.Caller:
        if changed.is_set() and change == "revoked":
            raise Unauthenticated("This token is not valid.")
        role = Role.USER if changed.is_set() else Role.ADMIN
        return identity.Caller(12345, "ann", role, "https" if token else "unix", "::1", token)

    for module in (access, lasting):
        monkeypatch.setattr(module, "caller_of", caller)
    monkeypatch.setattr(lasting, "AGAIN_S", 0.01)
    return changed


CHANGES = pytest.mark.parametrize(
    ("change", "token"), [("revoked", "t1"), ("demoted", "t1"), ("demoted", "")]
)


@CHANGES
def test_who_may_not_any_more_is_sent_away(
    change: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that was revoked, after it had leaked, kept the sessions that it had begun, and who was an
    administrator kept those in the jobs of others."""
    changed = changing(monkeypatch, change, token)
    with serving(tmp_path / "rm.sock", Config(jobs=JobsConfig(run_root_as="rmjob"))) as daemon:
        way = Way()
        daemon.service.sessions = way
        call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
        attending: WebSocket = Connection(daemon.socket).upgraded("jobs", 1, "session")
        attending.send(json.dumps({"session": "abcdefgh", "begin": None}).encode(), TEXT)
        assert json.loads(said(attending)) == {"ok": True}
        changed.set()
        kind = (Unauthenticated if change == "revoked" else Forbidden).__name__
        assert json.loads(said(attending))["error"]["kind"] == kind
        assert way.left.wait(PATIENCE_S)
        attending.close()


@CHANGES
def test_who_may_not_any_more_follows_no_log(
    change: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = changing(monkeypatch, change, token)
    with serving(tmp_path / "rm.sock", Config(jobs=JobsConfig(run_root_as="rmjob"))) as daemon:
        call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
        connection = http.client.HTTPConnection("rm")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(PATIENCE_S)
        connection.sock.connect(daemon.socket)
        connection.request("GET", "/v1/jobs/1/logs?follow=1")
        response = connection.getresponse()
        assert response.read1() == daemon.service.output["out"]
        changed.set()
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):  # not as if it were whole
            response.read()
        connection.close()


class Talking(Way):
    """A session whose program says more than anybody reads."""

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return bytes(1 << 16)


def test_a_session_hears_that_somebody_went_while_its_program_talked(tmp_path: Path) -> None:
    """The daemon met the closed connection where it wrote, took that for the end, and said nothing."""
    with serving(tmp_path / "rm.sock", Config(jobs=JobsConfig(run_root_as="rmjob"))) as daemon:
        call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
        for _ in range(10):
            way = Talking()
            daemon.service.sessions = way
            attending: WebSocket = Connection(daemon.socket).upgraded("jobs", 1, "session")
            attending.send(json.dumps({"session": "abcdefgh", "begin": None}).encode(), TEXT)
            assert json.loads(said(attending)) == {"ok": True}
            attending.close()
            assert way.left.wait(PATIENCE_S)


def test_a_handshake_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock", Config(jobs=JobsConfig(run_root_as="rmjob"))) as daemon:
        daemon.service.sessions = Way()
        call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(PATIENCE_S)
            raw.connect(daemon.socket)
            raw.sendall(b"GET /v1/jobs/1/session HTTP/1.1\r\nHost: x\r\nUpgrade: \xff\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")


def said(attending: WebSocket) -> bytes:
    while True:
        if found := attending.heard():
            return found[0]
