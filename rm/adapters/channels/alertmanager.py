"""Alerts to a Prometheus Alertmanager, by its API v2 (`POST /api/v2/alerts`, api/v2/openapi.yaml there).

An Alertmanager knows an alert by its labels, so these are the same from the firing to the end: all but
`severity`, which is `warning` or `critical` where rm knows a level. So a change of the level, and the end,
also end the alert of the other severity. No other message does: receivers hear of each alert that ends, also
of one that never fired. It forgets alerts when it is started anew, and takes one as over that nobody has
renewed until `endsAt`: what fires is sent again and again (`repeat_s`), as Prometheus does. The address,
whose path may be a secret, is in no error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rm.adapters.channels.posting import host_of, post
from rm.core.alerts.alert import FIRING

SEVERITIES = {"warn": "warning", "critical": "critical"}
REPEAT_S = 60.0
KEPT = 4  # repetitions that may be missing before an Alertmanager takes an alert as over


class AlertmanagerChannel:
    """`address` is where the Alertmanager listens, with the path of its `--web.route-prefix`, if any.

    `timeout_s` is of the whole exchange; `ca_file`: certificates to trust, "" = the system's. Redirections
    are not followed.
    """

    repeat_s = REPEAT_S

    def __init__(self, address: str, timeout_s: float, ca_file: str = "") -> None:
        self._address = f"{address.rstrip('/')}/api/v2/alerts"
        self._shown = f"the Alertmanager at {host_of(address)}"
        self._timeout_s = timeout_s
        self._ca_file = ca_file

    def tell(self, notice: Mapping[str, Any]) -> None:
        body = json.dumps(alerts_of(notice, time.time_ns() // 1000)).encode()
        post(self._shown, self._address, body, self._timeout_s, self._ca_file, {})


def alerts_of(notice: Mapping[str, Any], now_us: int) -> list[dict[str, Any]]:
    """A message of rm as what API v2 calls `postableAlerts`."""
    return [alert for member in notice["alerts"] for alert in _alerts(notice, member, now_us)]


def _alerts(notice: Mapping[str, Any], member: Mapping[str, Any], now_us: int) -> Sequence[dict[str, Any]]:
    subject, hosts = str(member["subject"]), list(member["hosts"])
    condition = str(notice["condition"])
    labels = {
        "alertname": "Rm" + "".join(word.capitalize() for word in condition.replace("_", "-").split("-")),
        "cluster": str(notice["cluster"]),
        "rule": str(notice["rule"]),
        "subject": subject,
        **({"host": subject} if subject in hosts else {}),
    }
    annotations = {
        "summary": f"{condition}: {subject}",
        "description": str(member["message"]),
        "hosts": ", ".join(hosts),
        "id": str(member["id"]),
    }
    fired_us = int(member["fired_us"])
    lasts_us = now_us + round(KEPT * REPEAT_S * 1e6)
    ends_us = int(member["ended_us"] or 0) or lasts_us

    def alert(severity: str, until_us: int) -> dict[str, Any]:
        return {
            "labels": {**labels, **({"severity": severity} if severity else {})},
            "annotations": annotations,
            "startsAt": _at(fired_us),
            "endsAt": _at(max(until_us, fired_us)),
        }

    if not member["level"]:
        return [alert("", ends_us)]
    return [
        alert(severity, ends_us if level == member["level"] else min(ends_us, now_us))
        for level, severity in SEVERITIES.items()
        if level == member["level"] or notice["event"] != FIRING
    ]


def _at(at_us: int) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
