"""Admission of single transfers on live hosts: jobs ask before they communicate, the policy says who begins.

Hosts' agents hold the ranks, also of a transfer that another one displaces; what rank 0 asks comes here at
once, and what follows is sent to all hosts of the job. Nothing is durable: a host that has lost the daemon
lets everybody pass, a daemon begins anew.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobState
from rm.core.model.network.alignment import Alignment
from rm.core.model.progress import gpus_of, remaining_us
from rm.core.model.snapshot import PlacedJob
from rm.core.ports import AdmissionPolicy, Clock
from rm.daemon.agents import Agents
from rm.daemon.regulation.asking import HostCalls
from rm.daemon.regulation.rules import Rules
from rm.daemon.regulation.running import Place, Running, RunningJobs, View
from rm.policies.regulate.admitting import Admit, Admitting, Hold, Order, Sender
from rm.protocol import network as wire
from rm.protocol.notifications import Communication
from rm.units import SECOND_US

Key = TypeVar("Key")

log = logging.getLogger(__name__)

TURN_S = 0.25
BITS = 8
# Of one job, words that wait to be heard, and orders that one of its hosts has not answered. What is more is
# left out: its ranks pass when they have waited for long enough. Honest ranks wait for what they asked for.
WORDS_MAX = ORDERS_MAX = 32


@dataclass(frozen=True, slots=True)
class Asks:
    """On this host the job's ranks ask before they communicate, and wait so long at most."""

    job: int
    host: str
    most_us: int


class Asking(Rules[Asks]):
    def __init__(self, calls: HostCalls, epoch: int) -> None:
        super().__init__()
        self._calls = calls
        self._epoch = epoch

    def set_on(self, running: Running, place: Place, rule: Asks) -> None:
        self._say(running, place, rule.most_us)

    def unset_on(self, running: Running, place: Place) -> None:
        self._say(running, place, 0)

    def _say(self, running: Running, place: Place, most_us: int) -> None:
        request = wire.Admission(job=running.job, attempt=running.attempt, epoch=self._epoch, most_us=most_us)
        self._calls.ask(running, place, request)


class Admission:
    """One thread; everything reaches it through its queue. Without a policy that admits it does nothing."""

    def __init__(self, *, policy: AdmissionPolicy | None, agents: Agents, clock: Clock, epoch: int) -> None:
        self._calls = HostCalls(agents)
        self._clock = clock
        self._epoch = epoch
        self._admitting = None if policy is None else Admitting(policy)
        self._asking = Asking(self._calls, epoch)
        self._jobs = RunningJobs()  # used by the leader's thread
        self._running: Mapping[int, Running] = {}
        self._queue: queue.SimpleQueue[Callable[[Admitting], Iterable[Order]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="admission", daemon=True)
        self._guard = threading.Lock()
        self._words: Counter[int] = Counter()  # not heard yet, by job
        self._orders: Counter[tuple[int, str]] = Counter()  # not answered yet, by job and host

    def start(self) -> None:
        if self._admitting is not None:
            self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(5)

    def aligned(self, alignment: Alignment, state: ClusterState) -> None:
        """What the leader's thread shows after a step."""
        if self._admitting is None:
            return
        running = self._jobs.of(state)
        now_us, mono_us = self._clock.now_us(), self._clock.monotonic_us()
        senders = {}
        for number in running:
            sender = sender_of(state.jobs[number], state.placed[number], state, now_us, mono_us)
            if sender is not None:
                senders[number] = sender
        self._queue.put(lambda admitting: self._see(admitting, running, senders))

    def communication(self, message: Communication) -> None:
        """A job is ready to communicate, or has; in the fleet's thread."""
        if self._admitting is not None and self._more(self._words, message.job, WORDS_MAX):
            self._queue.put(lambda admitting: self._hear(admitting, message))

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        admitting = self._admitting
        assert admitting is not None, "there is a policy that admits"
        while True:
            due_us = admitting.due_us
            left_s = TURN_S if due_us is None else (due_us - self._clock.monotonic_us()) / SECOND_US
            try:
                work = self._queue.get(timeout=max(0.001, min(TURN_S, left_s)))
            except queue.Empty:
                work = _idle
            if work is None:
                return
            try:
                self._send(work(admitting))
                self._send(admitting.passed(self._clock.monotonic_us()))
            except Exception:  # jobs pass when they have waited for long enough
                log.exception("admission met a defect of rm")

    def _see(
        self, admitting: Admitting, running: Mapping[int, Running], senders: Mapping[int, Sender]
    ) -> Iterable[Order]:
        self._running = running
        admitted = admitting.see(senders, self._clock.monotonic_us())
        rules = [
            Asks(job, host, most_us)
            for job, most_us in sorted(admitting.waits_us.items())
            for host in senders[job].hosts
        ]
        self._asking.follow(rules, View(running=running))
        return admitted

    def _more(self, waiting: Counter[Key], key: Key, most: int) -> bool:
        """May one more wait? Then it does."""
        with self._guard:
            if waiting[key] >= most:
                return False
            waiting[key] += 1
            return True

    def _fewer(self, waiting: Counter[Key], key: Key) -> None:
        with self._guard:
            waiting[key] -= 1
            if not waiting[key]:
                del waiting[key]

    def _hear(self, admitting: Admitting, said: Communication) -> Iterable[Order]:
        self._fewer(self._words, said.job)
        now_us = self._clock.monotonic_us()
        if said.ended:
            return admitting.ended(said.job, said.attempt, said.number, now_us)
        return admitting.ready(said.job, said.attempt, said.number, now_us)

    def _send(self, admitted: Iterable[Order]) -> None:
        for one in admitted:
            running = self._running.get(one.job)
            if running is None or running.attempt != one.attempt:
                continue
            for place in running.places:
                self._order(running, place, self._held(one) if isinstance(one, Hold) else self._admitted(one))

    def _order(self, running: Running, place: Place, order: wire.Hold | wire.Admit) -> None:
        key = running.job, place.host
        if self._more(self._orders, key, ORDERS_MAX):
            self._calls.ask(running, place, order, on_end=lambda: self._fewer(self._orders, key))

    def _admitted(self, one: Admit) -> wire.Admit:
        return wire.Admit(job=one.job, attempt=one.attempt, epoch=self._epoch, number=one.number)

    def _held(self, one: Hold) -> wire.Hold:
        return wire.Hold(
            job=one.job, attempt=one.attempt, epoch=self._epoch, number=one.number, most_us=one.most_us
        )


def _idle(admitting: Admitting) -> Iterable[Order]:
    return ()


def sender_of(job: Job, placed: PlacedJob, state: ClusterState, now_us: int, mono_us: int) -> Sender | None:
    """None: it does not communicate, as far as is known."""
    traffic = job.traffic
    if job.state is not JobState.RUNNING or job.spec.low_comm or traffic is None or not traffic.comm_us:
        return None
    left_us = remaining_us(job, state.progress.get(job.id), now_us)
    bits = sum(phase.rate_bps * phase.duration_us for phase in traffic.phases) / SECOND_US
    return Sender(
        job.id,
        job.attempt,
        placed.placement.hosts,
        bits / BITS,
        traffic.comm_us,
        traffic.period_us - traffic.comm_us,
        gpus_of(job),
        None if left_us is None else mono_us + left_us,
    )
