"""The OpenSearch archive of perfSONAR 5: one document a test, in indices `pscheduler_<type>`.

POST <archive>/pscheduler_latency*,…/_search
{test: {type}, meta: {source: {ip, hostname}, destination: {…}}, pscheduler: {start_time}, result}
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rm.adapters.sources.asking import SAMPLES_MAX, Archive, Found, Span, Tries
from rm.adapters.sources.iso import seconds_of
from rm.errors import Unreachable

INDICES = ("latency", "latencybg", "throughput", "rtt", "mtu")
PAGE = 1_000
TIME = "pscheduler.start_time"


async def read(archive: Archive, span: Span) -> Found:
    found, tries, seen = Found(), Tries(archive.source.mesh), set[str]()
    names = archive.source.only or tuple(f"pscheduler_{kind}" for kind in INDICES)
    url = f"{archive.source.url}/{','.join(names)}/_search?ignore_unavailable=true"
    since = _text(span.since_us)
    for _ in range(2 * SAMPLES_MAX // PAGE):
        query = {
            "size": PAGE,
            "sort": [{TIME: "asc"}],
            "query": {"bool": {"filter": [{"range": {TIME: {"gte": since, "lte": _text(span.until_us)}}}]}},
        }
        hits = _hits(await archive.post(url, query), archive)
        fresh = [hit for hit in hits if str(hit.get("_id")) not in seen]
        for hit in fresh:
            seen.add(str(hit.get("_id")))
            since = _take(hit.get("_source"), span, tries, found) or since
        if len(hits) < PAGE:
            break
        if not fresh:  # more documents of one instant than a page: go past them
            found.say(f"More than {PAGE} documents begin at {since}; some are left out.")
            since = _text(_us(since) + 1_000)
    tries.into(found)
    return found


def _hits(answer: Any, archive: Archive) -> list[dict[str, Any]]:
    try:
        hits = answer["hits"]["hits"]
        if isinstance(hits, list) and all(isinstance(hit, dict) for hit in hits):
            return hits
    except (KeyError, TypeError):
        pass
    raise Unreachable(f"Archive {archive.source.name} does not answer as OpenSearch does: {answer!r:.80}.")


def _take(document: Any, span: Span, tries: Tries, found: Found) -> str:
    """Put what the document says into `tries`; returns its time as it was written, "" if it has none."""
    try:
        began = str(document["pscheduler"]["start_time"])
        at_us = _us(began)
    except (KeyError, TypeError, ValueError, OverflowError):
        found.misread(f"A document has no time: {document!r:.80}.")
        return ""
    if not span.since_us < at_us <= span.until_us:
        return began
    try:
        meta, kind, result = document["meta"], document["test"]["type"], document["result"]
        source, destination = (_host(meta[end], span) for end in ("source", "destination"))
        if not source or not destination or source == destination:
            found.strangers += 1
        elif not result.get("succeeded", True):
            tries.add(source, destination, at_us, {}, f"{result.get('error') or 'the test failed'}"[:200])
        elif kind in READ:
            tries.add(source, destination, at_us, READ[kind](result), "")
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        found.misread(f"A document of {began} cannot be read: {document!r:.120}.")
    return began


def _host(end: Any, span: Span) -> str:
    return span.host(end.get("hostname"), end.get("ip")) if isinstance(end, dict) else span.host(end)


def _latency(result: Mapping[str, Any]) -> dict[str, Any]:
    packets, values = result["packets"], {}
    values["loss_pct"] = 100.0 * packets["lost"] / packets["sent"]
    if result.get("latency"):
        values["delay_us"] = result["latency"]["median"] * 1e3  # milliseconds
    if result.get("max_clock_error") is not None:
        values["clock_error_us"] = result["max_clock_error"] * 1e3
    return values


def _rtt(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"rtt_us": seconds_of(result["rtt"]["mean"]) * 1e6}


READ: Mapping[str, Any] = {
    "latency": _latency,
    "latencybg": _latency,
    "rtt": _rtt,
    "throughput": lambda result: {"bandwidth_bps": result["throughput"]},
    "mtu": lambda result: {"mtu_bytes": result["mtu"]},
}


def _us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)


def _text(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
