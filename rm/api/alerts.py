"""Alerts and silences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rm.api.answer import Answer, Request

Name = Annotated[str, Meta(min_length=1)]
Comment = Annotated[str, Meta(max_length=500)]


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that a channel has not got yet."""

    event: str
    channel: str


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """`level` is what was notified, null for conditions without levels; `acked`: who acknowledged it;
    `silenced`: why it does not fire, or worsen; `failed`: which channel could not be notified."""

    id: str
    state: Literal["firing", "pending", "resolved"]
    rule: str
    condition: str
    subject: str
    hosts: Sequence[str]
    message: str
    pending_us: int | None
    fired_us: int | None
    ended_us: int | None
    fired_recently: int
    silenced: str | None
    acked: str | None
    owed: Sequence[Owed]
    failed: str | None
    level: Literal["warn", "critical"] | None = None


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts of these conditions and hosts ([] = all) do not fire until it ends."""

    id: int
    conditions: Sequence[str]
    hosts: Sequence[str]
    since_us: int
    until_us: int
    by: str
    comment: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """`level` "": each condition from its usual one on. `longer_us`: the conditions that must hold for longer
    than `after_us` before they fire. `improved`: that what was critical is only a warning is notified too."""

    name: str
    on: Sequence[str]
    level: str
    hosts: Sequence[str]
    zones: Sequence[str]
    after_us: int
    clear_us: int
    tell: Sequence[str]
    longer_us: Mapping[str, int] = {}
    improved: bool = False


class Alerts(Answer, frozen=True, kw_only=True):
    """Those that hold first, then the newest; `channels` are names."""

    alerts: Sequence[Alert]
    silences: Sequence[Silence]
    rules: Sequence[Rule]
    channels: Sequence[str]


class Acknowledge(Request, frozen=True, kw_only=True):
    """`alerts`: ids, keys or subjects of alerts that fire."""

    alerts: Annotated[Sequence[Name], Meta(min_length=1, max_length=1_000)]
    comment: Comment = ""


class Acknowledged(Answer, frozen=True, kw_only=True):
    acknowledged: Sequence[str]


class SilenceRequest(Request, frozen=True, kw_only=True):
    """Conditions, hosts (names or patterns), or both; `for_s` is up to 366 days."""

    conditions: Annotated[Sequence[Name], Meta(max_length=1_000)] = ()
    hosts: Annotated[Sequence[Name], Meta(max_length=1_000)] = ()
    for_s: Annotated[float, Meta(gt=0, le=366 * 86_400)]
    comment: Comment = ""


class OneSilence(Answer, frozen=True, kw_only=True):
    silence: Silence
