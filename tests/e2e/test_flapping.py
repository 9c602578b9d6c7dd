"""The daemon's own schedule finds a link that is dead now and then, and one that loses 1 % one way."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster import Cluster, until
from tests.e2e.bad_link import heal_link, switch

pytestmark = pytest.mark.lab

SLOWLY = bool(os.environ.get("RM_FLAPPING"))  # with the usual mesh, which takes minutes
EVERY_S, PERIOD_S, DEAD_S = (60, 20.0, 6.0) if SLOWLY else (15, 6.0, 2.0)
MESH = {"name": "usual", "schedule": f"every {EVERY_S}s", "loss_warn_pct": 0.5, "loss_critical_pct": 2}
CHAIN = "add chain bridge bad from_host {{ type filter hook prerouting priority -250; {policy} }}"
DROP = 'add rule bridge bad from_host iifname "{host}" ip protocol udp {some} drop'


def lose(cluster: Cluster, host: str, some: str = "") -> None:
    """Datagrams that the host sends are lost: all, or some."""
    switch(
        cluster,
        "add table bridge bad",
        CHAIN.format(policy=""),
        DROP.format(host=host, some=some),
    )


@contextmanager
def flapping(cluster: Cluster, host: str) -> Iterator[None]:
    over = threading.Event()

    def flap() -> None:
        while not over.is_set():
            lose(cluster, host)
            over.wait(DEAD_S)
            heal_link(cluster)
            over.wait(PERIOD_S - DEAD_S)

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def bad(cluster: Cluster) -> list[dict[str, Any]]:
    cells = json.loads(cluster.rmx("monitor", "status", "usual", "--json"))["cells"]
    return [c for c in cells if c["check"] == "loss" and c["status"] in (1, 2)]


def bad_only_of(cluster: Cluster, source: str) -> list[dict[str, Any]]:
    """What is bad, if that is what this host sends and nothing else: what a busy machine loses for a moment
    elsewhere is over with the next tests."""
    found = bad(cluster)
    return found if {c["source"] for c in found} == {source} else []


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    made = make_cluster({"monitor": {"enabled": True, "mesh": [MESH]}}, zones=1, hosts=3)
    made.all_up()

    def measured() -> bool:
        cells = json.loads(made.rmx("monitor", "status", "usual", "--json"))["cells"]
        return sum(c["check"] == "loss" and c["status"] == 0 for c in cells) == 6

    until(measured, "all pairs are sound", wait_s=200)
    return made


def test_a_link_that_is_dead_now_and_then_is_told_of_its_direction(cluster: Cluster) -> None:
    begin = time.monotonic()
    with flapping(cluster, "z1h2"):
        found = until(lambda: bad_only_of(cluster, "z1h2"), "it is told", wait_s=300)
    print(f"told after {time.monotonic() - begin:.0f} s: {found}")
    assert all("critical from 2 %" in c["message"] or "a warning from" in c["message"] for c in found)


@pytest.mark.skipif(not SLOWLY, reason="takes minutes; RM_FLAPPING=1")
def test_one_percent_one_way(cluster: Cluster) -> None:
    lose(cluster, "z1h2", "numgen random mod 1000 < 10")
    begin = time.monotonic()
    try:
        found = until(lambda: bad_only_of(cluster, "z1h2"), "it is told", wait_s=600)
    finally:
        heal_link(cluster)
    print(f"told after {time.monotonic() - begin:.0f} s: {found}")
