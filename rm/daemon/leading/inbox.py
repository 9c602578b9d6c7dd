"""What waits for the leader. It is made before the leader, for those who post to it."""

from __future__ import annotations

import queue
import threading
from typing import Any

from rm.core.jobs import events as ev
from rm.daemon.execution.greeting import HostReport


class Inbox:
    """From any thread; `take` and `close` are the leader's."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._closed = False

    def post(self, item: ev.Event | HostReport) -> None:
        """An event, which nobody waits for."""
        self._items.put(item)

    def enter(self, item: Any) -> bool:
        """What somebody waits for; False when nobody will read it any more."""
        with self._door:
            if not self._closed:
                self._items.put(item)
            return not self._closed

    def take(self, timeout_s: float = 0.0) -> Any:
        """The next item. Raises queue.Empty when none came within the time."""
        return self._items.get(timeout=timeout_s) if timeout_s else self._items.get_nowait()

    def is_empty(self) -> bool:
        return self._items.empty()

    def close(self) -> None:
        """What enters from now on is refused; what is there can still be taken."""
        with self._door:
            self._closed = True
