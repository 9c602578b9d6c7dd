"""A word now and then of a command that works for long, where nobody sees a bar or a live view."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import click

EVERY_S = 4.0  # nothing is silent for longer than five seconds
LOOK_S = 0.5


class Heartbeat:
    """While it is entered, a line on standard error whenever nothing was said for EVERY_S.

    `doing` says what is at work ("" = nothing that takes long); `clock` gives seconds; `at_once`: it is said
    when it is entered, too, for what follows seconds of which this knows nothing. Who writes a line of its
    own calls `spoke`.
    """

    def __init__(
        self, doing: Callable[[], str], clock: Callable[[], float] = time.monotonic, at_once: bool = False
    ) -> None:
        self._doing, self._clock, self._at_once = doing, clock, at_once
        self._began_s = self._spoke_s = clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def spoke(self) -> None:
        self._spoke_s = self._clock()

    def beat(self) -> None:
        """Say it, if nothing was said for long."""
        now_s = self._clock()
        if now_s - self._spoke_s >= EVERY_S:
            self._say(now_s)

    def _say(self, now_s: float) -> None:
        if what := self._doing():
            click.echo(f"{now_s - self._began_s:5.0f} s  {what}", err=True)
            self._spoke_s = now_s

    def __enter__(self) -> Heartbeat:
        self._began_s = self._spoke_s = self._clock()
        if self._at_once:
            self._say(self._began_s)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.beat()
