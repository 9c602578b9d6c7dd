"""A standby of the tests' own, served from a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rm.config import Config
from rm.core.store import Lease
from rm.web.standby import serve_standby
from tests.fakes import PATIENCE_S


@contextmanager
def standing_by(config: Config, lease: Callable[[], Lease]) -> Iterator[None]:
    """It says that the holder of what `lease` gives leads."""
    started, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        runner = await serve_standby(config, lease)
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
