"""Whoever asks a daemon that waits for its turn learns who leads, and the client asks that one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rm.cli.doors.client import Client
from rm.config import Config, DaemonConfig
from rm.core.store import Lease
from rm.errors import Standby, Unreachable
from rm.web.standby import serve_standby
from tests.fake_service import serving
from tests.fakes import PATIENCE_S


@contextmanager
def standing_by(path: Path, holder: list[str]) -> Iterator[None]:
    """A standby at `path`, which says that `holder[0]` leads."""
    config = Config(daemon=DaemonConfig(socket=str(path)))
    started, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        runner = await serve_standby(config, lambda: Lease(holder[0]))
        loops.append(asyncio.get_running_loop())
        started.set()
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        yield
    finally:
        loops[0].call_soon_threadsafe(over.set)
        thread.join()


def here(path: Path) -> str:
    return f"{socket.gethostname()}:{path}:a1b2"


def test_the_client_follows_to_the_daemon_that_leads_and_back(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    with standing_by(one, [here(two)]):
        client = Client(str(one))
        with serving(two):
            assert client.get("status")["daemon"]["epoch"] == 3
            assert client.get("status")["daemon"]["epoch"] == 3  # there it stays
        with pytest.raises(Unreachable, match=str(two)):
            client.get("status")  # the leader is gone
        with serving(two):
            assert client.get("status")["daemon"]["epoch"] == 3
        client.close()
    assert not one.exists()


def test_two_that_name_each_other_are_not_followed_for_ever(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    with standing_by(one, [here(two)]), standing_by(two, [here(two)]):
        client = Client(str(one), patience_s=0)
        with pytest.raises(Standby, match=f"another leads the cluster, on {socket.gethostname()} at {two}"):
            client.get("status")
        client.close()


def test_who_asks_while_nobody_leads_waits_for_the_next_leader(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    holder = [""]
    with serving(two), standing_by(one, holder):
        client = Client(str(one))
        waits: list[str] = []

        def elected(why: str) -> None:
            waits.append(why)
            holder[0] = here(two)

        client.on_wait = elected
        assert client.get("status")["daemon"]["epoch"] == 3
        assert len(waits) == 1
        assert "waits for its turn" in waits[0]
        client.close()


def test_a_leader_that_has_just_ended_is_no_address(tmp_path: Path) -> None:
    path = tmp_path / "one.sock"
    with standing_by(path, [""]):
        client = Client(str(path), patience_s=0)
        with pytest.raises(Standby, match="waits"):
            client.get("status")
        client.close()
