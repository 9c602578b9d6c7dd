"""Users of one machine at a TCP port: each is known, has a share of their own, and a session of their own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.config import LimitsConfig
from rm.web.doors import door
from rm.web.doors.local_peers import user_of
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import PageSettings
from tests.fake_page import PageService
from tests.fake_service import Daemon, serving
from tests.page_visitor import Tokens, Visit, visiting

ANOTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to connect as another user")


@contextmanager
def connection(family: socket.AddressFamily, uid: int | None = None) -> Iterator[socket.socket]:
    """The daemon's end of a connection by a process of this user."""
    with socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as at:
        child = os.fork()
        if child == 0:
            try:
                if uid is not None:
                    os.setuid(uid)
                near = socket.socket(family)
                near.connect(at.getsockname())
                near.recv(1)
            finally:
                os._exit(0)
        at.settimeout(60)
        accepted, _ = at.accept()
        with accepted:
            yield accepted
        os.waitpid(child, 0)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("uid", [None, pytest.param(ANOTHER, marks=as_root)])
def test_the_kernel_says_whose_a_connection_of_this_machine_is(
    family: socket.AddressFamily, uid: int | None
) -> None:
    with connection(family, uid) as accepted:
        assert user_of(accepted) == (os.geteuid() if uid is None else uid)


def test_a_connection_that_its_process_has_closed_is_nobodys() -> None:
    """The kernel would say root's."""
    with socket.create_server(("127.0.0.1", 0)) as at:
        near = socket.create_connection(at.getsockname())
        accepted, _ = at.accept()
        with accepted:
            near.close()
            assert user_of(accepted) is None


def test_who_comes_from_elsewhere_is_not_who_listens_here_at_the_same_port() -> None:
    with socket.create_server(("", 0)) as listens:
        far: Any = SimpleNamespace(
            family=socket.AF_INET,
            getsockname=lambda: ("127.0.0.1", 9),
            getpeername=lambda: ("192.0.2.7", listens.getsockname()[1]),
        )
        assert user_of(far) is None


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock", kind=PageService) as made:
        yield made


@pytest.fixture
def who(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`uid`: the user who connects from now on, as the kernel says; None = it does not tell."""
    now = SimpleNamespace(uid=1001)
    monkeypatch.setattr(door, "user_of", lambda peer: now.uid)
    return now


def test_a_cookie_that_another_program_of_the_machine_was_sent_logs_nobody_else_in(
    daemon: Daemon, who: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser sends the cookie of 127.0.0.1 to every port there: to what `rmx forward` leads to, too."""
    monkeypatch.setattr("rm.web.callers.access.caller_of", Tokens({"t-ann": "ann", "t-bob": "bob"}).caller_of)

    async def story(visit: Visit) -> None:
        ann, again, thief, unknown = visit(), visit(), visit(), visit()
        told = await ann.log_in("t-ann")
        stolen = {"Cookie": told.headers["Set-Cookie"].partition(";")[0]}
        assert (await again.get("/", **stolen)).status == 200
        for someone, uid in ((thief, 1002), (unknown, None)):
            who.uid = uid
            assert (await someone.get("/", **stolen)).where == "/login"
            assert (await someone.post("/do/cancel", {"job": "1"}, **stolen)).status == 401
            await someone.post("/login", {"token": "t-bob"}, **stolen)
        who.uid = 1001
        assert (await ann.get("/")).status == 200  # and the session goes on

    visiting(daemon.socket, story)


async def answered(url: str) -> bytes:
    """The first line of an answer, on a connection of its own."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /login HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return line


def test_a_user_who_has_all_connections_that_one_may_have_keeps_no_other_from_the_page(
    daemon: Daemon, who: SimpleNamespace
) -> None:
    async def story() -> None:
        runner, url = await serve_page(
            daemon.socket, "127.0.0.1:0", PageSettings(), LimitsConfig(connections=8, header_s=60)
        )
        port = int(url.rstrip("/").rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        assert b" 429 " in await answered(url)
        who.uid = 1002
        assert b" 200 " in await answered(url)
        for _, writer in held:
            writer.close()
        await runner.cleanup()

    asyncio.run(story())
