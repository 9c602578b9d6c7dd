"""Who looks at the page: sessions, and the person on whose behalf the API is asked."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rm.api.people import ACTING_FOR, FROM, VIA

SESSIONS_MOST = 10_000
OF_ONE_MOST = 50  # sessions of one user: nobody can end those of others by logging in again and again
NOTES_MOST = 1_000
PAGE = {VIA: "page"}


@dataclass(frozen=True, slots=True)
class Door:
    """How somebody came in: the headers with which the API is asked for them. What is kept for one `key`
    is shown under no other."""

    key: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold a token

    def seen_from(self, address: str) -> Door:
        """With the address for the audit log."""
        return replace(self, headers={**self.headers, FROM: address})


NOBODY = Door("", {**PAGE, ACTING_FOR: ""})


def with_token(token: str, key: str = "") -> Door:
    """Without a right of its own: a daemon that knows no tokens takes it for nobody's."""
    return Door(key, {**PAGE, ACTING_FOR: "", "Authorization": f"Bearer {token}"})


def as_account(user: str) -> Door:
    return Door(f"account {user}", {**PAGE, ACTING_FOR: user})


def as_own_user() -> Door:
    """The user whose process this is, as the kernel reports to the daemon."""
    return Door("", PAGE)


@dataclass(frozen=True, slots=True)
class Person:
    """`user` "" is an anonymous visitor; `secret` proves that a form is one of ours; `leaves`: they can log
    out."""

    door: Door
    user: str = ""
    role: str = "nobody"
    secret: str = ""
    leaves: bool = False

    @property
    def known(self) -> bool:
        return bool(self.user)

    @property
    def operates(self) -> bool:
        return self.role in ("operator", "admin")

    def may_read(self, owner: str) -> bool:
        """The script and the log of a job of this user."""
        return self.known and (owner == self.user or self.role == "admin")

    def may_change(self, owner: str) -> bool:
        """A job of this user. The API decides; this only spares people buttons that it would refuse."""
        return self.known and (owner == self.user or self.operates)


class Sessions:
    """In memory only: a restart ends them. The cookie's value is kept as its digest. Browsers send a cookie
    of 127.0.0.1 to every port there, also to programs of others (`rmx forward`): one that a user of this
    machine was given counts for no other user of it."""

    def __init__(self, life_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._life_s = life_s
        self._now_s = now_s
        self._doors: dict[str, tuple[float, Door, str]] = {}
        self._of: dict[str, list[str]] = {}  # user -> keys of their sessions, the oldest first
        self._notes: dict[str, str] = {}
        self._key = secrets.token_bytes(32)

    def open(self, door: Door, user: str, local: str = "") -> str:
        """The cookie of a new session of this user, which counts from wherever or, where they connect as a
        `local` user of this machine, from there; the oldest of theirs ends when there are many."""
        cookie = secrets.token_urlsafe(32)
        key = digest(cookie)
        mine = [k for k in self._of.get(user, ()) if k in self._doors]
        many = max(0, len(mine) + 1 - OF_ONE_MOST)
        for old in mine[:many]:
            del self._doors[old]
        self._of[user] = [*mine[many:], key]
        self._doors[key] = (self._now_s() + self._life_s, Door(f"session {key}", door.headers), local)
        while len(self._doors) > SESSIONS_MOST:
            del self._doors[next(iter(self._doors))]
        return cookie

    def find(self, cookie: str, local: str = "") -> Door | None:
        ends_s, door, owner = self._doors.get(digest(cookie), (0.0, None, ""))
        if door is None or owner not in ("", local):
            return None
        if self._now_s() < ends_s:
            return door
        self.close(cookie, local)
        return None

    def close(self, cookie: str, local: str = "") -> None:
        """End the session, if `find` would give it to them."""
        *_, owner = self._doors.get(digest(cookie), ("",))
        if owner in ("", local):
            self._doors.pop(digest(cookie), None)

    def secret(self, door: Door) -> str:
        """What a form of this session carries, and nobody else can know."""
        return hmac.new(self._key, door.key.encode(), hashlib.sha256).hexdigest()

    def note(self, door: Door, text: str) -> None:
        """Said once, on the next page that is shown at this door."""
        self._notes[door.key] = text
        while len(self._notes) > NOTES_MOST:
            del self._notes[next(iter(self._notes))]

    def noted(self, door: Door) -> str:
        return self._notes.pop(door.key, "")


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
