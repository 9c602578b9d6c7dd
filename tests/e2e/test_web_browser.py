"""The page in a real browser, as who is not logged in sees it."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from rm.client.connection import Connection
from rm.web.pages.settings import PageSettings
from tests.chromium import WAIT_MS, Seen, accessible, chromium, looking, quiet_network
from tests.fake_page import HOSTILE, PageService
from tests.fake_service import serving

RMX = Path(sys.executable).with_name("rmx")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def seen(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Seen]:
    """The page as nobody in particular sees it; options of the context as parameters."""
    with looking(browser, tmp_path, PageSettings(anonymous=True), **getattr(request, "param", {})) as seen:
        seen.page.goto(seen.url)
        yield seen
    assert (seen.complaints, seen.foreign) == ([], [])


def words(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip()


def rows_of(page: Page, heading: str) -> list[list[str]]:
    region = page.get_by_role("region", name=heading)
    return [
        [words(cell.text_content()) for cell in row.locator("th,td").all()]
        for row in region.locator("tbody tr").all()
    ]


def test_the_content_is_what_the_api_says(seen: Seen) -> None:
    page, client = seen.page, Connection(seen.daemon.socket)
    jobs = client.get("jobs")["jobs"]
    shown = rows_of(page, "Running 2") + rows_of(page, "Waiting 2")
    assert [(int(r[0]), r[2], r[3], int(r[5])) for r in shown] == [
        (j["id"], j["spec"]["user"], j["state"], j["spec"]["ntasks"]) for j in jobs
    ]
    assert [r[1] for r in shown] == ["high", "low", HOSTILE[:79] + "…", "wide"]
    hosts = client.get("hosts")["hosts"]
    listed = [row for zone in ("z1", "z2") for row in rows_of(page, f"Hosts of zone {zone}")]
    assert [(r[0], r[1], r[2], r[6]) for r in listed] == [
        (h["name"], h["state"], f"{h['free']['cpus']}/{h['cpus']}", ", ".join(map(str, h["jobs"])) or "–")
        for h in hosts
    ]
    for pair in client.get("network")["pairs"]:
        if pair["source"][0] == pair["destination"][0] == "h":
            cell = page.get_by_role("gridcell", name=f"{pair['source']} to {pair['destination']}: ")
            assert f"loss {pair['loss_pct']:.4g} %" in (cell.get_attribute("aria-label") or "")
            assert words(cell.text_content()).startswith("o 0 %" if pair["loss_pct"] == 0 else "c 15 %")
    told = client.get("jobs", 2, "iterations")
    chart = page.get_by_role("article", name="2 low").locator("dd")
    expect(chart).to_have_text(["200 ms", "202 ms", "1.010", "205 ms", "230 ms", str(told["count"]), "3"])
    expect(page.get_by_role("article", name="Links h[1-2]")).to_contain_text("score 68")
    why = client.get("jobs", 3, "why")
    expect(seen.part("why")).to_contain_text(why["reasons"][0]["message"])
    tiles = seen.part("status").locator(".tile")
    expect(tiles).to_have_text(
        [
            re.compile(r"Alerts\s*4\s*3 acknowledged"), re.compile(r"Jobs running\s*2\s*2 waiting"),
            re.compile(r"GPUs free\s*4\s*of 8 in service"), re.compile(r"Hosts up\s*4\s*1 down"),
            re.compile(r"Shared links\s*2\s*lowest score 100"), re.compile(r"Checks critical\s*2\s*of 6"),
        ]
    )  # fmt: skip
    alerts = [
        [words(c.text_content()) for c in row.locator("th,td").all()]
        for row in page.get_by_role("region", name="What holds now").locator("tbody tr").all()
    ]
    assert [(r[0], r[1], r[2]) for r in alerts] == [("firing", "loss", "h3"), ("firing", "disk", "h[1-3] 3")]
    assert alerts[1][4].endswith("and 2 like it acknowledged by ann: disks are ordered")
    expect(seen.part("alerts")).to_contain_text(re.compile(r"gpu of h1 until [-0-9: ]+, by ann: new driver"))
    assert alerts[0][4] == client.get("alerts")["alerts"][0]["message"] + " pager is still to be notified"
    page.get_by_role("link", name="Why: job 4").click()
    expect(seen.part("why")).to_contain_text("Why job 4 wide is PENDING")
    page.get_by_role("link", name=f"Only jobs of {jobs[0]['spec']['user']}").first.click()
    expect(seen.part("jobs")).to_contain_text(f"Only jobs of {jobs[0]['spec']['user']}")


def test_a_cell_leads_to_its_history_and_back(seen: Seen) -> None:
    page, client = seen.page, Connection(seen.daemon.socket)
    cell = page.get_by_role("gridcell", name="h1 to h3: ")
    expect(cell).to_contain_text("c 15 %")
    cell.focus()
    page.keyboard.press("Enter")
    panel = page.locator("#pair")
    expect(panel).to_be_focused()
    expect(panel.get_by_role("heading", name="h1 → h3")).to_be_visible()
    told = client.get("network", "history", source="h1", destination="h3", since_s=86_400)["samples"]
    losses = [s["values"]["loss_pct"] for s in told if s["values"]]
    chart = panel.get_by_role("img", name="Loss: newest")
    most = f"from {min(losses):g} % to {max(losses):g} %, {sum(bool(s['failed']) for s in told)} failed"
    expect(chart).to_have_attribute("aria-label", f"Loss: newest {losses[-1]:g} %, {most}")
    expect(chart.locator(".b-critical")).to_have_count(1)
    expect(chart.locator(".l-critical")).to_have_count(1)
    expect(panel).to_contain_text("loss: ok → critical, loss 15 %, critical from 10 %")
    expect(panel.get_by_role("figure")).to_have_count(5)
    panel.get_by_role("link", name="14d").press("Enter")
    expect(panel).to_contain_text("least, mean and most of each day")
    expect(panel.get_by_role("link", name="14d")).to_be_focused()
    panel.get_by_role("link", name="The other way").click()
    expect(panel.get_by_role("heading", name="h3 → h1")).to_be_visible()
    expect(page).to_have_url(re.compile("from=h3&to=h1"))  # to come back to, or to send to somebody
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(cell).to_be_focused()
    page.goto(f"{seen.url}?from=h1&to=nobody#pair")
    expect(panel).to_contain_text("There is no host 'nobody'.")


def test_a_job_that_starts_and_ends_is_seen_at_once_and_focus_stays(seen: Seen) -> None:
    page = seen.page
    link = page.get_by_role("link", name="Why: job 2")
    link.focus()
    page.get_by_text("What placement thinks of each host now").click()  # closes it
    link.focus()
    title = page.locator("#network-title")
    title.scroll_into_view_if_needed()
    stood = title.bounding_box()
    seen.do("run", 4)
    running = page.get_by_role("region", name="Running 3")
    expect(running.locator("#job-4")).to_contain_text("RUNNING")
    expect(page.locator("#bar-4")).to_contain_text("running on h[1-2]")
    stands = title.bounding_box()
    assert stood is not None
    assert stands is not None
    assert abs(stands["y"] - stood["y"]) < 2  # what one reads stays where it is, though rows came above it
    expect(link).to_be_focused()
    expect(page.locator("#verdicts")).not_to_have_attribute("open", "")
    seen.do("finish", 4, 3)
    seen.do("finish", 1)
    expect(page.get_by_role("region", name="Ended lately 2").locator("#job-4")).to_contain_text("FAILED")
    expect(seen.part("links")).to_contain_text("No two jobs share a link.")
    seen.await_(seen.service.submit([seen.service.table[1].spec]))
    expect(page.locator("#job-5")).to_contain_text("PENDING")
    expect(page.locator("#clock")).to_contain_text("as of")


def test_a_hostile_name_is_only_text(seen: Seen) -> None:
    expect(seen.page.locator("#job-3 bdi").first).to_have_text(HOSTILE[:79] + "…")
    seen.do("run", 3)  # it is drawn on the timeline, too, and then comes by an update
    expect(seen.page.locator("#bar-3")).to_contain_text("<img src=x")
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.locator("main img").count() == 0


def test_everything_is_reached_by_keys(seen: Seen) -> None:
    page = seen.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    reached: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "e => e.closest('.grid')?.id || e.id || e.textContent.trim()",
                page.evaluate_handle("document.activeElement"),
            )
        )
        if reached[-1] == "grid-0":
            break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", reached[-1]  # where the focus is can be seen
    assert {"why-1", "why-2", "why-3", "why-4"} <= set(reached)
    assert [name for name in reached if name.startswith("grid-")] == ["grid-zones", "grid-0"]  # one stop each
    detail = page.locator("#grid-0-detail")
    expect(detail).to_contain_text("h1 to h2: loss 0 %")
    page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text("h1 to h3: loss 15 %")
    page.keyboard.press("ArrowDown")
    expect(detail).to_contain_text("h2 to h3")
    page.keyboard.press("ArrowLeft")  # over the cell of h2 itself
    expect(detail).to_contain_text("h2 to h1")
    page.keyboard.press("ArrowLeft")  # the edge
    page.keyboard.press("ArrowDown")
    expect(detail).to_contain_text("h3 to h1")


@pytest.mark.parametrize("seen", [{"reduced_motion": "no-preference"}], indirect=True)
def test_pausing_stops_what_moves(seen: Seen) -> None:
    page = seen.page
    hand = page.locator("svg.live .hand")
    turned = hand.get_attribute("transform")
    expect(hand).not_to_have_attribute("transform", turned or "")
    expect(page.locator(".phase").first).to_have_text(re.compile("computes|communicates"))
    button = page.get_by_role("button", name="Pause updates")
    button.focus()
    page.keyboard.press("Space")
    expect(button).to_have_attribute("aria-pressed", "true")
    requests: list[str] = []
    page.evaluate("new Promise(requestAnimationFrame)")  # what was under way is over
    page.wait_for_load_state("networkidle")
    still = hand.get_attribute("transform")
    page.on("request", lambda request: requests.append(request.url))
    seen.do("finish", 1)
    page.evaluate(
        "document.querySelectorAll('main > div, section div[hx-get]').forEach(e => htmx.trigger(e, 'every'))"
    )
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert (requests, hand.get_attribute("transform")) == ([], still)
    page.keyboard.press("Space")
    expect(page.get_by_role("region", name="Ended lately 1")).to_be_visible()


@pytest.mark.parametrize("seen", [{"reduced_motion": "reduce"}], indirect=True)
def test_with_reduced_motion_the_hands_step_with_the_updates(seen: Seen) -> None:
    beyond = seen.page.evaluate(
        """async () => {
            const hand = document.querySelector("svg.live .hand"), at = new Set();
            let updates = 0;
            document.addEventListener("htmx:after:swap", () => { updates += 1; });
            for (let i = 0; i < 20; i++) {
                at.add(hand.getAttribute("transform"));
                await new Promise(requestAnimationFrame);
            }
            return at.size - 1 - updates;
        }"""
    )
    assert beyond <= 0


@pytest.mark.parametrize(
    "seen",
    [
        {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
        {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
        {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}},
    ],
    indirect=True,
    ids=["light", "dark", "narrow"],
)
def test_it_is_accessible_and_fits(seen: Seen) -> None:
    page = seen.page
    seen.do("finish", 1)
    seen.do("run", 4)
    expect(page.locator("#bar-4")).to_be_visible()
    page.get_by_role("gridcell", name="h1 to h3: ").click()
    expect(page.locator("#pair .metric")).to_have_count(5)
    here = page.url.partition("?")[0]
    for place in ("", "find?q=high", "find?q=h", "host/h1"):
        if place:
            page.goto(here + place)
        accessible(seen, place)
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("seen", [{"java_script_enabled": False}], indirect=True)
def test_without_javascript_it_can_be_read(seen: Seen) -> None:
    expect(seen.page.get_by_role("region", name="Running 2")).to_contain_text("high")
    expect(seen.page.get_by_role("button", name="Pause updates")).to_be_hidden()
    seen.page.get_by_role("link", name="Why: job 4").click()
    expect(seen.part("why")).to_contain_text("Why job 4")


def test_a_daemon_that_goes_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    """`rmx web` by itself; the page keeps what it shows, and says that it is old."""
    expect.set_options(timeout=WAIT_MS)
    socket = tmp_path / "rm.sock"
    command = [RMX, "--socket", socket, "web", "--listen", "127.0.0.1:0"]
    with quiet_network():
        web = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with web:
        try:
            assert web.stdout is not None
            url = web.stdout.readline().strip()
            page = browser.new_page()
            page.goto(url)
            expect(page.get_by_role("alert").first).to_contain_text("The daemon does not answer")
            with serving(socket, kind=PageService) as daemon:
                submit = daemon.service.busy("high", "low")  # type: ignore[attr-defined]
                asyncio.run_coroutine_threadsafe(submit, daemon.loop).result(60)
                expect(page.locator("#bar-1")).to_contain_text("high")
                expect(page.locator("#part-status")).to_contain_text("1 down")
            expect(page.locator("#part-status")).to_contain_text("The daemon does not answer")
            expect(page.locator("#bar-1")).to_contain_text("high")
            page.close()
        finally:
            web.send_signal(signal.SIGINT)
        assert web.wait(60) == 130


def test_the_daemon_serves_it_itself_when_told_to(browser: Browser, tmp_path: Path) -> None:
    config = tmp_path / "rm.toml"
    daemon_table = f'[daemon]\nsocket = "{tmp_path}/rm.sock"\nstate_dir = "{tmp_path}/state"\n'
    config.write_text(daemon_table + '[web]\nlisten = "127.0.0.1:0"\nanonymous = true\n')
    with quiet_network():
        daemon = subprocess.Popen([RMX, "--config", config, "daemon"], stderr=subprocess.PIPE, text=True)
    with daemon:
        try:
            assert daemon.stderr is not None
            lines = iter(daemon.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
            page = browser.new_page()
            page.goto(url)
            expect(page.locator("#part-network")).to_contain_text("No hosts yet")
            expect(page.locator("#part-jobs")).to_contain_text("Waiting 0")
            page.close()
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.stderr.read() if daemon.stderr else ""
        assert daemon.wait(60) == 0
