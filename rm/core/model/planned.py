"""What is planned for pending jobs that stand before others: when each starts, and where.

The plan is kept from pass to pass (`rm.core.scheduling.ahead`). After a restart it is made anew.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from rm.core.model.job import Placement


@dataclass(frozen=True, slots=True)
class Planned:
    """The pending job `job`, or an element of that array, starts at `at_us` if all goes as expected; None =
    once jobs have ended whose end nobody knows."""

    job: int
    at_us: int | None
    placement: Placement

    def outlasted_by(self, end_us: int | None) -> bool:
        """Would a job that ends then still hold what it has when this one is to start? None = never."""
        return end_us is None or (self.at_us is not None and end_us > self.at_us)


def gives_way(before: Mapping[int, Planned], after: Mapping[int, Planned], started: Container[int]) -> bool:
    """Has one left its place to which another one, that stands before it and is planned still, may move?"""
    waits = False
    for number, old in before.items():
        new = after.get(number)
        if new is None:
            if waits and number in started:
                return True
            continue
        if (
            waits
            and old.at_us is not None
            and new.at_us is not None
            and new.at_us <= old.at_us
            and new != old
        ):
            return True
        waits = True
    return False
