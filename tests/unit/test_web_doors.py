"""The doors of the API: what a client has already, silent TLS, wrong tokens, and what is recorded first."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rm.config import Config, HttpsConfig, JobsConfig, LimitsConfig
from rm.core.people.audit import Act, Outcome
from rm.core.people.rights import Role
from rm.errors import Unauthenticated
from rm.web.callers import access, identity
from rm.web.callers.shares import Shares
from rm.web.doors.door import Guests
from rm.web.https import HttpsDoor
from tests.certificates import Authority
from tests.fake_service import Daemon, FakeService, serving
from tests.fakes import PATIENCE_S
from tests.ports import Kept
from tests.unit.test_web_api import SPEC, call


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock", Config(jobs=JobsConfig(run_root_as="rmjob"))) as daemon:
        yield daemon


def ask(daemon: Daemon, method: str, path: str, **headers: str) -> tuple[int, Any, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("rm")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(daemon.socket)
    connection.request(method, path, headers=sent)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, response.headers, data


# -- ETag


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/1", "/v1/hosts", "/v1/status", "/v1/openapi.json"])
def test_what_the_client_has_is_not_sent_again(daemon: Daemon, path: str) -> None:
    call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
    status, headers, body = ask(daemon, "GET", path)
    assert (status, headers["Cache-Control"]) == (200, "private, no-cache")
    again = ask(daemon, "GET", path, If_None_Match=headers["ETag"])
    assert (again[0], again[2], again[1]["ETag"]) == (304, b"", headers["ETag"])
    assert ask(daemon, "GET", path, If_None_Match='"other"')[2] == body


def test_what_has_changed_is_sent(daemon: Daemon) -> None:
    call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
    etag = ask(daemon, "GET", "/v1/jobs")[1]["ETag"]
    call(daemon, "POST", "/v1/jobs/1/hold")
    status, headers, body = ask(daemon, "GET", "/v1/jobs", If_None_Match=etag)
    assert (status, b'"held":true' in body) == (200, True)
    assert headers["ETag"] != etag


def test_neither_changes_nor_refusals_have_an_etag(daemon: Daemon) -> None:
    assert "ETag" not in ask(daemon, "GET", "/v1/jobs/7")[1]
    assert "ETag" not in ask(daemon, "DELETE", "/v1/jobs?name=x", If_None_Match="*")[1]


# -- TLS


@asynccontextmanager
async def https(folder: Path, limits: LimitsConfig, descriptors: int) -> AsyncIterator[tuple[int, Shares]]:
    """A TLS door before a page that says hello; its port."""
    Authority(folder).issue(folder / "cert.pem", folder / "key.pem")
    app = web.Application()

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app.add_routes([web.get("/", hello)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    shares = Shares(limits, descriptors)
    kept = Kept()
    listen = f"127.0.0.1:{kept.number}"
    made = HttpsDoor(HttpsConfig(listen, str(folder / "cert.pem"), str(folder / "key.pem")))
    await made.start(runner, Guests(shares, limits.header_s, limits.idle_s), "says hello")
    try:
        yield kept.number, shares
    finally:
        kept.close()
        await made.stop(app)
        await runner.cleanup()


def said(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


def connected(stack: ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))


async def nobody_left(shares: Shares) -> None:
    while shares.connections:
        await asyncio.sleep(0.01)


def test_a_silent_handshake_takes_room(tmp_path: Path) -> None:
    def silent(port: int) -> None:
        with ExitStack() as stack:
            here = [connected(stack, port) for _ in range(4)]
            assert b" 429 " in said(connected(stack, port))
            assert len(here) == 4

    def welcome(port: int) -> None:
        trusted = ssl.create_default_context()
        trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted, timeout=PATIENCE_S)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        connection.close()

    async def main() -> None:
        # nobody is sent away for his silence here, however slow this machine is
        async with https(tmp_path, LimitsConfig(connections=4, header_s=10 * PATIENCE_S), 10_000) as (
            port,
            shares,
        ):
            await asyncio.to_thread(silent, port)
            await nobody_left(shares)
            await asyncio.to_thread(welcome, port)
            await nobody_left(shares)

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE_S))


def test_a_silent_handshake_gives_its_room_back_after_the_time_for_a_head(tmp_path: Path) -> None:
    def silent(port: int) -> None:
        with ExitStack() as stack:
            assert [said(connected(stack, port)) for _ in range(2)] == [b"", b""]  # closed by the daemon

    async def main() -> None:
        async with https(tmp_path, LimitsConfig(connections=4, header_s=0.2), 10_000) as (port, shares):
            await asyncio.to_thread(silent, port)
            await nobody_left(shares)

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE_S))


SILENT, KIB_EACH = 100, 64


def test_of_silent_handshakes_each_takes_little_memory(tmp_path: Path) -> None:
    """Strangers may have very many of them: half of the descriptors."""

    async def main() -> int:
        limits = LimitsConfig(connections=SILENT, header_s=10 * PATIENCE_S)
        async with https(tmp_path, limits, 10_000) as (port, shares):
            tracemalloc.start()
            try:
                with ExitStack() as stack:
                    await asyncio.to_thread(lambda: [connected(stack, port) for _ in range(SILENT)])
                    while shares.connections < SILENT:
                        await asyncio.sleep(0.01)
                    taken, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            await nobody_left(shares)
            return taken

    taken = asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE_S))
    assert 0 < taken < SILENT * KIB_EACH << 10


# -- wrong tokens


def test_wrong_tokens_are_refused_more_slowly_and_right_ones_are_not(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REFUSE_S", 0.0)
    where = ["2001:db8::1"]

    async def caller(request: Any, keeper: Any) -> identity.Caller:
        if "right" not in request.headers.get("Authorization", ""):
            raise Unauthenticated("This token is not valid.")
        return identity.Caller(12345, "ann", Role.USER, "https", where[0], "t1")

    monkeypatch.setattr(access, "caller_of", caller)
    monkeypatch.setattr(access, "origin_of", lambda request: where[0])

    def wrong() -> int:
        return ask(daemon, "GET", "/v1/status", Authorization="Bearer wrong")[0]

    assert [wrong() for _ in range(access.ANSWERED)] == [401] * access.ANSWERED
    where[0] = "2001:db8::2"  # of the same network of one host
    status, headers, body = ask(daemon, "GET", "/v1/status", Authorization="Bearer wrong")
    assert (status, headers["Retry-After"]) == (429, "60")
    assert b"is not valid" in body
    assert ask(daemon, "GET", "/v1/status", Authorization="Bearer right")[0] == 200
    where[0] = "2001:db8:0:1::1"
    assert wrong() == 401


# -- the audit log


class Auditing:
    """Takes its time until it is told to go on."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.asked, self.go = threading.Event(), threading.Event()

    async def record(self, act: Act) -> None:
        self.acts.append(act)
        self.asked.set()
        await asyncio.to_thread(self.go.wait, 30)

    async def read(self, *_: Any) -> Any:
        return ()


