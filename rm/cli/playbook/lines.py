"""The lines of `rmx playbook run` where there is no terminal: what changes or fails, and what takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import printable
from rm.cli.playbook import text
from rm.playbook.run.report import Progress

NAMED_MAX = 3


class Lines:
    """Told of each event; while it is entered, says now and then which hosts are at what."""

    def __init__(self, verbose: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.verbose, self.clock = verbose, clock
        self._guard = threading.Lock()  # the heartbeat has a thread of its own
        self._busy: dict[str, tuple[str, float]] = {}  # host: its task, and since when
        self.heartbeat = Heartbeat(self.doing, clock)

    def tell(self, event: Progress) -> None:
        with self._guard:
            if event.kind == "start":
                self._busy[event.hosts[0]] = (printable(event.text), self.clock())
            elif event.result is not None:
                self._busy.pop(event.result.host, None)
        if text.show(event, self.verbose):
            self.heartbeat.spoke()

    def doing(self) -> str:
        """The hosts at work, the longest first."""
        with self._guard:
            busy = sorted(self._busy.items(), key=lambda item: item[1][1])
        now_s = self.clock()
        shown = [f"{printable(name)}: {task} ({now_s - since_s:.0f} s)" for name, (task, since_s) in busy]
        more = f", and {len(shown) - NAMED_MAX} more hosts" if shown[NAMED_MAX:] else ""
        return ", ".join(shown[:NAMED_MAX]) + more

    def __enter__(self) -> Lines:
        self.heartbeat.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.heartbeat.__exit__(kind, value, trace)
