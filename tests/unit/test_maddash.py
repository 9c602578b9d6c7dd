"""MaDDash's REST API over rm's data, through the page's port: the shapes that its clients read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.monitoring.cells import Status
from rm.core.monitoring.history import Sample
from rm.core.monitoring.maintenance import HostWindow, parse_window
from rm.core.monitoring.mesh import Every, Mesh, Thresholds
from rm.core.monitoring.occurrence import occurrence
from rm.daemon.monitoring.board import Tried
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import PageSettings
from tests.fake_service import Daemon, serving
from tests.monitored import House

MINUTE_US = 60_000_000
TEN_YEARS_US = 10 * 366 * 86_400_000_000
LOSS = Mesh(
    "gpu hosts", Every(MINUTE_US), attempts=3,
    thresholds=Thresholds(loss_warn_pct=0.01, loss_critical_pct=0.1, delay_warn_ms=5),
)  # fmt: skip


@pytest.fixture
def house() -> House:
    """Hosts a, b, c; a to b was lossless twice, then lost 2 % three times, then was not measurable."""
    house = House(
        LOSS,
        hosts=3,
        windows=[HostWindow(parse_window("2001-01-01T00:00/2001-01-01T02:00"), ("c",))],
    )
    house.clock.us = 900_000_000_000_000  # in July 1998
    mesh = LOSS
    hosts = house.lead.cycle.state.hosts
    for n, loss in enumerate((0.0, 0.0, 2.0, 2.0, 2.0, None)):
        at_us = house.clock.us + n * MINUTE_US
        values = {} if loss is None else {"loss_pct": loss, "delay_us": 400.0}
        sample = Sample("a", "b", at_us, mesh.name, values, "" if values else "no answer", ("loss", "delay"))
        house.store.history.record([sample])
        house.board.tell(mesh, [Tried(hosts["a"], hosts["b"], sample)])
    house.store.history.record([Sample("a", "b", at_us, "another mesh", {"loss_pct": 50.0})])
    house.clock.us = at_us
    return house


@pytest.fixture
def daemon(house: House, tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock") as daemon:
        daemon.service.monitoring = house.service()
        yield daemon


def get(daemon: Daemon, *paths: str) -> list[Any]:
    """The answers; (status, text) of what is not a success."""

    async def main() -> list[Any]:
        runner, url = await serve_page(daemon.socket, "127.0.0.1:0", PageSettings(anonymous=True))
        found: list[Any] = []
        try:
            async with aiohttp.ClientSession() as session:
                for path in paths:
                    async with session.get(url + path.lstrip("/")) as answer:
                        text = await answer.text()
                        found.append(await answer.json() if answer.ok else (answer.status, text))
        finally:
            await runner.cleanup()
        return found

    return asyncio.run(main())


def test_from_the_dashboard_to_one_check(daemon: Daemon) -> None:
    (dashboards,) = get(daemon, "/maddash/dashboards")
    (board,) = dashboards["dashboards"]
    listed, grid = get(daemon, "/maddash/grids", board["grids"][0]["uri"])
    assert listed["grids"] == board["grids"]
    assert board["grids"][0] == {"name": "gpu hosts", "uri": "/maddash/grids/gpu%20hosts"}
    assert grid["name"] == "gpu hosts"
    assert grid["statusLabels"][:3] == ["ok", "warn", "critical"]
    assert [r["name"] for r in grid["rows"]] == grid["columnNames"] == ["a", "b", "c"]
    assert grid["checkNames"] == ["loss", "delay"]
    assert len(grid["columnProps"]) == 3
    assert grid["grid"][0][0] is None
    assert grid["grid"][0][2] == [None, None]  # never tried
    loss, delay = grid["grid"][0][1]
    assert (loss["status"], delay["status"]) == (Status.CRITICAL, Status.OK)
    assert loss["prevCheckTime"] == grid["lastUpdateTime"] == 900_000_300

    (check,) = get(daemon, loss["uri"])
    assert (check["gridName"], check["rowName"], check["colName"], check["checkName"]) == (
        "gpu hosts", "a", "b", "loss",
    )  # fmt: skip
    assert (check["status"], check["statusShortName"]) == (2, "critical")
    assert (check["returnCode"], check["returnCodeCount"], check["retryAttempts"]) == (3, 1, 3)
    assert check["nextCheckTime"] - check["prevCheckTime"] == check["checkInterval"] == 60
    told = [(h["returnCode"], h["status"]) for h in check["history"]]
    assert told == [(3, 2), (2, 2), (2, 0), (2, 0), (0, 0), (0, 0)]  # newest first; it flips after three
    assert check["history"][1]["returnParams"]["Average"] == "2"
    assert check["history"][0]["message"] == "no answer"
    assert "critical from 0.1" in check["history"][1]["message"]


def test_what_rows_and_cells_name_exists(daemon: Daemon) -> None:
    row, cell = get(daemon, "/maddash/grids/gpu%20hosts/a", "/maddash/grids/gpu%20hosts/a/b")
    assert [c["name"] for c in row["cells"]] == ["b", "c"]
    answers = get(daemon, *(c["uri"] for c in (*row["cells"], *cell["checks"])))
    assert all(isinstance(answer, dict) for answer in answers)


def test_pages_of_the_history(daemon: Daemon, house: House) -> None:
    mesh = "gpu hosts"
    for n in range(1, 41):
        at_us = house.clock.us + n * 1_000_000
        house.store.history.record([Sample("a", "b", at_us, mesh, {"loss_pct": 0.0})])
    house.clock.us += 40_000_000
    base = "/maddash/grids/gpu%20hosts/a/b/loss"
    first, last, beyond, bad = get(daemon, base, base + "?page=2", base + "?page=7", base + "?page=x")
    assert (first["historyPageCount"], len(first["history"]), len(last["history"])) == (3, 20, 6)
    assert last["history"][-1]["time"] == 900_000_000
    assert beyond["history"] == []
    assert bad[0] == 400


def test_of_times_before_the_tries_that_are_kept_the_changes_are_told(daemon: Daemon, house: House) -> None:
    house.clock.us += 3 * 86_400_000_000
    (check,) = get(daemon, "/maddash/grids/gpu%20hosts/a/b/loss")
    assert (check["prevCheckTime"], check["status"], check["message"]) == (
        900_000_300, Status.UNKNOWN, "not checked since: loss 2 %, critical from 0.1 %",
    )  # fmt: skip
    assert [(h["time"], h["status"]) for h in check["history"]] == [(900_000_240, Status.CRITICAL)]


def test_maintenance_and_bad_times_are_events(daemon: Daemon) -> None:
    everything, mine, others = get(
        daemon,
        "/maddash/events",
        "/maddash/events?rowName=c&gridName=gpu%20hosts",
        "/maddash/events?rowName=a",
    )
    event, bad = everything["events"]
    assert (bad["name"], bad["changeStatus"]) == ("gpu hosts: loss critical", False)
    assert (bad["startTime"], bad["endTime"]) == (900_000_240, 0)
    assert bad["description"].startswith("a to b: loss 2 %, critical")
    begins = int(datetime(2001, 1, 1, tzinfo=UTC).timestamp())
    assert (event["startTime"], event["endTime"], event["changeStatus"]) == (begins, begins + 7200, True)
    assert event["description"] == "Maintenance of c"
    assert mine == {"events": [event]}
    assert others == {"events": [bad]}


@pytest.mark.parametrize("path", ["grids/nothing", "grids/gpu%20hosts/x", "grids/gpu%20hosts/a/c/loss", "no"])
def test_what_there_is_not_is_a_404(daemon: Daemon, path: str) -> None:
    ((status, text),) = get(daemon, f"/maddash/{path}")
    assert status == 404
    assert "There is no" in text or "has no" in text


def test_a_daemon_that_does_not_monitor_says_so(daemon: Daemon) -> None:
    daemon.service.monitoring = None
    ((status, text),) = get(daemon, "/maddash/grids")
    assert status == 409
    assert "does not monitor" in text


TEXTS = [
    "daily 03:00-03:30",
    "sun 02:00-04:00",
    "mon-fri 22:00-06:00",
    "sat,mon 00:00-24:00",
    "fri 23:59-23:58",
]


@given(st.sampled_from(TEXTS), st.integers(0, TEN_YEARS_US))
def test_a_window_is_open_when_its_occurrence_says_so(text: str, now_us: int) -> None:
    window = parse_window(text)
    found = occurrence(window, now_us, UTC)
    assert found is not None
    begins_us, ends_us = found
    assert window.covers(now_us, UTC) == (begins_us <= now_us < ends_us)
    assert window.covers(begins_us, UTC)
    assert window.covers(ends_us - 1, UTC)
    assert begins_us < ends_us


def test_what_is_over_never_comes_again() -> None:
    window = parse_window("2001-01-01T00:00/2001-01-01T02:00")
    begins_us = 978_307_200_000_000
    assert occurrence(window, 0, UTC) == (begins_us, begins_us + 7_200_000_000)
    assert occurrence(window, begins_us + 7_200_000_000, UTC) is None
