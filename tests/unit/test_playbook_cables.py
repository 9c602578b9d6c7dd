"""Who is to blame for bad pairs: a cable belongs to one host, a path to two."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.playbook.inventory.cables import Pair, Verdict, judge, rounds
from tests.examples import examples

RATE = 10_000_000_000


def cluster(hosts: list[str], bad: set[frozenset[str]], cables: set[str], **how: float) -> Verdict:
    """Every direction of every pair; the bad ones lose or crawl."""
    pairs = []
    for a, b in permutations(hosts, 2):
        broken = frozenset((a, b)) in bad or a in cables or b in cables
        loss, rate = (how.get("loss", 0.0), int(how.get("rate", RATE))) if broken else (0.0, RATE)
        pairs.append(Pair(a, b, loss, rate))
    return judge(pairs, max_loss_pct=0.1)


@given(st.integers(2, 24))
def test_rounds_hold_every_pair_once_and_each_host_once_a_round(count: int) -> None:
    hosts = [f"h{i}" for i in range(count)]
    found = rounds(hosts)
    assert len(found) == count - 1 + count % 2
    every = [frozenset(pair) for one in found for pair in one]
    assert len(every) == len(set(every)) == count * (count - 1) // 2
    for one in found:
        busy = [host for pair in one for host in pair]
        assert len(busy) == len(set(busy))


@given(st.data(), st.integers(5, 12))
@settings(max_examples=examples(60))
def test_broken_cables_are_named_and_no_others(data: st.DataObject, count: int) -> None:
    hosts = [f"h{i:02}" for i in range(count)]
    culprits = set(data.draw(st.lists(st.sampled_from(hosts), max_size=(count - 1) // 2 - 1, unique=True)))
    for how in ({"loss": 5.0}, {"rate": RATE / 10}):
        verdict = cluster(hosts, set(), culprits, **how)
        assert set(verdict.cables) == culprits
        assert verdict.paths == {}


def test_a_single_bad_pair_is_a_path_not_a_cable() -> None:
    hosts = ["a", "b", "c", "d", "e"]
    verdict = cluster(hosts, {frozenset("ab")}, {"e"}, loss=2.0)
    assert set(verdict.cables) == {"e"}
    assert set(verdict.paths) == {("a", "b")}
    assert "a to b loses 2 %" in verdict.paths["a", "b"]


def test_two_hosts_cannot_tell_whose_cable_it_is() -> None:
    verdict = cluster(["a", "b"], {frozenset("ab")}, set(), loss=2.0)
    assert (dict(verdict.cables), set(verdict.paths)) == ({}, {("a", "b")})


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (Pair("a", "b", 100.0, 0, answered=False), "a to b is cut"),
        (Pair("a", "b", 0.2, RATE), "loses 0.2 %"),
        (Pair("a", "b", 0.0, 5_000_000_000), "carries 5000 of 7000 Mbit/s"),
    ],
)
def test_what_was_wrong_is_told_with_numbers(pair: Pair, says: str) -> None:
    fine = [Pair(a, b, 0.0, RATE) for a, b in permutations("bcd", 2)]
    verdict = judge([pair, *fine], max_loss_pct=0.1)
    assert says in verdict.paths["a", "b"]
    assert verdict.report()["median_mbps"] == 10_000


def test_a_floor_catches_what_is_bad_everywhere() -> None:
    pairs = [Pair(a, b, 0.0, 1_000_000_000) for a, b in permutations("abc", 2)]
    assert judge(pairs, max_loss_pct=0.1).report()["bad_paths"] == []
    assert judge(pairs, max_loss_pct=0.1, min_bps=RATE).cables


def test_no_host_that_boasts_puts_the_blame_on_the_others() -> None:
    pairs = [
        Pair(a, b, 0.0, RATE * 1_000 if a == "liar" else RATE)
        for a, b in permutations(["a", "b", "c", "liar"], 2)
    ]
    verdict = judge(pairs, max_loss_pct=0.1)
    assert (dict(verdict.cables), dict(verdict.paths), verdict.median_bps) == ({}, {}, RATE)
