"""Profiles measured on the run: one job at a time, and what the others on the link are worked out of."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.daemon.regulation.inspection import CLEAN_ITERATIONS, Inspection, profile_of, undisturbed, watch_us
from rm.daemon.regulation.iterations import USUAL, IterationStats
from rm.daemon.regulation.running import Place, Running
from rm.protocol.network import Profiled
from tests.fakes import FakeHosts

MEASURED = {"period_us": 200_000, "phases": [[0, 80_000, 500]], "confidence": 0.9}
PROFILE = TrafficProfile(200_000, (Phase(0, 80_000, 500),))


def measured(**fields: Any) -> Profiled:
    return msgspec.convert(fields, Profiled)


def running(job: int, attempt: int = 1, nic_bps: int = 1_000, hosts: tuple[str, ...] = ("h1",)) -> Running:
    places = tuple(Place(host, n, "eth0", nic_bps, 0) for n, host in enumerate(hosts))
    return Running(job, attempt, 0, places, None, False, False)


class House:
    """The owner's thread is the test: what is deferred runs when the test says so."""

    def __init__(self) -> None:
        self.hosts = FakeHosts()
        self.deferred: list[Callable[[], None]] = []
        self.done: list[tuple[int, TrafficProfile | None]] = []
        self.shared = False
        self.inspection = Inspection(
            self.hosts, self.deferred.append, lambda r: self.shared, lambda r, p: self.done.append((r.job, p))
        )

    def work(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()


def test_jobs_are_profiled_one_after_the_other_and_none_twice() -> None:
    house = House()
    for job in (1, 2, 1, 2):
        house.inspection.begin(running(job), reports=False)
    first = house.hosts.take("profile")
    assert first.args["job"] == 1
    assert house.hosts.untaken("profile") == []
    first.answer(**MEASURED)
    assert house.done == []  # the answer came in another thread
    house.work()
    assert house.done == [(1, PROFILE)]
    house.hosts.take("profile").refuse("no-such-attempt")
    house.work()
    assert house.done == [(1, PROFILE), (2, None)]


def test_jobs_of_other_hosts_do_not_wait_for_each_other_and_none_is_overtaken() -> None:
    house = House()
    for job, hosts in ((1, "ab"), (2, "bc"), (3, "cd"), (4, "ef")):
        house.inspection.begin(running(job, hosts=tuple(hosts)), reports=True)
    first, fourth = house.hosts.take("profile"), house.hosts.take("profile")
    assert [first.args["job"], fourth.args["job"]] == [1, 4]
    assert house.hosts.untaken("profile") == []  # 3 shares no host with 1, but with 2, which was first
    for _ in range(CLEAN_ITERATIONS):
        house.inspection.heard(4, 1, 220_000, None)
    fourth.answer(**MEASURED)
    house.work()
    assert house.done == [(4, TrafficProfile(220_000, PROFILE.phases))]
    first.answer(**MEASURED)
    house.work()
    assert house.hosts.take("profile").args["job"] == 2


@pytest.mark.parametrize(
    ("iteration_us", "ran_us", "watched_us"),
    [
        (200_000, 0, 3_000_000),  # never shorter
        (1_000_000, 0, 8_000_000),  # eight iterations
        (600_000_000, 0, 24_000_000),  # never longer
        (None, 3_000_000, 3_000_000),
        (None, 40_000_000, 10_000_000),  # three seconds have shown nothing
    ],
)
def test_a_job_is_watched_for_several_of_its_iterations(
    iteration_us: int | None, ran_us: int, watched_us: int
) -> None:
    assert watch_us(iteration_us, ran_us) == watched_us
    house = House()
    house.inspection.begin(running(1), False, watch_us(iteration_us, ran_us))
    assert house.hosts.take("profile").args["duration_us"] == watched_us


def test_what_an_iteration_takes_is_what_most_of_the_newest_took() -> None:
    stats = IterationStats(attempt=1)
    assert stats.usual_us is None
    for took_us in [100] * 20 + [300] * (USUAL - 1) + [9_000]:
        stats.add(0, took_us, 0, None)
    assert stats.usual_us == 300


def test_a_refusal_does_not_end_the_row() -> None:
    house = House()
    for job in (1, 2):
        house.inspection.begin(running(job), reports=False)
    house.hosts.take("profile").refuse("no-such-attempt")
    house.work()
    house.hosts.take("profile").answer(**MEASURED)
    house.work()
    assert house.done == [(1, None), (2, PROFILE)]


@pytest.mark.parametrize(("code", "warned"), [("no-such-attempt", False), ("no-classifier", True)])
def test_a_job_that_ended_meanwhile_is_no_reason_to_warn(
    code: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    house = House()
    house.inspection.begin(running(1), reports=False)
    house.hosts.take("profile").refuse(code)
    house.work()
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert bool(told) is warned


def test_reported_iterations_give_the_period_if_there_are_enough() -> None:
    house = House()
    house.inspection.begin(running(1), reports=True)
    for _ in range(CLEAN_ITERATIONS):
        house.inspection.heard(1, 1, 210_000, None)
        house.inspection.heard(1, 2, 1, None)
        house.inspection.heard(2, 1, 1, None)
    house.hosts.take("profile").answer(**MEASURED)
    house.work()
    assert house.done == [(1, TrafficProfile(210_000, (Phase(0, 80_000, 500),)))]
    assert profile_of(measured(**MEASURED), [210_000] * (CLEAN_ITERATIONS - 1)) == PROFILE


def test_an_unclear_measurement_is_no_profile() -> None:
    unclear: list[dict[str, Any]] = [
        {}, {"confidence": 0.4}, {"phases": []}, {"phases": [[0, 1, 1]] * 65},
        {"period_us": 0}, {"period_us": 1}, {"period_us": 1 << 53},
    ]  # fmt: skip
    for change in unclear:
        assert profile_of(measured(**({**MEASURED, **change} if change else {})), []) is None


def test_beside_others_a_profile_is_what_the_job_would_do_alone() -> None:
    alone = TrafficProfile(160_000, (Phase(0, 40_000, 1_000),))
    for before, after in ((True, False), (False, True)):  # others that were there at any time
        house = House()
        house.shared = before
        house.inspection.begin(running(1), reports=False)
        house.shared = after
        house.hosts.take("profile").answer(**MEASURED)
        house.work()
        assert house.done == [(1, alone)]
    assert undisturbed(PROFILE, 0) == PROFILE


@st.composite
def profiles(draw: st.DrawFn) -> TrafficProfile:
    """Disjoint phases in order, with the gaps between them."""
    part = st.tuples(st.integers(0, 10**5), st.integers(1, 10**5), st.integers(0, 10**10))
    parts = draw(st.lists(part, min_size=1, max_size=5))
    phases, at_us = [], 0
    for gap_us, duration_us, rate_bps in parts:
        phases.append(Phase(at_us + gap_us, duration_us, rate_bps))
        at_us += gap_us + duration_us
    return TrafficProfile(at_us + draw(st.integers(1, 10**6)), tuple(phases))


@given(profiles(), st.integers(10**6, 10**10))
def test_volume_and_pauses_are_kept_and_the_period_shrinks_by_what_the_phases_do(
    measured: TrafficProfile, capacity_bps: int
) -> None:
    alone = undisturbed(measured, capacity_bps)
    saved_us = 0
    for old, new in zip(measured.phases, alone.phases, strict=True):
        assert new.duration_us <= old.duration_us
        assert new.offset_us == old.offset_us - saved_us
        assert new.rate_bps <= max(old.rate_bps, capacity_bps)
        volume = old.rate_bps * old.duration_us
        assert volume - max(1, new.duration_us) < new.rate_bps * max(1, new.duration_us) <= volume
        saved_us += old.duration_us - new.duration_us
    assert alone.period_us == measured.period_us - saved_us
