"""The choice of hosts by rm's own policies, and how many pairs they look at for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rm.core.model.acceptance import accept
from rm.core.model.job import JobSpec
from rm.core.model.network.links import LinkStats, NetworkView
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.policies.placement.steps.network_score import Floats, NetworkWeights, points, select
from rm.policies.placement.zone import ZonePolicy
from rm.sim.papers._zone_first.testbed import ZONE
from rm.sim.papers.frame.parameters import parameters

Pair = tuple[str, str]
Measured = dict[Pair, LinkStats]


def weights() -> NetworkWeights:
    """rm's own points per percent and millisecond; full points for the testbed's rate."""
    return NetworkWeights(ref_bandwidth_bps=round(parameters("zone-first")["link_bps"]))


def request(need: int, zone: str = ZONE) -> PlacementRequest:
    spec = JobSpec("training", "user", "", ntasks=need, tasks_per_host=1, zone=zone)
    accept(spec, runs=False)
    return PlacementRequest(spec.demand)


def by_policy(snapshot: Snapshot, need: int, policy: ZonePolicy | None = None, zone: str = ZONE) -> list[str]:
    """The hosts that the placement policy `zone` proposes first, in the order of the ranks."""
    proposal = (policy or ZonePolicy(weights())).candidates(request(need, zone), snapshot)
    return list(next(proposal.candidates).placement.hosts)


class Asked(dict[Pair, Any]):
    """Measurements that note which pairs were looked at, both directions being one look."""

    def __init__(self, pairs: Measured) -> None:
        self.looked: set[frozenset[str]] = set()
        super().__init__(
            (pair, _Watched(stats, frozenset(pair), self.looked)) for pair, stats in pairs.items()
        )


class _Watched:
    """A measurement; whoever reads a value of it looks at its pair."""

    __slots__ = ("_looked", "_pair", "_stats")

    def __init__(self, stats: LinkStats, pair: frozenset[str], looked: set[frozenset[str]]) -> None:
        self._stats, self._pair, self._looked = stats, pair, looked

    def __getattr__(self, name: str) -> Any:
        self._looked.add(self._pair)
        return getattr(self._stats, name)


class ScoredWhenAsked:
    """Pair scores for `select`, each computed when it is needed: rows of hosts not excluded yet.

    `checks` counts them. Zone-first's algorithm begins with the node that it runs on, `first`.
    """

    def __init__(self, hosts: Sequence[str], view: NetworkView, first: str) -> None:
        self._hosts = hosts
        self._view = view
        self._open = set(hosts)
        self.checks = 0
        self.anchor = self._scores(first)

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, host: int, /) -> Floats:
        self._open.discard(self._hosts[host])
        return self._scores(self._hosts[host])

    def _scores(self, one: str) -> Floats:
        row = np.zeros(len(self._hosts))
        for i, other in enumerate(self._hosts):
            if other in self._open:
                stats = self._view.worst(one, other)
                assert stats is not None
                row[i] = _points(stats)
                self.checks += 1
        return row


def _points(stats: LinkStats) -> float:
    loss, delay, bandwidth = (
        stats.loss_pct or 0.0,
        float(stats.delay_us or 0),
        float(stats.bandwidth_bps or 0),
    )
    return float(points(loss, delay, bandwidth, parameters("zone-first")["link_bps"], weights()))


def accumulating(hosts: Sequence[str], view: NetworkView, first: str, need: int) -> tuple[list[str], int]:
    """The paper's choice beginning at `first` through rm's own `select`; and the pairs it scored."""
    pair = ScoredWhenAsked(hosts, view, first)
    chosen = [hosts[n] for n, _ in select(pair, need, anchor=pair.anchor)]
    return chosen, pair.checks
