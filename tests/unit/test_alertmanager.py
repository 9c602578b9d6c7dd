"""Alerts to an Alertmanager: what API v2 is sent, and what a real one, where there is one, makes of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.channels.alertmanager import REPEAT_S, AlertmanagerChannel, alerts_of
from rm.core.alerts.channel import NotTold
from rm.daemon.alerts.delivery import Delivery
from tests.agent_process import until
from tests.fakes import PATIENCE_S
from tests.ports import Kept
from tests.unit.test_alert_channels import Hook, Slow, hook, notice

__all__ = ["hook"]
PROGRAM = "prometheus-alertmanager"
FIRED_US = 1_764_590_400_000_000
NOW_US = FIRED_US + 30_000_000


def said(event: str, level: str | None = "warn", ended_us: int | None = None, **more: Any) -> dict[str, Any]:
    """A message of one alert."""
    member = {
        "id": f"net/loss/gpu3@{FIRED_US}", "subject": "gpu3", "hosts": ["gpu3"], "message": "loss 3 %",
        "level": level, "at_us": FIRED_US, "fired_us": FIRED_US, "ended_us": ended_us, **more,
    }  # fmt: skip
    head = {"version": 1, "event": event, "cluster": "head", "rule": "net", "condition": "loss"}
    return {**head, **member, "alerts": [member]}


def severities(alerts: list[dict[str, Any]], now_us: int = NOW_US) -> dict[str, bool]:
    """Does the alert of each severity go on?"""
    return {a["labels"].get("severity", ""): _us(a["endsAt"]) > now_us for a in alerts}


def _us(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * 1e6)


def test_an_address_that_cannot_be_one_is_said_as_of_any_other_channel() -> None:
    with pytest.raises(NotTold, match=r"\AThe Alertmanager at \? "):
        AlertmanagerChannel("http://[x", 1.0).tell(said("firing"))


def test_an_alert_has_the_labels_by_which_it_is_known_and_lasts_until_it_is_told_again() -> None:
    alerts = alerts_of(said("firing"), NOW_US)
    assert severities(alerts) == {"warning": True}
    assert alerts[0]["labels"] == {
        "alertname": "RmLoss", "cluster": "head", "rule": "net", "subject": "gpu3", "host": "gpu3",
        "severity": "warning",
    }  # fmt: skip
    assert alerts[0]["annotations"]["description"] == "loss 3 %"
    assert all(
        isinstance(v, str) for a in alerts for v in (*a["labels"].values(), *a["annotations"].values())
    )
    assert _us(alerts[0]["startsAt"]) == FIRED_US
    assert _us(alerts[0]["endsAt"]) - NOW_US > 2 * REPEAT_S * 1e6


def test_what_worsens_is_an_alert_of_the_other_severity_and_all_end_with_it() -> None:
    worse = alerts_of(said("worsened", "critical"), NOW_US)
    assert severities(worse) == {"warning": False, "critical": True}
    over = alerts_of(said("resolved", "critical", NOW_US - 5), NOW_US)
    assert severities(over) == {"warning": False, "critical": False}
    fired = [*alerts_of(said("firing"), NOW_US), *alerts_of(said("firing", "critical"), NOW_US)]
    assert [a["labels"] for a in worse] == [a["labels"] for a in over] == [a["labels"] for a in fired]


def test_a_condition_without_levels_has_no_severity_and_a_pair_no_host() -> None:
    (alert,) = alerts_of(said("firing", None, subject="a - b", hosts=["a", "b"]), NOW_US)
    assert severities([alert]) == {"": True}
    assert "host" not in alert["labels"]
    assert alert["annotations"]["hosts"] == "a, b"


def test_no_alert_ends_before_it_begins() -> None:
    """An Alertmanager refuses one that does; a clock may have been set back."""
    for alert in alerts_of(said("firing"), FIRED_US - 10_000_000):
        assert _us(alert["endsAt"]) >= _us(alert["startsAt"])


def test_it_is_posted_and_a_refusal_says_nothing_of_the_path(hook: Hook) -> None:
    channel = AlertmanagerChannel(hook.address + "/", PATIENCE_S)
    channel.tell(said("firing"))
    hook.codes = [400, 503]
    for again in (False, True):
        with pytest.raises(NotTold, match=r"The Alertmanager at 127\.0\.0\.1 answered with HTTP") as caught:
            channel.tell(said("firing"))
        assert caught.value.again is again
        assert "T0K3N" not in str(caught.value)
    path, headers, body = hook.got[0]
    assert (path, headers["Content-Type"]) == ("/hook/T0K3N/api/v2/alerts", "application/json")
    assert [alert["labels"]["severity"] for alert in json.loads(body)] == ["warning"]


def test_what_fired_is_not_told_again_after_its_end() -> None:
    """An Alertmanager would take that as a new beginning."""
    slow = Slow()
    delivery = Delivery({"slow": slow}, lambda *_: None, 1, 0.001)
    try:
        delivery.tell("slow", [notice("a")])
        assert slow.begun.wait(PATIENCE_S)
        delivery.tell_again("slow", [notice("a"), notice("b")])
        delivery.tell("slow", [notice("a", "resolved")])
        delivery.tell_again("slow", [notice("b")])
        slow.let.set()
        until(lambda: len(slow.bodies) == 3, "all are told")
    finally:
        delivery.close()
    assert [(b["subject"], b["event"]) for b in slow.bodies] == [
        ("a", "firing"), ("a", "resolved"), ("b", "firing"),
    ]  # fmt: skip


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """The address of a real one."""
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    kept = Kept()
    address = f"127.0.0.1:{kept.number}"
    argv = [
        PROGRAM, f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}/data",
        f"--web.listen-address={address}", "--cluster.listen-address=", "--web.route-prefix=/am",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=tmp_path)

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            active(f"http://{address}/am")
        except OSError:
            return False
        return True

    try:
        until(ready, "the Alertmanager answers")
        yield f"http://{address}/am"
    finally:
        process.kill()
        process.wait()
        kept.close()


def active(address: str) -> list[Mapping[str, Any]]:
    with urllib.request.urlopen(f"{address}/api/v2/alerts?active=true", timeout=PATIENCE_S) as answer:
        return list(json.load(answer))


@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"needs {PROGRAM}")
def test_a_real_alertmanager_has_what_fires_and_only_that(alertmanager: str) -> None:
    channel = AlertmanagerChannel(alertmanager, PATIENCE_S)
    now_us = time.time_ns() // 1000
    mine = {"fired_us": now_us - 60_000_000}
    for event, level, ended_us, expected in [
        ("firing", "warn", None, ["warning"]),
        ("firing", "warn", None, ["warning"]),  # told again
        ("worsened", "critical", None, ["critical"]),
        ("improved", "warn", None, ["warning"]),
        ("resolved", "warn", now_us - 1_000_000, []),
    ]:
        channel.tell(said(event, level, ended_us, **mine))
        found = active(alertmanager)
        assert [one["labels"]["severity"] for one in found] == expected, event
        assert all(one["labels"]["alertname"] == "RmLoss" for one in found)
