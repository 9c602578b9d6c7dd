"""The defect of the authors' simulator, for the sake of their tables: who is asked, sends.

Their clock ticks once a millisecond. Asking a running transfer how much it still has to send lets
it send for another millisecond, and AdaDUAL asks once a tick for each waiting job. So a transfer
that q waiting jobs ask about is 1 + q times as fast as the model says, as long as they wait.
SRSF(n) asks nobody. Here the same happens continuously instead of once a tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappush

from rm.core.model.network.alignment import Alignment
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.ports import Admission
from rm.core.ports import Transfer as Asked
from rm.policies.comm.adadual import AdaDual
from rm.sim.network.penalty import Penalty, Sending
from rm.sim.network.port import Transfer


class AskedPenalty(Penalty):
    """The contention model in which being asked helps."""

    def __init__(self, a_us: float, b_us_per_byte: float, eta_us_per_byte: float) -> None:
        super().__init__(a_us, b_us_per_byte, eta_us_per_byte)
        self._askers: dict[int, tuple[str, ...]] = {}  # waiting job -> its hosts
        self._asked: dict[Sending, int] = {}

    def begin(self, transfer: Transfer, now_us: float) -> None:
        super().begin(transfer, now_us)
        self._ask()

    def advance(self, now_us: float) -> list[int]:
        ended = super().advance(now_us)
        if ended:
            self._ask()
        return ended

    def waiting(self, askers: Mapping[int, tuple[str, ...]], now_us: float) -> None:
        """These jobs wait, and ask, from now on."""
        if now_us > self._now:
            self._run_to(now_us)
        self._askers = dict(askers)
        self._ask()

    def _ask(self) -> None:
        """Count who is asked by how many: Algorithm 2, lines 1-12, on each waiting job's servers."""
        asked: dict[Sending, int] = {}
        for hosts in self._askers.values():
            busy = [port.sending for h in hosts if (port := self._ports.get(h)) is not None and port.sending]
            if busy and max(map(len, busy)) == 1:
                (first,) = busy[0]  # later servers have no more transfers than it, so they are not collected
                asked[first] = asked.get(first, 0) + 1
        before, self._asked = self._asked, asked
        for sending in before.keys() | asked.keys():
            if before.get(sending) != asked.get(sending) and sending.id in self._sending:
                self._drain(sending, self._now, sending.k)

    def _drain(self, sending: Sending, now: float, k: int) -> None:
        super()._drain(sending, now, k)
        asked = self._asked.get(sending)
        if asked:
            sending.us_per_byte /= 1 + asked
            sending.end = sending.since + sending.left * sending.us_per_byte
            heappush(self._heap, (sending.end, sending.id, sending))


class AskingAdaDual:
    """AdaDUAL that shows the network which transfers wait."""

    name = "adadual"

    def __init__(self, policy: AdaDual, network: AskedPenalty) -> None:
        self._policy, self._network = policy, network
        self._waiting: dict[int, tuple[str, ...]] = {}

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        return self._policy.align(placed, snapshot, offline)

    def admit(self, waiting: Sequence[Asked], ongoing: Sequence[Asked]) -> Admission:
        answer = self._policy.admit(waiting, ongoing)
        for transfer in waiting:
            self._waiting[transfer.job] = transfer.hosts
        for job in answer.start:
            del self._waiting[job]
        latest_us = max((t.since_us for t in waiting), default=0.0)
        self._network.waiting(self._waiting, latest_us)
        return answer