def test_what_takes_long_is_recorded_before_it_begins(tmp_path: Path) -> None:
    audit = Auditing()

    class Audited(FakeService):
        def __init__(self) -> None:
            super().__init__()
            self.audit = audit

    with serving(tmp_path / "rm.sock", kind=Audited) as daemon:
        asking = threading.Thread(target=lambda: call(daemon, "POST", "/v1/network/measure", {}))
        asking.start()
        assert audit.asked.wait(PATIENCE_S)
        assert [(act.verb, act.outcome) for act in audit.acts] == [("measure", Outcome.BEGUN)]
        assert daemon.service.log == []  # not before the entry is durable
        audit.go.set()
        asking.join()
        assert daemon.service.log == [("measure", None)]


@pytest.mark.parametrize(
    ("path", "asked", "target"),
    [
        ("/v1/qos/urgent", {"priority": 2}, "qos urgent"),
        ("/v1/accounts/physics", {"shares": 2}, "account physics"),
        ("/v1/partitions/gpu", {"tier": 2}, "partition gpu"),
    ],
)
def test_the_log_names_what_an_act_was_about(
    tmp_path: Path, path: str, asked: dict[str, int], target: str
) -> None:
    audit = Auditing()
    audit.go.set()

    class Audited(FakeService):
        def __init__(self) -> None:
            super().__init__()
            self.audit = audit

    with serving(tmp_path / "rm.sock", kind=Audited) as daemon:
        call(daemon, "POST", path, asked)
        assert [act.target for act in audit.acts] == [target]
