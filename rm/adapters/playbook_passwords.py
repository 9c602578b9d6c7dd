"""The passwords of a run: which one a host is told, and that none is ever shown."""

from __future__ import annotations

import threading
from typing import Any

from jinja2.utils import missing

from rm.adapters.playbook_become import BECOME_PASSWORDS, LOGIN_PASSWORDS, Passwords
from rm.adapters.playbook_roster import Roster
from rm.adapters.vault import SECRET_MIN, Vault
from rm.errors import UsageError
from rm.playbook.conduct import Part
from rm.playbook.template import NeedResult, TemplateProblem


class PasswordBook:
    """`given` hold where the variables of a host and of the running play name none."""

    def __init__(self, roster: Roster, given: Passwords, vault: Vault) -> None:
        self._roster, self._given, self._vault = roster, given, vault
        self._of_play: dict[str, dict[str, Any]] = {}  # what the play's variables say, by host
        self._learning = threading.Lock()
        self._hide(given.become, given.login)

    def new_play(self) -> None:
        self._of_play.clear()

    def learn(self, part: Part, name: str) -> None:
        """Look once for passwords for sudo in the play's variables (`vars_files` included).

        Raises UsageError."""
        if name in self._of_play:
            return
        scope = part.runs[name].scoping.scope(part.play.common, None)
        try:
            found = {key: scope.lookup(key) for key in BECOME_PASSWORDS}
        except (TemplateProblem, NeedResult) as problem:
            raise UsageError(f"the password for sudo on host '{name}': {problem}.") from None
        self._of_play[name] = {key: value for key, value in found.items() if value is not missing}

    def of(self, name: str) -> Passwords:
        """What to say on a host; raises UsageError."""
        become = self._of_play.get(name) or self._roster.connection_of(name, BECOME_PASSWORDS)
        login = self._roster.connection_of(name, LOGIN_PASSWORDS)
        found = Passwords(
            str(next(filter(None, become.values()), self._given.become)),
            str(next(filter(None, login.values()), self._given.login)),
        )
        self._hide(found.become, found.login)
        return found

    def _hide(self, *texts: Any) -> None:
        new = {str(text) for text in texts if len(str(text or "")) >= SECRET_MIN}
        with self._learning:  # another thread may be reading the set: it is replaced, not changed
            self._vault.secrets = self._vault.secrets | new
