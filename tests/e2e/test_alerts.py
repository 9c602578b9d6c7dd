"""A link goes bad on real hosts: the grid shows it, placement avoids the host, the alert fires once; then
it heals, and all of that reverts. Over a restart of the daemon in between."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.bad_link import LOSSY_MESH, break_link, heal_link
from tests.e2e.told import channel, told
from tests.unit.test_alert_channels import Hook, Sink, serving

pytestmark = pytest.mark.lab

RULE = {"name": "network", "on": ["loss"], "after_s": 0.2, "clear_s": 0.2}
GREEN, RED = "\x1b[32m■", "\x1b[31m■"
WHOLE = ("--gpus-per-task=2", "--wrap", "true")  # a task takes a whole host


def measure(cluster: Cluster) -> None:
    assert cluster.rmx("monitor", "run", "fast", "--once") == "fast: 6 pairs measured, 0 failed\n"


def colours(cluster: Cluster) -> dict[str, list[str]]:
    """Each row of the grid as a terminal shows it: the colours of its cells."""
    ours, theirs = pty.openpty()
    argv = [RMX, "network", "--mesh", "fast", "--check", "loss"]
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    env |= {"RM_CONFIG": str(cluster.config), "TERM": "xterm"}
    shown = b""
    with os.fdopen(ours, "rb", 0) as terminal:
        process = subprocess.Popen(argv, stdout=theirs, stdin=subprocess.DEVNULL, env=env, cwd="/")
        os.close(theirs)
        try:
            while part := terminal.read(65536):
                shown += part
        except OSError:  # the other end is closed: so a terminal ends
            pass
    assert process.wait(WAIT_S) == 0, shown
    rows = re.findall(r"^ *\d+ (z1h\d) .*$", shown.decode(), re.MULTILINE)
    lines = [line for line in shown.decode().splitlines() if re.match(r" *\d+ z1h\d ", line)]
    return {row: re.findall(r"\x1b\[\d+m■", line) for row, line in zip(rows, lines, strict=True)}


def where(cluster: Cluster, *options: str) -> set[str]:
    """The hosts on which a job that was submitted now has run."""
    job = cluster.wait(cluster.submit(*options, *WHOLE), "COMPLETED")
    return {task["host"] for task in job["tasks"]}


def refused(cluster: Cluster) -> dict[str, str]:
    """The hosts whose network is too bad for a job of three whole hosts, and why."""
    plan = json.loads(cluster.rmx("submit", "--test-only", "--json", "-n3", *WHOLE))
    verdicts = [(v["host"], v["refused"]) for v in plan["verdicts"] if v["refused"]]
    return {host: why["message"] for host, why in verdicts if why["code"] == "BadNetwork"}


def measured(cluster: Cluster, grid: dict[str, list[str]], avoided: set[str]) -> None:
    """Measure until the grid has these colours and placement avoids these hosts: what a busy machine loses
    for a moment is over with the next tests."""

    def shown() -> bool:
        measure(cluster)
        return colours(cluster) == grid and refused(cluster).keys() == avoided

    until(shown, f"the grid is {grid}, and {avoided} avoided", wait_s=240)  # each look takes seconds


def alerts(cluster: Cluster, state: str) -> list[str]:
    answer = json.loads(cluster.rmx("alerts", "--json"))
    return [a["subject"] for a in answer["alerts"] if a["state"] == state]


def test_a_link_goes_bad_and_heals(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    file = tmp_path / "told"
    settings = {
        "daemon": {"lease_s": 3.0},
        "monitor": {"mesh": [LOSSY_MESH]},
        "policies.options.placement.metronome": {"w_delay": 0},  # a busy machine delays
        "alerts": {"every_s": 0.1, "channel": [channel(file)], "rule": [RULE]},
    }
    cluster = make_cluster(settings, zones=1, hosts=4, gpus_per_host=2)
    names = sorted(cluster.hosts())
    bad, good = names[1], {*names} - {names[1]}
    all_green = {name: [GREEN] * 3 for name in names}

    measured(cluster, all_green, avoided=set())
    assert where(cluster, "-n4") == {*names}

    break_link(cluster, bad)
    measured(cluster, {**all_green, bad: [RED] * 3}, avoided={bad})
    assert "its link is far worse than its peers'" in refused(cluster)[bad]
    assert where(cluster, "-n3") == good
    until(lambda: told(file), "the alert fires")
    assert alerts(cluster, "firing") == [bad]
    measure(cluster)
    cluster.restart()
    cluster.all_up()
    assert alerts(cluster, "firing") == [bad]
    measure(cluster)
    assert colours(cluster)[bad] == [RED] * 3
    assert where(cluster, "-n3") == good
    assert len(told(file)) == 1

    heal_link(cluster)
    measured(cluster, all_green, avoided=set())
    assert where(cluster, "-n4") == {*names}
    until(lambda: len(told(file)) >= 2, "its recovery is told")
    assert alerts(cluster, "firing") == []
    assert [(n["event"], n["condition"], n["subject"]) for n in told(file)] == [
        ("firing", "loss", bad),
        ("resolved", "loss", bad),
    ]
    assert told(file)[0]["id"] == told(file)[1]["id"]


def test_every_channel_is_notified_once_of_a_loss_that_becomes_critical(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    file, hook, sink = tmp_path / "told", Hook(), Sink()
    mesh = {**LOSSY_MESH, "loss_warn_pct": 2, "loss_critical_pct": 60}
    host, port = sink.server_address[:2]
    mail = {"name": "mail", "mail_to": ["ops@x.test"], "mail_from": "rm@x.test", "smtp": f"{host}:{port}"}
    channels = [channel(file), {"name": "hook", "webhook": hook.address}, mail]
    settings = {
        "monitor": {"mesh": [mesh]},
        "alerts": {"every_s": 0.1, "channel": channels, "rule": [RULE]},
    }
    with serving(hook.server), serving(sink):
        cluster = make_cluster(settings, zones=1, hosts=4, gpus_per_host=0)
        bad = sorted(cluster.hosts())[1]

        def all_told(events: list[str]) -> None:
            def measured() -> bool:
                measure(cluster)
                return [m["event"] for m in told(file)] == events

            until(measured, f"{events} are told", wait_s=240)  # each look takes seconds
            until(lambda: [json.loads(m[2])["event"] for m in hook.got] == events, f"the hook has {events}")
            until(lambda: len(sink.mails) == len(events), f"{events} are mailed")

        break_link(cluster, bad, 3)
        all_told(["firing"])
        heal_link(cluster)
        break_link(cluster, bad, 9)
        all_told(["firing", "worsened"])
        assert "critical" in cluster.rmx("alerts", "--active")
        measure(cluster)  # other figures
        heal_link(cluster)
        all_told(["firing", "worsened", "resolved"])
    assert [(m["subject"], m["level"]) for m in told(file)] == [
        (bad, "warn"), (bad, "critical"), (bad, "critical")
    ]  # fmt: skip
    assert [json.loads(body) for _, _, body in hook.got] == told(file)
    subjects = [message_from_bytes(m, policy=policy.default)["Subject"] for m in sink.mails]
    assert subjects == [
        f"[rm] FIRING: loss {bad}",
        f"[rm] WORSENED: loss {bad} is critical",
        f"[rm] RESOLVED: loss {bad}",
    ]
