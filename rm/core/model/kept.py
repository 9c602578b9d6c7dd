"""Places beside the fields of values for what is worked out once; it is neither stored nor compared."""

from __future__ import annotations

from typing import Any

from rm.core.model.asked.demand import Demand


class WithDemand:
    """A pass asks every job for its demand."""

    __slots__ = ("_demand",)
    _demand: Demand


class WithFeatures:
    """A pass asks all hosts for their features, for each kind of jobs that wants any."""

    __slots__ = ("_all_features",)
    _all_features: frozenset[str]


class WithHosts:
    """A pass asks for the hosts of the same placements some fifty times, and for the tasks on each."""

    __slots__ = ("_by_host", "_hosts")
    _hosts: tuple[str, ...]
    _by_host: dict[str, tuple[Any, ...]]  # TaskPlacements, of a module that imports this one
