"""What goes wrong in a loop that goes on is logged once for each kind, not each time."""

from __future__ import annotations

import logging

from rm.errors import RmError

KINDS = 100  # that are remembered, and so logged, until something succeeds
log = logging.getLogger("rm.web")


class ErrorsOnce:
    """`what` says what does not succeed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told: set[tuple[type[Exception], str]] = set()

    def tell(self, error: Exception) -> None:
        """A traceback goes with what is no RmError."""
        kind = type(error), str(error)
        if kind in self._told or len(self._told) >= KINDS:
            return
        self._told.add(kind)
        if isinstance(error, RmError):
            log.error("%s: %s", self._what, error)
        else:
            log.error("%s: %s", self._what, kind[1] or kind[0].__name__, exc_info=error)

    def forget(self) -> None:
        """It has succeeded: what fails from now on is news."""
        self._told.clear()
