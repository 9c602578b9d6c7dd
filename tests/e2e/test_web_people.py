"""The page in a real browser, for people who have logged in: what they see, do, and reach by keys."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from rm.core.sharing.ended import Ended, Sums
from rm.units import DAY_US, HOUR_US
from rm.web.pages.settings import PageSettings
from tests.chromium import Seen, accessible, chromium, looking
from tests.page_visitor import Tokens

SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun <b>train</b>\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def seen(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Seen]:
    """Jobs 1 and 3 are ann's; boss administers. Nobody is logged in yet."""
    monkeypatch.setattr(
        "rm.web.callers.access.caller_of", Tokens({"t-ann": "ann", "t-boss": "boss"}, ("boss",)).caller_of
    )
    with looking(browser, tmp_path, PageSettings(), **getattr(request, "param", {})) as seen:
        for job in (1, 3):
            spec = dataclasses.replace(seen.service.table[job].spec, user="ann", script=SCRIPT)
            seen.do("put_spec", job, spec)
        seen.page.goto(seen.url)
        yield seen
    assert (seen.complaints, seen.foreign) == ([], [])


def log_in(seen: Seen, token: str) -> None:
    seen.page.get_by_label("Token").fill(token)
    seen.page.get_by_role("button", name="Log in").click()
    expect(seen.page.get_by_role("button", name="Log out")).to_be_visible()


def test_a_day_of_a_user_by_keys_alone(seen: Seen) -> None:
    page = seen.page

    def reach(words: str) -> None:
        """By Tab, to the control with these words."""
        for _ in range(120):
            page.keyboard.press("Tab")
            here = "e => (e.getAttribute('aria-label') || e.textContent || e.id).trim()"
            if page.evaluate(here, page.evaluate_handle("document.activeElement")) == words:
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"'{words}' cannot be reached")

    expect(page).to_have_url(re.compile("/login$"))
    page.get_by_label("Token").focus()
    page.keyboard.type("t-ann")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Your jobs 2").locator("tbody tr")).to_have_count(2)
    reach("high")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Job 1 high", exact=True)).to_be_visible()
    expect(page.locator("#script")).to_have_text(SCRIPT)
    log = page.locator("#log")
    expect(log).to_have_text("hello\nworld\n")
    reach("Cancel…")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Job 1 is stopped for good.")).to_be_visible()
    reach("Cancel the job")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_have_text("Job 1 is CANCELLED.")
    expect(page.locator("#do-cancel")).to_have_count(0)
    cancelled = [entry for entry in seen.service.log if entry[0] == "cancel"]
    assert cancelled == [("cancel", 1, "ann", None, "steps")]
    reach("Log out")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/login$"))


def test_a_log_is_followed_and_what_changes_is_seen(seen: Seen) -> None:
    page = seen.page
    log_in(seen, "t-ann")
    page.goto(f"{seen.url}job/1")
    expect(page.locator("#log-state")).to_have_text("Followed while the task runs.")
    expect(page.locator("#log")).to_have_text("hello\nworld\n")
    seen.do("finish", 1)
    expect(page.locator("#log")).to_have_text("hello\nworld\nmore\n")
    expect(page.locator("#log-state")).to_have_text("This is the end of the log.")
    expect(page.locator("#part-job")).to_contain_text("COMPLETED")
    expect(page.locator("#do-cancel")).to_have_count(0)
    page.get_by_label("Stream").select_option("err")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#log")).to_have_text("oops\n")


def test_a_job_is_tried_then_submitted_and_held(seen: Seen) -> None:
    page = seen.page
    log_in(seen, "t-ann")
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_label("Script").fill(SCRIPT)
    page.get_by_label("Name").fill("mine")
    page.get_by_label("CPUs for each task").fill("9")
    page.get_by_role("button", name="Where would it run?").click()
    expect(page.locator("#tried")).to_contain_text("It would not start now")
    expect(page.locator("#tried")).to_contain_text("No host has 9 free processors.")
    expect(page.get_by_label("Name")).to_have_value("mine")
    expect(page.get_by_label("Script")).to_have_value(SCRIPT)
    page.get_by_label("CPUs for each task").fill("2")
    page.get_by_role("button", name="Where would it run?").click()
    expect(page.locator("#tried")).to_contain_text("It would start now on h1")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", name="Job 5 mine", exact=True)).to_be_visible()
    expect(page.locator("#script")).to_have_text(SCRIPT)
    page.get_by_role("button", name="Hold").click()
    expect(page.locator("#part-job")).to_contain_text("PENDING (held)")
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("button", name="Hold")).to_be_visible()


def test_an_operator_drains_a_host_and_users_are_not_offered_it(seen: Seen) -> None:
    page = seen.page
    log_in(seen, "t-boss")
    page.get_by_role("link", name="Drain h3").click()
    page.get_by_label("Reason").fill("bad cable")
    page.get_by_role("button", name="Drain the host").click()
    expect(page.get_by_role("status").first).to_have_text("Host h3 is UP.")
    expect(page.get_by_role("region", name="Hosts of zone z1")).to_contain_text("bad cable (boss)")
    expect(page.get_by_role("link", name="Resume h3")).to_be_visible()
    expect(page.get_by_role("link", name="Run latency")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    log_in(seen, "t-ann")
    expect(page.get_by_role("region", name="Hosts of zone z1")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("Drain|Resume|Run"))).to_have_count(0)


@pytest.mark.parametrize(
    "seen",
    [
        {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
        {"color_scheme": "dark", "viewport": {"width": 400, "height": 800}},
    ],
    indirect=True,
    ids=["light", "dark-narrow"],
)
def test_every_page_is_accessible_and_fits(seen: Seen) -> None:
    page = seen.page
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    accessible(seen, "login")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").first).to_contain_text("This token is not known.")
    accessible(seen, "refused")
    seen.complaints.clear()  # of the status, which is the point
    log_in(seen, "t-boss")
    for days in range(5):
        of_job, held = Sums(1, waited_us=HOUR_US, slowed_us=HOUR_US), Sums(gpu_us=days * HOUR_US)
        ended_us = time.time_ns() // 1_000 - days * DAY_US
        seen.service.ended.append(Ended(ended_us, "physics", "u" * 40, "", "gpu", "h1", of_job, held))
    for path in ("", "submit", "job/1", "do/cancel?job=1", "do/silence", "usage", "usage?user=" + "u" * 40):
        page.goto(seen.url + path)
        accessible(seen, path)
    page.goto(f"{seen.url}submit")
    page.get_by_role("button", name="Where would it run?").click()
    expect(page.locator("#tried")).to_be_visible()
    accessible(seen, "tried")


@pytest.mark.parametrize("seen", [{"java_script_enabled": False}], indirect=True)
def test_without_javascript_people_log_in_and_act(seen: Seen) -> None:
    page = seen.page
    log_in(seen, "t-ann")
    page.goto(f"{seen.url}job/3")
    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("status").first).to_have_text("Job 3 is PENDING and held.")
    page.goto(f"{seen.url}job/1")
    expect(page.locator("#log-state")).to_contain_text("when scripts may run")
    seen.do("finish", 1)
    page.get_by_role("link", name="The end of the log as text").click()
    expect(page.locator("body")).to_have_text("hello\nworld\n")


def test_whoever_is_logged_out_elsewhere_sees_the_login(seen: Seen) -> None:
    page = seen.page
    log_in(seen, "t-ann")
    other = page.context.new_page()
    other.goto(seen.url)
    other.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert {c for c in seen.complaints if "401" not in c} == set()  # of the part that was refused
    seen.complaints.clear()
