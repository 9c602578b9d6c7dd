"""The daemon as playbooks ask it: `rm_drain` and `rm_resume`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rm.cli.session import Session

if TYPE_CHECKING:
    from rm.api.hosts import Host


class QueueDaemon:
    """The daemon for `rm_drain` and `rm_resume`; asked by several hosts' threads, one at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = threading.Lock()

    def hosts(self) -> list[Host]:
        with self._turn:
            return self._session.client.hosts()

    def drain(self, name: str, reason: str = "") -> Host:
        with self._turn:
            return self._session.client.drain(name, reason)

    def resume(self, name: str) -> Host:
        with self._turn:
            return self._session.client.resume(name)
