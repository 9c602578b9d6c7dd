"""Plans of single iterations on hosts: what they are told, who is planned anew, what the client does."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from rm.core.model.network.routes import CommPlan, FlowRoute, PlannedIteration, RoutedRange
from rm.policies.regulate.iterating import Iterating
from rm.policies.regulate.planned import AGAIN_US, LEAST_MOVES, WINDOW, Plans
from rm.protocol.attempts import Grid
from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_iteration
import rm_sending

MS = 1_000
RUNNING = {job: Iterating(1, 60 * MS, None, 100 * MS, peak_bps=80_000_000) for job in (1, 2)}


def routed(*spines: int) -> tuple[RoutedRange, ...]:
    routes = tuple(FlowRoute("a", "b", 10**8, ((spine, 4),)) for spine in spines)
    return (RoutedRange(0, 0, routes),)


def iteration(start_ms: int, delay_ms: int, length_ms: int = 100, **more: Any) -> PlannedIteration:
    return PlannedIteration(start_ms * MS, delay_ms * MS, length_ms * MS, **more)


PLAN = CommPlan(
    {
        1: (iteration(0, 0), iteration(100, 0), iteration(240, 40)),
        2: (iteration(50, 50), iteration(180, 30), iteration(290, 10)),
    },
    True,
    400 * MS,
)


def begun() -> Plans:
    """Job 2 was heard last, at 20 ms; the plan begins at 120 ms, when its iteration ends."""
    plans = Plans()
    assert plans.aligned([PLAN], RUNNING, {1: 10 * MS}).grids == {}
    assert plans.jobs == set()
    assert plans.standings() == {1: None, 2: None}, "alerts wait until it begins"
    assert set(plans.report(2, 20 * MS, 100 * MS).grids) == {1, 2}
    assert plans.standings() == {1: "", 2: ""}
    return plans


def test_a_plan_begins_when_the_last_of_its_jobs_has_ended_its_iteration() -> None:
    plans = Plans()
    plans.aligned([PLAN], RUNNING, {1: 10 * MS})
    grids = plans.report(2, 20 * MS, 100 * MS).grids
    assert grids[1] == Grid(
        epoch_us=120 * MS,
        period_us=400 * MS,
        tolerance_us=5 * MS,
        length_us=100 * MS,
        starts_us=[0, 100 * MS, 240 * MS],
    )
    assert plans.jobs == {1, 2}


def test_jobs_that_keep_to_their_plan_are_told_nothing() -> None:
    plans = begun()
    for around in range(3):
        for job, planned in PLAN.iterations.items():
            for one in planned:
                at_us = 120 * MS + around * PLAN.cycle_us + one.start_us + 4 * MS
                assert plans.report(job, at_us, 100 * MS).grids == {}


def test_who_is_late_moves_the_whole_plan_by_what_the_next_delay_does_not_make_good() -> None:
    plans = begun()
    # the first of job 1's iterations, 30 ms late: the second follows at once, and would be as late
    moved = plans.report(1, 150 * MS, 100 * MS).grids
    assert {job: grid.epoch_us for job, grid in moved.items() if grid} == {1: 150 * MS, 2: 150 * MS}
    assert plans.report(1, 250 * MS, 100 * MS).grids == {}
    # its second one 42 ms late: 40 of them the next delay makes good
    assert plans.report(1, (250 + 42) * MS, 100 * MS).grids == {}
    late = plans.report(1, (250 + 48) * MS, 100 * MS).grids
    assert {job: grid.epoch_us for job, grid in late.items() if grid} == {1: 158 * MS, 2: 158 * MS}


def test_who_began_too_early_meets_others_and_moves_the_plan_as_well() -> None:
    plans = begun()
    plans.report(
        1, 150 * MS, 100 * MS
    )  # 30 ms late, of which job 2 hears too late: it begins at 170, not 200
    moved = plans.report(2, 172 * MS, 100 * MS).grids
    assert {job: grid.epoch_us for job, grid in moved.items() if grid} == {1: 178 * MS, 2: 178 * MS}
    assert plans.report(1, 278 * MS, 100 * MS).grids == {}


def test_two_jobs_whose_communication_meets_come_apart_though_they_hear_late() -> None:
    """Jobs of 100 ms that communicate for the last 45 of these meet and end at once: neither hears of the
    other's lateness before it begins anew."""
    mine, others = (iteration(0, 0), iteration(110, 10)), (iteration(50, 50), iteration(160, 10))
    plan = CommPlan({1: mine, 2: others}, True, 220 * MS)
    plans = Plans()
    grids = dict(plans.aligned([plan], RUNNING, {1: 0, 2: 0}).grids)
    known = dict(grids)  # as clients know them
    began = {1: 100 * MS, 2: 100 * MS}
    waited = []
    for _ in range(12):
        ends = _shared_us(began)
        waits = {}
        for job, end_us in ends.items():
            grid = known[job]
            waits[job] = rm_iteration.wait_us(end_us, to_builtins(grid), 0, began[job]) if grid else 0
        waited.append(tuple(waits.values()))
        began = {job: ends[job] + waits[job] for job in ends}
        for job in sorted(began, key=began.__getitem__):
            grids |= plans.report(job, began[job], 100 * MS).grids
        known = dict(grids)
    apart_us = (began[2] - began[1]) % (110 * MS)
    assert 45 * MS <= apart_us <= 65 * MS, waited


