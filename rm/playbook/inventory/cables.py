"""Which cable is bad, out of tests between pairs of hosts. Pure.

A pair is bad when it lost too much, or was much slower than usual (or than a given floor). Usual is the
median over the hosts of each one's best pair, by its slower direction: it holds as long as fewer than half of
the cables are bad, though most pairs may then be. A cable belongs to one host, so a bad one makes nearly all
pairs of that host bad; a bad pair of two hosts that are otherwise fine is a bad path. So the host with the
largest share of bad pairs is taken as a culprit as long as that share is more than half; its pairs explain
themselves and are set aside; what remains are paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rm.units import MBPS


@dataclass(frozen=True, slots=True)
class Pair:
    """One direction of one pair: what `source` measured towards `target`. Loss in percent of what it sent."""

    source: str
    target: str
    loss_pct: float
    throughput_bps: int
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """`cables`: host -> why; `paths`: (one, other) -> why, pairs whose hosts are otherwise fine."""

    cables: Mapping[str, str]
    paths: Mapping[tuple[str, str], str]
    median_bps: int

    def report(self) -> dict[str, Any]:
        return {
            "bad_cables": dict(self.cables),
            "bad_paths": [{"hosts": list(pair), "why": why} for pair, why in self.paths.items()],
            "median_mbps": self.median_bps // MBPS,
        }


def rounds(hosts: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Every pair once, in rounds of disjoint pairs (the circle method): N - 1 or N rounds."""
    ring: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    found = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        matched = zip(ring[:half], reversed(ring[half:]), strict=True)
        found.append([(a, b) for a, b in matched if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def judge(
    measured: Iterable[Pair], *, max_loss_pct: float, min_bps: int = 0, min_share_pct: int = 70
) -> Verdict:
    """Who is to blame; an empty verdict when every pair held."""
    pairs = list(measured)
    slower: dict[frozenset[str], int] = {}  # of both directions: one host alone makes no pair look fast
    for pair in pairs:
        ends = frozenset((pair.source, pair.target))
        rate_bps = pair.throughput_bps if pair.answered else 0
        slower[ends] = min(slower.get(ends, rate_bps), rate_bps)
    best: dict[str, int] = {}
    for ends, rate_bps in slower.items():
        for host in ends:
            best[host] = max(best.get(host, 0), rate_bps)
    usual = int(median(best.values())) if best else 0
    floor = max(min_bps, usual * min_share_pct // 100)
    faults: dict[tuple[str, str], str] = {}
    peers: dict[str, set[str]] = {}
    for pair in pairs:
        peers.setdefault(pair.source, set()).add(pair.target)
        peers.setdefault(pair.target, set()).add(pair.source)
        why = _fault(pair, max_loss_pct, floor)
        if why:
            one, other = sorted((pair.source, pair.target))
            faults.setdefault((one, other), why)
    cables: dict[str, str] = {}
    left = dict(faults)
    while left:
        bad = {host: sum(host in pair for pair in left) for pair in left for host in pair}
        still = {host: len(peers[host] - set(cables)) for host in bad}
        host = min(bad, key=lambda name: (-bad[name] / max(1, still[name]), -bad[name], name))
        if bad[host] * 2 <= still[host] or still[host] < 2:
            break
        examples = [why for pair, why in left.items() if host in pair]
        cables[host] = f"{bad[host]} of {still[host]} pairs are bad: {examples[0]}"
        left = {pair: why for pair, why in left.items() if host not in pair}
    return Verdict(cables, left, usual)


def _fault(pair: Pair, max_loss_pct: float, floor_bps: int) -> str:
    where = f"{pair.source} to {pair.target}"
    if not pair.answered:
        return f"{where} is cut"
    if pair.loss_pct > max_loss_pct:
        return f"{where} loses {pair.loss_pct:g} %"
    if pair.throughput_bps < floor_bps:
        return f"{where} carries {pair.throughput_bps / 1e6:.0f} of {floor_bps / 1e6:.0f} Mbit/s"
    return ""
