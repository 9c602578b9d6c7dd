"""How much a cycle does in its busiest turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Calls:
    """Counts the calls of a function of a module or class, which goes on as it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.count = 0
        called = getattr(owner, name)

        def counted(*asked: Any) -> Any:
            self.count += 1
            return called(*asked)

        monkeypatch.setattr(owner, name, counted)

    def busiest(self, turn: Callable[[int], int | None], most: int) -> int:
        """Those of the busiest turn until the next one is not due at once. `turn`: takes one, by its number
        from 0, and says when the next one is due; there are `most` at most."""
        busiest = 0
        for number in range(most):
            self.count = 0
            due_us = turn(number)
            busiest = max(busiest, self.count)
            if due_us != 0:
                return busiest
        pytest.fail("it never comes to an end")
