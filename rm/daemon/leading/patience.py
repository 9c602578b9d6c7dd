"""A database that is away, locked or full is waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from rm.errors import StoreUnavailable

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_S = 0.5  # between two tries of a commit that the database could not take
SLOW_S = 2.0  # a commit that takes longer is reported to every request


class Patience:
    """`meanwhile` is called after each try that failed, in the thread that tries."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile
        self._since: float | None = None  # monotonic
        self._trouble = ""
        self._ended = threading.Event()

    def end(self) -> None:
        """Try no more after the try that is under way. From any thread."""
        self._ended.set()

    def waiting(self) -> StoreUnavailable | None:
        """Why nothing can be asked or changed now: the database does not answer. From any thread."""
        since = self._since
        for_s = 0.0 if since is None else time.monotonic() - since
        if for_s < SLOW_S and not self._trouble:
            return None
        why = self._trouble or "The database has not answered yet."
        return StoreUnavailable(
            f"The daemon has waited {for_s:.0f} s for its database. {why}",
            "It goes on by itself as soon as the database does; jobs that run are not touched.",
        )

    def on(self, work: Callable[[], T]) -> T:
        """What the database does, however long it is away: what waits for a commit waits with it.

        Raises:
            StoreUnavailable: the wait was ended.
        """
        self._since = begun = time.monotonic()
        try:
            while True:
                try:
                    done = work()
                except StoreUnavailable as error:
                    if not self._trouble:
                        log.error("%s The daemon waits for its database", error)
                    self._trouble = str(error)
                    self._meanwhile()
                    if self._ended.wait(RETRY_S):
                        raise
                else:
                    if self._trouble:
                        log.warning("the database is back after %.1f s", time.monotonic() - begun)
                    return done
        finally:
            self._since, self._trouble = None, ""
