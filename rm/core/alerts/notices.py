"""The messages to channels: one alert, or in a storm many of one kind at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from rm.core.alerts.alert import FIRING, IMPROVED, LEVELS, RESOLVED, WORSENED, Alert, Owed

FEW = 4  # waiting for a channel: up to this many are sent one by one
MOST = 1_000  # in one message
NAMED = 3  # subjects, in the words of a message about many
MEMBER = ("id", "subject", "hosts", "message", "level", "at_us", "fired_us", "ended_us")
LEVEL_OF = {IMPROVED: LEVELS[0], WORSENED: LEVELS[-1]}  # also when the alert has gone on meanwhile


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to a channel about the alert `key`; `body` is a JSON object (docs/alerts.md)."""

    key: str
    event: str
    body: Mapping[str, Any]

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.event, self.body["rule"], self.body["condition"]


def notice_of(alert: Alert, owed: Owed, cluster: str) -> Notice:
    """The message that the alert owes. Its id and instants are the same whenever it is made."""
    event = owed.event
    if owed.fired_us not in (0, alert.fired_us):  # of an earlier episode
        ended_us = owed.at_us if event == RESOLVED else 0
        alert = replace(alert, fired_us=owed.fired_us, ended_us=ended_us)
    newest_us = {FIRING: alert.fired_us, RESOLVED: alert.ended_us}.get(event, alert.graded_us)
    body = {
        "version": 1,
        "event": event,
        "id": alert.episode,
        "cluster": cluster,
        "rule": alert.rule,
        "condition": alert.condition,
        "subject": alert.subject,
        "hosts": list(alert.hosts),
        "message": alert.message,
        "level": LEVEL_OF.get(event, alert.level) or None,
        "at_us": owed.at_us or newest_us,
        "fired_us": alert.fired_us,
        "ended_us": alert.ended_us or None,
    }
    return Notice(alert.key, event, {**body, "alerts": [{k: body[k] for k in MEMBER}]})


def take(waiting: Sequence[Notice]) -> tuple[list[Notice], list[Notice]]:
    """(what to send next in one message, what still waits), in order.

    Notices of one kind are sent together when there are more than FEW; the notices of one alert
    keep their order.
    """
    taken: list[Notice] = []
    left: list[Notice] = []
    passed: set[str] = set()  # alerts of which something earlier still waits, or is taken
    for notice in waiting:
        if notice.kind == waiting[0].kind and notice.key not in passed and len(taken) < MOST:
            taken.append(notice)
        else:
            left.append(notice)
        passed.add(notice.key)
    if len(taken) <= FEW:
        return list(waiting[:1]), list(waiting[1:])
    return taken, left


def body_of(notices: Sequence[Notice]) -> Mapping[str, Any]:
    """One message for one or more notices of one kind; all of them are listed in `alerts`."""
    bodies = [n.body for n in notices]
    if len(bodies) == 1:
        return bodies[0]
    members = [member for b in bodies for member in b["alerts"]]
    subjects = [str(b["subject"]) for b in bodies]
    more = f" and {len(subjects) - NAMED} more"
    named = sha256("\n".join(sorted(b["id"] for b in bodies)).encode()).hexdigest()[:16]
    return {
        **bodies[0],
        "id": f"{bodies[0]['rule']}/{bodies[0]['condition']}/{len(bodies)} subjects@{named}",
        "subject": f"{len(bodies)} subjects",
        "hosts": sorted({h for b in bodies for h in b["hosts"]}),
        "message": f"{len(bodies)} alerts: {', '.join(subjects[:NAMED])}{more}",
        "level": max((b["level"] for b in bodies if b["level"]), key=LEVELS.index, default=None),
        "at_us": max(b["at_us"] for b in bodies),
        "fired_us": min(b["fired_us"] for b in bodies),
        "ended_us": max(b["ended_us"] or 0 for b in bodies) or None,
        "alerts": members,
    }
