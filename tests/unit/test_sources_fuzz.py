"""Whatever an archive answers: what can be read is read, the rest counted, and only sentences are raised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rm.adapters.sources import READERS, Found, Span
from rm.adapters.sources.opensearch import PAGE
from rm.adapters.sources.psconfig import tables_of
from rm.core.monitoring.history import complaint
from rm.core.monitoring.source import Source
from rm.errors import RmError, UsageError
from tests import builders
from tests.examples import examples

NOW_US = 1_790_000_000_000_000
SPAN = Span(NOW_US - 10**12, NOW_US, {"a": "a", "b": "b"})
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.none(), st.just(10**400), st.just("1e400"), st.just("PT1S")
)
KEYS = st.sampled_from(
    [
        "event-types",
        "event-type",
        "base-uri",
        "input-source",
        "destination",
        "source",
        "ts",
        "val",
        "hits",
        "_source",
        "_id",
        "pscheduler",
        "start_time",
        "test",
        "type",
        "spec",
        "meta",
        "result",
        "packets",
        "lost",
        "sent",
        "latency",
        "median",
        "histogram-latency",
        "rtt",
        "mean",
        "throughput",
        "mtu",
        "grids",
        "name",
        "uri",
        "rows",
        "columnNames",
        "checkNames",
        "grid",
        "history",
        "time",
        "returnCode",
        "returnParams",
        "Average",
        "message",
        "prevCheckTime",
        "tasks",
        "groups",
        "tests",
        "schedules",
        "addresses",
        "excludes",
        "group",
        "schedule",
        "repeat",
        "slip",
        "a-addresses",
        "b-addresses",
        "local-address",
        "target-addresses",
    ]
)
WORDS = st.sampled_from(
    [
        "a",
        "b",
        "loss",
        "latency",
        "throughput",
        "mesh",
        "disjoint",
        "list",
        "2026-09-21T13:00:00Z",
        "\ud800",
        "x" * 9_000,
    ]
)
JSON = st.recursive(
    NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


class Answers:
    """Stands for `Archive`: one answer after the other, whatever is asked."""

    def __init__(self, answers: list[Any]) -> None:
        self.source = Source("ma", "esmond", "http://ma.test")
        self._answers = list(answers)

    def at(self, path: str) -> str:
        return path

    async def get(self, url: str, **params: str) -> Any:
        return self._answers.pop(0) if self._answers else []

    async def post(self, url: str, body: Any) -> Any:
        return await self.get(url)

    async def each(self, items: Any, ask: Any, found: Found) -> None:
        for item in items:
            try:
                await ask(item)
            except RmError as error:
                found.say(str(error))


def record(kind: str) -> dict[str, Any]:
    kinds = [{"event-type": kind, "base-uri": f"/{kind}"}]
    return {"input-source": "a", "input-destination": "b", "event-types": kinds}


def document(result: Any, kind: str) -> dict[str, Any]:
    ends = {"source": "a", "destination": "b"}
    began = {"start_time": "2026-09-21T13:00:00Z"}
    return {
        "_id": 1,
        "_source": {"test": {"type": kind}, "meta": ends, "pscheduler": began, "result": result},
    }


def esmond(values: list[Any]) -> list[Any]:
    kinds = ("packet-loss-rate", "histogram-owdelay", "histogram-rtt", "throughput", "path-mtu", "failures")
    points = [{"ts": NOW_US // 10**6 - 5, "val": value} for value in values]
    return [*([record(kind)] for kind in kinds), *([points] * len(kinds))]


def page_of_the_end() -> Any:
    one = document({}, "rtt")
    one["_source"]["pscheduler"] = {"start_time": "9999-12-31T23:59:59.999999+00:00"}
    return {"hits": {"hits": [one] * PAGE}}


def of_maddash(cell: Any) -> list[Any]:
    grid = {"rows": [{"name": "a"}], "columnNames": ["b"], "checkNames": ["Loss"], "grid": [[[cell]]]}
    return [{"grids": [{"name": "g", "uri": "/g"}]}, grid]


def opensearch(values: list[Any]) -> list[Any]:
    return [
        {"hits": {"hits": [document(v, k) for v in values for k in ("latency", "rtt", "throughput", "mtu")]}}
    ]


def maddash(values: list[Any]) -> list[Any]:
    now_s = NOW_US // 10**6
    names = ["Loss", "Delay", "Throughput"]
    cells = [{"uri": f"/{n}", "prevCheckTime": now_s} for n in names]
    grid = {"rows": [{"name": "a"}], "columnNames": ["b"], "checkNames": names, "grid": [[cells]]}
    tries = [{"time": now_s - 5, "returnCode": 0, "returnParams": {"Average": value}} for value in values]
    return [{"grids": [{"name": "g", "uri": "/g"}]}, grid, *([{"history": tries}] * 3)]


SHAPES = {"esmond": esmond, "opensearch": opensearch, "maddash": maddash}


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=examples(60))
@given(odd=st.lists(JSON, max_size=4), values=st.lists(JSON, max_size=3), shaped=st.booleans())
@example(
    odd=[],
    values=[float("nan"), -1, 10**400, {"1": 10**400}, {"packets": {"lost": 1, "sent": 0}}],
    shaped=True,
)
@example(odd=[page_of_the_end()] * 2, values=[], shaped=False)
@example(odd=of_maddash("x"), values=[], shaped=False)
@example(odd=of_maddash({"uri": "/c", "prevCheckTime": float("inf")}), values=[], shaped=False)
def test_no_answer_is_too_odd(kind: str, odd: list[Any], values: list[Any], shaped: bool) -> None:
    answers: Any = Answers(SHAPES[kind](values) + odd if shaped else odd)
    try:
        found = asyncio.run(READERS[kind](answers, SPAN))  # type: ignore[arg-type, var-annotated]
    except RmError:
        return
    for sample in found.samples:
        assert {sample.source, sample.destination} == {"a", "b"}
        assert isinstance(complaint(sample, NOW_US), str)  # says what is wrong rather than to fail


@settings(max_examples=examples(60))
@given(parts=st.dictionaries(KEYS, st.dictionaries(WORDS, JSON, max_size=3), max_size=5), document=JSON)
def test_no_mesh_file_is_too_odd(parts: dict[str, Any], document: Any) -> None:
    hosts = [builders.host("a"), builders.host("b")]
    for odd in (document, parts, {**parts, "tasks": {"t": {"group": "a", "test": "b"}}}):
        try:
            tables, said = tables_of(odd, hosts)
        except UsageError:
            continue
        assert all(isinstance(sentence, str) for sentence in said)
        assert all(set(table) >= {"name", "hosts"} for table in tables)
