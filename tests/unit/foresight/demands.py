"""Small jobs for FORESIGHT's tests: racks are letters, hosts `a0`, `a1`, ... hang below rack `a`.

Times are ticks, rates are shares of a spine link in 1/UPLINK.
"""

from collections.abc import Iterable
from fractions import Fraction

from rm.core.model.network.fabric import Fabric
from rm.policies.foresight.demand import JobDemand, Links, Piece, Profile

UPLINK = 48


def fabric(spines: int, racks: str = "abcdef", hosts: int = 8) -> Fabric:
    return Fabric({f"{r}{i}": r for r in racks for i in range(hosts)}, spines, UPLINK)


def links(spines: int, units: int = 1) -> Links:
    return Links(fabric(spines), units)


def demand(
    job: int,
    period: int,
    bursts: Iterable[tuple[int, int]],
    flows: Iterable[tuple[str, str]],
    iterations: int = 1,
    rate: int = UPLINK,
    throttles: Iterable[Fraction] = (Fraction(1),),
) -> JobDemand:
    """All `flows` send at `rate` during each burst [start, end); throttled bursts last longer."""
    ends = tuple(flows)
    profiles = []
    for q in throttles:
        pieces, grown = [], 0
        for op, (start, end) in enumerate(bursts):
            lasts = -((start - end) * q.denominator // q.numerator)
            pieces += [
                Piece(f, start + grown, start + grown + lasts, int(rate * q), op) for f in range(len(ends))
            ]
            grown += lasts - (end - start)
        profiles.append(Profile(period + grown, tuple(pieces), q))
    return JobDemand(job, ends, iterations, tuple(profiles))


def parallel(count: int, source: str = "a", destination: str = "b", first: int = 0) -> list[tuple[str, str]]:
    """`count` flows between two racks, each from a host of its own to one of its own."""
    return [(f"{source}{first + i}", f"{destination}{first + i}") for i in range(count)]
