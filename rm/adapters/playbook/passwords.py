"""The passwords of a run: which one a host gets, and that none is ever shown."""

from __future__ import annotations

import threading
from typing import Any

from rm.adapters.playbook.become import Passwords
from rm.adapters.playbook.roster import Roster
from rm.adapters.playbook.vault import SECRET_MIN, Vault
from rm.playbook.model.connection import BECOME_PASSWORDS, LOGIN_PASSWORDS
from rm.playbook.model.steps import THE_HOSTS, Way


class PasswordBook:
    """`given` hold where the variables of a task and of its host name none."""

    def __init__(self, roster: Roster, given: Passwords, vault: Vault) -> None:
        self._roster, self._given, self._vault = roster, given, vault
        self._learning = threading.Lock()
        self._hide(given.become, given.login)

    def of(self, name: str, way: Way = THE_HOSTS) -> Passwords:
        """What to say on a host, where a task's own variables come first; raises UsageError."""
        own = dict(way.variables)

        def first(keys: tuple[str, ...], given: str) -> str:
            found = next(filter(None, map(own.get, keys)), "")
            theirs = {} if found else self._roster.connection_of(name, keys)
            return found or str(next(filter(None, theirs.values()), given))

        found = Passwords(
            first(BECOME_PASSWORDS, self._given.become), first(LOGIN_PASSWORDS, self._given.login)
        )
        self._hide(found.become, found.login)
        return found

    def _hide(self, *texts: Any) -> None:
        new = {str(text) for text in texts if len(str(text or "")) >= SECRET_MIN}
        with self._learning:  # another thread may be reading the set: it is replaced, not changed
            self._vault.secrets = self._vault.secrets | new
