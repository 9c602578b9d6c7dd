"""Who could run within all limits waits no longer than those before it need, whoever comes later."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.limits.limiting import RETRY_US
from rm.core.sharing.accounts import Account, Accounts, Member, checked
from rm.core.sharing.ledger import Billing
from rm.sim.batch import Batch, Played, Stay, Work, held_by, hosts_of
from tests.examples import examples

MINUTE_US = 60_000_000
HOSTS, GPUS = 2, 4
HALF_LIFE_US = 60 * MINUTE_US
DRAWN = st.tuples(
    st.integers(0, 120),  # minutes until it comes
    st.integers(1, HOSTS * GPUS),
    st.integers(1, 60),  # minutes that it runs
    st.integers(0, 60),  # minutes that its limit is longer
    st.sampled_from(["ann", "bob", "eve"]),
)


def lab(limits: dict[str, int]) -> Accounts:
    members = [Member("a", "ann"), Member("a", "bob"), Member("b", "eve")]
    return checked([Account("a", shares=3, limits=limits), Account("b")], members)


def work(at: int, gpus: int, runs: int, more: int, user: str) -> Work:
    limit_us = (runs + more) * MINUTE_US
    spec = JobSpec("j", user, "#!/bin/sh\n", ntasks=gpus, gpus_per_task=1, time_limit_us=limit_us)
    return Work(at * MINUTE_US, runs * MINUTE_US, spec)


def play(works: list[Work], queue: str, accounts: Accounts, depth: int = 1, placements: int = 0) -> Played:
    options = None if queue == "fifo" else {"depth": depth}
    policies = Policies(load("queue", queue, options), load("placement", "zone"), load("comm", "none"))
    billing = Billing(half_life_us=HALF_LIFE_US)
    tuning = Tuning(placements=placements)
    return Batch(hosts_of(HOSTS, GPUS, 64), policies, accounts, billing, tuning=tuning).play(works)


# found by a search
OVERTAKEN = [
    (0, 1, 60, 0, "ann"), (0, 2, 43, 0, "eve"), (0, 4, 1, 16, "bob"), (0, 5, 1, 0, "bob"),
    (0, 6, 31, 0, "eve"), (51, 4, 1, 7, "eve"), (64, 3, 1, 60, "ann"), (81, 6, 19, 23, "bob"),
    (91, 3, 60, 24, "bob"),
    (93, 8, 1, 0, "bob"), (95, 2, 60, 0, "eve"), (112, 4, 1, 0, "bob"), (120, 3, 43, 0, "bob"),
    (120, 7, 20, 14, "ann"),
]  # fmt: skip
OF_ONE_SLOT = [
    (0, 4, 10, 15, "ann"), (0, 5, 39, 31, "bob"), (1, 2, 38, 18, "bob"),
    (5, 2, 41, 55, "bob"), (5, 7, 32, 8, "eve"),
]  # fmt: skip
OF_ONE_ACCOUNT = [
    (0, 1, 60, 13, "ann"), (0, 5, 1, 0, "ann"), (0, 5, 1, 0, "bob"), (0, 7, 1, 0, "ann"),
    (0, 8, 1, 18, "ann"),
    (13, 1, 60, 14, "ann"), (28, 4, 59, 0, "eve"), (51, 1, 60, 45, "ann"), (62, 3, 1, 60, "ann"),
    (89, 3, 60, 0, "eve"), (120, 6, 60, 60, "eve"), (120, 8, 20, 0, "bob"),
]  # fmt: skip


MOST_MINUTES = HOSTS * GPUS * 120  # of one job
LIMITS = [
    {}, {"user.running": 1}, {"running": 2}, {"gpus": 8}, {"gpu_minutes_running": MOST_MINUTES},
    {"billing_minutes": 2 * MOST_MINUTES}, {"gpu_minutes_running": MOST_MINUTES, "user.running": 1},
]  # fmt: skip


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@given(drawn=st.lists(DRAWN, min_size=1, max_size=14))
@example(drawn=OVERTAKEN)
@example(drawn=OF_ONE_SLOT)
@example(drawn=OF_ONE_ACCOUNT)
@settings(max_examples=examples(12), deadline=None)
def test_a_wait_is_bounded_by_who_stands_before(drawn, limits: dict[str, int], depth: int) -> None:
    """Who stands first has a reservation that nobody delays, for when all that run have ended at the latest:
    it waits there for at most the longest time limit, and so do those before it, one after the other. Where
    it waits for a limit first, nobody who outlasts that takes what is set aside for it, so that it waits
    so long for the limit at most, and then as long again for GPUs. A limit of minutes is looked at twice a
    minute. Of twice the billing minutes that a job may ask for half are left after a half-life.

    Who comes while fewer than `depth` wait has a reservation at once: it waits for those alone that came
    before.
    """
    assert_bounded(drawn, limits, depth)


@pytest.mark.parametrize("placements", [1, 2])
@given(drawn=st.lists(DRAWN, min_size=4, max_size=14))
@settings(max_examples=examples(12), deadline=None)
def test_a_wait_is_bounded_where_passes_are_cut_short(drawn, placements: int) -> None:
    """Of jobs that come together each pass places a few, and others have reservations meanwhile."""
    together = [(at // 30 * 30, *rest) for at, *rest in drawn]
    assert_bounded(together, {}, depth=4, placements=placements)


def assert_bounded(drawn, limits: dict[str, int], depth: int, placements: int = 0) -> None:
    works = sorted((work(*one) for one in drawn), key=lambda one: one.at_us)
    played = play(works, "backfill", lab(limits), depth, placements)
    stays = sorted(played.stays, key=lambda one: one.work.at_us)
    assert all(one.start_us is not None for one in stays), "it never ran"
    for number, stay in enumerate(stays):
        assert stay.wait_us is not None
        assert stay.wait_us <= bound_us(stays, number, limits, depth)
    assert_conserved(played)


def bound_us(stays: list[Stay], number: int, limits: dict[str, int], depth: int) -> int:
    at_us, earlier = stays[number].work.at_us, stays[:number]
    before = [one for one in earlier if one.start_us is not None and one.start_us > at_us]
    others = stays[:number] + stays[number + 1 :]
    longest_us = max((one.work.spec.time_limit_us or 0 for one in others), default=0)
    if limits:
        more_us = HALF_LIFE_US * ("billing_minutes" in limits) + RETRY_US * any(
            "minutes" in n for n in limits
        )
        return 2 * (len(before) + 1) * (longest_us + more_us)
    if len(before) < depth:
        return sum(one.work.spec.time_limit_us or 0 for one in earlier)
    return (len(before) + 1) * longest_us


def starts(drawn: list[tuple[int, int, int, int, str]], limits: dict[str, int]) -> list[int | None]:
    """In minutes, in the order of `drawn`, which is that of their coming."""
    stays = sorted(
        play([work(*one) for one in drawn], "backfill", lab(limits)).stays, key=lambda s: s.work.at_us
    )
    return [None if one.start_us is None else one.start_us // MINUTE_US for one in stays]


def test_what_is_set_aside_for_a_large_job_of_an_account_is_not_taken_by_small_ones() -> None:
    """Of the account's eight GPUs seven are always in use: a small job comes every four minutes."""
    small = [(at * 4, 1, 28, 0, ("ann", "bob")[at % 2]) for at in range(100)]
    drawn = sorted([*small, (90, 8, 30, 0, "ann")])
    begun = starts(drawn, {"gpus": 8})[drawn.index((90, 8, 30, 0, "ann"))]
    assert begun == 88 + 28  # when the last that came before it has ended


