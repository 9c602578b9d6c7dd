"""What jobs used on the page: numbers and plots against what was added up, and what is private."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.api.usage import UsageLine
from rm.config import Config, PrivacyConfig
from rm.core.sharing.ended import Ended, Sums
from rm.units import DAY_US, HOUR_US
from rm.web.pages import usage_view
from tests.fake_page import PageService
from tests.fake_service import Daemon, serving
from tests.page_visitor import Tokens, Visit, visiting

DAY_0 = 20_000 * DAY_US


def line(hours: float, day: int = 0, **more: object) -> UsageLine:
    sums = dict.fromkeys(Sums._fields, 0)
    sums |= {"jobs": 2, "gpu_us": round(hours * HOUR_US), "waited_us": HOUR_US // 2}
    return UsageLine(**{"day_us": DAY_0 + day * DAY_US, **sums, **more})


def heights(path: str) -> list[tuple[float, float]]:
    """(left, height) of each bar."""
    return [(float(x), 100 - float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", path)]


def test_each_day_has_its_bar() -> None:
    days = [line(4, 0), line(1, 2), line(8, 9)]
    found = usage_view.drawn(days, [], DAY_0, DAY_0 + 10 * DAY_US, {})
    gpus, waited, lost = found.charts
    assert heights(gpus.bars) == [(0, 50), (120, 12.5), (540, 100)]
    assert (gpus.total, gpus.top) == ("13.0", "8.0")
    assert gpus.says == "13.0 h in 10 days; most on 2024-10-13: 8.0 h"
    assert [height for _, height in heights(waited.bars)] == [100, 100, 100]
    assert (lost.bars, lost.says) == ("", "none")
    assert [day.day for day in found.days] == ["2024-10-13", "2024-10-06", "2024-10-04"]
    assert found.whole is not None
    assert (found.whole.jobs, found.whole.gpu, found.whole.waited) == ("6", "13.0", "1.5")


def test_names_by_what_they_held_and_the_rest_is_counted() -> None:
    lines = [line(n, account=f"a{n}", gpu_watched_us=4, gpu_busy_us=1) for n in range(30)]
    found = usage_view.drawn([line(1)], [("account", lines)], DAY_0, DAY_0 + DAY_US, {"days": "7"})
    (table,) = found.tables
    assert [row.name for row in table.rows] == [f"a{n}" for n in range(29, 4, -1)]
    assert table.left_out == 5
    assert (table.rows[0].share, table.rows[0].gpu_busy) == (100.0, "25 %")
    assert table.rows[0].only == "days=7&account=a29"
    chosen = usage_view.drawn([line(1)], [("account", lines)], DAY_0, DAY_0 + DAY_US, {"account": "a1"})
    assert chosen.tables[0].rows[0].only == ""


def test_what_jobs_waited_for_the_longest_first() -> None:
    days = [line(1, 0, waited_limits_us=HOUR_US), line(1, 1, waited_resources_us=3 * HOUR_US)]
    found = usage_view.drawn(days, [], DAY_0, DAY_0 + 2 * DAY_US, {})
    assert [(one.kind, one.waited, one.share) for one in found.waits] == [
        ("resources", "3.0", 75.0), ("limits", "1.0", 25.0)
    ]  # fmt: skip
    assert usage_view.drawn([line(1)], [], DAY_0, DAY_0 + DAY_US, {}).waits == ()


def test_what_interleaving_saved_is_drawn_where_it_saved_any() -> None:
    found = usage_view.drawn([line(1, saved_us=2 * HOUR_US), line(1, 1)], [], DAY_0, DAY_0 + 2 * DAY_US, {})
    assert found.charts[-1].title == "Hours saved by interleaving"
    assert found.charts[-1].total == "2.0"
    assert [day.saved for day in found.days] == ["0", "2.0"]
    assert found.saved
    without = usage_view.drawn([line(1)], [], DAY_0, DAY_0 + DAY_US, {})
    assert (without.saved, len(without.charts)) == (False, 3)


def test_many_jobs_are_counted_by_thousands() -> None:
    many = line(0, jobs=653_477)
    found = usage_view.drawn([many], [("account", [many])], DAY_0, DAY_0 + DAY_US, {})
    assert found.whole is not None
    shown = (found.whole.jobs, found.tables[0].rows[0].jobs, found.days[0].jobs)
    assert shown == ("653,477",) * 3


def test_without_gpus_processors_are_shown() -> None:
    found = usage_view.drawn([line(0, cpu_us=HOUR_US)], [], DAY_0, DAY_0 + DAY_US, {})
    assert not found.gpus
    assert found.charts[0].title == "Processor hours held"
    assert found.charts[0].total == "1.0"
    nothing = usage_view.drawn([], [], DAY_0, DAY_0 + DAY_US, {})
    assert nothing.whole is None


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0"),
        (50_000, "<0.001"),
        (HOUR_US // 30, "0.033"),
        (HOUR_US * 12, "12.0"),
        (HOUR_US * 12_345, "12,345"),
    ],
)
def test_hours(us: int, text: str) -> None:
    assert usage_view.hours(us) == text


# -- the page


@pytest.fixture
def daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Daemon]:
    monkeypatch.setattr(
        "rm.web.callers.access.caller_of", Tokens({"t-ann": "ann", "t-boss": "boss"}, ("boss",)).caller_of
    )
    config = Config(privacy=PrivacyConfig(**getattr(request, "param", {})))
    with serving(tmp_path / "rm.sock", config=config, kind=PageService) as daemon:
        now_us = time.time_ns() // 1_000
        of_job = Sums(1, 0, 0, HOUR_US, HOUR_US, HOUR_US, waited_licenses_us=HOUR_US)
        held = Sums(gpu_us=3 * HOUR_US, gpu_watched_us=10, gpu_busy_us=4)
        daemon.service.ended += [
            Ended(now_us - DAY_US, "physics", user, "night", "gpu", "h1", of_job, held)
            for user in ("ann", "<bob>")
        ]
        daemon.service.ended.append(Ended(now_us - 20 * DAY_US, "old", "eve", "", "gpu", "h1", of_job, held))
        yield daemon


def headings(page: str) -> list[str]:
    """Of the tables by names."""
    return re.findall(r'<h2 id="by-(?!wait)\w+">By (\w+)</h2>', page)


def test_the_page_shows_them_by_name_and_filters(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        boss = visit()
        await boss.log_in("t-boss")
        month = (await boss.get("/usage")).text
        for text in ("9.0 GPU hours, busy 40 %", "physics", "&lt;bob&gt;", "eve", "3.0 h waited"):
            assert text in month
        assert headings(month) == ["account", "user", "QOS", "partition", "host"]
        for query in ("qos=night", "host=h1", "partition=gpu"):
            assert f'href="/usage?days=30&amp;{query}"' in month
        assert re.search(r'<th scope="row">licenses</th>.*?100.0 %.*?3.0', month)
        week = (await boss.get("/usage?days=7")).text
        assert "6.0 GPU hours" in week
        assert "eve" not in week
        ann = (await boss.get("/usage?days=365&user=ann")).text
        assert "3.0 GPU hours" in ann
        assert "Only of the user" in ann
        assert "6.0 GPU hours" not in ann
        assert "No job that had started" in (await boss.get("/usage?account=none")).text
        night = (await boss.get("/usage?qos=night")).text
        assert "Only of the QOS" in night
        assert "6.0 GPU hours" in night
        assert headings(night) == ["account", "user", "QOS", "partition"]
        host = (await boss.get("/usage?host=h1")).text
        assert "9.0 GPU hours" in host
        assert headings(host) == ["host"]
        assert "9.0 GPU hours" in (await boss.get("/usage?days=1e9&x=y")).text

    visiting(daemon.socket, story)


@pytest.mark.parametrize("daemon", [{"jobs": True}], indirect=True)
def test_where_jobs_are_private_of_users_only_ones_own_is_shown(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        ann, boss = visit(), visit()
        await ann.log_in("t-ann")
        await boss.log_in("t-boss")
        own = (await ann.get("/usage")).text
        assert ">ann<" in own
        assert "eve" not in own
        assert "bob" not in own
        assert "eve" in (await boss.get("/usage")).text

    visiting(daemon.socket, story)


@pytest.mark.parametrize("daemon", [{"usage": True}], indirect=True)
def test_where_usage_is_private_users_see_none(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        ann, boss = visit(), visit()
        await ann.log_in("t-ann")
        await boss.log_in("t-boss")
        refused = await ann.get("/usage")
        assert (refused.status, "physics" in refused.text) == (403, False)
        assert "physics" in (await boss.get("/usage")).text

    visiting(daemon.socket, story)
