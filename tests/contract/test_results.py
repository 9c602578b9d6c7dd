"""What every store must do with results that archives are still to get, whatever it keeps its data in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rm.adapters.archives.opensearch import kept_of
from rm.adapters.archives.pscheduler import document_of
from rm.core.monitoring.mesh import parse_mesh
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.results import Cursor
from tests import builders
from tests.contract.test_store_sql import run_sql

DNS = parse_mesh({"name": "dns", "tests": ["dns"], "query": "www.example.org"})
PAIRS = parse_mesh(
    {"name": "all", "tests": ["latency", "trace", "clock", "throughput"], "packets": 7, "rate_mbps": 3}
)
A, B = builders.host("a", address="10.0.0.1"), builders.host("b", address="10.0.0.2")
FOUND: dict[str, dict[str, Any]] = {
    "latency": {"sent": 7, "lost": 1, "clock_error_us": 5, "histogram": ((280, 4), (-10, 2))},
    "trace": {"hops": (("10.0.0.9", 40), ("", None)), "reached": True},
    "clock": {"local": (5, True), "remote": (6, False), "difference_us": -1},
    "throughput": {"bps": 2.5},
}
ALL = [
    *(Outcome(PAIRS, test, A, B, 10, 20, "", found) for test, found in FOUND.items()),
    Outcome(PAIRS, "mtu", A, B, 10, 20, "é\u2028'"),
    Outcome(DNS, "dns", A, A, 10, 20, "", {"time_us": 7, "records": ["192.0.2.7"]}),
]


def test_results_come_back_in_order_and_make_the_same_documents(database: Any, store: Any) -> None:
    assert store.results.newest() == 0
    newest = store.results.add(ALL)
    again = database.open()
    assert again.results.newest() == newest
    found, last = again.results.after(0, 100)
    assert last == newest
    assert [number for number, _ in found] == list(range(newest - len(ALL) + 1, newest + 1))
    for (_, one), outcome in zip(found, ALL, strict=True):
        assert document_of(one) == document_of(outcome)
        assert kept_of(one) == kept_of(outcome)
    assert again.results.after(found[1][0], 2) == (found[2:4], found[3][0])
    assert again.results.after(newest, 2) == ([], newest)
    assert again.results.some([found[4][0], found[0][0], newest + 9]) == [found[0], found[4]]
    again.close()


def test_every_leader_knows_how_far_archives_have_got(database: Any, store: Any) -> None:
    store.results.put_cursor("x", Cursor(7, (3, 5)))
    store.results.put_cursor("y", Cursor())
    store.results.put_cursor("x", Cursor(9, (5,)))
    again = database.open()
    assert again.results.cursors() == {"x": Cursor(9, (5,)), "y": Cursor()}
    again.results.forget_cursors(["x"])
    assert store.results.cursors() == {"x": Cursor(9, (5,))}
    store.results.forget_cursors([])
    assert store.results.cursors() == {}
    again.close()


def test_what_is_settled_or_too_much_is_forgotten_and_no_number_comes_again(store: Any) -> None:
    results = store.results
    newest = results.add([replace(ALL[0], begun_us=n) for n in range(10)])
    assert results.prune(newest - 7, 100, 1 << 30) == 2
    assert results.prune(0, 5, 1 << 30) == 3
    assert [number for number, _ in results.after(0, 9)[0]] == list(range(newest - 4, newest + 1))
    assert results.prune(0, 5, 1) == 5
    assert results.after(0, 9) == ([], 0)
    assert results.newest() == newest
    assert results.add(ALL[:1]) == newest + 1


def test_behind_results_that_cannot_be_read_others_are_found(make_durable: Any) -> None:
    database = make_durable()
    store = database.open()
    newest = store.results.add(ALL)
    run_sql(database.url, f"UPDATE archive_results SET body = '{{' WHERE id < {newest};")
    assert store.results.after(0, 3) == ([], newest - len(ALL) + 3)
    found, last = store.results.after(newest - 3, 3)
    assert ([number for number, _ in found], last) == ([newest], newest)
    store.close()


def test_the_oldest_go_where_texts_are_long(store: Any) -> None:
    long = {"histogram": tuple((delay_us, 1) for delay_us in range(900))}
    newest = store.results.add([replace(ALL[0], begun_us=n, found=ALL[0].found | long) for n in range(8)])
    gone = store.results.prune(0, 100, 30_000)
    assert 0 < gone < 8
    assert store.results.after(0, 9)[1] == newest


def test_a_cursor_says_what_is_still_needed() -> None:
    assert (Cursor(7, (3, 5)).needs, Cursor(7).needs) == (3, 8)
