"""Tokens: what a client of the HTTPS door shows instead of an account.

A token's text is `rmt_ID_SECRET`. The secret is 256 random bits, so its SHA-256 is as good as the secret is:
nobody can try all of them, and the text cannot be had from the digest.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from rm.core.people.rights import Scope

PREFIX = "rmt_"
TEXT_MOST = 200  # characters


@dataclass(frozen=True, slots=True)
class Token:
    """Instants are microseconds since the epoch. `uid` is the owner's at the time: an account that was
    removed and made again under its name is another one. `digest` is the SHA-256 of the token's text, in
    hexadecimal digits."""

    id: str
    user: str
    uid: int
    scope: Scope
    digest: str
    created_us: int
    created_by: str
    expires_us: int
    name: str = ""
    used_us: int | None = None
    used_from: str = ""
    revoked_us: int | None = None
    revoked_by: str = ""

    def lives(self, now_us: int) -> bool:
        return self.revoked_us is None and now_us < self.expires_us

    def ended_us(self) -> int:
        return self.expires_us if self.revoked_us is None else min(self.revoked_us, self.expires_us)

    def is_of(self, text: str) -> bool:
        """Is this the token's text? Takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(self.digest, digest_of(text))


def text_of(id: str, secret: str) -> str:
    return f"{PREFIX}{id}_{secret}"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def id_of(text: str) -> str | None:
    """The id that a text names; None when it is not a token's."""
    if not text.startswith(PREFIX) or len(text) > TEXT_MOST:
        return None
    id, separator, secret = text.removeprefix(PREFIX).partition("_")
    return id if separator and secret else None
