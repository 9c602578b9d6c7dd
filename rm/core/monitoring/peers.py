"""What is usual between two zones, for a direction to be compared with.

As placement does (`rm.policies.placement.steps.network_table`): one bad host makes all of its pairs bad,
which may be most of a small zone's. So each host counts with the better half of its pairs, and among the
hosts the middle one is usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median_high, median_low

Zones = tuple[str, str]  # in the order of the names
LEAST_HOSTS = 3  # of two, either could be the unusual one


def zones_of(a: str, b: str) -> Zones:
    return (a, b) if a <= b else (b, a)


def usual_of(
    values: Iterable[tuple[str, str, float]], zone_of: Mapping[str, str], more_is_better: bool
) -> dict[Zones, float]:
    """The usual value between two zones, of (source, destination, value) of the measured directions.
    Zones between which fewer than LEAST_HOSTS hosts were measured are left out."""
    found: dict[Zones, dict[str, list[float]]] = {}
    for source, destination, value in values:
        hosts = found.setdefault(zones_of(zone_of[source], zone_of[destination]), {})
        for host in (source, destination):
            hosts.setdefault(host, []).append(value)
    better = median_high if more_is_better else median_low
    return {
        zones: better(better(values) for values in hosts.values())
        for zones, hosts in found.items()
        if len(hosts) >= LEAST_HOSTS
    }
