"""What many jobs ask alike, as the same object."""

from __future__ import annotations

from functools import lru_cache

from rm.core.model.asked.demand import Demand
from rm.features import alternatives, kinds


@lru_cache(maxsize=4096)
def interned(demand: Demand) -> Demand:
    """The same object for equal demands, which a scheduling pass recognizes without comparing them."""
    return demand


def features_of(constraint: str, prefer: str) -> tuple[str, ...]:
    """The alternatives that a job takes, the first choice first."""
    if not (constraint or prefer):
        return ()
    return (*alternatives(prefer), *(alternatives(constraint) or ("",)))


def kinds_of(constraint: str) -> tuple[tuple[str, int], ...]:
    """What some of the job's hosts must have, and how many."""
    return kinds(constraint) if "*" in constraint else ()
