"""Facts of pScheduler's formats as JSON schemas: test specifications, results, and the document of a run.

From https://github.com/perfsonar/pscheduler at 1e8b192 (2026-05-19): `pscheduler-test-TYPE/TYPE/validate.py`
(spec_is_valid, result_is_valid), types of `python-pscheduler/pscheduler/pscheduler/jsonval.py`, the
document of `pscheduler-server/pscheduler-server/daemons/archiver.raw`. Where a schema there allows further
keys in silence, it is closed here, so that none of ours is misspelt.
"""

from __future__ import annotations

from typing import Any

NAME = {
    "type": "string",
    "maxLength": 255,
    "pattern": r"^[A-Za-z0-9_][A-Za-z0-9\-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9\-]{0,62})*\.?$",
}
ADDRESS = {"oneOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}
HOST = {"anyOf": [NAME, ADDRESS]}
CARDINAL = {"type": "integer", "minimum": 1}
ZERO = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
YES = {"type": "boolean"}
NUMBER = {"type": "number"}
INT32 = {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
DURATION = {
    "type": "string",
    "pattern": r"^P(?:\d+(?:\.\d+)?W)?(?:\d+(?:\.\d+)?D)?"
    r"(?:T(?:\d+(?:\.\d+)?H)?(?:\d+(?:\.\d+)?M)?(?:\d+(?:\.\d+)?S)?)?$",
}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"}
UUID = {"type": "string", "pattern": r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"}


def closed(required: str, **properties: Any) -> dict[str, Any]:
    keys = {name.replace("_", "-"): value for name, value in properties.items()}
    return {
        "type": "object",
        "properties": {"schema": CARDINAL, **keys},
        "required": required.split(),
        "additionalProperties": False,
    }


ENDS = {"source": HOST, "dest": HOST}
RECORDS = ["a", "aaaa", "ns", "cname", "soa", "ptr", "mx", "txt"]
SPECS = {
    "latency": closed(
        "dest", **ENDS, packet_count=CARDINAL, packet_interval={"type": "number", "exclusiveMinimum": 0},
        bucket_width={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ),
    "latencybg": closed(
        "dest", **ENDS, duration=DURATION, packet_count=CARDINAL,
        packet_interval={"type": "number", "exclusiveMinimum": 0},
        bucket_width={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ),
    "throughput": closed("dest", **ENDS, duration=DURATION, bandwidth=CARDINAL),
    "mtu": closed("dest", **ENDS),
    "trace": closed("dest", **ENDS, probe_type={"enum": ["icmp", "udp", "tcp"]}, queries=CARDINAL),
    "clock": closed("dest", **ENDS),
    "dns": closed(
        "query record", host=HOST, query=HOST, record={"enum": RECORDS}, timeout=DURATION, nameserver=HOST
    ),
    "http": closed("url", host=HOST, url={"type": "string", "format": "uri"}, parse=TEXT, timeout=DURATION),
}  # fmt: skip

COUNTS = {f"packets_{what}": ZERO for what in ("sent", "received", "lost", "duplicated", "reordered")}
SAID = {"succeeded": YES, "error": TEXT, "diags": TEXT}
FLOW = closed("", throughput_bits=NUMBER, throughput_bytes=NUMBER, start=NUMBER, end=NUMBER)
FLOWS = {
    "type": "object",
    "properties": {"streams": {"type": "array", "items": FLOW}, "summary": FLOW},
    "additionalProperties": False,
}
CLOCK = {
    "type": "object",
    "properties": {"time": TIME, "synchronized": YES, "source": TEXT, "reference": TEXT, "offset": NUMBER},
    "required": ["time", "synchronized"],
    "additionalProperties": False,
}
SOA = {
    "type": "object",
    "properties": {
        "nameserver": HOST, "owner": TEXT,
        "serial": {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1},
        **dict.fromkeys(("refresh", "retry", "expire", "minimum"), INT32),
    },
    "required": ["nameserver", "owner", "serial", "refresh", "retry", "expire", "minimum"],
}  # fmt: skip
MX = {
    "type": "object",
    "properties": {"pref": {"type": "integer", "minimum": -32768, "maximum": 32767}, "mx": HOST},
    "required": ["pref", "mx"],
}


def some(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


RECORD_OF = {
    "a": some({"type": "string", "format": "ipv4"}),
    "aaaa": some({"type": "string", "format": "ipv6"}),
    "ns": some(HOST),
    "cname": HOST,
    "ptr": HOST,
    "mx": some(MX),
    "soa": SOA,
    "txt": some(TEXT),
}
LATENCY = closed(
    "succeeded", **SAID, **COUNTS, max_clock_error=NUMBER,
    histogram_latency={
        "type": "object",
        "patternProperties": {r"^[-+]?([0-9]+(\.[0-9]+)?|\.[0-9]+)$": {"type": "integer"}},
        "additionalProperties": False,
    },
)  # fmt: skip
RESULTS = {
    "latency": LATENCY,
    "latencybg": LATENCY,
    "throughput": closed(
        "succeeded diags intervals summary", **SAID,
        intervals={"type": "array", "items": FLOWS}, summary=FLOWS,
    ),
    "mtu": closed("succeeded mtu", succeeded=YES, mtu=CARDINAL),
    "trace": closed(
        "succeeded paths", **SAID,
        paths={"type": "array", "items": {"type": "array", "items": {
            "type": "object", "properties": {"ip": ADDRESS, "rtt": DURATION}, "additionalProperties": False,
        }}},
    ),
    "clock": closed(
        "succeeded local remote difference", **SAID, local=CLOCK, remote=CLOCK, difference=DURATION
    ),
    "dns": closed("succeeded", **SAID, time=DURATION, record={"anyOf": list(RECORD_OF.values())}),
    "http": closed(
        "schema succeeded time", **SAID, time=DURATION, found=YES, status=CARDINAL, content=TEXT
    ),
}  # fmt: skip
# what a run that found nothing has: `archiver.raw` passes on what the tool said
FAILED = closed("succeeded error", **SAID, time=DURATION)

TEST = {"type": "object", "required": ["type", "spec"], "additionalProperties": False,
        "properties": {"type": TEXT, "spec": {"type": "object"}}}  # fmt: skip
RUN = {
    "type": "object",
    "required": ["start-time", "end-time", "duration", "participants", "state", "href", "task-href"],
    "properties": {
        "start-time": TIME,
        "end-time": TIME,
        "duration": DURATION,
        "state": {"enum": ["finished", "failed"]},
        "href": {"type": "string", "pattern": "/tasks/[0-9a-f-]{36}/runs/[0-9a-f-]{36}$"},
        "task-href": {"type": "string", "pattern": "/tasks/[0-9a-f-]{36}$"},
    },
}
DOCUMENT = {
    "type": "object",
    "required": ["id", "schedule", "test", "tool", "run", "task", "participants", "result", "reference"],
    "properties": {
        "id": UUID,
        "schedule": {
            "type": "object",
            "required": ["start", "duration"],
            "properties": {"start": TIME, "duration": DURATION},
            "additionalProperties": False,
        },
        "test": TEST,
        "tool": {"type": "object", "required": ["name", "version"], "additionalProperties": False,
                 "properties": {"name": TEXT, "version": TEXT}},
        "run": RUN,
        "task": {"type": "object", "required": ["test", "href"]},
        "participants": some(HOST),
        "result": {"type": "object"},
        "reference": {},
    },
    "additionalProperties": False,
}  # fmt: skip


def misfit() -> type[Exception]:
    """What `must_fit` raises."""
    from jsonschema import ValidationError

    return ValidationError


def must_fit(value: Any, schema: dict[str, Any]) -> None:
    # not in each worker that collects tests: 1.5 s of processor
    from jsonschema import Draft7Validator, FormatChecker

    Draft7Validator(schema, format_checker=FormatChecker(["ipv4", "ipv6"])).validate(value)


def must_be_a_run(document: dict[str, Any]) -> None:
    """The document, its test's specification and its result fit their schemas."""
    must_fit(document, DOCUMENT)
    kind, result = document["test"]["type"], document["result"]
    must_fit(document["test"]["spec"], SPECS[kind])
    must_fit(result, RESULTS[kind] if result["succeeded"] else FAILED)
    if kind == "dns" and result["succeeded"]:
        must_fit(result["record"], RECORD_OF[document["test"]["spec"]["record"]])
