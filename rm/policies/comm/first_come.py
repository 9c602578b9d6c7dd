"""first-come: whoever begins to communicate earlier keeps its links until it has sent all.

Ours, not a paper's. No profile, no period, no rotation: the bursts of jobs on a host's link are served in the
order in which they began, those of high jobs before all others. A burst that has to wait moves its job's next
iteration behind the one before it, where it stays: jobs that repeat themselves fall into a rotation on their
own. What the first in order leaves of a link goes to the next.

Each host keeps the order by itself (agents/rm_first_come.py). Known limit: bursts that cross several links in
different orders may wait for one another in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rm.core.model.network.alignment import PERFECT, Alignment, Bursts, ShapingRule
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.errors import ConfigError
from rm.policies.comm.steps.bursts import USUAL, burst_rules


@dataclass(frozen=True, slots=True)
class FirstComeOptions:
    """A burst ends after a silence of `gap_ms`; one longer than `longest_ms` goes behind those that wait."""

    gap_ms: float = USUAL.gap_us / 1000
    longest_ms: float = USUAL.longest_us / 1000

    def __post_init__(self) -> None:
        for name in ("gap_ms", "longest_ms"):
            if not 0.001 <= getattr(self, name) <= 2000:
                raise ConfigError(
                    f"First-come's option {name} is {getattr(self, name)}.", "Use 0.001 to 2000 milliseconds."
                )


class FirstCome:
    name = "first-come"
    verified = True
    aligns_unprofiled = True

    def __init__(self, options: FirstComeOptions | None = None) -> None:
        chosen = options or FirstComeOptions()
        self._bursts = Bursts(round(chosen.gap_ms * 1000), round(chosen.longest_ms * 1000))

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """The bursts of all jobs on links that several jobs use; those of one job need no order.

        Links of unknown speed are left alone: classes on them would have no rate.
        """
        on: dict[str, list[PlacedJob]] = {}
        for job in placed:
            for host in job.placement.hosts if job.may_communicate else ():
                on.setdefault(host, []).append(job)
        rules: list[ShapingRule] = []
        for host in sorted(on.keys() & snapshot.hosts.keys()):
            bps = snapshot.hosts[host].nic_bps
            if len(on[host]) > 1 and bps:
                rules += burst_rules(host, bps, on[host], self._bursts)
        return Alignment(PERFECT, shaping=tuple(rules))


OPTIONS = FirstComeOptions
POLICY = FirstCome
