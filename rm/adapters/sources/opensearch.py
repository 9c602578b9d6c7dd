"""The OpenSearch archive of perfSONAR 5: one document a test, in indices `pscheduler_<type>`.

POST <archive>/pscheduler_latency*,…/_search
{test: {type, spec}, meta: {source: {ip, hostname}, destination: {…}}, pscheduler: {start_time}, result}

A result is either as the archive's own pipeline rewrites it, or as pScheduler made it (where the archiver
sends it unchanged); `RESULTS` reads both. What their numbers are in:

- one-way latency: milliseconds in the archive's statistics (`latency.median`); pScheduler has a histogram
  whose keys are in buckets of `bucket-width` seconds, 1 ms if the spec names none; `max-clock-error` is in
  milliseconds in both;
- round trips: ISO 8601 durations in pScheduler's (`PT0.0012S`), seconds as a number in the archive's;
- loss: counts of packets in both, or a share of 1;
- throughput: bit/s in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rm.adapters.sources.asking import SAMPLES_MAX, Archive, Found, Span, Tries
from rm.adapters.sources.esmond import CHECKS, median
from rm.adapters.sources.iso import seconds_of
from rm.errors import Unreachable

INDICES = ("latency", "latencybg", "throughput", "rtt", "mtu")
PAGE = 250
WINDOW = 10_000  # documents of a query that OpenSearch shows (index.max_result_window)
TIME = "pscheduler.start_time"
BUCKET_S = 0.001


async def read(archive: Archive, span: Span) -> Found:
    found, tries, seen = Found(), Tries(archive.source.mesh), set[str]()
    names = archive.source.only or tuple(f"pscheduler_{kind}" for kind in INDICES)
    url = f"{archive.source.url}/{','.join(names)}/_search?ignore_unavailable=true"
    since, past = _text(span.since_us), 0
    for _ in range(2 * SAMPLES_MAX // PAGE):
        query = {
            "from": past,
            "size": PAGE,
            "sort": [{TIME: "asc"}],
            "query": {"bool": {"filter": [{"range": {TIME: {"gte": since, "lte": _text(span.until_us)}}}]}},
        }
        hits = _hits(await archive.post(url, query), archive)
        fresh = [hit for hit in hits if str(hit.get("_id")) not in seen]
        before = since
        for hit in fresh:
            seen.add(str(hit.get("_id")))
            since = _take(hit.get("_source"), span, tries, found) or since
        if len(hits) < PAGE:
            break
        # of one instant there may be more documents than a page has
        past = past + PAGE if since == before else 0
        if past + PAGE > WINDOW:
            found.say(f"More than {WINDOW - PAGE} documents begin at {since}; some are left out.")
            since, past = _text(min(_us(since) + 1_000, span.until_us)), 0
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
        meta, test, result = document["meta"], document["test"], document["result"]
        source, destination = (_host(meta[end], span) for end in ("source", "destination"))
        if not source or not destination or source == destination:
            found.strangers += 1
        elif not result.get("succeeded", True):
            said = f"{result.get('error') or 'the test failed'}"
            tries.fail(source, destination, at_us, said, CHECKS.get(str(test["type"]), ()))
        elif test["type"] in RESULTS:
            spec = test.get("spec") or {}
            tries.add(source, destination, at_us, RESULTS[test["type"]](result, spec))
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        found.misread(f"A document of {began} cannot be read: {document!r:.120}.")
    return began


def _host(end: Any, span: Span) -> str:
    return span.host(end.get("hostname"), end.get("ip")) if isinstance(end, dict) else span.host(end)


def _latency(result: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    packets = result.get("packets") or result
    values = {"loss_pct": 100.0 * _either(packets, "lost") / _either(packets, "sent")}
    bucket_s = float(spec.get("bucket-width") or BUCKET_S)
    if result.get("latency"):
        values["delay_us"] = result["latency"]["median"] * 1e3
    elif result.get("histogram-latency"):
        values["delay_us"] = median(result["histogram-latency"]) * bucket_s * 1e6
    error_ms = result.get("max_clock_error", result.get("max-clock-error"))
    if error_ms is not None:
        values["clock_error_us"] = error_ms * 1e3
    return values


def _either(packets: Mapping[str, Any], name: str) -> Any:
    return packets[name] if name in packets else packets[f"packets-{name}"]


def _rtt(result: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    trips = result["rtt"] if isinstance(result.get("rtt"), dict) else result
    return {"rtt_us": seconds_of(trips["mean"]) * 1e6}


def _throughput(result: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    if "throughput" in result:
        return {"bandwidth_bps": result["throughput"]}
    return {"bandwidth_bps": result["summary"]["summary"]["throughput-bits"]}


# test -> its result, and its spec, to what it found in our units
RESULTS: Mapping[str, Any] = {
    "latency": _latency,
    "latencybg": _latency,
    "rtt": _rtt,
    "throughput": _throughput,
    "mtu": lambda result, spec: {"mtu_bytes": result["mtu"]},
}


def _us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)


def _text(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
