"""The page's way to the daemon where others use it as well."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from rm.errors import Unreachable
from rm.web.pages.people import NOBODY
from rm.web.pages.source import Source

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def test_the_page_waits_where_very_many_connect(tmp_path: Path) -> None:
    """The queue of the socket is full, as while somebody connects without end."""

    async def asked() -> bytes:
        source = Source(str(tmp_path / "rm.sock"))
        try:
            async with source.ask(NOBODY, "GET", "/v1/status") as response:
                return await response.read()
        finally:
            await source.close()

    async def served(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            peer, _ = await loop.sock_accept(listener)
            with peer:
                if await loop.sock_recv(peer, 1 << 16):
                    await loop.sock_sendall(peer, ANSWER)

    async def play(listener: socket.socket, others: list[socket.socket]) -> bytes:
        answer = asyncio.create_task(asked())
        too_early, _ = await asyncio.wait({answer}, timeout=0.3)
        assert not too_early
        for other in others:
            other.close()
        server = asyncio.create_task(served(listener))
        try:
            return await answer
        finally:
            server.cancel()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "rm.sock"))
        listener.listen(0)
        listener.setblocking(False)
        others = []
        with suppress(BlockingIOError):
            while True:
                others.append(socket.socket(socket.AF_UNIX))
                others[-1].setblocking(False)
                others[-1].connect(str(tmp_path / "rm.sock"))
        assert asyncio.run(play(listener, others)) == b"{}"


def test_where_no_daemon_listens_the_page_says_so_at_once(tmp_path: Path) -> None:
    async def asked() -> None:
        source = Source(str(tmp_path / "none.sock"))
        try:
            async with source.ask(NOBODY, "GET", "/v1/status"):
                pass
        finally:
            await source.close()

    with pytest.raises(Unreachable):
        asyncio.run(asked())
