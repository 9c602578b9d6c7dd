"""Asks an admission policy which transfers may start, and remembers who waits.

Ada-SRSF Sec. IV-B. The policy is asked about the transfers that the change can concern: those
that share a host with what has just arrived or ended. A policy that starts no transfer where a number of
them go on (`most` of the port) is not asked about those that have such a host. Simulated and live transfers
are asked about here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from rm.core.ports import AdmissionPolicy, Transfer, most_beside
from rm.errors import RmError


class Communicating(Protocol):
    """A running attempt whose transfers are admitted."""

    @property
    def job(self) -> int: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...


A = TypeVar("A", bound=Communicating)
Describe = Callable[[Sequence[A]], list[Transfer]]  # what the policy is told of the attempts' transfers


class Verdict(NamedTuple, Generic[A]):
    """What changes now: attempts that start, that go on after a pause, and that pause."""

    start: tuple[A, ...] = ()
    resume: tuple[A, ...] = ()
    pause: tuple[A, ...] = ()


class _Host(Generic[A]):
    """Those that wait on a host, and those that communicate, by job."""

    __slots__ = ("ongoing", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, A] = {}
        self.ongoing: dict[int, A] = {}


class Gatekeeper(Generic[A]):
    """Waiting and ongoing transfers by host. A paused transfer waits like a new one."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self._most = most_beside(policy)
        self._full: set[_Host[A]] = set()  # hosts on which as many go on, where the policy has such a bound
        self._hosts: dict[str, _Host[A]] = {}
        # of those that wait or communicate, by job: with thousands, to look their hosts up costs the most
        self._hosts_of: dict[int, list[_Host[A]]] = {}
        self._paused: set[int] = set()

    def arrive(self, attempt: A, describe: Describe[A]) -> Verdict[A]:
        """`attempt` is ready to communicate."""
        job = attempt.job
        hosts = self._hosts_of[job] = self._look_up(attempt)
        for host in hosts:
            host.waiting[job] = attempt
        return self._ask({job: attempt}, describe)

    def end(self, attempts: Sequence[A], describe: Describe[A]) -> Verdict[A]:
        """Their transfers have ended, or they were stopped while they waited or communicated."""
        left = []
        for attempt in attempts:
            job = attempt.job
            hosts = self._hosts_of.pop(job, None) or self._look_up(attempt)
            for host in hosts:
                host.waiting.pop(job, None)
                host.ongoing.pop(job, None)
            self._paused.discard(job)
            self._emptier(hosts)
            left += hosts
        return self._ask(_waiting(left), describe)

    def force(self, attempt: A) -> None:
        """It has waited for long enough: its transfer goes on beside whatever goes on there."""
        self._start(attempt.job, attempt)

    def _ask(self, waiting: dict[int, A], describe: Describe[A]) -> Verdict[A]:
        if not waiting:
            return Verdict()
        hosts_of = self._hosts_of
        if self._full:
            waiting = self._with_room(waiting, describe)
            if not waiting:
                return Verdict()
        ongoing: dict[int, A] = {}
        for host in set().union(*[hosts_of[job] for job in waiting]):  # many wait for the same hosts
            if host.ongoing:
                ongoing.update(host.ongoing)
        answer = self._policy.admit(
            describe([waiting[j] for j in sorted(waiting)]), describe([ongoing[j] for j in sorted(ongoing)])
        )
        if not (answer.start or answer.pause):
            return Verdict()
        if not (set(answer.start) <= waiting.keys() and set(answer.pause) <= ongoing.keys()):
            raise RmError(
                "The admission policy named a transfer that it was not asked about.",
                f"It answered {answer}; correct the policy.",
            )
        freed: list[_Host[A]] = []
        for job in answer.pause:
            for host in hosts_of[job]:
                del host.ongoing[job]
                host.waiting[job] = ongoing[job]
            self._emptier(hosts_of[job])
            freed += hosts_of[job]
        start: list[A] = []
        resume: list[A] = []
        for job in answer.start:
            self._start(job, waiting[job])
            (resume if job in self._paused else start).append(waiting[job])
        if self._paused:
            self._paused.difference_update(answer.start)
        if not answer.pause:
            return Verdict(tuple(start), tuple(resume))
        self._paused.update(answer.pause)
        pause = tuple(ongoing[j] for j in answer.pause)
        # what is paused frees hosts that the others did not ask for: somebody else may start there
        more = self._ask(_waiting(freed), describe)
        return Verdict((*start, *more.start), (*resume, *more.resume), (*pause, *more.pause))

    def _with_room(self, waiting: dict[int, A], describe: Describe[A]) -> dict[int, A]:
        """Those of them that use no full host. One that keeps another out is described all the same: it may
        have sent meanwhile, and who describes it may note that."""
        full, hosts_of = self._full, self._hosts_of
        found = {job: attempt for job, attempt in waiting.items() if full.isdisjoint(hosts_of[job])}
        if len(found) < len(waiting):
            kept_out = next(job for job in waiting if job not in found)
            there = next(host for host in hosts_of[kept_out] if host in full)
            describe([next(iter(there.ongoing.values()))])
        return found

    def _start(self, job: int, attempt: A) -> None:
        most = self._most
        for host in self._hosts_of[job]:
            host.waiting.pop(job, None)
            host.ongoing[job] = attempt
            if most is not None and len(host.ongoing) >= most:
                self._full.add(host)

    def _emptier(self, hosts: Sequence[_Host[A]]) -> None:
        """Fewer go on there than before."""
        most = self._most
        if most == 1:
            self._full.difference_update(hosts)
        elif most is not None:
            self._full.difference_update(host for host in hosts if len(host.ongoing) < most)

    def _look_up(self, attempt: A) -> list[_Host[A]]:
        known = self._hosts
        found = []
        for name in attempt.hosts:
            host = known.get(name)
            if host is None:
                host = known[name] = _Host()
            found.append(host)
        return found


def _waiting(hosts: Iterable[_Host[A]]) -> dict[int, A]:
    """Who waits on any of these hosts."""
    found: dict[int, A] = {}
    for host in hosts:
        if host.waiting:
            found.update(host.waiting)
    return found