@pytest.mark.parametrize(
    ("limits", "soonest", "latest"),
    # the minutes left of those that came before are to fall from 140 by those that it needs; the billing
    # minutes of 400 to 260 by decay
    [({"gpu_minutes_running": 150}, 90, 88 + 28), ({"billing_minutes": 400}, 90, 90 + 60)],
    ids=str,
)
def test_what_is_set_aside_of_minutes_is_not_taken_by_small_jobs(limits, soonest: int, latest: int) -> None:
    """A small job comes every four minutes, and there is room for each of them for hours."""
    large = (90, 7, 20, 0, "ann")
    small = [(at * 4, 1, 28, 0, ("ann", "bob")[at % 2]) for at in range(150)]
    drawn = sorted([*small, large])
    begun = starts(drawn, limits)[drawn.index(large)]
    assert begun is not None
    assert soonest < begun <= latest


def test_who_leaves_enough_minutes_to_the_one_that_waits_runs_beside_it() -> None:
    """120 minutes are in use, and the second needs 100 of 160: from minute 30 on 60 are in use. The third
    would have 30 minutes left then, the fourth has ended. At minute 50 the third fits."""
    drawn = [(0, 2, 60, 0, "ann"), (0, 1, 59, 41, "ann"), (1, 1, 60, 0, "bob"), (2, 1, 28, 0, "bob")]
    assert starts(drawn, {"gpu_minutes_running": 160}) == [0, 30, 50, 2]


def test_a_user_s_later_job_does_not_take_the_slot_of_the_reserved_one() -> None:
    assert starts(OF_ONE_SLOT, {"user.running": 1})[1] == 10


def test_a_job_that_ends_in_time_uses_what_is_set_aside() -> None:
    """The second waits for all of the account's GPUs until minute 60; of the four that are left until then
    the third has ended by then, and the fourth would not have."""
    drawn = [(0, 4, 60, 0, "ann"), (1, 8, 10, 0, "ann"), (2, 2, 30, 0, "bob"), (3, 2, 59, 0, "bob")]
    assert starts(drawn, {"gpus": 8}) == [0, 60, 2, 70]


def test_a_limit_of_one_account_costs_others_nothing() -> None:
    """While the account's job waits for the limit alone, GPUs are for those of the other one."""
    drawn = [(0, 4, 60, 0, "ann"), (1, 8, 10, 0, "ann"), (2, 4, 100, 0, "eve")]
    assert starts(drawn, {"gpus": 8})[2] == 2


def assert_conserved(played: Played) -> None:
    """What was held is what jobs ran, times their GPUs, and the parts add up."""
    ran = sum(one.gpus * one.work.run_us for one in played.stays)
    assert ran == sum(held_by(played.stays, played.until_us).values())
    assert played.utilisation(played.until_us) <= 1


@pytest.mark.parametrize("queue", ["backfill", "multifactor", "response", "fifo"])
def test_a_large_job_does_not_wait_for_small_ones_that_keep_coming(queue: str) -> None:
    """Each hour sixteen jobs of one GPU come, of which the cluster has eight: there is always another one."""
    small = [work(at * 4, 1, 59, 0, ("ann", "bob")[at % 2]) for at in range(150)]
    played = play([*small, work(90, HOSTS * GPUS, 30, 0, "eve")], queue, lab({}))
    large = next(one for one in played.stays if one.gpus > 1)
    assert large.wait_us is not None
    if queue == "fifo":  # which reserves for nobody: the test would show a starved job
        assert large.wait_us > 8 * 60 * MINUTE_US
    else:
        others = sum(1 for one in played.stays if one.work.at_us < large.work.at_us)
        assert large.wait_us <= 60 * MINUTE_US * (2 + others / (HOSTS * GPUS))
