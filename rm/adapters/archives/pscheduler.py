"""A result as pScheduler's document of a run, as its archivers get it.

{id, schedule: {start, duration}, test: {type, spec}, tool: {name, version}, run: {start-time, end-time,
duration, participants, state, href, task-href}, task: {test, href, detail}, participants, result, reference}

Format: https://github.com/perfsonar/pscheduler at 1e8b192: `pscheduler-server/…/daemons/archiver.raw` builds
the document, `pscheduler-test-*/*/validate.py` has the schemas of `test.spec` and `result` for each type, and
`python-pscheduler/…/jsonval.py` their types. https://github.com/perfsonar/logstash reads `run.start-time`,
`task.href` (…/tasks/ID) and `run.href` (…/runs/ID). Durations are ISO 8601; the keys of `histogram-latency`
are delays in units of `bucket-width`, which is a millisecond, with two decimals; `max-clock-error` is in
milliseconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rm import __version__
from rm.adapters.sources.iso import iso_of
from rm.core.monitoring.outcome import Outcome

SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "rm.monitor.archive")
BUCKET_S = 0.001
TRACE_QUERIES = 3
Found = Mapping[str, Any]


def document_of(outcome: Outcome) -> dict[str, Any]:
    """The document of one test; the same test of the same pair is the same task."""
    kind, spec = outcome.test, SPECS[outcome.test](outcome)
    ends = (outcome.mesh.name, kind, outcome.source.name, outcome.destination.name)
    task = uuid.uuid5(SPACE, "\0".join(ends))
    run = uuid.uuid5(task, str(outcome.begun_us))
    task_href = f"rm:/tasks/{task}"
    run_href = f"{task_href}/runs/{run}"
    duration = iso_of(max(0, outcome.ended_us - outcome.begun_us))
    test = {"type": kind, "spec": spec}
    hosts = list(dict.fromkeys((outcome.source.address, outcome.destination.address)))
    return {
        "id": str(run),
        "schedule": {"start": text_of(outcome.begun_us), "duration": duration},
        "test": test,
        "tool": {"name": "rm", "version": __version__},
        "run": {
            "start-time": text_of(outcome.begun_us),
            "end-time": text_of(outcome.ended_us),
            "duration": duration,
            "participant": 0,
            "participants": hosts,
            "state": "failed" if outcome.failed else "finished",
            "state-display": "Failed" if outcome.failed else "Finished",
            "href": run_href,
            "task-href": task_href,
        },
        "task": {"test": test, "detail": {"duration": duration}, "href": task_href},
        "participants": hosts,
        "result": result_of(outcome),
        "reference": {"rm-mesh": outcome.mesh.name},
    }


def result_of(outcome: Outcome) -> dict[str, Any]:
    """The result by the schema of its test; of one that failed, why."""
    if not outcome.failed:
        found = {**outcome.found, "record": outcome.mesh.service.record}
        return {"schema": 1, "succeeded": True, **RESULTS[outcome.test](found)}
    failed = {"schema": 1, "succeeded": False, "error": outcome.failed, "diags": ""}
    if outcome.test == "http":
        failed |= {"schema": 2, "time": iso_of(outcome.found.get("time_us", 0))}
    elif outcome.test == "dns" and "time_us" in outcome.found:
        failed["time"] = iso_of(outcome.found["time_us"])
    return failed


def text_of(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# -- what was asked


def _ends(outcome: Outcome) -> dict[str, Any]:
    return {"schema": 1, "source": outcome.source.address, "dest": outcome.destination.address}


def _latency_spec(outcome: Outcome) -> dict[str, Any]:
    mesh = outcome.mesh
    spacing = {"packet-interval": mesh.spacing_us / 1e6} if mesh.spacing_us else {}
    return _ends(outcome) | {"packet-count": mesh.packets, "bucket-width": BUCKET_S} | spacing


def _throughput_spec(outcome: Outcome) -> dict[str, Any]:
    rate = {"bandwidth": outcome.mesh.rate_bps} if outcome.mesh.rate_bps else {}
    return _ends(outcome) | {"duration": iso_of(outcome.mesh.duration_us)} | rate


def _trace_spec(outcome: Outcome) -> dict[str, Any]:
    return _ends(outcome) | {"probe-type": "udp", "queries": TRACE_QUERIES}


def _dns_spec(outcome: Outcome) -> dict[str, Any]:
    service = outcome.mesh.service
    server = {"nameserver": service.nameserver} if service.nameserver else {}
    asked = {"query": service.query, "record": service.record, "timeout": iso_of(service.timeout_us)}
    return {"schema": 1, "host": outcome.source.address} | asked | server


def _http_spec(outcome: Outcome) -> dict[str, Any]:
    service = outcome.mesh.service
    text = {"parse": service.contains} if service.contains else {}
    asked = {"url": service.url, "timeout": iso_of(service.timeout_us)}
    return {"schema": 1, "host": outcome.source.address} | asked | text


def _latencybg_spec(outcome: Outcome) -> dict[str, Any]:
    """A run is one result here: rm's streams have no end."""
    lasted_us = outcome.mesh.packets * outcome.mesh.spacing_us
    return _latency_spec(outcome) | {"duration": iso_of(lasted_us)}


