"""Live transfers under an admission policy: who begins when, and that nobody is waited for without end."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.ports import AdmissionPolicy
from rm.policies.comm.adadual import AdaDual, AdaDualOptions
from rm.policies.comm.preemptive import Preemptive, PreemptiveOptions
from rm.policies.comm.srsf_n import SrsfN, SrsfOptions
from rm.policies.regulate.admitting import (
    FACTOR,
    LONGEST_WAIT_US,
    SLACK_US,
    Admit,
    Admitting,
    Hold,
    Order,
    Sender,
)
from tests.examples import examples

MS = 1_000
MB = 1e6


def sender(job: int, *hosts: str, alone_ms: int = 100, ends_ms: int | None = None, gpus: int = 2) -> Sender:
    ends_us = None if ends_ms is None else ends_ms * MS
    hosts = hosts or ("a", "b")
    return Sender(job, 1, hosts, alone_ms * MB / 80, alone_ms * MS, 100 * MS, gpus, ends_us)


def admitting(*senders: Sender, policy: AdmissionPolicy | None = None) -> Admitting:
    made = Admitting(policy or SrsfN())
    assert made.see({one.job: one for one in senders}, 0) == []
    return made


def jobs(orders: list[Order]) -> list[int]:
    """Those that begin or go on."""
    return [one.job for one in orders if isinstance(one, Admit)]


def test_one_waits_until_the_other_has_ended() -> None:
    made = admitting(sender(1), sender(2))
    assert made.ready(1, 1, 7, 0) == [Admit(1, 1, 7)]
    assert made.ready(2, 1, 3, 10 * MS) == []
    assert made.ended(1, 1, 7, 90 * MS) == [Admit(2, 1, 3)]
    assert made.ready(1, 1, 8, 150 * MS) == []


def test_the_one_with_least_service_left_is_next() -> None:
    made = admitting(sender(1), sender(2, ends_ms=9_000), sender(3, ends_ms=5_000), sender(4))
    made.ready(1, 1, 1, 0)
    for job in (4, 2, 3):  # nobody said how long job 4 takes: it comes last
        assert made.ready(job, 1, 1, 1) == []
    order = [jobs(made.ended(one, 1, 1, 10 * one)) for one in (1, 3, 2)]
    assert order == [[3], [2], [4]]


def test_adadual_lets_a_small_transfer_join_a_large_one_and_by_what_that_has_left() -> None:
    # b/(2(b+eta)) = 0.39: 30 ms join one of 100, and not one that has 60 left
    policy = AdaDual(AdaDualOptions())
    made = admitting(sender(1), sender(2, alone_ms=30), policy=policy)
    made.ready(1, 1, 1, 0)
    assert jobs(made.ready(2, 1, 1, 1 * MS)) == [2]
    made = admitting(sender(1), sender(2, alone_ms=30), policy=policy)
    made.ready(1, 1, 1, 0)
    assert made.ready(2, 1, 1, 40 * MS) == []
    assert jobs(made.ended(1, 1, 1, 100 * MS)) == [2]


def test_what_a_transfer_has_left_shrinks_more_slowly_beside_another() -> None:
    policy = AdaDual(AdaDualOptions(ways=3))
    made = admitting(sender(1), sender(2, alone_ms=30), sender(3, alone_ms=20), policy=policy)
    made.ready(1, 1, 1, 0)
    made.ready(2, 1, 1, 0)
    made.ended(2, 1, 1, 60 * MS)  # 60 ms beside another are 30 alone: 70 are left, of which 20 are 0.29
    assert jobs(made.ready(3, 1, 1, 60 * MS)) == [3]


def test_a_running_transfer_is_held_for_a_job_that_ends_sooner_and_goes_on_with_what_it_had_left() -> None:
    made = admitting(
        sender(1, alone_ms=400, ends_ms=60_000),
        sender(2, alone_ms=40, ends_ms=5_000),
        sender(3, alone_ms=350, ends_ms=1_000),
        policy=Preemptive(),
    )
    assert made.ready(1, 1, 7, 0) == [Admit(1, 1, 7)]
    held = Hold(1, 1, 7, made.waits_us[1])
    assert made.ready(2, 1, 3, 100 * MS) == [held, Admit(2, 1, 3)]
    assert made.ready(2, 1, 3, 110 * MS) == [Admit(2, 1, 3)]  # it asks again
    assert made.ready(1, 1, 7, 110 * MS) == []
    assert made.ended(2, 1, 3, 140 * MS) == [Admit(1, 1, 7)]
    assert made.ready(3, 1, 1, 140 * MS) == []  # 300 ms are left, which is not worth 350
    assert made.due_us is not None
    assert jobs(made.ended(1, 1, 7, 440 * MS)) == [3]


def test_a_held_transfer_goes_on_at_its_bound_and_after_the_longest_wait_it_is_held_no_more() -> None:
    made = admitting(
        sender(1, alone_ms=900, ends_ms=60_000),
        sender(2, alone_ms=10, ends_ms=5_000),
        policy=Preemptive(PreemptiveOptions(worth=inf)),
    )
    made.ready(1, 1, 1, 0)
    now_us = holds = held_us = 0
    while True:
        holds += 1
        now_us += 10 * MS
        orders = made.ready(2, 1, holds, now_us)
        if jobs(orders) == [2] and len(orders) == 1:
            break
        (hold,) = [one for one in orders if isinstance(one, Hold)]
        assert hold.most_us <= made.waits_us[1]
        due_us = now_us + hold.most_us
        assert jobs(made.passed(due_us - 1)) == []  # that of the other counts as ended later
        assert jobs(made.passed(due_us)) == [1]
        held_us, now_us = held_us + hold.most_us, due_us
        made.ended(2, 1, holds, now_us)
    assert held_us == LONGEST_WAIT_US


def test_a_transfer_that_ends_while_it_is_held_lets_its_other_ranks_end_too() -> None:
    made = admitting(
        sender(1, alone_ms=400, ends_ms=60_000), sender(2, alone_ms=40, ends_ms=5_000), policy=Preemptive()
    )
    made.ready(1, 1, 1, 0)
    made.ready(2, 1, 1, 0)
    assert made.ended(1, 1, 1, 1) == [Admit(1, 1, 1)]
    made.ready(1, 1, 2, 2)
    assert jobs(made.ended(2, 1, 1, 40 * MS)) == [1]
    made.ready(2, 1, 2, 50 * MS)
    assert jobs(made.see({2: sender(2)}, 51 * MS)) == [1]  # its host is told though it is gone


def test_jobs_on_other_hosts_do_not_ask_and_are_not_waited_for() -> None:
    made = admitting(sender(1), sender(2, "c", "d"), sender(3, "b", "e"))
    assert made.waits_us == {1: SLACK_US + FACTOR * 100 * MS, 3: SLACK_US + FACTOR * 100 * MS}
    made.ready(1, 1, 1, 0)
    assert jobs(made.ready(2, 1, 1, 0)) == [2]


def test_a_transfer_whose_end_nobody_says_is_over_at_twice_its_time() -> None:
    made = admitting(sender(1), sender(2, alone_ms=400))
    made.ready(1, 1, 1, 0)
    made.ready(2, 1, 1, 0)
    due_us = 2 * 100 * MS + SLACK_US
    assert made.due_us == due_us
    assert made.passed(due_us - 1) == []
    assert jobs(made.passed(due_us)) == [2]


def test_a_waiting_transfer_is_admitted_at_its_bound_whatever_goes_on() -> None:
    made = admitting(sender(1, alone_ms=10), sender(2, ends_ms=60_000), sender(3, ends_ms=1))
    bound_us = made.waits_us[1]
    assert bound_us == SLACK_US + FACTOR * 200 * MS
    made.ready(3, 1, 1, 0)
    made.ready(1, 1, 1, 0)
    now_us = number = 0
    admitted: list[int] = []
    while now_us < bound_us:  # job 3 comes first, again and again
        now_us += 90 * MS
        admitted += jobs(made.ended(3, 1, number := number + 1, now_us))
        admitted += jobs(made.ready(3, 1, number + 1, now_us))
        admitted += jobs(made.passed(now_us))
    assert 1 in admitted


def test_the_wait_is_bounded_whoever_shares_the_hosts() -> None:
    made = admitting(*(sender(job, alone_ms=2_000) for job in range(1, 30)))
    assert set(made.waits_us.values()) == {LONGEST_WAIT_US}


def test_who_asks_without_end_slows_others_down_by_a_factor_only() -> None:
    """One job said that it communicates most of the time, and never did: another was forty times slower."""
    made = admitting(sender(1, alone_ms=4_000, ends_ms=1), sender(2, alone_ms=40), policy=Preemptive())
    now_us, waited_us, number = 0, 0, 0
    made.ready(1, 1, 0, now_us)
    while now_us < 600 * 1_000 * MS:
        now_us, number = now_us + 50 * MS, number + 1  # job 2 computes
        asked_us = now_us
        begun = 2 in jobs(made.ready(2, 1, number, now_us))
        while not begun:
            due_us = made.due_us
            assert due_us is not None
            now_us = max(now_us, due_us)
            begun = 2 in jobs(made.passed(now_us))
            made.ready(1, 1, number, now_us)
        waited_us += now_us - asked_us
        now_us += 40 * MS
        made.ended(2, 1, number, now_us)
    assert waited_us <= FACTOR * (now_us - waited_us) + LONGEST_WAIT_US


def test_who_is_ready_anew_has_ended_what_was_before() -> None:
    made = admitting(sender(1), sender(2))
    made.ready(1, 1, 1, 0)
    assert made.ready(2, 1, 1, 0) == []
    assert jobs(made.ready(1, 1, 2, 50 * MS)) == [2]


def test_who_asks_again_is_told_again() -> None:
    made = admitting(sender(1), sender(2))
    made.ready(1, 1, 1, 0)
    made.ready(2, 1, 1, 0)
    assert jobs(made.ready(1, 1, 1, 1)) == [1]
    assert made.ready(2, 1, 1, 1) == []


def test_a_job_that_leaves_makes_room_and_a_new_attempt_begins_anew() -> None:
    made = admitting(sender(1), sender(2), sender(3))
    made.ready(1, 1, 1, 0)
    made.ready(2, 1, 1, 0)
    assert jobs(made.see({2: sender(2), 3: sender(3)}, 10)) == [2]
    again = replace(sender(2), attempt=2)
    assert made.see({2: again, 3: sender(3)}, 20) == []
    assert jobs(made.ready(3, 1, 1, 30)) == [3]
    assert made.ended(2, 1, 1, 40) == []  # the old attempt's


def test_an_attempt_that_is_not_known_passes() -> None:
    made = admitting(sender(1), sender(2))
    made.ready(1, 1, 1, 0)
    assert made.ready(2, 9, 1, 0) == [Admit(2, 9, 1)]
    assert made.ready(8, 1, 1, 0) == [Admit(8, 1, 1)]


WORDS = st.tuples(
    st.sampled_from(["ready", "ended", "passed", "leaves"]), st.integers(1, 5), st.integers(0, 60 * MS)
)
ON = {1: ("a", "b"), 2: ("b", "c"), 3: ("a", "c"), 4: ("c", "d"), 5: ("a", "b")}


POLICIES = [SrsfN(), SrsfN(SrsfOptions(2)), Preemptive(), Preemptive(PreemptiveOptions(worth=inf))]


@given(words=st.lists(WORDS, max_size=60), policy=st.sampled_from(POLICIES))
@settings(max_examples=examples(300))
def test_whatever_hosts_say_everybody_begins_and_goes_on_within_the_bound(
    words: list[tuple[str, int, int]], policy: AdmissionPolicy
) -> None:
    """Ends that are lies, ends that never come, jobs that vanish."""
    there = {
        job: sender(job, *hosts, alone_ms=60 - 10 * job, ends_ms=1_000 * (6 - job))
        for job, hosts in ON.items()
    }
    made = Admitting(policy)
    made.see(there, 0)
    now_us = 0
    waiting: dict[int, tuple[int, int]] = {}  # job -> number, since
    waited_us: dict[int, int] = {}  # of a communication, before
    under_way: dict[int, int] = {}

    def over(job: int) -> None:
        for each in (waiting, waited_us, under_way):
            each.pop(job, None)

    def heard(orders: list[Order]) -> None:
        for one in orders:
            if isinstance(one, Hold):
                assert under_way.pop(one.job) == one.number
                assert 0 < one.most_us <= made.waits_us[one.job]
                waiting[one.job] = one.number, now_us
            elif waiting.get(one.job, (0, 0))[0] == one.number:
                waited_us[one.job] = waited_us.get(one.job, 0) + now_us - waiting.pop(one.job)[1]
                under_way[one.job] = one.number

    for number, (word, job, step_us) in enumerate(words, 1):
        now_us += step_us
        heard(made.passed(now_us))
        for since_job, (_, since_us) in waiting.items():
            assert now_us - since_us < made.waits_us.get(since_job, 0)
            assert waited_us.get(since_job, 0) + now_us - since_us < LONGEST_WAIT_US
        if word == "ready":
            over(job)
            if job in there:
                waiting[job] = (number, now_us)
            heard(made.ready(job, 1, number, now_us))
        elif word == "ended":
            orders = made.ended(job, 1, number, now_us)
            over(job)
            heard(orders)
        elif word == "leaves":
            there.pop(job, None)
            over(job)
            heard(made.see(there, now_us))
            heard(made.passed(now_us))
