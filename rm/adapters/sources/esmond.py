"""esmond, perfSONAR's archive until version 4: metadata by event type, then a series for each pair.

Units are those of esmond's event types: loss as a share of 1, histograms with the milliseconds as keys,
throughput in bit/s, the path's MTU in bytes.

GET <archive>/?event-type=T&time-range=S   [{source, destination, input-source, …, event-types: [{event-type, base-uri}]}]
GET <base-uri>?time-start=S&time-end=S     [{ts, val}]
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm.adapters.sources.asking import Archive, Found, Span, Tries
from rm.errors import Unreachable
from rm.units import SECOND_US

LIMIT = 10_000  # metadata of one event type, and points of one series


def _loss(value: Any) -> dict[str, Any]:
    return {"loss_pct": value * 100.0 if _is_number(value) else value}


def _delay(value: Any) -> dict[str, Any]:
    return {"delay_us": median(value) * 1e3}


def _rtt(value: Any) -> dict[str, Any]:
    return {"rtt_us": median(value) * 1e3}


def _throughput(value: Any) -> dict[str, Any]:
    return {"bandwidth_bps": value}


def _mtu(value: Any) -> dict[str, Any]:
    return {"mtu_bytes": value}


# of what a failed test of this event type, or of this pScheduler test, would have measured
CHECKS = {
    "packet-loss-rate": ("loss",),
    "histogram-owdelay": ("delay",),
    "throughput": ("bandwidth",),
    "path-mtu": ("mtu",),
    "latency": ("loss", "delay"),
    "latencybg": ("loss", "delay"),
    "mtu": ("mtu",),
}
# event type -> what its value is in ours; histograms are {milliseconds: how many packets}
EVENTS: Mapping[str, Any] = {
    "packet-loss-rate": _loss,
    "histogram-owdelay": _delay,
    "histogram-rtt": _rtt,
    "throughput": _throughput,
    "path-mtu": _mtu,
    "failures": None,
}


async def read(archive: Archive, span: Span) -> Found:
    found, tries = Found(), Tries(archive.source.mesh)
    series: dict[str, tuple[str, str, str, frozenset[str]]] = {}

    async def list_series(event: str) -> None:
        seconds = max(1, (span.until_us - span.since_us) // SECOND_US + 1)
        params = {"event-type": event, "time-range": str(seconds), "limit": str(LIMIT), "format": "json"}
        for record in _list(await archive.get(archive.source.url + "/", **params), archive):
            source = span.host(record.get("input-source"), record.get("source"))
            destination = span.host(record.get("input-destination"), record.get("destination"))
            if not source or not destination or source == destination:
                found.strangers += 1
                continue
            kinds = _dicts(record.get("event-types"))
            about = _checks(record.get("pscheduler-test-type"), *(k.get("event-type") for k in kinds))
            for kind in kinds:
                if kind.get("event-type") == event and isinstance(kind.get("base-uri"), str):
                    series[archive.at(kind["base-uri"])] = (source, destination, event, about)

    async def read_series(url: str) -> None:
        source, destination, event, about = series[url]
        start, end = span.since_us // SECOND_US, -(-span.until_us // SECOND_US)
        params = {"time-start": str(start), "time-end": str(end), "limit": str(LIMIT), "format": "json"}
        for point in _list(await archive.get(url, **params), archive):
            try:
                at_us = round(float(point["ts"]) * SECOND_US)
                if not span.since_us < at_us <= span.until_us:
                    continue
                value = point["val"]
                if EVENTS[event] is None:
                    tries.fail(source, destination, at_us, _why(value), sorted(about))
                else:
                    tries.add(source, destination, at_us, EVENTS[event](value))
            except (KeyError, TypeError, ValueError, OverflowError):
                found.misread(
                    f"A point of {event} from {source} to {destination} cannot be read: {point!r:.80}."
                )

    await archive.each(EVENTS, list_series, found)
    await archive.each(sorted(series), read_series, found)
    tries.into(found)
    return found


def _list(answer: Any, archive: Archive) -> list[dict[str, Any]]:
    if not isinstance(answer, list):
        raise Unreachable(f"Archive {archive.source.name} does not answer as esmond does: {answer!r:.80}.")
    return _dicts(answer)


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _why(value: Any) -> str:
    said = value.get("error") if isinstance(value, dict) else value
    return f"{said or 'the test failed'}"[:200]


def _checks(*names: Any) -> frozenset[str]:
    return frozenset(check for name in names if isinstance(name, str) for check in CHECKS.get(name, ()))


def median(histogram: Any) -> float:
    """The bucket in which the middle packet is. Raises ValueError, TypeError for what is not a histogram."""
    if not isinstance(histogram, dict):
        raise TypeError(histogram)
    buckets = sorted((float(ms), int(count)) for ms, count in histogram.items())
    total = sum(count for _, count in buckets)
    if total <= 0:
        raise ValueError("no packets")
    seen = 0
    for ms, count in buckets:
        seen += count
        if seen * 2 >= total:
            return ms
    raise ValueError("counts below zero")
