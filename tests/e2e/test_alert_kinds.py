"""Every condition of an alert, out of what hosts really do: each fires, and what is mended is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm.demo.training import traffic_file
from rm.lab import Degrade
from tests import builders
from tests.cluster import LOSING, Cluster, until
from tests.e2e.bad_link import LOSSY_MESH, break_link, heal_link
from tests.e2e.told import channel, told

pytestmark = pytest.mark.lab

LATENCY = {**LOSSY_MESH, "retry_attempts": 1, "delay_critical_ms": 40}
RATES = {
    "name": "rates",
    "schedule": "every 24h",
    "tests": ["throughput"],
    "rounds": 0,
    "retry_attempts": 1,
    "duration_s": 0.1,
    "bandwidth_critical_mbps": 10,
}
# as the driver answers, whatever fields it is asked for
NVIDIA_SMI = """#!/bin/sh
fields=${1#--query-gpu=}
line=
for field in $(echo "$fields" | tr , ' '); do
    case $field in
        index) value=0 ;;
        uuid) value=GPU-1 ;;
        name) value="NVIDIA A100" ;;
        memory.total) value=40960 ;;
        ecc.errors.uncorrected.volatile.total) value=$(cat /var/tmp/ecc) ;;
        *) value="[N/A]" ;;
    esac
    line="$line${line:+, }$value"
done
echo "$line"
"""


def alerts(file: Path) -> list[tuple[str, str, str]]:
    """(event, condition, subject) of every alert that the channel was told."""
    return [(m["event"], m["condition"], a["subject"]) for m in told(file) for a in m["alerts"]]


def test_every_condition_fires_and_is_over(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    file = tmp_path / "told"
    settings = {
        "monitor": {"mesh": [LATENCY, RATES]},
        "alerts": {
            "every_s": 0.1,
            "facts_s": 2.0,
            "disk_free_mb": 8,
            "channel": [channel(file)],
            "rule": [{"name": "r", "after_s": 0, "clear_s": 0}],
        },
    }
    degrade = {"z1h2": Degrade(delay_ms=60), "z1h3": Degrade(rate_mbps=4)}
    cluster = make_cluster(settings, zones=1, hosts=5, gpus_per_host=0, link_mbps=100, degrade=degrade)
    shared, late, narrow, lossy, sick = sorted(cluster.hosts())

    def fires(*conditions: tuple[str, str]) -> None:
        for condition in conditions:
            until(lambda c=condition: ("firing", *c) in alerts(file), f"{condition} fires")  # type: ignore[misc]

    def over(*conditions: tuple[str, str]) -> None:
        for condition in conditions:
            until(lambda c=condition: ("resolved", *c) in alerts(file), f"{condition} is over")  # type: ignore[misc]

    def measured(mesh: dict[str, Any], event: str, *conditions: tuple[str, str]) -> None:
        """Until what was measured says so: a try may fail on a busy machine."""

        def said() -> bool:
            cluster.run("monitor", "run", mesh["name"])
            return {(event, *c) for c in conditions} <= {*alerts(file)}

        until(said, f"{conditions} are {event}", wait_s=240)  # each run takes seconds

    cluster.write(sick, "/var/tmp/ecc", "3")
    cluster.write(sick, "/usr/local/bin/nvidia-smi", NVIDIA_SMI, "755")
    cluster.lab.fill_disk(sick)
    profile = tmp_path / "profile.json"
    profile.write_text(traffic_file(builders.profile(100, (0, 80, 95))))
    endless = "while :; do sleep 0.1; done"
    jobs = [
        cluster.submit(f"--traffic={profile}", f"--nodelist={shared},{late}", "-N2", "--wrap", endless)
        for _ in range(2)
    ]
    break_link(cluster, lossy)
    measured(LATENCY, "firing", ("loss", lossy), ("delay", late))
    measured(RATES, "firing", ("bandwidth", narrow))
    fires(("disk", sick), ("gpu", sick))
    contended = ("rotation-lost", shared)
    fires(contended)
    said = {(a["condition"], a["subject"]): a["message"] for a in cluster.client.get("alerts")["alerts"]}
    assert said["gpu", sick] == f"{sick}: GPU 0 has 3 uncorrected memory errors"
    assert "contend on" in said[contended]

    for job in jobs:
        cluster.rmx("cancel", job)
    heal_link(cluster)
    cluster.lab.free_disk(sick)
    cluster.write(sick, "/var/tmp/ecc", "0")
    measured(LATENCY, "resolved", ("loss", lossy))
    over(contended, ("disk", sick), ("gpu", sick))

    # silent for the time of a connection, and then for longer than a host may be
    cluster.configure(LOSING, {"hosts": {"down_after_s": 2 * LOSING["ssh"]["connect_timeout_s"]}})
    cluster.restart()
    cluster.all_up()
    cluster.lab.crash(sick)
    fires(("agent-silent", sick), ("host-down", sick))
    cluster.lab.boot(sick)
    over(("agent-silent", sick), ("host-down", sick))
    assert ("resolved", "delay", late) not in alerts(file)
    heard = alerts(file)
    for which in {note[1:] for note in heard}:
        events = [event for event, *of in heard if tuple(of) == which]
        assert events == (["firing", "resolved"] * len(events))[: len(events)]
