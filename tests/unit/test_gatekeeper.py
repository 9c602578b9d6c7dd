"""Who is asked about when a transfer arrives or ends, and what follows from the policy's answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from rm.core.ports import Admission, Transfer
from rm.errors import RmError
from rm.policies.regulate.gatekeeper import Gatekeeper, Verdict

Answer = Callable[[set[int], set[int]], Admission]


@dataclass(frozen=True)
class Attempt:
    job: int
    hosts: tuple[str, ...]


class Asked:
    """A policy that answers as a test says and remembers of which jobs it was asked."""

    name = "asked"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.about: list[tuple[set[int], set[int]]] = []

    def admit(self, waiting: Sequence[Transfer], ongoing: Sequence[Transfer]) -> Admission:
        one, other = {t.job for t in waiting}, {t.job for t in ongoing}
        self.about.append((one, other))
        return self.answer(one, other)


def described(attempts: Sequence[Attempt]) -> list[Transfer]:
    return [Transfer(a.job, a.hosts, 1.0, 1.0, 1, 1.0) for a in attempts]


def alone(waiting: set[int], ongoing: set[int]) -> Admission:
    """The smallest of those that wait starts where nothing goes on."""
    return Admission(() if ongoing else (min(waiting),))


A, B, FAR = Attempt(1, ("a", "b")), Attempt(2, ("b", "c")), Attempt(3, ("d",))


def test_only_those_that_share_a_host_are_asked_about_and_the_end_of_one_lets_the_next_begin() -> None:
    policy = Asked(alone)
    keeper: Gatekeeper[Attempt] = Gatekeeper(policy)
    assert keeper.arrive(FAR, described) == Verdict((FAR,))
    assert keeper.arrive(A, described) == Verdict((A,))
    assert keeper.arrive(B, described) == Verdict()
    assert policy.about == [({3}, set()), ({1}, set()), ({2}, {1})]
    assert keeper.end([A], described) == Verdict((B,))
    assert keeper.end([B], described) == Verdict()
    assert keeper.end([FAR], described) == Verdict()
    assert len(policy.about) == 4, "where nobody waits nobody is asked"


def test_who_pauses_frees_hosts_that_others_wait_for_and_goes_on_later() -> None:
    """Job 2 takes the turn of job 1, whose other host job 4 waits for."""
    last = Attempt(4, ("a",))

    def answer(waiting: set[int], ongoing: set[int]) -> Admission:
        if 2 in waiting and ongoing == {1}:
            return Admission((2,), (1,))
        return Admission((max(waiting),)) if not ongoing else Admission(())

    policy = Asked(answer)
    keeper: Gatekeeper[Attempt] = Gatekeeper(policy)
    assert keeper.arrive(A, described) == Verdict((A,))
    assert keeper.arrive(last, described) == Verdict()
    assert keeper.arrive(B, described) == Verdict((B,), (), (A,))
    assert policy.about[-1] == ({1, 4}, {2}), "those that the pause may concern are asked about"
    assert keeper.end([B], described) == Verdict((), (A,)), "it goes on, and does not start again"
    assert keeper.end([A], described) == Verdict((last,))


def test_who_was_forced_goes_on_and_a_paused_one_that_ended_starts_anew() -> None:
    keeper: Gatekeeper[Attempt] = Gatekeeper(
        Asked(
            lambda waiting, ongoing: (
                Admission((2,), (1,)) if 2 in waiting and ongoing else alone(waiting, ongoing)
            )
        )
    )
    keeper.arrive(A, described)
    assert keeper.arrive(B, described).pause == (A,)
    keeper.end([A], described)
    assert keeper.arrive(A, described) == Verdict()
    keeper.force(A)
    assert keeper.end([B], described) == Verdict()
    keeper.end([A], described)
    assert keeper.arrive(A, described) == Verdict((A,)), "it does not go on"


@pytest.mark.parametrize("answer", [Admission((7,)), Admission((), (7,)), Admission((1,), (1,))])
def test_a_policy_that_names_who_it_was_not_asked_about_is_told_so(answer: Admission) -> None:
    keeper: Gatekeeper[Attempt] = Gatekeeper(Asked(lambda waiting, ongoing: answer))
    with pytest.raises(RmError, match="named a transfer that it was not asked about"):
        keeper.arrive(A, described)
