"""Places beside the fields of values for what is worked out once; it is neither stored nor compared."""

from __future__ import annotations

from rm.core.model.demand import Demand


class WithDemand:
    """A pass asks every job for its demand."""

    __slots__ = ("_demand",)
    _demand: Demand


class WithHosts:
    """A pass asks for the hosts of the same placements some fifty times."""

    __slots__ = ("_hosts",)
    _hosts: tuple[str, ...]