def _shared_us(began: Mapping[int, int]) -> dict[int, int]:
    """When two iterations end that share a link in their last 45 ms."""
    first, second = sorted(began, key=began.__getitem__)
    meet_us = max(0, 45 * MS - (began[second] - began[first]))
    return {first: began[first] + 100 * MS + meet_us, second: began[second] + 100 * MS + meet_us}


def follow(plans: Plans, takes_ms: Mapping[int, int], most: int) -> tuple[int, ...]:
    """Jobs that wait as the client does, until some did not keep to the plan, for `most` iterations."""
    grids = dict(plans.aligned([PLAN], RUNNING, dict.fromkeys(RUNNING, 0)).grids)
    now_us = dict.fromkeys(RUNNING, 100 * MS)  # when they come to the ends of their iterations
    began_us = dict.fromkeys(RUNNING, 0)
    for _ in range(most):
        job = min(now_us, key=now_us.__getitem__)
        grid = grids[job]
        wait_us = rm_iteration.wait_us(now_us[job], to_builtins(grid), 0, began_us[job]) if grid else 0
        began_us[job] = now_us[job] + wait_us
        changed = plans.report(job, began_us[job], takes_ms[job] * MS)
        grids |= changed.grids
        if changed.unruly:
            return changed.unruly
        now_us[job] = began_us[job] + takes_ms[job] * MS
    return ()


def test_a_plan_that_jobs_keep_to_goes_on() -> None:
    assert follow(Plans(), {1: 100, 2: 103}, 300) == ()


