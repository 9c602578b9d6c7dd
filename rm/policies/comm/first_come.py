"""first-come: whoever begins to communicate earlier keeps its links until it has sent all.

Ours, not a paper's. No profile, no period, no rotation: the bursts of jobs on a link are served in the order
in which they began, those of high jobs before all others. A burst that has to wait moves its job's next
iteration behind the one before it, where it stays: jobs that repeat themselves fall into a rotation on their
own. What the first in order leaves of a link goes to the next.

Known limit: bursts that cross several links in different orders may wait for one another in part.

The order of bursts is needed when each begins. The simulator asks for it; on live hosts nothing keeps it yet,
and jobs share their links as with `none`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot

LOW = 1 << 48  # no simulation has so many bursts


class FirstCome:
    name = "first-come"

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN

    def burst_priority(self, order: int, high: bool) -> int:
        """Of the burst that was the `order`-th to begin; the lowest is served first."""
        return order if high else LOW + order


POLICY = FirstCome
