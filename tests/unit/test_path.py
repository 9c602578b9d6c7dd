"""Where packets are lost, as a trace shows it."""

import sys
from pathlib import Path as File

import pytest

from rm.core.monitoring.path import lost_from, path_of, said_of

sys.path.insert(0, str(File(__file__).parents[2] / "agents"))
import rm_trace


@pytest.mark.parametrize(
    ("answered", "reached", "where"),
    [
        ([5, 5, 5], True, None),
        ([5, 0, 5], True, None),  # it answers nobody, and passes everything on
        ([5, 2, 4], True, None),  # one that is missing may be chance
        ([5, 3, 2], True, 1),
        ([3, 3, 3], True, 0),
        ([5, 5], False, 2),
        ([], False, 0),
    ],
)
def test_packets_are_lost_from_where_no_further_hop_answers_every_time(
    answered: list[int], reached: bool, where: int | None
) -> None:
    hops = [(f"10.0.0.{n}", count) for n, count in enumerate(answered, start=1)]
    assert lost_from(path_of(hops, 5, reached)) == where


def test_an_alert_names_the_hop() -> None:
    some = path_of([("10.0.1.1", 20), ("10.0.9.1", 13), ("10.0.2.10", 14)], 20, True)
    assert said_of(some, "a", "b") == (
        "trace: a > 10.0.1.1 > 10.0.9.1 > 10.0.2.10: lost behind hop 1 (10.0.1.1, answered 20 of 20); "
        "hop 2 (10.0.9.1) answered 13 of 20"
    )
    dead = path_of([("10.0.1.1", 5)], 5, False)
    assert said_of(dead, "a", "b") == (
        "trace: a > 10.0.1.1, then nobody up to b: lost behind hop 1 (10.0.1.1, answered 5 of 5)"
    )
    assert "right behind a" in said_of(path_of([], 5, False), "a", "b")
    assert said_of(path_of([("10.0.2.10", 5)], 5, True), "a", "b").endswith("all answered 5 of 5")


@pytest.mark.parametrize(
    ("address", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("0:0:0:0:0:0:0:1", "::1")],
)
def test_this_host_is_one_hop_away(address: str, shown: str) -> None:
    found = rm_trace.trace(address, tries=2)
    assert found["reached"]
    (hop,) = found["hops"]
    assert (hop["address"], hop["answered"], found["sent"]) == (shown, 2, 2)
    assert 0 < hop["rtt_us"] < 10_000_000


def test_an_address_is_compared_without_its_scope() -> None:
    assert rm_trace._canonical("FE80:0::01%eth0") == "fe80::1"
    assert rm_trace._canonical("10.0.0.1") == "10.0.0.1"
