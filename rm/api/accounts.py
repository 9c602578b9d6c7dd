"""Tokens and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from rm.api.answer import Answer, Count, Request, Time

TokenScope = Literal["read", "submit", "operate", "admin"]


class TokenRequest(Request, frozen=True, kw_only=True):
    """A token to make, for oneself; an administrator may name another user."""

    scope: TokenScope
    expires_s: Annotated[float, Meta(gt=0, le=3660 * 86_400)]
    name: Annotated[str, Meta(max_length=100)] = ""
    user: str = ""


class Token(Struct, frozen=True, kw_only=True):
    """A token without its text."""

    id: str
    user: str
    scope: TokenScope
    name: str
    created_us: Time
    created_by: str
    expires_us: Time
    used_us: Time | None
    used_from: str
    revoked_us: Time | None
    revoked_by: str
    live: bool


class Tokens(Answer, frozen=True, kw_only=True):
    tokens: Sequence[Token]


class OneToken(Answer, frozen=True, kw_only=True):
    token: Token


class NewToken(Answer, frozen=True, kw_only=True):
    """`text` is shown this once."""

    token: Token
    text: str


class Act(Struct, frozen=True, kw_only=True):
    """One entry: `via` is the door, `origin` the process or address behind it, `token` its id."""

    seq: Count
    at_us: Time
    user: str
    uid: int
    role: str
    via: str
    origin: str
    token: str
    verb: str
    target: str
    outcome: Literal["done", "refused", "failed", "begun"]
    detail: str


class Acts(Answer, frozen=True, kw_only=True):
    acts: Sequence[Act]
