"""Playbooks on the page in a real browser: started by keys alone, followed, accessible, 400 pixels wide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from rm.web.pages.settings import PageSettings
from tests.chromium import Seen, accessible, chromium, looking
from tests.cluster import until
from tests.page_visitor import Tokens
from tests.playing import Playing, folder_of, outcome

PASSWORD = "of-the-mirror"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    playing = Playing(folder_of(tmp_path))
    yield playing
    for process in playing.processes:
        process.die()
    playing.service.close()


@pytest.fixture
def seen(
    browser: Browser, playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Seen]:  # fmt: skip
    """boss administers, and is logged in."""
    monkeypatch.setattr("rm.web.callers.access.caller_of", Tokens({"t-boss": "boss"}, ("boss",)).caller_of)
    with looking(browser, tmp_path, PageSettings(), **getattr(request, "param", {})) as seen:
        seen.service.playbooks = playing.service
        seen.page.goto(seen.url)
        seen.page.get_by_label("Token").fill("t-boss")
        seen.page.get_by_role("button", name="Log in").click()
        expect(seen.page.get_by_role("button", name="Log out")).to_be_visible()
        yield seen
    assert (seen.complaints, seen.foreign) == ([], [])


def test_a_playbook_is_started_by_keys_alone_and_followed(seen: Seen, playing: Playing) -> None:
    page = seen.page

    def reach(words: str) -> None:
        """By Tab, to the control with these words or this label."""
        for _ in range(150):
            page.keyboard.press("Tab")
            words_of = "(e.getAttribute('aria-label') || (e.labels && e.labels[0] || e).textContent || '')"
            here = f"e => {words_of}.trim()"
            if page.evaluate(here, page.evaluate_handle("document.activeElement")).startswith(words):
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"'{words}' cannot be reached")

    reach("Playbooks")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="What may be started")).to_be_visible()
    reach("site")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Playbook site")).to_be_visible()
    reach("Password of the mirror")
    page.keyboard.type(PASSWORD)
    reach("Channel")
    page.keyboard.type("testing")
    reach("Start")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/run/1$"))
    process = playing.next()
    assert process.orders["prompted"]["password"] == PASSWORD
    assert process.orders["extra"]["channel"] == "testing"
    process.say(kind="start", host="h1", task="Install")
    expect(page.locator("#on-h1")).to_contain_text("Install")
    process.task(outcome(1))
    task = page.locator("#task-1")
    expect(task).to_contain_text("changed")
    reach("Details")
    page.keyboard.press("Enter")
    expect(task.get_by_text("+new")).to_be_visible()
    process.task(outcome(2, status="failed", message="no space"))
    expect(page.locator("#task-2")).to_contain_text("no space")
    expect(task.get_by_text("+new")).to_be_visible()  # what was opened stays open
    process.end("failed", recap={"h1": {"ok": 1, "failed": 1}})
    expect(page.locator("#part-run .headline")).to_contain_text("failed")
    expect(page.locator("#do-stop")).to_have_count(0)
    assert PASSWORD not in page.content()


@pytest.mark.parametrize(
    "seen",
    [
        {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
        {"color_scheme": "dark", "viewport": {"width": 400, "height": 800}},
    ],
    indirect=True,
    ids=["light", "dark-narrow"],
)
def test_every_page_of_playbooks_is_accessible_and_fits(seen: Seen, playing: Playing) -> None:
    page = seen.page
    page.goto(f"{seen.url}playbook/site")
    accessible(seen, "survey")
    page.get_by_label("Password of the mirror").fill(PASSWORD)
    page.get_by_label("Release").fill("{{ 7 }}")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert").first).to_contain_text("marks of a template")
    accessible(seen, "refused")
    assert [text for text in seen.complaints if "400" not in text] == []
    seen.complaints.clear()  # of the status, which is the point
    page.get_by_label("Password of the mirror").fill(PASSWORD)
    page.get_by_label("Release").fill("8")
    page.get_by_role("button", name="Start").click()
    process = playing.next()
    process.say(kind="start", host="h2", task="Reboot")
    process.task(outcome(1))
    process.task(outcome(2, status="failed", task="A long name of a task " * 8, message="x" * 300))
    expect(page.locator("#task-2")).to_be_visible()
    accessible(seen, "running")
    process.task(outcome(3, host="rack7-node12"))
    process.end("failed", recap={"h1": {"ok": 1, "failed": 1}, "h2": {}}, not_reached=["h2"])
    expect(page.locator("#do-stop")).to_have_count(0)
    accessible(seen, "over")
    lines = page.locator("#task-3 td bdi").evaluate("e => e.getClientRects().length")
    assert lines == 1, "the name of a host is broken beside a long message"
    page.goto(f"{seen.url}playbook/plain")
    page.get_by_label("By cron").fill("30 3 * * 1-5")
    page.get_by_role("button", name="Schedule").click()
    expect(page.get_by_role("region", name="Playbooks by cron")).to_contain_text("30 3 * * 1-5")
    accessible(seen, "list")
    page.get_by_role("link", name="Remove schedule 1").click()
    expect(page).to_have_url(f"{seen.url}do/unschedule?schedule=1")
    accessible(seen, "remove")


@pytest.mark.parametrize("seen", [{"java_script_enabled": False}], indirect=True)
def test_without_javascript_a_playbook_is_started_and_its_report_read(seen: Seen, playing: Playing) -> None:
    page = seen.page
    page.goto(f"{seen.url}playbook/plain")
    page.get_by_role("button", name="Start").click()
    process = playing.next()
    process.task(outcome(1))
    process.end("ok", recap={"h1": {"ok": 1, "changed": 1}})
    until(lambda: playing.run(1).ended_us, "it is over")

    def shown() -> bool:
        page.reload()
        return "+new" in page.content()

    until(shown, "the report is shown")
