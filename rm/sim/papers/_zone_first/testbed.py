"""The testbed of zone-first, Sec. 4.1: 36 workers in four zones and a master, and what is measured of them.

Worker n is host "n"; zones A to D have nine each, so D has 28 to 36. `tc` shapes what a host
sends: its impairment concerns the direction away from it, and the way back is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from rm.core.model.host import Host, HostState, Zone
from rm.core.model.network.links import Link, LinkStats, NetworkView
from rm.core.model.snapshot import Free, Snapshot
from rm.sim.papers._zone_first.tcp import throughput_bps
from rm.sim.papers.frame.parameters import parameters

ZONES = {zone: tuple(str(n) for n in range(9 * i + 1, 9 * i + 10)) for i, zone in enumerate("ABCD")}
ZONE = "D"
IMPAIRED = ("33", "34", "35")
GOOD = ("28", "29", "30", "31", "32", "36")
MASTER = "master"


@dataclass(frozen=True, slots=True)
class Egress:
    """A host's link, and what tc makes of its way out: rate, part of packets lost (0 to 1), added delay."""

    link_bps: float
    rate_bps: float
    loss: float = 0.0
    delay_s: float = 0.0


Hosts = Mapping[str, Egress]


def draw(rng: np.random.Generator) -> dict[str, Egress]:
    """Every host unimpaired; its rate varies around the testbed's average."""
    known = parameters("zone-first")
    names = [*(n for zone in ZONES.values() for n in zone), MASTER]
    rates = known["link_bps"] * (1 + known["rate_spread"] * rng.standard_normal(len(names)))
    return {name: Egress(float(rate), float(rate)) for name, rate in zip(names, rates, strict=True)}


def impaired(hosts: Hosts, by_host: Mapping[str, Mapping[str, float]]) -> dict[str, Egress]:
    """`by_host` names fields of Egress; a rate is an upper limit, as tc sets it."""
    result = dict(hosts)
    for name, change in by_host.items():
        changed = replace(hosts[name], **change)
        result[name] = replace(changed, rate_bps=min(changed.rate_bps, changed.link_bps))
    return result


def one_way_s(source: Egress) -> float:
    return float(parameters("zone-first")["delay_s"]) + source.delay_s


def rtt_s(a: Egress, b: Egress) -> float:
    return one_way_s(a) + one_way_s(b)


def measured(hosts: Hosts, a: str, b: str, rng: np.random.Generator) -> LinkStats:
    """One direction as perfSONAR reports it: lost packets of a sample, one-way delay, a TCP throughput."""
    known = parameters("zone-first")
    source, target = hosts[a], hosts[b]
    packets = known["packets_a_sample"]
    rate = throughput_bps(min(source.rate_bps, target.link_bps), source.loss, rtt_s(source, target))
    return LinkStats(
        loss_pct=100 * int(rng.binomial(packets, source.loss)) / packets,
        delay_us=round(1e6 * one_way_s(source)),
        bandwidth_bps=round(rate * (1 + known["measurement_spread"] * rng.standard_normal())),
    )


def measured_pairs() -> Iterator[tuple[str, str]]:
    """What rm's monitor measures: all pairs inside a zone, and one between each two zones."""
    for members in ZONES.values():
        yield from combinations(members, 2)
    for one, other in combinations(ZONES.values(), 2):
        yield one[0], other[0]


def network(hosts: Hosts, rng: np.random.Generator) -> dict[tuple[str, str], LinkStats]:
    """Both directions of every pair that is measured."""
    return {
        direction: measured(hosts, *direction, rng)
        for a, b in measured_pairs()
        for direction in ((a, b), (b, a))
    }


def snapshot(pairs: Mapping[tuple[str, str], LinkStats]) -> Snapshot:
    """The idle testbed; each worker takes one task."""
    link = round(parameters("zone-first")["link_bps"])
    hosts = {
        name: Host(name, zone, name, cpus=1, nic_bps=link, state=HostState.UP)
        for zone, members in ZONES.items()
        for name in members
    }
    return Snapshot(
        now_us=0,
        hosts=hosts,
        zones={zone: Zone(zone) for zone in ZONES},
        links={name: Link(name, link) for name in hosts},
        network=NetworkView(pairs),
        free={name: Free(1, 0, ()) for name in hosts},
        placed={},
    )


def worst_case(rng: np.random.Generator, need: int) -> Sequence[str]:
    """What the default scheduler may do (Sec. 4.3): all impaired hosts, the rest drawn, in any order."""
    others = rng.choice(GOOD, size=need - len(IMPAIRED), replace=False)
    return [str(name) for name in rng.permutation([*IMPAIRED, *others])]
