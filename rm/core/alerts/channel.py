"""The port to the channels that are notified of alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rm.errors import RmError


class NotTold(RmError):
    """A channel could not be notified; `again`: another attempt may help. The sentence holds no secret."""

    def __init__(self, what: str, again: bool = True) -> None:
        super().__init__(what)
        self.again = again


class Channel(Protocol):
    """`repeat_s`: a message of what still fires is sent again this often; 0 = it is sent once."""

    @property
    def repeat_s(self) -> float: ...

    def tell(self, notice: Mapping[str, Any]) -> None:
        """Deliver `notice`, a JSON object (docs/alerts.md), or raise NotTold; returns within its timeout."""
        ...
