"""How a scheduled run spreads its tests over its time, and how closely it looks at pairs in doubt.

A link that is dead for 6 s of each 20 s is alive for 14 s: a test that lasts longer than this meets a dead
moment whenever it begins. So latency tests, which load nothing, are made side by side and take
LONGEST_TEST_US where the run has the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rm.core.monitoring.mesh import Mesh
from rm.units import MINUTE_US, SECOND_US

SPREAD = 0.4  # of the interval, that the tests of a run take at most
LONGEST_TEST_US = 18 * SECOND_US
LEAST_SPACING_US = 2_000  # of a test's packets, when somebody waits for it
CLOSER = 10  # times the packets, for a pair in doubt
CLOSE_PACKETS = 1_000  # at most, unless the mesh itself sends more
FOLLOW_UPS = 2  # looks at pairs in doubt after a run, at most
REST_US = 4 * SECOND_US  # left before the next run is due


@dataclass(frozen=True, slots=True)
class Pace:
    """The tests of a run that are made side by side, and how long each takes."""

    groups: tuple[tuple[int, ...], ...]  # numbers of rounds
    test_us: int


def pace_of(rounds: Sequence[tuple[int, int]], parallel: int, interval_us: int, mesh: Mesh) -> Pace:
    """Of a run that makes these rounds, (number, pairs); `parallel` tests at the same time.

    Rounds of latency alone are made side by side, since a host may take part in several such tests.
    """
    groups: list[tuple[int, ...]] = []
    pairs = 0
    for number, count in rounds:
        if groups and mesh.tests == ("latency",) and pairs + count <= parallel:
            groups[-1] += (number,)
            pairs += count
        else:
            groups.append((number,))
            pairs = count
    of = dict(rounds)
    waves = sum(max(1, -(-sum(of[n] for n in group) // parallel)) for group in groups)
    test_us = min(LONGEST_TEST_US, min(interval_us, MINUTE_US) * SPREAD / max(1, waves))
    return Pace(tuple(groups), int(test_us))


def spacing_us(test_us: int, packets: int) -> int:
    """Between the packets of a test that takes so long."""
    return max(LEAST_SPACING_US, test_us // packets)


def closer(mesh: Mesh, test_us: int) -> Mesh:
    """The mesh as it tests a pair in doubt: latency alone, with more packets."""
    packets = max(mesh.packets, min(CLOSE_PACKETS, CLOSER * mesh.packets))
    return replace(mesh, tests=("latency",), packets=packets, spacing_us=spacing_us(test_us, packets))


def apart_us(interval_us: int, takes_us: int) -> int:
    """From the begin of a run to the begin of the next: what is due while one goes on is left out."""
    return interval_us * max(1, -(-takes_us // interval_us))
