"""The tokens: made, found by their text, revoked, and when and from where each was used last.

All that live are in memory, so that a request with a token costs the database nothing. What was used last is
written once a minute.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rm.adapters.store.audit_scope import about
from rm.core.people.rights import Scope
from rm.core.people.token import Token, digest_of, id_of, text_of
from rm.core.ports import Clock
from rm.daemon.leading.leader import Leader
from rm.errors import Conflict, NotFound, RmError, UsageError
from rm.units import DAY_US

SECRET_BYTES = 32
ID_BYTES = 5
OF_ONE_USER = 100  # that live
ENDED_MOST = 100  # of one user, the last that ended: who makes and revokes tokens without end keeps no more
NAME_MOST = 100  # characters
LONGEST_US = 3660 * DAY_US
KEPT_US = 30 * DAY_US  # after its end a token is still listed


class TokenKeeper:
    def __init__(self, leader: Leader, clock: Clock, stored: Sequence[Token]) -> None:
        self._leader = leader
        self._clock = clock
        self._tokens: dict[str, Token] = {}
        self._of_users: defaultdict[str, set[str]] = defaultdict(set)  # the ids
        for token in stored:
            self._put(token)
        self._used: set[str] = set()
        self._lock = threading.Lock()

    async def create(
        self, user: str, uid: int, scope: Scope, lasts_us: int, name: str, by: str
    ) -> tuple[Token, str]:
        """A token and its text, which nobody can have again.

        Raises:
            UsageError: it would end before it begins, or its name is too long.
            Conflict: the user has too many.
        """
        now_us = self._clock.now_us()
        if not 0 < lasts_us <= LONGEST_US:
            raise UsageError("A token ends after a time above 0 and of at most ten years.")
        if len(name) > NAME_MOST or not name.isprintable():
            raise UsageError(f"A token's name is text of up to {NAME_MOST} characters.")
        id = secrets.token_hex(ID_BYTES)
        text = text_of(id, secrets.token_urlsafe(SECRET_BYTES))
        token = Token(id, user, uid, scope, digest_of(text), now_us, by, now_us + lasts_us, name)
        with self._lock:
            mine = [self._tokens[one] for one in self._of_users.get(user, ())]
            if sum(t.lives(now_us) for t in mine) >= OF_ONE_USER:
                raise Conflict(f"{user} has {OF_ONE_USER} tokens.", "Revoke some: rmx token revoke ID.")
            ended = sorted((t for t in mine if not t.lives(now_us)), key=Token.ended_us, reverse=True)
            old = tuple(t.id for t in ended[ENDED_MOST:])
            self._put(token)
        about(f"token {id} of {user}, scope {scope}")
        try:
            await asyncio.wrap_future(self._leader.keep_tokens((token,), old))
        except RmError:
            with self._lock:
                self._drop(id)
            raise
        with self._lock:
            for one in old:
                self._drop(one)
        return token, text

    def _put(self, token: Token) -> None:
        self._tokens[token.id] = token
        self._of_users[token.user].add(token.id)

    def _drop(self, id: str) -> None:
        token = self._tokens.pop(id, None)
        if token is not None:
            of_user = self._of_users[token.user]
            of_user.discard(id)
            if not of_user:
                del self._of_users[token.user]

    def tokens(self, user: str = "") -> list[Token]:
        """Of one user, or all; the oldest first."""
        with self._lock:
            found = [token for token in self._tokens.values() if user in ("", token.user)]
        return sorted(found, key=lambda token: (token.created_us, token.id))

    def token(self, id: str) -> Token:
        """Raises NotFound."""
        with self._lock:
            found = self._tokens.get(id)
        if found is None:
            raise NotFound(f"There is no token {id:.50}.", "`rmx token list` shows them.")
        return found

    async def revoke(self, id: str, by: str) -> Token:
        """It counts no more as soon as this is called; the answer comes after the commit."""
        now_us = self._clock.now_us()
        with self._lock:
            token = self._tokens.get(id)
            if token is None:
                raise NotFound(f"There is no token {id:.50}.", "`rmx token list` shows them.")
            if token.revoked_us is None:
                token = self._tokens[id] = replace(token, revoked_us=now_us, revoked_by=by)
        await asyncio.wrap_future(self._leader.keep_tokens((token,)))
        return token

    def now_us(self) -> int:
        return self._clock.now_us()

    def find(self, text: str) -> Token | None:
        """The token whose text this is, if it lives."""
        id = id_of(text)
        with self._lock:
            token = self._tokens.get(id) if id is not None else None
        if token is None or not token.is_of(text) or not token.lives(self._clock.now_us()):
            return None
        return token

    def use(self, id: str, origin: str) -> None:
        now_us = self._clock.now_us()
        with self._lock:
            token = self._tokens.get(id)
            if token is not None:
                self._tokens[id] = replace(token, used_us=now_us, used_from=origin)
                self._used.add(id)

    def write_down(self) -> None:
        """Make durable what was used since the last time, and forget what ended long ago.

        Raises:
            RmError: the leader stops, or the database is away.
        """
        now_us = self._clock.now_us()
        with self._lock:
            ended = [t.id for t in self._tokens.values() if t.ended_us() < now_us - KEPT_US]
            for id in ended:
                self._drop(id)
            used = tuple(self._tokens[id] for id in self._used if id in self._tokens)
            self._used.clear()
        if not used and not ended:
            return
        try:
            self._leader.keep_tokens(used, tuple(ended)).result()
        except RmError:  # it is written the next time
            with self._lock:
                self._used |= {token.id for token in used}
            raise
