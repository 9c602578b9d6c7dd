"""When the transfers of live jobs may begin: what the admission policy says of them, and for how long.

Ada-SRSF Sec. IV-B, for jobs on hosts. Pure: times are arguments, in microseconds of a clock that nobody sets.
What a host says is believed in one respect alone, that a job of its own is ready or has communicated. Sizes
and remaining times come from the state, and nobody is waited for without end:

* a transfer that was admitted counts as ended `FACTOR` times later than it should end beside the others;
* one that waits is admitted in any case when all that share its hosts could have sent `FACTOR` times;
* one that has begun may be held for as long, again and again until that makes `LONGEST_WAIT_US`: from then on
  it goes on beside whatever else does;
* in all its transfers together a job waits `FACTOR` times as long as it does not wait, for each job that it
  shares hosts with, and `LONGEST_WAIT_US` more: whoever says that he communicates without end slows it down
  by a factor only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm.core.ports import AdmissionPolicy, Transfer
from rm.policies.regulate.gatekeeper import Gatekeeper, Verdict

FACTOR = 2
SLACK_US = 50_000  # for messages, and for a host that is busy
LONGEST_WAIT_US = 5_000_000
UNKNOWN_US = 1 << 53  # nobody said how much a job has still to do: it comes last


@dataclass(frozen=True, slots=True)
class Sender:
    """A running attempt that asks before it communicates, once an iteration.

    `alone_us` is what that takes alone; `ends_us` when the attempt ends if undisturbed, None: not known.
    """

    job: int
    attempt: int
    hosts: tuple[str, ...]
    size_bytes: float
    alone_us: int
    compute_us: int
    gpus: int
    ends_us: int | None = None


@dataclass(frozen=True, slots=True)
class Admit:
    """The hosts of the attempt let its communication of this number begin or go on, and all before."""

    job: int
    attempt: int
    number: int


@dataclass(frozen=True, slots=True)
class Hold:
    """They let it stand still until it is admitted again, so long at most."""

    job: int
    attempt: int
    number: int
    most_us: int


Order = Admit | Hold


@dataclass(slots=True)
class _Patience:
    """Of an attempt: it may wait for so long as of `at_us`, and for more the longer it has not waited."""

    attempt: int
    left_us: float
    at_us: int


@dataclass(slots=True, eq=False)
class _Ongoing:
    """A transfer, asked for at `since_us`. It waits since `waits_us` unless it has `begun_us`, and had
    waited `waited_us` in all before. `held`: it waits, and had begun. `patience_us`: what its job had left
    when it began to wait.

    `left_us`: what it had left at `seen_us`, in time alone; since then it has shared its busiest host with
    `ways` - 1 others, and with `most_ways` - 1 at most.
    """

    sender: Sender
    number: int
    since_us: int
    left_us: float
    waits_us: int
    patience_us: int
    waited_us: int = 0
    held: bool = False
    begun_us: int | None = None
    seen_us: int = 0
    ways: int = 1
    most_ways: int = 1

    @property
    def job(self) -> int:
        return self.sender.job

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.sender.hosts

    def left_at_us(self, now_us: int) -> float:
        if self.begun_us is None:
            return self.left_us
        return max(0.0, self.left_us - (now_us - self.seen_us) / self.ways)


class Admitting:
    """The transfers of all jobs that ask. Each method returns the orders that follow."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._gate = Gatekeeper[_Ongoing](policy)
        self._senders: dict[int, Sender] = {}
        self._most_us: dict[int, int] = {}
        self._others: dict[int, int] = {}  # with how many jobs each shares hosts
        self._patience: dict[int, _Patience] = {}
        self._transfers: dict[int, _Ongoing] = {}
        self._sending: dict[str, set[int]] = {}  # jobs whose transfers have begun, by host
        self._now_us = 0

    @property
    def waits_us(self) -> Mapping[int, int]:
        """How long each job waits at most; of those that share a host with others, the only ones to ask."""
        return self._most_us

    @property
    def due_us(self) -> int | None:
        """When `passed` has something to say; None: never, if nothing happens."""
        return min(map(self._due_us, self._transfers.values()), default=None)

    def see(self, senders: Mapping[int, Sender], now_us: int) -> list[Order]:
        """These jobs ask from now on; others have ended, or do not share their hosts any more."""
        self._senders = dict(senders)
        on: dict[str, list[Sender]] = {}
        for sender in senders.values():
            for host in sender.hosts:
                on.setdefault(host, []).append(sender)
        self._most_us, self._others = {}, {}
        self._patience = {job: its for job, its in self._patience.items() if job in senders}
        for sender in senders.values():
            others = {s.job: s.alone_us for host in sender.hosts for s in on[host] if s is not sender}
            if others:
                most_us = SLACK_US + FACTOR * sum(others.values())
                self._most_us[sender.job] = min(LONGEST_WAIT_US, most_us)
                self._others[sender.job] = len(others)
        over = []
        for transfer in self._transfers.values():
            now = senders.get(transfer.job)
            if now is None or (now.attempt, now.hosts) != (transfer.sender.attempt, transfer.hosts):
                over.append(transfer)
            else:
                transfer.sender = now
        return self._end(over, now_us)

    def ready(self, job: int, attempt: int, number: int, now_us: int) -> list[Order]:
        """The attempt would communicate now. One that shares no host with others may do so."""
        sender, before = self._senders.get(job), self._transfers.get(job)
        if sender is None or sender.attempt != attempt or job not in self._most_us:
            return [Admit(job, attempt, number)]
        if before is not None and before.number == number:  # it asks again
            return [] if before.begun_us is None else [Admit(job, attempt, number)]
        admitted = self._end([before], now_us) if before is not None else []
        self._now_us = now_us
        transfer = _Ongoing(sender, number, now_us, float(sender.alone_us), now_us, self._patience_us(sender))
        self._transfers[job] = transfer
        return [*admitted, *self._begin(self._gate.arrive(transfer, self._asked))]

    def ended(self, job: int, attempt: int, number: int, now_us: int) -> list[Order]:
        """The attempt has communicated."""
        transfer = self._transfers.get(job)
        if transfer is None or transfer.sender.attempt != attempt or transfer.number > number:
            return []
        return self._end([transfer], now_us)

    def passed(self, now_us: int) -> list[Order]:
        """It is so late now: whose time is over counts as ended, who has waited for long enough goes on."""
        late = [t for t in self._transfers.values() if self._due_us(t) <= now_us]
        admitted = self._end([t for t in late if t.begun_us is not None], now_us)
        for transfer in late:
            if transfer.begun_us is None:
                self._gate.force(transfer)
                admitted += self._begin(Verdict((transfer,)))
        return admitted

    def _due_us(self, transfer: _Ongoing) -> int:
        if transfer.begun_us is None:
            return transfer.waits_us + self._may_wait_us(transfer)
        return transfer.begun_us + FACTOR * transfer.most_ways * transfer.sender.alone_us + SLACK_US

    def _may_wait_us(self, transfer: _Ongoing) -> int:
        """From the beginning of a wait on; 0: it has waited for long enough."""
        longest_us = min(LONGEST_WAIT_US - transfer.waited_us, transfer.patience_us)
        return max(0, min(self._most_us.get(transfer.job, 0), longest_us))

    def _patience_us(self, sender: Sender) -> int:
        """Of a job that does not wait now."""
        its = self._patience.get(sender.job)
        if its is None or its.attempt != sender.attempt:
            its = self._patience[sender.job] = _Patience(sender.attempt, LONGEST_WAIT_US, self._now_us)
        more_us = FACTOR * self._others.get(sender.job, 0) * (self._now_us - its.at_us)
        its.left_us, its.at_us = min(LONGEST_WAIT_US, its.left_us + more_us), self._now_us
        return int(its.left_us)

    def _has_waited(self, transfer: _Ongoing) -> None:
        """Until now."""
        us = self._now_us - transfer.waits_us
        transfer.waited_us += us
        its = self._patience.get(transfer.job)
        if its is not None:
            its.left_us, its.at_us = its.left_us - us, self._now_us

    def _begin(self, verdict: Verdict[_Ongoing]) -> list[Order]:
        """Holds come first: what they make room for begins after them."""
        orders: list[Order] = [self._hold(transfer) for transfer in verdict.pause if self._holds(transfer)]
        for transfer in (*verdict.resume, *verdict.start):
            self._has_waited(transfer)
            transfer.held, transfer.begun_us, transfer.seen_us = False, self._now_us, self._now_us
            for host in transfer.hosts:
                self._sending.setdefault(host, set()).add(transfer.job)
            self._count(transfer)
            orders.append(_admit(transfer))
        return orders

    def _holds(self, transfer: _Ongoing) -> bool:
        """May it be held still? Else it goes on, whatever the policy wants."""
        transfer.patience_us = self._patience_us(transfer.sender)
        if self._may_wait_us(transfer):
            return True
        self._gate.force(transfer)
        return False

    def _hold(self, transfer: _Ongoing) -> Order:
        transfer.left_us, transfer.begun_us = transfer.left_at_us(self._now_us), None
        transfer.held, transfer.waits_us = True, self._now_us
        self._stop(transfer)
        return Hold(transfer.job, transfer.sender.attempt, transfer.number, self._may_wait_us(transfer))

    def _stop(self, transfer: _Ongoing) -> None:
        """It does not send any more."""
        for host in transfer.hosts:
            self._sending[host].discard(transfer.job)
            if not self._sending[host]:
                del self._sending[host]
        self._count(transfer)

    def _end(self, transfers: list[_Ongoing], now_us: int) -> list[Order]:
        self._now_us = now_us
        for transfer in transfers:
            del self._transfers[transfer.job]
            if transfer.begun_us is not None:
                self._stop(transfer)
            else:
                self._has_waited(transfer)
        # its other ranks have nearly ended, too
        orders: list[Order] = [_admit(transfer) for transfer in transfers if transfer.held]
        return [*orders, *self._begin(self._gate.end(transfers, self._asked))] if transfers else []

    def _count(self, changed: _Ongoing) -> None:
        """With how many others those beside it share their hosts from now on."""
        for job in {job for host in changed.hosts for job in self._sending.get(host, ())}:
            transfer = self._transfers[job]
            transfer.left_us, transfer.seen_us = transfer.left_at_us(self._now_us), self._now_us
            transfer.ways = max(len(self._sending[host]) for host in transfer.hosts)
            transfer.most_ways = max(transfer.most_ways, transfer.ways)

    def _asked(self, transfers: Sequence[_Ongoing]) -> list[Transfer]:
        return [self._told_of(transfer) for transfer in transfers]

    def _told_of(self, transfer: _Ongoing) -> Transfer:
        sender = transfer.sender
        left_us = transfer.left_at_us(self._now_us)
        return Transfer(
            transfer.job,
            transfer.hosts,
            sender.size_bytes,
            sender.size_bytes * left_us / sender.alone_us,
            sender.gpus,
            UNKNOWN_US if sender.ends_us is None else max(0, sender.ends_us - self._now_us),
            sender.compute_us,
            transfer.since_us,
        )


def _admit(transfer: _Ongoing) -> Admit:
    return Admit(transfer.job, transfer.sender.attempt, transfer.number)
