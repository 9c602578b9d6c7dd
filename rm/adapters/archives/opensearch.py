"""A result as perfSONAR's archive keeps it: what its pipeline makes of pScheduler's document.

{test, meta: {source: {ip, hostname}, destination, observer}, pscheduler: {start_time, end_time, duration,
tool, participants, task_href, run_href}, reference, result}, in the index `pscheduler_<type>`.

Format: https://github.com/perfsonar/logstash, `perfsonar-logstash/pipeline`. Durations are seconds there.
What the archive looks up by itself (places, AS numbers) and its checksums of tests are left out.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Mapping
from typing import Any

from rm.adapters.archives.pscheduler import document_of
from rm.core.model.host import Host
from rm.core.monitoring.outcome import Outcome

QUANTILES = {"p_25": 0.25, "p_75": 0.75, "p_95": 0.95}


def index_of(outcome: Outcome) -> str:
    return f"pscheduler_{outcome.test}"


def kept_of(outcome: Outcome) -> dict[str, Any]:
    document = document_of(outcome)
    run, result = document["run"], document["result"]
    kept = {"succeeded": result["succeeded"]}
    if "error" in result:
        kept["error"] = result["error"]
    if "time" in result:
        kept["time"] = outcome.found["time_us"] / 1e6
    if not outcome.failed:
        kept |= RESULTS.get(outcome.test, _as_it_is)(result)
    return {
        "@timestamp": run["start-time"],
        "test": document["test"],
        "meta": {
            "source": _end(outcome.source),
            "destination": _end(outcome.destination),
            "observer": _end(outcome.source),
        },
        "pscheduler": {
            "start_time": run["start-time"],
            "end_time": run["end-time"],
            "duration": (outcome.ended_us - outcome.begun_us) / 1e6,
            "participants": document["participants"],
            "tool": document["tool"]["name"],
            "task_href": run["task-href"],
            "run_href": run["href"],
            "task_id": run["task-href"].rpartition("/")[2],
            "run_id": document["id"],
        },
        "reference": document["reference"],
        "result": kept,
    }


def _end(host: Host) -> dict[str, str]:
    """A host whose address is a name has no `ip`: the index takes only addresses there."""
    try:
        return {"ip": str(ipaddress.ip_address(host.address)), "hostname": host.name}
    except ValueError:
        return {"hostname": host.address}


def _as_it_is(result: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in ("schema", "time", "diags")}


def _latency(result: Mapping[str, Any]) -> dict[str, Any]:
    sent, lost = result["packets-sent"], result["packets-lost"]
    kept: dict[str, Any] = {
        "packets": {"sent": sent, "received": result["packets-received"], "lost": lost,
                    "loss": lost / sent if sent else 0.0},
    }  # fmt: skip
    for what in ("duplicated", "reordered"):
        if f"packets-{what}" in result:
            kept["packets"][what] = result[f"packets-{what}"]
    if "max-clock-error" in result:
        kept["max_clock_error"] = result["max-clock-error"]
    buckets = sorted((float(delay), count) for delay, count in result["histogram-latency"].items())
    if buckets:
        kept["latency"] = _statistics(buckets)
    return kept


def _statistics(buckets: list[tuple[float, int]]) -> dict[str, float]:
    """Of a histogram, milliseconds."""
    count = sum(n for _, n in buckets)
    mean = math.fsum(delay * n for delay, n in buckets) / count
    variance = math.fsum((delay - mean) ** 2 * n for delay, n in buckets) / count

    def quantile(share: float) -> float:
        below = 0
        for delay, n in buckets:
            below += n
            if below >= share * count:
                return delay
        return buckets[-1][0]

    return {
        "min": buckets[0][0], "max": buckets[-1][0], "mean": mean, "median": quantile(0.5),
        "stddev": math.sqrt(variance), **{name: quantile(share) for name, share in QUANTILES.items()},
    }  # fmt: skip


def _trace(result: Mapping[str, Any]) -> dict[str, Any]:
    hops = result["paths"][0]
    addresses = [hop["ip"] for hop in hops if hop]
    counts = {"count": len(hops), "success_count": len(addresses), "error_count": len(hops) - len(addresses)}
    return {"hop": counts | {"ip": addresses, "ip_str": " ".join(addresses)}, "json": result["paths"]}


RESULTS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "latency": _latency,
    "latencybg": _latency,
    "throughput": lambda result: {"throughput": result["summary"]["summary"]["throughput-bits"]},
    "trace": _trace,
}
