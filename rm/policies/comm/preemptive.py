"""preemptive: one transfer a host, and the job that ends soonest takes over where that pays.

Ours, not a paper's: Ada-SRSF's SRSF(1) never interrupts a transfer, so a job with a second to go
waits for the whole all-reduce of a job with hours to go, in every one of its iterations. A transfer
can be paused between two packets at no cost (on hosts the job is frozen meanwhile). A waiting transfer
displaces the ongoing ones that it meets when

* its job has less to do than each of theirs: in `order` "time" less remaining time, in "service"
  less of it times GPUs (SRSF's). The sum of completion times counts jobs, not GPUs, so time it is;
* and it pays: all n that it displaces wait for it, which costs n times its own bytes, and it saves
  waiting for the one with most bytes left: n·M_new < `worth`·max M_left. `worth` 0 never
  displaces anybody (SRSF(1), in that order), infinity always.

What is displaced waits again with the bytes that it has left. As remaining times order all jobs,
no two can displace each other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.ports import Admission, Transfer
from rm.errors import ConfigError
from rm.policies.comm.steps.transfers import by_host

ORDERS = ("time", "service")


@dataclass(frozen=True, slots=True)
class PreemptiveOptions:
    """See the module."""

    order: str = "time"
    worth: float = 1.0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigError(
                f"The option order of comm policy preemptive is {self.order!r}.",
                f"Known are: {', '.join(ORDERS)}.",
            )
        if not self.worth >= 0.0:
            raise ConfigError(
                f"The option worth of comm policy preemptive is {self.worth}.", "Use 0 or more."
            )


class Preemptive:
    name = "preemptive"
    aligns = False

    def __init__(self, options: PreemptiveOptions | None = None) -> None:
        self.options = options or PreemptiveOptions()

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN

    def admit(self, waiting: Sequence[Transfer], ongoing: Sequence[Transfer]) -> Admission:
        """Those that start now, in order, and those that they displace."""
        running = by_host(ongoing)
        start: list[int] = []
        pause: list[int] = []
        for transfer in sorted(waiting, key=self._rank):
            met = {t.job: t for host in transfer.hosts for t in running.get(host, ())}
            if met and (not met.keys().isdisjoint(start) or not self._displaces(transfer, met.values())):
                continue
            for displaced in met.values():
                pause.append(displaced.job)
                for host in displaced.hosts:
                    running[host] = [t for t in running[host] if t.job != displaced.job]
            start.append(transfer.job)
            for host in transfer.hosts:
                running.setdefault(host, []).append(transfer)
        return Admission(tuple(start), tuple(pause))

    def _displaces(self, new: Transfer, met: Collection[Transfer]) -> bool:
        rank = self._rank(new)
        return all(rank < self._rank(old) for old in met) and len(
            met
        ) * new.left_bytes < self.options.worth * max(old.left_bytes for old in met)

    def _rank(self, transfer: Transfer) -> tuple[float, int]:
        left_us = transfer.remaining_us
        return (left_us * transfer.gpus if self.options.order == "service" else left_us), transfer.job


OPTIONS = PreemptiveOptions
POLICY = Preemptive
