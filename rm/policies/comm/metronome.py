"""Metronome's communication policy: rotations, global time-shifts, idle time, shaping.

Sources: Metronome Sec. II and III; CASSINI Sec. 4. Two modes: "paper" is the literal text;
"default" differs where the literal text loses: (a) residual idle time removes the drift of
averaged periods, (b) idle time is injected only where it costs less than the contention it
removes, and never into a high job beside low ones, (c) stage 3 maximises the gap between phases,
not the distance of their middles, (d) early iterations wait for their slot (slot gating), (e) the
order of bursts, traffic classes or gates keep jobs apart, or nothing, whichever costs the slowest
job least (keeping.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.network.alignment import Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.scheduling.rescheduling import Rescheduling
from rm.policies.comm.steps.known import follow
from rm.policies.comm.steps.metronome_options import MetronomeOptions
from rm.policies.comm.steps.realigning import Realigning
from rm.units import MINUTE_US


class Metronome:
    name = "metronome"

    def __init__(self, options: MetronomeOptions | None = None) -> None:
        self.options = options or MetronomeOptions()

    @property
    def goes_on(self) -> bool:
        return not self.options.paper

    @property
    def verified(self) -> bool:
        return not self.options.paper

    @property
    def rescheduling(self) -> Rescheduling | None:
        """When the cycle may move running jobs; None = never."""
        if not self.options.reschedule:
            return None
        return Rescheduling(
            self.options.reschedule_below, round(self.options.reschedule_every_min * MINUTE_US)
        )

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Align all jobs that share contended links, of hosts and of leaves; independent of the
        order of `placed`. What `snapshot.aligned` says of jobs that have not changed holds on."""
        known, change = follow(placed, snapshot, self.options.demand)
        views = {view.job: view for view in placed}
        realigning = Realigning(self.options, known, views, snapshot.hosts, offline)
        realigning.realign(change)
        return realigning.answer()


OPTIONS = MetronomeOptions
POLICY = Metronome
