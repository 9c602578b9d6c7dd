"""The past of a grid's cells in MaDDash's shapes: tries, and times in a bad status."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from rm.core.monitoring.cells import Status
from rm.core.monitoring.judging import judge
from rm.core.monitoring.mesh import Thresholds
from rm.core.monitoring.metrics import METRIC_OF

# what a value is in a message: loss in percent, delay in milliseconds, throughput in Mbit/s, MTU in bytes
UNIT = {
    "loss": 1.0,
    "delay": 1e3,
    "delay_p95": 1e3,
    "jitter": 1e3,
    "clock": 1e3,
    "bandwidth": 1e6,
    "mtu": 1.0,
    "trace": 1.0,
    "dns": 1e3,
    "http": 1e3,
}


def seconds(us: int | None) -> int:
    return (us or 0) // 1_000_000


def bad_times(
    grid: str, asked: Mapping[str, Sequence[str]], changes: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """From each change to a status that is not ok until the next change of the cell (0 = it is so now)."""
    until: dict[tuple[str, str, str], int] = {}
    found = []
    for change in reversed(changes):
        key = (change["check"], change["source"], change["destination"])
        ends, until[key] = until.get(key, 0), seconds(change["at_us"])
        wanted = all(
            not asked[name] or change[end] in asked[name]
            for name, end in (("rowName", "source"), ("columnName", "destination"))
        )
        if wanted and change["status"] not in (Status.OK, Status.MAINTENANCE):
            found.append(
                {
                    "name": f"{grid}: {change['check']} {Status(change['status']).word}",
                    "description": f"{change['source']} to {change['destination']}: {change['message']}",
                    "startTime": seconds(change["at_us"]),
                    "endTime": ends,
                    "changeStatus": False,
                }
            )
    return found


def tries_of(
    mesh: Mapping[str, Any],
    check: str,
    samples: Sequence[Mapping[str, Any]],
    changes: Sequence[Mapping[str, Any]],
    status: int,
) -> list[dict[str, Any]]:
    """What each try said, newest first, and the status as it became of them; `status` is the present one. Of
    the time before the first try that is still known the changes are left."""
    limits = Thresholds(**mesh["thresholds"])
    told: list[dict[str, Any]] = []
    count = 0
    for sample in samples:
        value = sample["values"].get(METRIC_OF[check])
        about = check in sample["checks"] if sample["checks"] else value is not None or sample["failed"]
        if sample["mesh"] != mesh["name"] or not about:
            continue
        result, said = judge(check, value, sample["failed"], limits)
        count = count + 1 if told and told[-1]["returnCode"] == result else 1
        then = _status_at(sample["at_us"], changes, status)
        told.append(_try(check, sample["at_us"], int(result), said, value, count, then))
    first_s = told[0]["time"] if told else None
    before = [
        _try(check, c["at_us"], c["status"], c["message"], c["value"], 1, c["status"])
        for c in changes
        if first_s is None or seconds(c["at_us"]) < first_s
    ]
    return [*before, *told][::-1]


def _status_at(at_us: int, changes: Sequence[Mapping[str, Any]], now: int) -> int:
    """Of a cell at an instant, by its changes, which are in order of time."""
    later = bisect_right(changes, at_us, key=lambda c: c["at_us"])
    if later:
        return int(changes[later - 1]["status"])
    if changes:
        return int(changes[0]["was"])
    return int(Status.NOT_RUN if now == Status.NOT_RUN else Status.OK)  # it never changed


def _try(
    check: str, at_us: int, code: int, said: str, value: float | None, count: int, status: int
) -> dict[str, Any]:
    return {
        "time": seconds(at_us),
        "returnCode": code,
        "message": said,
        "returnParams": {} if value is None else _statistics(value / UNIT[check]),
        "returnCodeCount": count,
        "status": int(status),
    }


def _statistics(value: float) -> dict[str, str]:
    """Of one try; MaDDash has them as text."""
    text = f"{value:.6g}"
    return {"Average": text, "Min": text, "Max": text, "Standard_Deviation": "0", "Count": "1"}