SPECS: Mapping[str, Callable[[Outcome], dict[str, Any]]] = {
    "latency": _latency_spec,
    "latencybg": _latencybg_spec,
    "throughput": _throughput_spec,
    "mtu": _ends,
    "trace": _trace_spec,
    "clock": _ends,
    "dns": _dns_spec,
    "http": _http_spec,
}


# -- what was found


def _latency(found: Found) -> dict[str, Any]:
    sent, lost = found["sent"], found["lost"]
    counts = {"packets-sent": sent, "packets-received": sent - lost, "packets-lost": lost}
    counts |= {f"packets-{what}": found[what] for what in ("duplicated", "reordered") if what in found}
    buckets: dict[str, int] = {}
    for delay_us, packets in found["histogram"]:
        key = f"{delay_us / 1e6 / BUCKET_S:.2f}".replace("-0.00", "0.00")
        buckets[key] = buckets.get(key, 0) + packets
    error_us = found["clock_error_us"]
    error = {} if error_us is None else {"max-clock-error": error_us / 1e3}
    return counts | error | {"histogram-latency": buckets}


def _throughput(found: Found) -> dict[str, Any]:
    bits = float(found["bps"])
    total = {"throughput-bits": bits, "throughput-bytes": bits / 8}
    return {"diags": "", "intervals": [], "summary": {"streams": [], "summary": total}}


def _trace(found: Found) -> dict[str, Any]:
    """A hop that nobody answered for is an empty object."""
    hops: list[dict[str, str]] = []
    for address, rtt_us in found["hops"]:
        rtt = {} if rtt_us is None else {"rtt": iso_of(rtt_us)}
        hops.append({"ip": address} | rtt if address else {})
    return {"paths": [hops]}


def _clock(found: Found) -> dict[str, Any]:
    def state(at_us: int, synchronized: bool) -> dict[str, Any]:
        return {"time": text_of(at_us), "synchronized": synchronized}

    difference = iso_of(abs(found["difference_us"]))
    return {"local": state(*found["local"]), "remote": state(*found["remote"]), "difference": difference}


def _dns(found: Found) -> dict[str, Any]:
    return {"time": iso_of(found["time_us"]), "record": record_of(found["records"], found["record"])}


def record_of(records: list[str], kind: str) -> Any:
    """Records as in a zone file to pScheduler's shape of this type."""
    if kind in ("cname", "ptr"):
        return records[0]
    if kind == "mx":
        return [{"pref": int(pref), "mx": name} for pref, _, name in (r.partition(" ") for r in records)]
    if kind == "soa":
        server, owner, *numbers = records[0].split(" ")
        names = ("serial", "refresh", "retry", "expire", "minimum")
        return {"nameserver": server, "owner": owner, **dict(zip(names, map(int, numbers), strict=True))}
    return list(records)


def _http(found: Found) -> dict[str, Any]:
    has = {} if found["found"] is None else {"found": found["found"]}
    return {"schema": 2, "time": iso_of(found["time_us"]), "status": found["status"]} | has


RESULTS: Mapping[str, Callable[[Found], dict[str, Any]]] = {
    "latency": _latency,
    "latencybg": _latency,
    "throughput": _throughput,
    "mtu": lambda found: {"mtu": found["bytes"]},
    "trace": _trace,
    "clock": _clock,
    "dns": _dns,
    "http": _http,
}