def test_a_plan_whose_job_takes_longer_is_dropped_and_that_job_profiled() -> None:
    plans = Plans()
    assert follow(plans, {1: 125, 2: 100}, 3 * WINDOW) == (1,)
    assert plans.jobs == set()
    assert "dropped" in str(plans.standings()[2])
    assert plans.report(2, AGAIN_US // 2, 100 * MS).grids == {}
    assert plans.aligned([PLAN], RUNNING, {1: 0, 2: 0}).grids == {}  # the same plan is not followed
    other = replace(PLAN, cycle_us=PLAN.cycle_us + 1)
    assert set(plans.aligned([other], RUNNING, {1: 0, 2: 0}).grids) == {1, 2}


def test_a_plan_that_moves_too_often_is_dropped_and_tried_again_later() -> None:
    plans, at_us = begun(), (120 + 400) * MS  # later than in its first three iterations
    for _ in range(LEAST_MOVES + 2):
        at_us += 49 * MS
        changed = plans.report(1, at_us, 100 * MS)
        if changed.unruly:
            break
        at_us += PLAN.cycle_us
    assert changed.grids == {1: None, 2: None}
    assert changed.unruly == (1,)
    dropped_us = at_us
    assert plans.report(1, dropped_us + AGAIN_US - 1, 100 * MS).grids == {}
    again = plans.report(2, dropped_us + AGAIN_US, 100 * MS).grids
    assert again[1] is not None
    assert again[1].epoch_us == dropped_us + AGAIN_US + 100 * MS
    assert plans.jobs == {1, 2}


def test_jobs_may_come_to_their_places_at_the_beginning_of_a_plan() -> None:
    plans, epoch_us = begun(), 120 * MS
    for start_us in range(0, 2_000 * MS, PLAN.cycle_us):  # the first one counts for nothing
        moved = plans.report(1, epoch_us + start_us + 49 * MS, 100 * MS).grids[1]
        assert moved is not None, "five such moves are more than a tenth of the time"
        assert moved.epoch_us == epoch_us + 49 * MS
        epoch_us = moved.epoch_us
    assert plans.jobs == {1, 2}


def test_the_same_plan_goes_on_and_that_of_another_attempt_begins_anew() -> None:
    plans = begun()
    assert plans.aligned([PLAN], RUNNING, {}).grids == {}
    assert plans.jobs == {1, 2}
    again = {**RUNNING, 2: replace(RUNNING[2], attempt=2)}
    assert plans.aligned([PLAN], again, {1: 0}).grids == {}
    assert plans.jobs == set()


def test_a_plan_without_waits_or_of_jobs_that_do_not_run_is_not_followed() -> None:
    idle = CommPlan({1: (iteration(0, 0),), 2: (iteration(0, 0),)}, True, 100 * MS)
    starts = {1: 0, 2: 0}
    assert Plans().aligned([idle], RUNNING, starts).grids == {}
    assert Plans().aligned([PLAN], {1: RUNNING[1]}, starts).grids == {}
    lone = CommPlan({1: PLAN.iterations[1]}, True, 400 * MS)
    assert Plans().aligned([lone], RUNNING, starts).grids == {}


def test_rates_and_spines_of_single_iterations() -> None:
    plan = CommPlan(
        {
            1: (iteration(0, 0, ranges=routed(1)), iteration(100, 0, throttle=0.5, ranges=routed(0))),
            2: (iteration(0, 0, ranges=routed(0)), iteration(100, 0, ranges=routed(0))),
        },
        True,
        300 * MS,
    )
    plans = Plans()
    grids = plans.aligned([plan], RUNNING, {1: 0, 2: 0}).grids
    assert grids[1] is not None
    assert grids[1].paces_bps == [0, 40_000_000]
    assert grids[2] is not None
    assert grids[2].paces_bps == []
    assert plans.spines(1) == {"a": (1, 0)}
    assert plans.spines(2) == {}  # always the same one: the job's path says so


def test_of_an_iteration_the_first_route_counts_and_all_need_one() -> None:
    """Host `a` sends over two spines in each iteration; host `c` has a route in the first one only."""
    other = RoutedRange(1, 1, (FlowRoute("c", "b", 10**8, ((1, 4),)),))
    plan = CommPlan(
        {
            1: (
                iteration(0, 0, ranges=(*routed(1, 2), other)),
                iteration(100, 10, ranges=routed(0, 2)),
                iteration(200, 0, ranges=routed(1)),
            ),
            2: (iteration(0, 0), iteration(100, 0)),
        },
        True,
        400 * MS,
    )
    plans = Plans()
    plans.aligned([plan], RUNNING, {1: 0, 2: 0})
    assert plans.spines(1) == {"a": (1, 0, 1)}
    assert plans.spines(3) == {}, "it has no plan"


def test_a_plan_that_throttles_a_job_of_unknown_rate_gives_it_no_pace() -> None:
    plan = CommPlan(
        {1: (iteration(0, 0, throttle=0.5), iteration(100, 10)), 2: (iteration(0, 0), iteration(100, 0))},
        True,
        300 * MS,
    )
    unknown = {1: replace(RUNNING[1], peak_bps=None), 2: RUNNING[2]}
    grids = Plans().aligned([plan], unknown, {1: 0, 2: 0}).grids
    assert grids[1] is not None
    assert grids[1].paces_bps == []


# -- the client


def document(**more: Any) -> dict[str, Any]:
    made = {"epoch_us": 120 * MS, "period_us": 400 * MS, "tolerance_us": 5 * MS, "length_us": 100 * MS,
            "starts_us": [0, 100 * MS, 240 * MS]}  # fmt: skip
    return {**made, **more}


@pytest.mark.parametrize(
    ("now", "previous", "expected"),
    [
        (60, None, 60),  # up to the beginning
        (118, None, 0),  # 2 ms early is in time
        (220, 120, 0),
        (320, 220, 40),  # the third iteration is delayed
        (340, 240, 20),  # also when the second began 20 ms late
        (365, 262, 0),  # 5 ms late: it never waits for the one after
        (390, 290, 0),  # 30 ms late
        (460, 360, 60),  # to the next round
        (470, 300, 50),  # it took longer than planned, and is more than an iteration late
        (930, 830, 0),
    ],
)
def test_when_a_job_with_a_plan_waits(now: int, previous: int | None, expected: int) -> None:
    before = None if previous is None else previous * MS
    assert rm_iteration.wait_us(now * MS, document(), 0, before) == expected * MS


@given(
    start=st.integers(-500, 5_000),
    lengths=st.lists(st.integers(90, 140), min_size=5, max_size=40),
)
def test_a_job_comes_back_to_its_plan_and_waits_no_longer_than_it_says(
    start: int, lengths: list[int]
) -> None:
    now, previous = start * MS, None
    for length in [*lengths, *[100] * 12]:
        wait = rm_iteration.wait_us(now, document(), 0, previous)
        assert 0 <= wait <= 400 * MS
        if previous is not None:
            assert wait <= 140 * MS - (now - previous) + 105 * MS
        previous = now + wait
        now = previous + length * MS
    starts = [(120 + offset) * MS for offset in (0, 100, 240)]
    assert min((previous - one) % (400 * MS) for one in starts) <= 5 * MS or any(
        (one - previous) % (400 * MS) <= 5 * MS for one in starts
    )


def test_the_client_knows_which_iteration_is_next() -> None:
    assert rm_iteration.planned_start(320 * MS, document(), 220 * MS) == (360 * MS, 2)
    assert rm_iteration.planned_start(460 * MS, document(), 360 * MS) == (520 * MS, 0)


def test_what_a_plan_says_fits_the_message() -> None:
    (grid, _) = begun().aligned([replace(PLAN, cycle_us=500 * MS)], RUNNING, {1: 0, 2: 0}).grids.values()
    assert grid is not None
    sent = to_builtins(grid)
    assert rm_iteration.wait_us(0, sent, 0, 0) >= 0


def test_connections_to_others_are_paced_and_marked_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    links = [socket.create_connection(server.getsockname()) for _ in range(2)]
    inside = socket.create_connection(server.getsockname())
    names = {link.getsockname()[1] for link in links}

    def host(link: socket.socket) -> str | None:
        return "peer" if link.getsockname()[1] in names and link.getsockname() not in listening else None

    listening = {server.getsockname()}
    monkeypatch.setattr(rm_sending, "_host", host)

    def rates(link: socket.socket) -> tuple[int, int]:
        (rate,) = struct.unpack("=I", link.getsockopt(socket.SOL_SOCKET, rm_sending.SO_MAX_PACING_RATE, 4))
        return rate, link.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2

    assert rm_sending.send(80_000_000, 7) == 2
    assert [rates(link) for link in links] == [(5_000_000, 7)] * 2
    assert rates(inside) == (rm_sending.UNLIMITED, 0)
    rm_sending.send(0, 0)
    assert [rates(link) for link in links] == [(rm_sending.UNLIMITED, 0)] * 2
    for link in (*links, inside, server):
        link.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_connections_block_as_before_and_ipv6_is_marked_too(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    link = socket.create_connection((address, server.getsockname()[1]))
    port = link.getsockname()[1]
    monkeypatch.setattr(rm_sending, "_host", lambda one: "peer" if one.getsockname()[1] == port else None)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # as the training program may have done
    try:
        assert rm_sending.send(80_000_000, 7) == 1
    finally:
        socket.setdefaulttimeout(before)
    assert os.get_blocking(link.fileno())
    marks = [link.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2]
    if address == "::1":
        marks = [link.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) >> 2]
    assert marks == [7]
    link.close()
    server.close()
