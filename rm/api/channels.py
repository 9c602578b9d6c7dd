"""Playbook steps over the agents' channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rm.api.answer import Answer, Request


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A connected agent that takes steps: the user id that it runs as, the SHA-256 of its executor."""

    host: str
    address: str
    port: int
    login: str
    uid: int | None
    executor: str


class Channels(Answer, frozen=True, kw_only=True):
    channels: Sequence[Channel]


class StepsRequest(Request, frozen=True, kw_only=True):
    """The agent's operation `steps`, for the host at exactly this address, port and login."""

    address: str
    port: int
    login: str
    steps: Sequence[Any]
    check: bool
    diff: bool
    planned: Mapping[str, Any]
    failed_task: int | None = None


class StepsAnswer(Answer, frozen=True, kw_only=True):
    """`result` is the agent's; `unsent` says why certainly nothing was done."""

    result: Mapping[str, Any] | UnsetType = UNSET
    unsent: str | UnsetType = UNSET
