"""Who is asked about when a transfer arrives or ends, and what follows from the policy's answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from rm.core.ports import Admission, Transfer
from rm.errors import RmError
from rm.policies.comm.adadual import AdaDual, AdaDualOptions
from rm.policies.comm.srsf_n import SrsfN, SrsfOptions
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


class AtMostOne(Asked):
    """Says that it starts nothing where something goes on."""

    @property
    def most(self) -> int:
        return 1


def test_of_those_who_wait_where_no_policy_would_let_them_start_it_is_not_asked() -> None:
    policy = AtMostOne(alone)
    keeper: Gatekeeper[Attempt] = Gatekeeper(policy)
    assert keeper.arrive(A, described) == Verdict((A,))
    assert keeper.arrive(B, described) == Verdict()
    assert policy.about == [({1}, set())], "job 2 waits for a host of job 1"
    assert keeper.end([A], described) == Verdict((B,))
    assert policy.about == [({1}, set()), ({2}, set())]


def test_one_who_is_forced_beside_another_keeps_the_host_full_until_both_have_ended() -> None:
    policy = AtMostOne(alone)
    keeper: Gatekeeper[Attempt] = Gatekeeper(policy)
    last = Attempt(4, ("b",))
    keeper.arrive(A, described)
    keeper.arrive(B, described)
    keeper.force(B)
    keeper.arrive(last, described)
    assert keeper.end([A], described) == Verdict()
    assert keeper.end([B], described) == Verdict((last,))


class SrsfOfAll(SrsfN):
    """The same rule; who inherits may start others, and is asked about all."""


class AdaDualOfAll(AdaDual):
    """As `SrsfOfAll`."""


@pytest.mark.parametrize(
    ("policy", "of_all"),
    [
        *((SrsfN(SrsfOptions(n)), SrsfOfAll(SrsfOptions(n))) for n in (1, 2, 3)),
        *(
            (
                AdaDual(AdaDualOptions(ways=ways, olds=olds)),
                AdaDualOfAll(AdaDualOptions(ways=ways, olds=olds)),
            )
            for ways, olds in ((1, "all"), (2, "all"), (2, "printed"), (2, "total"), (3, "all"))
        ),
    ],
)
def test_the_same_start_whether_a_policy_is_asked_about_all_or_those_alone_that_may(
    policy: SrsfN | AdaDual, of_all: SrsfN | AdaDual
) -> None:
    chance = random.Random(1)
    attempts = [Attempt(job, tuple(chance.sample("abcdefgh", chance.randint(2, 4)))) for job in range(1, 25)]
    short, whole = Gatekeeper[Attempt](policy), Gatekeeper[Attempt](of_all)

    def ranked(of: Sequence[Attempt]) -> list[Transfer]:
        return [Transfer(a.job, a.hosts, 9.0, 1.0 + a.job * 5 % 9, 1, float(a.job * 7 % 11)) for a in of]

    waiting: dict[int, Attempt] = {}
    ongoing: dict[int, Attempt] = {}
    for _ in range(400):
        idle = [a for a in attempts if a.job not in waiting and a.job not in ongoing]
        if idle and (not ongoing or chance.random() < 0.6):
            one = chance.choice(idle)
            waiting[one.job] = one
            said, other = short.arrive(one, ranked), whole.arrive(one, ranked)
        elif waiting and chance.random() < 0.1:
            one = waiting.pop(chance.choice(sorted(waiting)))
            ongoing[one.job] = one
            short.force(one)
            whole.force(one)
            continue
        else:
            one = ongoing.pop(chance.choice(sorted(ongoing)))
            said, other = short.end([one], ranked), whole.end([one], ranked)
        assert said == other
        for begun in said.start:
            ongoing[begun.job] = waiting.pop(begun.job)
