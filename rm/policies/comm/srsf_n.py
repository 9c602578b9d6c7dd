"""srsf-n: a transfer starts while fewer than n run on every host that it uses.

Source: Ada-SRSF, Sec. V: SRSF(1) avoids all contention, SRSF(2) and SRSF(3) accept it blindly up to
two and three ways. Waiting transfers have their turn in the order of shortest remaining service;
one that may not start holds nobody up. A started transfer is never paused.

An admission policy: it decides before every collective operation, in the simulator and of live jobs that
tell the iteration client when they communicate.

An answer for one transfer depends only on those that use a host of its own. So it is enough to ask
about the neighbourhood of what has changed: what was refused elsewhere is refused still.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.ports import Admission, Transfer
from rm.errors import ConfigError
from rm.policies.comm.steps.transfers import srsf

MOST = 64  # transfers at a time on a host


@dataclass(frozen=True, slots=True)
class SrsfOptions:
    """`n` transfers at most at a time on each host."""

    n: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MOST:
            raise ConfigError(f"The option n of comm policy srsf-n is {self.n}.", f"Use 1 to {MOST}.")


class Busy:
    """The hosts on which n transfers run."""

    def __init__(self, n: int) -> None:
        self._fewer: list[set[str]] = [set() for _ in range(n - 1)]  # on which hosts one, two, ... run
        self.full: set[str] = set()

    def add(self, hosts: tuple[str, ...]) -> None:
        more: Collection[str] = hosts
        for there in self._fewer:
            again = there.intersection(more)
            there.update(more)
            more = again
        self.full.update(more)

    def add_all(self, transfers: Sequence[Transfer]) -> None:
        if not self._fewer:  # one fills a host
            self.full.update(*[transfer.hosts for transfer in transfers])
            return
        for transfer in transfers:
            self.add(transfer.hosts)


class SrsfN:
    name = "srsf-n"
    aligns = False
    looks_at_left = False

    def __init__(self, options: SrsfOptions | None = None) -> None:
        self.options = options or SrsfOptions()

    @property
    def most(self) -> int:
        return self.options.n

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN

    def admit(self, waiting: Sequence[Transfer], ongoing: Sequence[Transfer]) -> Admission:
        """Those that start now, in the order of shortest remaining service."""
        if not waiting:
            return Admission(())
        busy = Busy(self.options.n)
        busy.add_all(ongoing)
        # no host becomes free meanwhile: who cannot start beside what goes on needs no place in the order
        may = [transfer for transfer in waiting if busy.full.isdisjoint(transfer.hosts)]
        start: list[int] = []
        for transfer in srsf(may):
            if busy.full.isdisjoint(transfer.hosts):
                start.append(transfer.job)
                busy.add(transfer.hosts)
        return Admission(tuple(start))


OPTIONS = SrsfOptions
POLICY = SrsfN
