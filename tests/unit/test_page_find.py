"""What the page finds: jobs of any time and hosts, as the person may see them."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.core.model.host import Nic
from tests.fake_page import HOSTILE, PageService
from tests.fake_service import CARD, Daemon, serving
from tests.fakes import PATIENCE_S
from tests.page_visitor import Tokens, Visit, visiting


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Jobs 1 to 3 of ann: high and low run on h1 and h2, wide waits."""
    monkeypatch.setattr("rm.web.callers.access.caller_of", Tokens({"t-boss": "boss"}, ("boss",)).caller_of)
    with serving(tmp_path / "rm.sock", kind=PageService) as daemon:
        busy = daemon.service.busy("high", "low", "wide")  # type: ignore[attr-defined]
        asyncio.run_coroutine_threadsafe(busy, daemon.loop).result(PATIENCE_S)
        for job in daemon.service.table:
            spec = dataclasses.replace(daemon.service.table[job].spec, user="ann")
            daemon.service.put(job, spec=spec)
        yield daemon


def test_jobs_are_found_by_id_name_and_user(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        guest = visit()
        assert 'action="/find"' in (await guest.get("/")).text
        found = await guest.get("/find?q=2")
        assert (found.status, found.where) == (303, "/job/2")
        by_name = (await guest.get("/find?q=wide")).text
        assert 'href="/job/3"' in by_name
        assert 'href="/job/1"' not in by_name
        by_user = (await guest.get("/find?q=ann")).text
        assert re.findall(r'href="/job/(\d)"', by_user) == ["3", "2", "1"]  # the newest first
        assert ("jobs", set(), "ann", "", 51, True) in daemon.service.log  # ended ones too
        assert "There is no job of this id" in (await guest.get("/find?q=99")).text
        assert "A job&#39;s id or name" in (await guest.get("/find")).text.replace("'", "&#39;")

    visiting(daemon.socket, story, anonymous=True)


def test_a_host_has_a_page(daemon: Daemon) -> None:
    inventory = daemon.service.inventory
    inventory["h1"] = dataclasses.replace(inventory["h1"], nics=(CARD, Nic("eth1")))

    async def story(visit: Visit) -> None:
        guest, boss = visit(), visit()
        await boss.log_in("t-boss")
        assert (await guest.get("/find?q=k2")).where == "/host/k2"
        several = (await guest.get("/find?q=k")).text
        assert 'href="/host/k1"' in several
        assert 'href="/host/k2"' in several
        page = (await guest.get("/host/k2")).text
        assert "DOWN" in page
        assert "It does not answer over SSH." in page
        assert "/do/drain" not in page
        cards = re.findall(r"<tr>(.*?)</tr>", (await guest.get("/host/h1")).text.partition('id="nics"')[2])
        assert [re.findall(r">([^<]+)</t[dh]>", card) for card in cards[1:]] == [
            ["eth0", "10.0.0.1", "1Gbps", "9000", "mlx5_0"], ["eth1", "–", "–", "–"],
        ]  # fmt: skip
        assert "/do/drain?host=k2" in (await boss.get("/host/k2")).text
        missing = await guest.get("/host/h77")
        assert (missing.status, "There is no host &#39;h77&#39;" in missing.text) == (404, True)
        assert 'href="/host/h1"' in (await guest.get("/")).text

    visiting(daemon.socket, story, anonymous=True)


def test_what_is_asked_for_is_only_text(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        guest = visit()
        daemon.service.put(
            1, spec=dataclasses.replace(daemon.service.table[1].spec, name=HOSTILE, user="eve")
        )
        for word in ("<script>x</script>", "eve", "../../x", "%00", "9" * 300, "&q=ann"):
            told = await guest.get(f"/find?q={word}")
            assert told.status == 200
            assert "<script>x" not in told.text
            assert "<img src=x" not in told.text

    visiting(daemon.socket, story, anonymous=True)
