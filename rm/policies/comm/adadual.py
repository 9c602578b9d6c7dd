"""adadual: a transfer joins others only where the sum of all completion times gains by it.

Source: Ada-SRSF, Theorems 1 and 2, Algorithms 2 and 3. On a server without transfers one starts at
once; beside a single old one with M_old bytes left it starts when M_new/M_old < b/(2(b+eta)), strictly
(eq. 13); beside two it waits. Waiting transfers have their turn in the order of shortest remaining
service; a started transfer is never paused.

`ways` above 2 answers the question that the paper leaves to future work: the k-th transfer joins when
the total completion time of all on the link is less than if it waited for one of them to end (see
rm/policies/comm/steps/contention.py for the proof; `ways = 2` is the paper's rule).

`olds` says which of the transfers met count, for the paper looks at one link and a transfer may meet
different ones on several servers:

* "all": it joins only if it would on each of its servers, taken alone: for two ways, eq. 13 for every
  old transfer met.
* "printed": Algorithm 2 as printed replaces the collected set only where a server has more transfers
  than those before it, so that eq. 13 is asked for the first busy server's alone.
* "total": all servers at once. A newcomer on four servers slows four others, which the two above do
  not add up: with n old ones apart from each other the threshold falls to b/((n+1)(b+eta)).

An admission policy: it decides before every collective operation, in the simulator and of live jobs that
tell the iteration client when they communicate. As with srsf-n it is enough to ask about those that use the
hosts where a transfer became ready or ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.ports import Admission, Transfer
from rm.errors import ConfigError
from rm.policies.comm.steps.contention import Contention, Flow, joins_hosts
from rm.policies.comm.steps.transfers import by_host, srsf

OLDS = ("all", "printed", "total")


@dataclass(frozen=True, slots=True)
class AdaDualOptions:
    """`b` and `eta` in seconds per byte, `ways` transfers at most on one host, `olds` see the module.

    The defaults are Ada-SRSF's 10 Gbit/s Ethernet: b from Sec. III-A-2, eta from its authors'
    simulation, as the paper prints none. Only their ratio matters.
    """

    b: float = 8.53e-10
    eta: float = 2.35e-10
    ways: int = 2
    olds: str = "all"

    def __post_init__(self) -> None:
        if self.b <= 0 or self.eta < 0:
            raise ConfigError(
                f"The options of comm policy adadual are b = {self.b:g} and eta = {self.eta:g}.",
                "Use b above 0 and eta of 0 or more.",
            )
        if self.ways < 1:
            raise ConfigError(f"The option ways of comm policy adadual is {self.ways}.", "Use 1 or more.")
        if self.olds not in OLDS:
            raise ConfigError(
                f"The option olds of comm policy adadual is {self.olds!r}.", f"Known are: {', '.join(OLDS)}."
            )


class AdaDual:
    name = "adadual"
    aligns = False

    def __init__(self, options: AdaDualOptions | None = None) -> None:
        self.options = options or AdaDualOptions()
        self._model = Contention(self.options.b, self.options.eta)

    @property
    def most(self) -> int | None:
        """None for "total": that also counts who meets those that the newcomer would meet."""
        return None if self.options.olds == "total" else self.options.ways

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return NOTHING_TO_ALIGN

    def admit(self, waiting: Sequence[Transfer], ongoing: Sequence[Transfer]) -> Admission:
        """Those that start now, in the order of shortest remaining service."""
        if not waiting:
            return Admission(())
        running = by_host(ongoing)
        start: list[int] = []
        for transfer in srsf(waiting):
            if self._starts(transfer, running):
                start.append(transfer.job)
                for host in transfer.hosts:
                    running.setdefault(host, []).append(transfer)
        return Admission(tuple(start))

    def _starts(self, new: Transfer, running: Mapping[str, Sequence[Transfer]]) -> bool:
        there = [running[host] for host in new.hosts if running.get(host)]
        if not there:
            return True
        if max(map(len, there)) >= self.options.ways:
            return False
        if self.options.olds == "total":
            return self._gains(new, there, running)
        if self.options.olds == "printed":
            there = [max(there, key=len)]  # the first of those with most
        return all(self._model.joins(new.left_bytes, [t.left_bytes for t in olds]) for olds in there)

    def _gains(
        self, new: Transfer, there: Sequence[Sequence[Transfer]], running: Mapping[str, Sequence[Transfer]]
    ) -> bool:
        met = list({t.job: t for olds in there for t in olds}.values())
        mine = {t.job for t in met}
        hosts = {host for t in met for host in t.hosts}
        others = {h: sum(t.job not in mine for t in running[h]) for h in hosts}
        return joins_hosts(
            self._model, Flow(new.hosts, new.left_bytes), [Flow(t.hosts, t.left_bytes) for t in met], others
        )


OPTIONS = AdaDualOptions
POLICY = AdaDual
