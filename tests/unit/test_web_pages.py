"""The page: what it shows of the API's answers, whom it answers, and that nothing a user wrote gets out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest

from rm.api.jobs import Jobs, WholeJob
from rm.config import LimitsConfig
from rm.core.model.job_step import JobStep, StepName
from rm.errors import ConfigError
from rm.web.pages import (
    queue_view,
)
from rm.web.pages.guard import HEADERS, is_for_us
from rm.web.pages.listen import address_of, is_local, serve_page
from rm.web.pages.people import NOBODY, as_own_user
from rm.web.pages.settings import PageSettings
from rm.web.pages.source import Shared, Source
from rm.web.pages.text import shown
from tests import builders
from tests.fake_page import HOSTILE, PageService
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S

NAMES = frozenset({"localhost"})
PARTS = ("status", "alerts", "jobs", "why", "timeline", "links", "iterations", "network", "pair")
US = 1_000_000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock", kind=PageService) as daemon:
        submit = daemon.service.busy("high", "low", HOSTILE)  # type: ignore[attr-defined]
        asyncio.run_coroutine_threadsafe(submit, daemon.loop).result(PATIENCE_S)
        yield daemon


def ask(socket: str, *requests: tuple[str, str, dict[str, str]]) -> list[tuple[int, str, dict[str, str]]]:
    """(status, text, headers) of each request to a page of the daemon at `socket`."""

    async def main() -> list[tuple[int, str, dict[str, str]]]:
        runner, url = await serve_page(socket, "127.0.0.1:0", PageSettings(anonymous=True))
        found = []
        try:
            async with aiohttp.ClientSession() as session:
                for method, path, headers in requests:
                    async with session.request(method, url + path.lstrip("/"), headers=headers) as response:
                        found.append((response.status, await response.text(), dict(response.headers)))
        finally:
            await runner.cleanup()
        return found

    return asyncio.run(main())


def ask_api(socket: str, path: str) -> str:
    async def main() -> str:
        source = Source(socket)
        try:
            return str(await source.at(as_own_user()).get(WholeJob, path))
        finally:
            await source.close()

    return asyncio.run(main())


def get(socket: str, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    return ask(socket, ("GET", path, headers))[0]


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


# -- whom it answers


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("127.0.0.1:8080", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:8080", True),
        ("10.1.2.3", True), ("localhost.", True), ("evil.test", False), ("localhost.evil.test:8080", False),
        ("", False), ("evil@localhost", False), ("127.0.0.1.evil.test", False), ("[::1", False),
        ("1.2.3", False),
    ],
)  # fmt: skip
def test_only_this_machines_names_and_addresses_are_answered(host: str, right: bool) -> None:
    assert is_for_us(host, NAMES) is right


def test_the_page_takes_no_forms_of_others_and_says_what_it_may_not_load(daemon: Daemon) -> None:
    answers = ask(
        daemon.socket,
        ("GET", "/", {"Host": "rebound.evil.test"}),
        ("POST", "/", {}),
        ("DELETE", "/part/jobs", {}),
        ("HEAD", "/", {}),
        ("GET", "/part/nothing", {}),
        ("GET", "/static/page.css", {}),
        ("GET", "/static/..%2fapi.py", {}),
    )
    assert [status for status, _, _ in answers] == [421, 403, 405, 200, 404, 200, 404]
    assert "high" not in answers[0][1]
    for _, _, headers in answers:
        assert HEADERS.items() <= headers.items()
        assert "Set-Cookie" not in headers
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in answers[5][2]


def test_everything_that_the_page_loads_is_its_own_and_there(daemon: Daemon) -> None:
    _, html, _ = get(daemon.socket, "/")
    tags = Tags(html).found
    loaded = [a["src"] for t, a in tags if "src" in a] + [a["href"] for t, a in tags if t == "link"]
    assert len(loaded) == 4
    assert all(str(path).startswith("/static/") for path in loaded)
    assert [s for s, _, _ in ask(daemon.socket, *(("GET", str(p), {}) for p in loaded))] == [200] * 4
    assert [a for _, a in tags if any(name.startswith("on") or name == "style" for name in a)] == []
    assert all(a.get("src") for tag, a in tags if tag == "script")
    assert not re.search(r"https?://", html)


# -- what users wrote


def test_a_hostile_name_is_text_everywhere(daemon: Daemon) -> None:
    for path in ("/", "/?job=3", *(f"/part/{name}?job=3" for name in PARTS)):
        status, html, _ = get(daemon.socket, path)
        assert status == 200
        assert "<img" not in html
        assert "<script>" not in html
        assert [a for tag, a in Tags(html).found if "onerror" in a or tag == "img"] == []
    assert "&lt;img src=x onerror=" in html or "&lt;img" in get(daemon.socket, "/")[1]


@pytest.mark.parametrize(
    "query", ["job=%3Cscript%3E", "zone=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "job=-1", "job=²"]
)
def test_a_hostile_query_is_text_or_nothing(daemon: Daemon, query: str) -> None:
    status, html, _ = get(daemon.socket, f"/?{query}")
    assert status == 200
    assert "<script>" not in html
    assert "alert(1)" not in html or "%3Cscript%3E" in html


def test_names_that_steer_are_shown_tame() -> None:
    assert shown("a\u202eb\x1b[31m\n") == "a?b?[31m?"
    assert shown("x" * 200) == "x" * 79 + "…"
    assert shown(None) == ""


# -- what it shows


def test_the_page_is_complete_without_scripts(daemon: Daemon) -> None:
    _, html, headers = get(daemon.socket, "/")
    assert headers["Content-Type"].startswith("text/html")
    for part in PARTS:
        assert f'id="part-{part}"' in html
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
    assert "Running 2" in text
    assert "Waiting 1" in text
    assert "Why job 3" in text
    assert "Links h[1-2]" in text
    assert "score 68" in text
    assert "score 100" in text
    assert "140" in text
    assert "h3 to h1: loss 15 %, critical from 10 % (critical)" in html
    assert "It does not answer over SSH." in text


def test_a_part_that_has_not_changed_is_not_sent_again(daemon: Daemon) -> None:
    _, html, headers = get(daemon.socket, "/part/network")
    assert get(daemon.socket, "/part/network", **{"If-None-Match": headers["Etag"]})[:2] == (304, "")
    daemon.service.bad = {"h2"}  # type: ignore[attr-defined]
    again = get(daemon.socket, "/part/network", **{"If-None-Match": headers["Etag"]})
    assert again[0] == 200
    assert again[1] != html
    _, _, static = get(daemon.socket, "/static/htmx.min.js")
    assert static["Content-Encoding"] in ("deflate", "gzip")
    assert get(daemon.socket, "/static/htmx.min.js", **{"If-None-Match": static["Etag"]})[:2] == (304, "")


def test_a_job_that_is_not_there_is_said(daemon: Daemon) -> None:
    assert "There is no job 77." in get(daemon.socket, "/?job=77")[1]


def test_the_page_of_a_job_has_what_srun_ran(daemon: Daemon) -> None:
    spec = daemon.service.table[1].spec
    daemon.service.put(1, spec=replace(spec, launch="batch"))
    attempt = daemon.service.table[1].attempt
    daemon.service.job_step_table = [
        JobStep(StepName(1, attempt, 0), "<train>", "h[1-2]", 2, 4, 8, 6_000_000, 9_000_000, 3, 0),
        *(JobStep(StepName(1, attempt, n), f"step{n}", "h1", 1, 1, 0, 6_000_000) for n in range(1, 150)),
    ]
    html = get(daemon.socket, "/job/1")[1]
    assert "<td>FAILED</td>" in html
    assert "<td>h[1-2]</td><td>3:0</td>" in html
    assert "train" not in html  # whoever looks here is not the job's owner
    assert ">1.99</th>" in html
    assert ">1.100</th>" not in html
    assert "sacct -j 1" in html
    assert "steps-title" not in get(daemon.socket, "/job/2")[1]


def test_without_a_daemon_the_page_says_so_and_its_parts_keep_what_they_have(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nothing.sock")
    status, html, _ = get(nowhere, "/")
    assert status == 200
    assert "The daemon does not answer on" in html
    answers = ask(nowhere, *(("GET", f"/part/{part}", {}) for part in PARTS))
    assert [status for status, _, _ in answers] == [200, *[204] * 7, 200]  # no pair was chosen
    assert 'role="alert"' in answers[0][1]


def test_many_readers_cost_the_daemon_one_request(daemon: Daemon) -> None:
    async def main() -> None:
        source = Source(daemon.socket, fresh_s=60)
        answers = await asyncio.gather(*(source.at(NOBODY).get(Jobs, "jobs?state=R") for _ in range(20)))
        assert all(a is answers[0] for a in answers)
        await source.close()

    before = len(daemon.service.log)
    asyncio.run(main())
    assert len(daemon.service.log) == before + 1


# -- how it is served


def test_addresses_to_listen_on() -> None:
    assert address_of("127.0.0.1:8080") == ("127.0.0.1", 8080)
    assert address_of("[::1]:0") == ("::1", 0)
    assert address_of("8080") == ("127.0.0.1", 8080)
    for wrong in ("", "localhost", "localhost:", ":80", "a:99999", "a:8o"):
        with pytest.raises(ConfigError, match="is not an address"):
            address_of(wrong)
    assert [is_local(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1")] == [True] * 3 + [
        False
    ] * 2


def test_one_who_asks_for_ever_new_things_fills_no_memory() -> None:
    async def main() -> None:
        shared: Shared[int] = Shared(60.0, 3)

        async def work() -> int:
            return 1

        for n in range(10):
            await shared.get(str(n), work)
        assert len(shared) == 3

    asyncio.run(main())


def test_what_is_drawn_serves_all_who_ask_at_the_same_time(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.web.pages.app.FRESH_S", 10 * PATIENCE_S)
    before = len(daemon.service.log)
    answers = ask(daemon.socket, *[("GET", "/part/jobs", {})] * 5)
    assert len({text for _, text, _ in answers}) == 1
    assert len(daemon.service.log) == before + 3  # running, waiting, ended


def test_jobs_of_one_user_only(daemon: Daemon) -> None:
    get(daemon.socket, "/part/jobs?user=b%26limit%3D9")
    users = {entry[1] if entry[0] == "queue" else entry[2] for entry in daemon.service.log[-3:]}
    assert users == {"b&limit=9"}
    assert "Only jobs of" in get(daemon.socket, "/?user=nobody")[1]


def test_of_a_long_queue_those_are_listed_whose_turn_is_next(daemon: Daemon) -> None:
    specs = [builders.spec(f"s{n}", priority=500 + n) for n in range(queue_view.MOST + 9)]
    submit = daemon.service.submit(specs)
    new = asyncio.run_coroutine_threadsafe(submit, daemon.loop).result(PATIENCE_S)
    ahead = [job.id for job in daemon.service.queue(user="", limit=queue_view.MOST)]
    assert ahead[0] == new[-1]
    html = get(daemon.socket, "/part/jobs")[1]
    listed = [int(n) for n in re.findall(r'<tr id="job-(\d+)"', html)]
    assert [n for n in listed if n in new] == ahead
    assert "10 behind them" in html
    assert f"Why job {new[-1]} " in get(daemon.socket, "/part/why")[1]


def test_scripts_and_environments_stay_inside_even_where_the_page_may_read_them(daemon: Daemon) -> None:
    secret = {
        "script": "#!/bin/sh\necho hunter2",
        "env": (("TOKEN", "hunter2"),),
        "script_args": ("hunter2",),
    }
    specs = [builders.spec(f"s{n}", priority=500 + n, **secret) for n in range(queue_view.MOST + 9)]
    submit = daemon.service.submit(specs)
    first = asyncio.run_coroutine_threadsafe(submit, daemon.loop).result(PATIENCE_S)[0]
    # the page's process is root or the daemon's user here, so that the API tells it of this job in full
    assert "hunter2" in ask_api(daemon.socket, f"jobs/{first}")
    html = get(daemon.socket, f"/?job={first}")[1]
    assert f"Why job {first}" in html
    assert f'id="job-{first}"' not in html  # it is too far behind for the list: its own answer was read
    assert "hunter2" not in html
    assert "hunter2" not in "".join(get(daemon.socket, f"/part/{p}?job={first}")[1] for p in PARTS)


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(30):
        try:
            return await reader.read(1 << 16) == b""
        except ConnectionResetError:  # what was said came when it was closed already
            return True


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: 127.0"])
def test_who_says_nothing_keeps_no_connection(daemon: Daemon, begun: bytes) -> None:
    async def main() -> None:
        limits = LimitsConfig(header_s=0.1)
        runner, url = await serve_page(daemon.socket, "127.0.0.1:0", PageSettings(anonymous=True), limits)
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(url.rstrip("/").rpartition(":")[2])
            )
            writer.write(begun)
            assert await _is_closed(reader)
            writer.close()
        finally:
            await runner.cleanup()

    asyncio.run(main())


def test_connections_of_one_address_are_few(daemon: Daemon) -> None:
    async def main() -> None:
        limits = LimitsConfig(connections=4)
        runner, url = await serve_page(daemon.socket, "127.0.0.1:0", PageSettings(anonymous=True), limits)
        port = int(url.rstrip("/").rpartition(":")[2])
        try:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert (await reader.read(1 << 16)).startswith(b"HTTP/1.1 429 ")
            writer.close()
            held.pop()[1].close()
            async with aiohttp.ClientSession() as session, asyncio.timeout(30):
                while True:  # the daemon hears of the end of a connection soon
                    with suppress(aiohttp.ClientError):  # until then it may close what is not yet asked
                        async with session.get(url + "login") as response:
                            if response.status != 429:
                                break
                    await asyncio.sleep(0.02)  # who asks at once uses up what connections he may make
            for _, writer in held:
                writer.close()
        finally:
            await runner.cleanup()

    asyncio.run(main())
