"""The page in a browser: what all tests of it share."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

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
def chromium() -> Iterator[Browser]:
    """Chromium, as the system has it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
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


@contextmanager
def looking(browser: Browser, folder: Path, settings: PageSettings, **options: Any) -> Iterator[Seen]:
    """The page of a daemon with two running jobs and two that wait; `options` of the browser's context."""
    expect.set_options(timeout=WAIT_MS)
    with serving(folder / "rm.sock", kind=PageService) as daemon:
        await_ = asyncio.run_coroutine_threadsafe
        await_(daemon.service.busy("high", "low", HOSTILE, "wide"), daemon.loop).result(PATIENCE_S)  # type: ignore[attr-defined]
        runner, url = await_(serve_page(daemon.socket, "127.0.0.1:0", settings), daemon.loop).result(
            PATIENCE_S
        )
        context = browser.new_context(**options)
        try:
            yield watched(context, url, daemon)
        finally:
            context.close()
            await_(runner.cleanup(), daemon.loop).result(PATIENCE_S)


def accessible(seen: Seen, what: str) -> None:
    """axe has nothing to say about what is shown, and wide tables scroll by themselves."""
    seen.page.wait_for_load_state()  # a link was followed, perhaps
    found = Axe().run(seen.page).response
    assert found["passes"]
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found["violations"]] == [], what
    width, room = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= room, what
