"""Doors that are tried again, and certificates that are looked at: no error ends that, and each is logged
once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from rm.config import HttpsConfig, LimitsConfig
from rm.errors import ConfigError
from rm.web import https, standby
from rm.web.doors import door, port
from rm.web.doors.port import PortTaken, given_up, listener_at, opened
from rm.web.pages.listen import guests_of
from tests.certificates import Authority
from tests.fakes import PATIENCE_S

TAKEN = PortTaken("The port 1 is taken.")
FULL = ConfigError("The port 1 cannot be used: Too many open files.")


def opening(*failures: Exception) -> tuple[list[Exception], Callable[[], Awaitable[None]]]:
    """A door that fails in these ways, and then is open."""
    left = list(failures)

    async def open_door() -> None:
        if left:
            raise left.pop(0)

    return left, open_door


def test_a_door_whose_port_is_free_is_opened_whatever_fails_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "RETRY_S", 0.0)
    left, open_door = opening(TAKEN, TAKEN, FULL, FULL, RuntimeError("odd"), TAKEN, FULL, RuntimeError("odd"))

    async def main() -> None:
        task = await opened(open_door, waits=True)
        assert task is not None
        await asyncio.wait_for(task, PATIENCE_S)
        await given_up(task)

    with caplog.at_level(logging.WARNING, "rm.web"):
        asyncio.run(main())
    assert not left
    kinds = [(record.levelname, record.exc_info is not None) for record in caplog.records]
    assert kinds == [("WARNING", False), ("ERROR", False), ("ERROR", True)]
    said = [record.getMessage() for record in caplog.records]
    assert str(TAKEN) in said[0]
    assert str(FULL) in said[1]
    assert said[2].endswith(": odd")


def test_a_door_that_fails_to_start_leaves_its_port_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep(self: door.Guests, now_s: float) -> None:
        raise RuntimeError("odd")

    async def main() -> None:
        runner = web.AppRunner(web.Application())
        await runner.setup()
        try:
            guests = guests_of(LimitsConfig())
            listener = listener_at("127.0.0.1", 0, "It cannot be used", "")
            number = listener.getsockname()[1]
            with monkeypatch.context() as patch:
                patch.setattr(door.Guests, "sweep", sweep)
                with pytest.raises(RuntimeError, match="odd"):
                    await door.Door(runner, listener, guests).start()
            assert not runner.sites
            await door.Door(runner, listener_at("127.0.0.1", number, "It cannot be used", ""), guests).start()
        finally:
            await runner.cleanup()

    asyncio.run(main())


def test_a_certificate_that_cannot_be_looked_at_is_looked_at_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path).issue(tmp_path / "cert.pem", tmp_path / "key.pem")
    monkeypatch.setattr(https, "LOOK_EVERY_S", 0.0)
    odd = [RuntimeError("can't start new thread")] * 3

    async def main() -> None:
        looked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def look(_: https.Certificate) -> bool:
            if odd:
                raise odd.pop()
            loop.call_soon_threadsafe(looked.set)
            return False

        monkeypatch.setattr(https.Certificate, "look", look)
        runner = web.AppRunner(web.Application())
        await runner.setup()
        config = HttpsConfig("127.0.0.1:0", str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
        made = https.HttpsDoor(config)
        try:
            await made.start(runner, guests_of(LimitsConfig()), "is open")
            await asyncio.wait_for(looked.wait(), PATIENCE_S)
        finally:
            await made.stop(runner.app)
            await runner.cleanup()

    with caplog.at_level(logging.WARNING, "rm.web"):
        asyncio.run(main())
    (told,) = caplog.records
    assert told.getMessage().startswith("The files of the certificate cannot be looked at")
    assert told.getMessage().endswith(": can't start new thread")


def test_a_waiting_daemon_tries_a_door_again_whatever_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "RETRY_S", 0.0)
    left = [RuntimeError("odd"), RuntimeError("odd"), FULL]

    async def main() -> None:
        done = asyncio.Event()

        async def open_door() -> web.AppRunner:
            if left:
                raise left.pop(0)
            done.set()
            return web.AppRunner(web.Application())

        task = asyncio.create_task(standby._keep_open(open_door, lambda: False))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with caplog.at_level(logging.WARNING, "rm.web"):
        asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


@pytest.mark.parametrize("error", [ConfigError("no descriptors"), RuntimeError("out of sorts")])
def test_what_fails_again_after_a_door_of_a_standby_was_open_is_news(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(standby, "RETRY_S", 0.01)
    turns = [error, None, error, None]
    leads = [False, False, True, False, False]  # the door is closed between its two openings

    async def main() -> None:
        done = asyncio.Event()

        async def open_door() -> web.AppRunner:
            failed = turns.pop(0)
            if failed is not None:
                raise failed
            if not turns:
                done.set()
            return web.AppRunner(web.Application())

        task = asyncio.create_task(standby._keep_open(open_door, lambda: leads.pop(0) if leads else None))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with caplog.at_level(logging.WARNING, "rm.web"):
        asyncio.run(main())
    assert len(caplog.records) == 2
