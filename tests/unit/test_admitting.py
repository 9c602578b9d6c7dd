"""Live transfers under an admission policy: who begins when, and that nobody is waited for without end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.comm.adadual import AdaDual, AdaDualOptions
from rm.policies.comm.srsf_n import SrsfN, SrsfOptions
from rm.policies.regulate.admitting import FACTOR, LONGEST_WAIT_US, SLACK_US, Admit, Admitting, Sender
from tests.examples import examples

MS = 1_000
MB = 1e6


def sender(job: int, *hosts: str, alone_ms: int = 100, ends_ms: int | None = None, gpus: int = 2) -> Sender:
    ends_us = None if ends_ms is None else ends_ms * MS
    hosts = hosts or ("a", "b")
    return Sender(job, 1, hosts, alone_ms * MB / 80, alone_ms * MS, 100 * MS, gpus, ends_us)


def admitting(*senders: Sender, policy: SrsfN | AdaDual | None = None) -> Admitting:
    made = Admitting(policy or SrsfN())
    assert made.see({one.job: one for one in senders}, 0) == []
    return made


def jobs(admitted: list[Admit]) -> list[int]:
    return [one.job for one in admitted]


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


def test_jobs_on_other_hosts_do_not_ask_and_are_not_waited_for() -> None:
    made = admitting(sender(1), sender(2, "c", "d"), sender(3, "b", "e"))
    assert made.waits_us == {1: SLACK_US + FACTOR * 100 * MS, 3: SLACK_US + FACTOR * 100 * MS}
    made.ready(1, 1, 1, 0)
    assert jobs(made.ready(2, 1, 1, 0)) == [2]


def test_a_transfer_whose_end_nobody_says_is_over_at_twice_its_time() -> None:
    made = admitting(sender(1), sender(2, alone_ms=400))
    made.ready(1, 1, 1, 0)
    made.ready(2, 1, 1, 0)
    due_us = FACTOR * 100 * MS + SLACK_US
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


@given(words=st.lists(WORDS, max_size=60), n=st.integers(1, 2))
@settings(max_examples=examples(200))
def test_whatever_hosts_say_everybody_begins_within_the_bound(
    words: list[tuple[str, int, int]], n: int
) -> None:
    """Ends that are lies, ends that never come, jobs that vanish."""
    there = {job: sender(job, *hosts, alone_ms=40, ends_ms=1_000 * job) for job, hosts in ON.items()}
    made = Admitting(SrsfN(SrsfOptions(n)))
    made.see(there, 0)
    now_us = 0
    waiting: dict[int, tuple[int, int]] = {}  # job -> number, since

    def heard(admitted: list[Admit]) -> None:
        for one in admitted:
            if waiting.get(one.job, (0, 0))[0] == one.number:
                del waiting[one.job]

    for number, (word, job, step_us) in enumerate(words):
        now_us += step_us
        heard(made.passed(now_us))
        for since_job, (_, since_us) in waiting.items():
            assert now_us - since_us < made.waits_us.get(since_job, 0)
        if word == "ready":
            waiting.pop(job, None)
            if job in there:
                waiting[job] = (number, now_us)
            heard(made.ready(job, 1, number, now_us))
        elif word == "ended":
            waiting.pop(job, None)
            heard(made.ended(job, 1, number, now_us))
        elif word == "leaves":
            there.pop(job, None)
            waiting.pop(job, None)
            heard(made.see(there, now_us))
            heard(made.passed(now_us))
