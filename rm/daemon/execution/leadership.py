"""What the daemon's hands know of its right to act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leadership:
    """All are called from any thread.

    Attributes:
        epoch: this leader's.
        confirmed: does the database still say that this daemon leads? It may raise StoreError.
        on_deposed: another daemon leads; with a sentence.
        may_act: False while another daemon may lead: then nothing is sent, and all is tried again.
    """

    epoch: int
    confirmed: Callable[[], bool]
    on_deposed: Callable[[str], None]
    may_act: Callable[[], bool] = lambda: True
