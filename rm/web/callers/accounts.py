"""The accounts of this machine and their roles: by name, and by group, as `[roles]` in rm.toml says.

What the accounts' database says is asked for again after a few seconds, so that a user who leaves a group, or
the machine, loses what it gave. It may be a directory on the network: it is asked in a thread.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass

from rm.config import Config
from rm.core.people.rights import Role

KEPT_S = 5.0
KNOWN_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Account:
    """`uid` None: there is no such account."""

    uid: int | None
    groups: frozenset[str] = frozenset()


class Accounts:
    def __init__(self, config: Config, now_s: Callable[[], float] = time.monotonic) -> None:
        roles = config.roles
        self._named = {
            Role.ADMIN: frozenset({*roles.admins, *config.daemon.admins}),
            Role.OPERATOR: frozenset(roles.operators),
        }
        self._by_group = any(name.startswith("@") for names in self._named.values() for name in names)
        self._now_s = now_s
        self._known: dict[str, tuple[float, Account]] = {}

    async def account(self, user: str) -> Account:
        now_s = self._now_s()
        until_s, known = self._known.get(user, (0.0, None))
        if known is None or now_s >= until_s:
            known = await asyncio.to_thread(_look_up, user, self._by_group)
            if len(self._known) >= KNOWN_MOST:
                self._known.clear()
            self._known[user] = (now_s + KEPT_S, known)
        return known

    async def role_of(self, user: str) -> Role:
        """By rm.toml alone: that root and the daemon's own user are administrators is the door's to say."""
        groups = (await self.account(user)).groups if self._by_group else frozenset()
        for role, names in self._named.items():
            if user in names or any(f"@{group}" in names for group in groups):
                return role
        return Role.USER


def _look_up(user: str, groups: bool) -> Account:
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return Account(None)
    found = set()
    for gid in os.getgrouplist(user, entry.pw_gid) if groups else ():
        try:
            found.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # a group without a name cannot be in rm.toml
    return Account(entry.pw_uid, frozenset(found))
