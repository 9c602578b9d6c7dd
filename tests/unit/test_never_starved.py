"""Who could run within all limits waits no longer than those before it need, whoever comes later."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.core.sharing.accounts import Account, Accounts, Member, checked
from rm.core.sharing.ledger import Billing
from rm.sim.batch import Batch, Played, Work, held_by, hosts_of
from tests.examples import examples

MINUTE_US = 60_000_000
HOSTS, GPUS = 2, 4
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


def play(works: list[Work], queue: str, accounts: Accounts, depth: int = 1) -> Played:
    options = None if queue == "fifo" else {"depth": depth}
    policies = Policies(load("queue", queue, options), load("placement", "zone"), load("comm", "none"))
    return Batch(hosts_of(HOSTS, GPUS, 64), policies, accounts, Billing()).play(works)


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("limits", [{}, {"user.running": 1}, {"running": 2}, {"gpus": 8}], ids=str)
@given(drawn=st.lists(DRAWN, min_size=1, max_size=14))
@settings(max_examples=examples(12), deadline=None)
def test_a_wait_is_bounded_by_what_came_before(drawn, limits: dict[str, int], depth: int) -> None:
    works = sorted((work(*one) for one in drawn), key=lambda one: one.at_us)
    played = play(works, "backfill", lab(limits), depth)
    before_us = 0
    for stay in sorted(played.stays, key=lambda one: one.work.at_us):
        assert stay.wait_us is not None, "it never ran"
        assert stay.wait_us <= before_us
        before_us += stay.work.spec.time_limit_us or 0
    assert_conserved(played)


def assert_conserved(played: Played) -> None:
    """What was held is what jobs ran, times their GPUs, and the parts add up."""
    ran = sum(one.gpus * one.work.run_us for one in played.stays)
    assert ran == sum(held_by(played.stays, played.until_us).values())
    assert played.utilisation(played.until_us) <= 1


@pytest.mark.parametrize("queue", ["backfill", "multifactor", "fifo"])
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
