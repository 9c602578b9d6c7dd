"""srsf-preemptive: one transfer a host, and the shortest remaining service takes it over at once.

Ours, not a paper's: Ada-SRSF's SRSF(1) never interrupts a transfer, so that a job with one second to
go waits for the all-reduce of a job with hours to go, in every one of its iterations. A transfer
can be paused between two of its packets at no cost (rm's pause agents do so), so the order of SRSF
is kept at every instant: a waiting transfer takes its hosts from all ongoing ones of longer
remaining service; what it displaces waits again with the bytes that it has left.

`margin` is how many times as long the remaining service of a displaced job must be: 1 preempts
always, infinity is SRSF(1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rm.core.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.ports import Admission, Transfer
from rm.core.snapshot import PlacedJob, Snapshot
from rm.errors import ConfigError
from rm.policies.comm.steps.transfers import by_host, srsf


@dataclass(frozen=True, slots=True)
class SrsfPreemptiveOptions:
    """`margin` >= 1, see above."""

    margin: float = 1.0

    def __post_init__(self) -> None:
        if not self.margin >= 1.0:
            raise ConfigError(
                f"The option margin of comm policy srsf-preemptive is {self.margin}.", "Use 1 or more."
            )


class SrsfPreemptive:
    name = "srsf-preemptive"
    Options = SrsfPreemptiveOptions

    def __init__(self, options: SrsfPreemptiveOptions | None = None) -> None:
        self.options = options or SrsfPreemptiveOptions()

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN

    def admit(self, waiting: Sequence[Transfer], ongoing: Sequence[Transfer]) -> Admission:
        """Those that start now, and those that they displace."""
        running = by_host(ongoing)
        start: list[int] = []
        pause: list[int] = []
        for transfer in srsf(waiting):
            met = {t.job: t for host in transfer.hosts for t in running.get(host, ())}
            least = self.options.margin * transfer.remaining_us * transfer.gpus
            if any(t.remaining_us * t.gpus <= least or t.job in start for t in met.values()):
                continue
            for displaced in met.values():
                pause.append(displaced.job)
                for host in displaced.hosts:
                    running[host] = [t for t in running.get(host, ()) if t.job != displaced.job]
            start.append(transfer.job)
            for host in transfer.hosts:
                running.setdefault(host, []).append(transfer)
        return Admission(tuple(start), tuple(pause))


OPTIONS = SrsfPreemptiveOptions
POLICY = SrsfPreemptive
