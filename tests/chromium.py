"""The page in a browser: what all tests of it share."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from rm.lab import syscalls
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import PageSettings
from tests.fake_page import HOSTILE, PageService
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
# of an update under way when its page is left, or of one that a busy machine did not answer in time
LEFT = re.compile("ERR_ABORTED|Failed to fetch|htmx:error: timeout")
WAIT_MS = 60_000  # of patience before a test fails; nothing is timed by it


@dataclass
class Seen:
    """A page, its service, and what the browser complained of or asked others for."""

    page: Page
    url: str
    daemon: Daemon
    complaints: list[str]
    foreign: list[str]

    @property
    def service(self) -> PageService:
        assert isinstance(self.daemon.service, PageService)
        return self.daemon.service

    def do(self, name: str, *arguments: Any) -> None:
        """Call a method of the service on its own loop."""
        self.daemon.call(getattr(self.service, name), *arguments)

    def await_(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.daemon.loop).result(PATIENCE_S)

    def part(self, name: str) -> Any:
        return self.page.locator(f"#part-{name}")


@contextmanager
def quiet_network() -> Iterator[None]:
    """What begins here, and listens, is in the browsers' network.

    Chromium gives up its requests when an address of its machine comes or goes (ERR_NETWORK_CHANGED), as with
    every lab of other tests. These need root, as a network of one's own does.
    """
    if os.geteuid():
        yield
        return
    with open("/proc/thread-self/ns/net") as before:
        syscalls.setns(_quiet(), syscalls.CLONE_NEWNET)
        try:
            yield
        finally:
            syscalls.setns(before.fileno(), syscalls.CLONE_NEWNET)


@cache
def _quiet() -> int:
    """A network with nothing but the loopback interface, as a descriptor."""
    apart = ["unshare", "--net", "sh", "-ec", "ip link set lo up; echo; exec cat"]
    with subprocess.Popen(apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline(), "it is there"
        return os.open(f"/proc/{keeper.pid}/ns/net", os.O_RDONLY)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, as the system has it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with ExitStack() as stack:
        with quiet_network():
            playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


def watched(context: BrowserContext, url: str, daemon: Daemon) -> Seen:
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    seen = Seen(page, url, daemon, [], [])

    def complain(text: str) -> None:
        if not LEFT.search(text):
            seen.complaints.append(text)

    page.on("console", lambda message: complain(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complain(str(error)))
    page.on("requestfailed", lambda request: complain(f"{request.failure}: {request.url}"))
    page.on("request", lambda request: request.url.startswith(url) or seen.foreign.append(request.url))
    page.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('CSP', e.effectiveDirective))"
    )
    return seen


async def _serve(socket: str, settings: PageSettings) -> tuple[web.AppRunner, str]:
    with quiet_network():
        return await serve_page(socket, "127.0.0.1:0", settings)


@contextmanager
def looking(browser: Browser, folder: Path, settings: PageSettings, **options: Any) -> Iterator[Seen]:
    """The page of a daemon with two running jobs and two that wait; `options` of the browser's context."""
    expect.set_options(timeout=WAIT_MS)
    with serving(folder / "rm.sock", kind=PageService) as daemon:
        await_ = asyncio.run_coroutine_threadsafe
        await_(daemon.service.busy("high", "low", HOSTILE, "wide"), daemon.loop).result(PATIENCE_S)  # type: ignore[attr-defined]
        runner, url = await_(_serve(daemon.socket, settings), daemon.loop).result(PATIENCE_S)
        # what moves is drawn anew sixty times a second, by the processor
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
        try:
            yield watched(context, url, daemon)
        finally:
            context.close()
            await_(runner.cleanup(), daemon.loop).result(PATIENCE_S)


def accessible(seen: Seen, what: str) -> None:
    """axe has nothing to say about what is shown, and wide tables scroll by themselves."""
    seen.page.wait_for_load_state()  # a link was followed, perhaps
    # of what passes only that it does: to tell of each node takes as long again
    found = Axe().run(seen.page, options={"resultTypes": ["violations"]}).response
    assert found["passes"]
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found["violations"]] == [], what
    width, room = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= room, what
