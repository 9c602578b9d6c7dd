"""Asks an admission policy which transfers may start, and remembers who waits.

Ada-SRSF Sec. IV-B. The policy is asked about the transfers that the change can concern: those
that share a host with what has just arrived or ended. Simulated and live transfers are asked about here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rm.core.ports import AdmissionPolicy, Transfer
from rm.errors import RmError


class Communicating(Protocol):
    """A running attempt whose transfers are admitted."""

    @property
    def job(self) -> int: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...


A = TypeVar("A", bound=Communicating)
Describe = Callable[[Sequence[A]], list[Transfer]]  # what the policy is told of the attempts' transfers


@dataclass(frozen=True, slots=True)
class Verdict(Generic[A]):
    """What changes now: attempts that start, that go on after a pause, and that pause."""

    start: tuple[A, ...] = ()
    resume: tuple[A, ...] = ()
    pause: tuple[A, ...] = ()


class Gatekeeper(Generic[A]):
    """Waiting and ongoing transfers by host. A paused transfer waits like a new one."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self._waiting: dict[str, dict[int, A]] = {}
        self._ongoing: dict[str, dict[int, A]] = {}
        self._paused: set[int] = set()

    def arrive(self, attempt: A, describe: Describe[A]) -> Verdict[A]:
        """`attempt` is ready to communicate."""
        self._put(self._waiting, attempt)
        return self._ask({attempt.job: attempt}, describe)

    def end(self, attempts: Sequence[A], describe: Describe[A]) -> Verdict[A]:
        """Their transfers have ended, or they were stopped while they waited or communicated."""
        for attempt in attempts:
            self._drop(self._waiting, attempt)
            self._drop(self._ongoing, attempt)
            self._paused.discard(attempt.job)
        return self._ask(self._near(self._waiting, attempts), describe)

    def force(self, attempt: A) -> None:
        """It has waited for long enough: its transfer goes on beside whatever goes on there."""
        self._move(attempt, self._waiting, self._ongoing)

    def _ask(self, waiting: dict[int, A], describe: Describe[A]) -> Verdict[A]:
        if not waiting:
            return Verdict()
        ongoing = self._near(self._ongoing, waiting.values())
        answer = self._policy.admit(
            describe([waiting[j] for j in sorted(waiting)]), describe([ongoing[j] for j in sorted(ongoing)])
        )
        if not (set(answer.start) <= waiting.keys() and set(answer.pause) <= ongoing.keys()):
            raise RmError(
                "The admission policy named a transfer that it was not asked about.",
                f"It answered {answer}; correct the policy.",
            )
        for job in answer.pause:
            self._move(ongoing[job], self._ongoing, self._waiting)
        start: list[A] = []
        resume: list[A] = []
        for job in answer.start:
            self._move(waiting[job], self._waiting, self._ongoing)
            (resume if job in self._paused else start).append(waiting[job])
        if self._paused:
            self._paused.difference_update(answer.start)
        if not answer.pause:
            return Verdict(tuple(start), tuple(resume))
        self._paused.update(answer.pause)
        pause = tuple(ongoing[j] for j in answer.pause)
        # what is paused frees hosts that the others did not ask for: somebody else may start there
        more = self._ask(self._near(self._waiting, pause), describe)
        return Verdict((*start, *more.start), (*resume, *more.resume), (*pause, *more.pause))

    @staticmethod
    def _put(where: dict[str, dict[int, A]], attempt: A) -> None:
        for host in attempt.hosts:
            where.setdefault(host, {})[attempt.job] = attempt

    @staticmethod
    def _drop(where: dict[str, dict[int, A]], attempt: A) -> None:
        for host in attempt.hosts:
            if there := where.get(host):
                there.pop(attempt.job, None)

    def _move(
        self,
        attempt: A,
        source: dict[str, dict[int, A]],
        target: dict[str, dict[int, A]],
    ) -> None:
        self._drop(source, attempt)
        self._put(target, attempt)

    @staticmethod
    def _near(where: dict[str, dict[int, A]], attempts: Iterable[A]) -> dict[int, A]:
        found: dict[int, A] = {}
        hosts = set().union(*[attempt.hosts for attempt in attempts])
        for there in map(where.get, hosts):
            if there:
                found.update(there)
        return found
