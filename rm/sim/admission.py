"""Asks an admission policy which transfers may start, and remembers who waits.

Ada-SRSF Sec. IV-B. The policy is asked about the transfers that the change can concern: those
that share a host with what has just arrived or ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rm.core.ports import AdmissionPolicy, Transfer
from rm.errors import RmError
from rm.sim.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Verdict:
    """What changes now: attempts that start, that go on after a pause, and that pause."""

    start: tuple[Attempt, ...] = ()
    resume: tuple[Attempt, ...] = ()
    pause: tuple[Attempt, ...] = ()


class Gatekeeper:
    """Waiting and ongoing transfers by host. A paused transfer waits like a new one."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self._waiting: dict[str, dict[int, Attempt]] = {}
        self._ongoing: dict[str, dict[int, Attempt]] = {}
        self._paused: set[int] = set()

    def arrive(self, attempt: Attempt, describe: Callable[[Attempt], Transfer]) -> Verdict:
        """`attempt` is ready to communicate."""
        self._put(self._waiting, attempt)
        return self._ask({attempt.job: attempt}, describe)

    def end(self, attempts: Sequence[Attempt], describe: Callable[[Attempt], Transfer]) -> Verdict:
        """Their transfers have ended, or they were stopped while they waited or communicated."""
        for attempt in attempts:
            self._drop(self._waiting, attempt)
            self._drop(self._ongoing, attempt)
            self._paused.discard(attempt.job)
        return self._ask(self._near(self._waiting, attempts), describe)

    def _ask(self, waiting: dict[int, Attempt], describe: Callable[[Attempt], Transfer]) -> Verdict:
        if not waiting:
            return Verdict()
        ongoing = self._near(self._ongoing, waiting.values())
        answer = self._policy.admit(
            [describe(waiting[j]) for j in sorted(waiting)], [describe(ongoing[j]) for j in sorted(ongoing)]
        )
        if not (set(answer.start) <= waiting.keys() and set(answer.pause) <= ongoing.keys()):
            raise RmError(
                "The admission policy named a transfer that it was not asked about.",
                f"It answered {answer}; correct the policy.",
            )
        for job in answer.pause:
            self._move(ongoing[job], self._ongoing, self._waiting)
        start: list[Attempt] = []
        resume: list[Attempt] = []
        for job in answer.start:
            self._move(waiting[job], self._waiting, self._ongoing)
            (resume if job in self._paused else start).append(waiting[job])
        self._paused -= set(answer.start)
        self._paused |= set(answer.pause)
        pause = tuple(ongoing[j] for j in answer.pause)
        if not pause:
            return Verdict(tuple(start), tuple(resume))
        # what is paused frees hosts that the others did not ask for: somebody else may start there
        more = self._ask(self._near(self._waiting, pause), describe)
        return Verdict((*start, *more.start), (*resume, *more.resume), (*pause, *more.pause))

    @staticmethod
    def _put(where: dict[str, dict[int, Attempt]], attempt: Attempt) -> None:
        for host in attempt.hosts:
            where.setdefault(host, {})[attempt.job] = attempt

    @staticmethod
    def _drop(where: dict[str, dict[int, Attempt]], attempt: Attempt) -> None:
        for host in attempt.hosts:
            where.get(host, {}).pop(attempt.job, None)

    def _move(
        self,
        attempt: Attempt,
        source: dict[str, dict[int, Attempt]],
        target: dict[str, dict[int, Attempt]],
    ) -> None:
        self._drop(source, attempt)
        self._put(target, attempt)

    @staticmethod
    def _near(where: dict[str, dict[int, Attempt]], attempts: Iterable[Attempt]) -> dict[int, Attempt]:
        found: dict[int, Attempt] = {}
        for attempt in attempts:
            for host in attempt.hosts:
                found |= where.get(host, {})
        return found
