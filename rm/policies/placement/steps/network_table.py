"""Everything measured between the hosts as matrices: pair scores, delays, and each host's link.

Hosts are numbered in inventory order. Built from the measured pairs alone; what was not
measured is filled in per pair of zones (see `NetworkWeights`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rm.core.model.host import Host
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.policies.placement.steps.latency import raw_latency
from rm.policies.placement.steps.measured import COLUMNS, Readings
from rm.policies.placement.steps.network_score import Floats, Mask, NetworkWeights, points
from rm.units import MINUTE_US

NOMINAL_DELAY_US = 100.0  # between hosts of one zone of which nothing was measured


@dataclass(frozen=True, slots=True)
class _Block:
    """The measured pairs between two zones, each pair once."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    values: Floats  # one row a pair, as of `Measured`


class NetworkTable:
    """Scores and delays under one network view. Everything is computed when first asked for."""

    def __init__(self, snapshot: Snapshot, weights: NetworkWeights, readings: Readings | None = None) -> None:
        """`readings` are those of this snapshot, if somebody has them already."""
        self.hosts: tuple[Host, ...] = tuple(snapshot.hosts.values())
        self.weights = weights
        self.zone_names = tuple(dict.fromkeys(h.zone for h in self.hosts))
        self._zone_number = {zone: i for i, zone in enumerate(self.zone_names)}
        self._zone_of = np.array([self._zone_number[h.zone] for h in self.hosts], dtype=np.int64)
        self.user_delay_us = {
            z: float(snapshot.zones[z].delay_us if z in snapshot.zones else 0) for z in self.zone_names
        }
        self.members: dict[str, NDArray[np.int64]] = {
            zone: np.flatnonzero(self._zone_of == i) for zone, i in self._zone_number.items()
        }
        self.as_of_us = minute_of(snapshot.now_us)
        self.ages_from_us: int | None = None  # when the confidence in any pair begins to sink by age
        if readings is None:
            readings = Readings()
            readings.follow(snapshot.network.pairs)
        self._blocks = self._gather(readings)
        self._typicals: dict[tuple[str, str], Floats] = {}
        self._inside: dict[str, Floats] = {}  # points of the measured pairs within a zone
        self._scores: dict[tuple[str, str], Floats] = {}
        self._joined: tuple[tuple[str, ...], tuple[NDArray[np.int64], Floats]] | None = None  # the last
        self._means: dict[tuple[str, ...], Floats] = {}
        self._bad: dict[str, Mask] = {}
        self._zone_delays: Floats | None = None
        self._quality: Floats | None = None
        self._delays: Floats | None = None
        self._mean_delays: Floats | None = None
        self._within: tuple[float, NDArray[np.int64]] | None = None
        self._bad_reasons: dict[int, Reason] = {}

    def _gather(self, readings: Readings) -> dict[tuple[str, str], _Block]:
        found = readings.between((h.name if h.schedulable else None for h in self.hosts), self.as_of_us)
        self.ages_from_us = found.ages_from_us
        if not len(found.first):
            return {}
        zone = self._zone_of
        turned = zone[found.first] > zone[found.second]
        first = np.where(turned, found.second, found.first)
        second = np.where(turned, found.first, found.second)
        key = zone[first] * len(self.zone_names) + zone[second]
        order = np.argsort(key, kind="stable")
        keys, starts = np.unique(key[order], return_index=True)
        return {
            (self.zone_names[k // len(self.zone_names)], self.zone_names[k % len(self.zone_names)]): _Block(
                first[rows], second[rows], found.values[rows]
            )
            for k, rows in zip(keys, np.split(order, starts[1:]), strict=True)
        }

    def _block(self, a: str, b: str) -> _Block | None:
        found = self._blocks.get((a, b))
        if found is None and (other := self._blocks.get((b, a))) is not None:
            return _Block(other.second, other.first, other.values)
        return found

    def _ref_bps(self, a: str, b: str) -> float:
        if self.weights.ref_bandwidth_bps:
            return float(self.weights.ref_bandwidth_bps)
        fastest = (max(self.hosts[i].nic_bps for i in self.members[z]) for z in (a, b))
        return float(max(min(fastest), 1))

    def zone_delays_us(self) -> Floats:
        """Median measured delay between hosts of any two zones, in the order of `zone_names`; unmeasured: by
        way of the user."""
        if self._zone_delays is None:
            users = np.array([self.user_delay_us[zone] for zone in self.zone_names])
            found = users[:, None] + users[None, :]
            np.fill_diagonal(found, NOMINAL_DELAY_US)
            for (a, b), block in self._blocks.items():
                i, j = self._zone_number[a], self._zone_number[b]
                found[i, j] = found[j, i] = _median(block.values[:, 1], float(found[i, j]))
            self._zone_delays = found
        return self._zone_delays

    def zone_delay_us(self, a: str, b: str) -> float:
        """As `zone_delays_us`."""
        return float(self.zone_delays_us()[self._zone_number[a], self._zone_number[b]])

    def apart_us(self, zones: Sequence[str]) -> Floats:
        """The delays between these zones, in this order."""
        numbers = [self._zone_number[zone] for zone in zones]
        return self.zone_delays_us()[np.ix_(numbers, numbers)]

    def _typical(self, a: str, b: str) -> Floats:
        """Median loss, delay and bandwidth of the measured pairs between two zones."""
        if (known := self._typicals.get((a, b))) is not None:
            return known
        block = self._block(a, b)
        typical = [0.0, self.zone_delay_us(a, b), self._ref_bps(a, b)]
        if block is not None:
            typical = [_median(block.values[:, i], nominal) for i, nominal in enumerate(typical)]
        found = self._typicals[a, b] = np.array(typical)
        return found

    def _points(self, a: str, b: str, values: Floats) -> Floats:
        """Points of measured pairs between two zones; each metric counts as far as it can be relied
        upon, and for the rest as what was never measured does: at the median, and charged."""
        typical = self._typical(a, b)
        sure = np.where(np.isnan(values[:, :3]), 0.0, values[:, [4, 4, 5]])
        filled = _leaning(values[:, :3], typical, sure)
        ref = self._ref_bps(a, b)
        got = points(filled[:, 0], filled[:, 1], filled[:, 2], ref, self.weights)
        got = np.maximum(0.0, got - self.weights.unmeasured_penalty * (1.0 - sure).sum(axis=1) / 3)
        dead = values[:, 3] >= self.weights.dead_after_failures
        return np.where(dead, 0.0, got)

    def _points_inside(self, zone: str, block: _Block) -> Floats:
        """Points of the measured pairs within a zone."""
        if zone not in self._inside:
            self._inside[zone] = self._points(zone, zone, block.values)
        return self._inside[zone]

    def scores(self, a: str, b: str) -> Floats:
        """Pair scores of the hosts of zone `a` with those of zone `b`, in the order of `members`."""
        if (known := self._scores.get((a, b))) is not None:
            return known
        mine, theirs = self.members[a], self.members[b]
        nothing = np.full((1, COLUMNS), np.nan)  # its confidence is not looked at
        result = np.full((len(mine), len(theirs)), self._points(a, b, nothing)[0])
        block = self._block(a, b)
        if block is not None:
            got = self._points_inside(a, block) if a == b else self._points(a, b, block.values)
            i, j = np.searchsorted(mine, block.first), np.searchsorted(theirs, block.second)
            result[i, j] = got
            if a == b:
                result[j, i] = got
        if a == b:
            np.fill_diagonal(result, 0.0)
        self._scores[a, b] = result
        return result

    def joined(self, zones: Sequence[str]) -> tuple[NDArray[np.int64], Floats]:
        """Host numbers and pair scores over several zones."""
        if len(zones) == 1:
            return self.members[zones[0]], self.scores(zones[0], zones[0])
        key = tuple(zones)
        if self._joined is None or self._joined[0] != key:
            self._joined = key, self._join(key)
        return self._joined[1]

    def _join(self, zones: tuple[str, ...]) -> tuple[NDArray[np.int64], Floats]:
        numbers = np.concatenate([self.members[z] for z in zones])
        among = [self._zone_number[z] for z in zones]
        place = np.full(len(self.hosts), -1)
        place[numbers] = np.arange(len(numbers))
        zone = np.repeat(np.arange(len(zones)), [len(self.members[z]) for z in zones])
        result = self._unmeasured(zones)[np.ix_(zone, zone)]
        for (a, b), block in self._blocks.items():
            if self._zone_number[a] in among and self._zone_number[b] in among:
                i, j = place[block.first], place[block.second]
                result[i, j] = result[j, i] = self._points(a, b, block.values)
        np.fill_diagonal(result, 0.0)
        return numbers, result

    def _unmeasured(self, zones: Sequence[str]) -> Floats:
        """Points of a pair of hosts of any two of these zones that was not measured."""
        fastest = np.array([max(self.hosts[i].nic_bps for i in self.members[z]) for z in zones], dtype=float)
        ref = np.maximum(np.minimum(fastest[:, None], fastest[None, :]), 1.0)
        if self.weights.ref_bandwidth_bps:
            ref = np.full_like(ref, float(self.weights.ref_bandwidth_bps))
        got = points(np.zeros_like(ref), self.apart_us(zones), ref, ref, self.weights)
        # of none of the three anything is known; divided as in `_points`, so that both are equal to the bit
        found: Floats = np.maximum(0.0, got - self.weights.unmeasured_penalty * 3.0 / 3)
        nothing = np.full((1, COLUMNS), np.nan)  # its confidence is not looked at
        at = {zone: i for i, zone in enumerate(zones)}
        for a, b in self._blocks:
            if a in at and b in at:
                found[at[a], at[b]] = found[at[b], at[a]] = self._points(a, b, nothing)[0]
        return found

    def mean_scores(self, zones: Sequence[str]) -> Floats:
        """Mean pair score of each host of the zones with all of them, in the order of `joined`."""
        key = tuple(zones)
        if key not in self._means:
            self._means[key] = self.joined(zones)[1].mean(axis=0)
        return self._means[key]

    def quality(self) -> Floats:
        """Each host's link: the (upper) median of its measured pairs inside its zone; nan = none."""
        if self._quality is not None:
            return self._quality
        result = np.full(len(self.hosts), np.nan)
        for zone in self.zone_names:
            block = self._block(zone, zone)
            if block is None:
                continue
            got = self._points_inside(zone, block)
            owner = np.concatenate([block.first, block.second])
            score = np.concatenate([got, got])
            order = np.lexsort((score, owner))
            owners, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
            result[owners] = score[order][starts + counts // 2]
        self._quality = result
        return result

    def bad(self, zone: str) -> Mask:
        """Which hosts of the zone (in the order of `members`) have a far worse link than its peers."""
        if zone not in self._bad:
            self._bad[zone] = self._find_bad(zone)
        return self._bad[zone]

    def without_bad(self, zone: str, caps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The capacities of the zone's hosts, 0 of those that are bad; the very same where none is."""
        bad = self.bad(zone)
        return np.where(bad, 0, caps) if np.logical_or.reduce(bad) else caps

    def _find_bad(self, zone: str) -> Mask:
        quality = self.quality()[self.members[zone]]
        usual, _ = self._usual(zone)
        below: Mask = np.nan_to_num(quality, nan=np.inf) < usual - self.weights.exclude_gap
        return below

    def _usual(self, zone: str) -> tuple[float, str]:
        """The median host's link, and whose: the zone's, or all zones' where that is better and the zone has
        fewer than three measured hosts. Two share one pair: beside each other neither is the worse."""
        mine, count = _median_host(self.quality()[self.members[zone]])
        if not 0 < count < 3:
            return mine, f"in zone {zone}"
        everywhere, _ = _median_host(self.quality())
        return (everywhere, "in all zones") if everywhere > mine else (mine, f"in zone {zone}")

    def bad_reason(self, number: int) -> Reason:
        """BAD_NETWORK with what was measured of the host and of its zone."""
        if number not in self._bad_reasons:
            self._bad_reasons[number] = self._bad_reason(number)
        return self._bad_reasons[number]

    def _bad_reason(self, number: int) -> Reason:
        zone = self.hosts[number].zone
        block = self._block(zone, zone)
        assert block is not None
        own = block.values[(block.first == number) | (block.second == number)]
        mine, (peers, where) = float(self.quality()[number]), self._usual(zone)
        loss, delay, bandwidth = (_median(own[:, i], float("nan")) for i in range(3))
        worse = self.members[zone][self.bad(zone)]
        fine = block.values[~np.isin(block.first, worse) & ~np.isin(block.second, worse)]
        usual = [_median(fine[:, i], typical) for i, typical in enumerate(self._typical(zone, zone))]
        parts = []
        if not np.isnan(loss):
            parts.append(f"loss {loss:.1f} % (peers {usual[0]:.1f} %)")
        if not np.isnan(delay):
            parts.append(f"delay {delay / 1e3:.2f} ms (peers {usual[1] / 1e3:.2f} ms)")
        if not np.isnan(bandwidth):
            parts.append(f"bandwidth {bandwidth / 1e6:.0f} Mbit/s (peers {usual[2] / 1e6:.0f} Mbit/s)")
        failures = int(np.median(own[:, 3]))
        if failures >= self.weights.dead_after_failures:
            parts.append(f"the last {failures} measurements failed")
        numbers: list[tuple[str, float | int | str]] = [
            ("network_score", round(mine, 3)),
            ("network_score_peers", round(peers, 3)),
        ]
        for name, value, digits in (
            ("loss_pct", loss, 3),
            ("delay_us", delay, 0),
            ("bandwidth_bps", bandwidth, 0),
        ):
            if not np.isnan(value):
                numbers.append((name, round(value, digits) if digits else round(value)))
        return Reason(
            ReasonCode.BAD_NETWORK,
            f"its link is far worse than its peers' {where}: network score {mine:.1f} against "
            f"{peers:.1f}; {', '.join(parts)}",
            tuple(numbers),
        )

    def delays_us(self) -> Floats:
        """One-way delay between all hosts, the worse direction; a host is 1 us from itself (R18)."""
        if self._delays is not None:
            return self._delays
        result = self.zone_delays_us()[np.ix_(self._zone_of, self._zone_of)]
        for (a, b), block in self._blocks.items():
            delay, sure = block.values[:, 1], block.values[:, 4]
            seen = ~np.isnan(delay)
            delay = _leaning(delay, np.array(self.zone_delay_us(a, b)), sure)
            result[block.first[seen], block.second[seen]] = delay[seen]
            result[block.second[seen], block.first[seen]] = delay[seen]
        np.fill_diagonal(result, 1.0)
        self._delays = result
        return result

    def hosts_within(self, delay_us: float) -> NDArray[np.int64]:
        """To how many hosts, itself included, each has a shorter delay than that; the answer for the last
        such delay is kept."""
        if self._within is None or self._within[0] != delay_us:
            self._within = delay_us, np.count_nonzero(self.delays_us() < delay_us, axis=1)
        return self._within[1]

    def mean_delays_us(self) -> Floats:
        """Mean delay of each host to all hosts, itself included (R18)."""
        if self._mean_delays is None:
            self._mean_delays = raw_latency(self.delays_us(), ())
        return self._mean_delays


class LatestNetworkTable:
    """The table of the network seen last, rebuilt only when hosts or measurements differ."""

    def __init__(self, weights: NetworkWeights) -> None:
        self._weights = weights
        self._snapshot: Snapshot | None = None
        self._key: tuple[object, ...] = ()
        self._readings = Readings()
        self._table: NetworkTable | None = None

    def under(self, snapshot: Snapshot) -> NetworkTable:
        if self._table is not None and self._snapshot is snapshot:
            return self._table
        key, differs = _signature(snapshot), self._readings.follow(snapshot.network.pairs)
        if self._table is None or differs or key != self._key or _has_aged(self._table, snapshot.now_us):
            self._table = NetworkTable(snapshot, self._weights, self._readings)
            self._key = key
        self._snapshot = snapshot
        return self._table


def _signature(snapshot: Snapshot) -> tuple[object, ...]:
    hosts = tuple((h.name, h.zone, h.nic_bps, h.schedulable) for h in snapshot.hosts.values())
    return hosts, tuple(snapshot.zones.values())


def minute_of(now_us: int) -> int:
    # confidence sinks by the minute, so that a table serves for one at least
    return now_us // MINUTE_US * MINUTE_US


def _has_aged(table: NetworkTable, now_us: int) -> bool:
    """Would the table be another one now, for its measurements have grown old?"""
    now_us = minute_of(now_us)
    if table.ages_from_us is None or now_us == table.as_of_us:
        return False
    return max(now_us, table.as_of_us) > table.ages_from_us


def _leaning(values: Floats, typical: Floats, sure: Floats) -> Floats:
    """The value where it is sure, exactly; else between it and the typical one; nan = typical."""
    between = typical + sure * (np.nan_to_num(values) - typical)
    leaning: Floats = np.where(sure >= 1.0, values, np.where(np.isnan(values), typical, between))
    return leaning


def _median_host(quality: Floats) -> tuple[float, int]:
    """The (upper) median of the known links, nan where there is none, and how many are known."""
    known = np.sort(quality[~np.isnan(quality)])
    return (float(known[len(known) // 2]) if len(known) else float("nan")), len(known)


def _median(values: Floats, otherwise: float) -> float:
    """As `np.median` of what is known, which takes three times as long for it."""
    known = np.sort(values[~np.isnan(values)])
    half = len(known) // 2
    if not len(known):
        return otherwise
    return float(known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2)
