"""Jobs that managing makes slower are left alone: what is measured, what follows, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal.restoring import restore
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.network.alignment import Alignment, LinkAlignment, Released, Schedule, ShapingRule
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.releasing import groups, left_alone, why_alone
from rm.core.store import Loaded
from rm.errors import ConfigError
from rm.policies.regulate.controller import ControllerOptions
from rm.policies.regulate.iterating import Iterating
from rm.policies.regulate.verifying import Judgement, Manage, Release, Verifier
from rm.units import MINUTE_US
from tests import builders
from tests.regulating import House, pair, turning_house

OPTIONS = ControllerOptions()
PAIR = Alignment(100.0, together=((1, 2),))
RUNNING = {1: Iterating(1, period_us=100_000), 2: Iterating(1, period_us=50_000)}
WINDOW = OPTIONS.cooldown + OPTIONS.verify_periods


class Group:
    """Jobs 1 and 2, whose periods are 100 and 50 ms, under a verifier; `us` is the time."""

    def __init__(self, running: dict[int, Iterating] = RUNNING, alignment: Alignment = PAIR) -> None:
        self.verifier, self.us, self.running = Verifier(OPTIONS), 0, running
        assert self.verifier.aligned(alignment, running) == []

    def iterate(self, first: float, second: float, times: int = WINDOW) -> list[Judgement]:
        """As many iterations of the second, so many times as long as alone; half as many of the first."""
        found: list[Judgement] = []
        for number in range(times):
            self.us += 50_000
            found += self.verifier.report(2, round(50_000 * second), self.us)
            if number % 2:
                found += self.verifier.report(1, round(100_000 * first), self.us)
        return found

    def released(self, managed: float = 1.3, unmanaged: float = 1.1) -> Released:
        """Released for good."""
        assert self.iterate(1.0, managed) == [Release(Released((1, 2), managed))]
        (order,) = self.iterate(unmanaged, 1.0)
        assert isinstance(order, Release)
        return order.released


def slower(order: Judgement) -> float:
    assert isinstance(order, Release)
    return order.released.managed


def test_a_group_whose_slowest_is_as_fast_as_alone_stays_managed() -> None:
    assert Group().iterate(1.04, 0.9, 5 * WINDOW) == []


def test_an_iteration_does_not_look_at_each_group_that_is_left_alone() -> None:
    compared = 0

    class Moment(int):
        def __lt__(self, other: int) -> bool:
            nonlocal compared
            compared += 1
            return int(self) < other

    groups = tuple((2 * n + 1, 2 * n + 2) for n in range(50))
    running = {job: Iterating(1, period_us=50_000) for jobs in groups for job in jobs}
    verifier, us = Verifier(OPTIONS), 0
    verifier.aligned(Alignment(100.0, together=groups), running)
    orders = []
    for took in (1.3, 1.0):  # managed, then without
        for _ in range(WINDOW):
            us += 50_000
            orders += [o for job in running for o in verifier.report(job, round(50_000 * took), us)]
    assert len(orders) == 2 * len(groups), "each is measured without, and left alone"
    verifier.report(1, 50_000, us)
    for job in running:
        assert verifier.report(job, 50_000, Moment(us + 1)) == []
    assert compared <= 2 * len(running)
    last = orders[-1]
    assert isinstance(last, Release)
    assert len(verifier.passed(Moment(last.released.until_us))) == len(groups)


def test_one_that_is_faster_left_alone_is_tried_again_later_and_later() -> None:
    group = Group()
    for times, minutes in ((1, 30), (2, 60), (3, 120), (4, 240), (4, 480), (4, 480)):
        found = group.released()
        assert (found.jobs, found.managed, found.unmanaged, found.times) == ((1, 2), 1.3, 1.1, times)
        assert found.until_us is not None
        assert minutes * MINUTE_US - 50_000 * WINDOW <= found.until_us - group.us <= minutes * MINUTE_US
        assert group.iterate(2.0, 2.0) == []
        assert group.verifier.passed(found.until_us - 1) == []
        (again,) = group.verifier.passed(found.until_us)
        assert isinstance(again, Manage)
        assert again.jobs == (1, 2)
        group.us = found.until_us
    assert group.iterate(1.0, 1.04) == []
    assert group.released().times == 1, "it did well in between"


def test_one_that_is_no_faster_left_alone_is_managed_until_it_is_slower_than_that() -> None:
    group = Group()
    assert group.iterate(1.0, 1.3) == [Release(Released((1, 2), 1.3))]
    (again,) = group.iterate(1.0, 1.28)
    assert again == Manage((1, 2), "without, the slowest job took 1.28 times as long as alone")
    assert group.iterate(1.0, 1.3, 3 * WINDOW) == []
    assert slower(group.iterate(1.0, 1.4, 2 * WINDOW)[0]) > 1.31


def test_no_job_that_says_that_it_is_always_slow_keeps_another_where_it_loses() -> None:
    """Its host may lie of its begins, too, so that the other waits for it at each iteration."""
    group = Group()
    assert slower(group.iterate(2.0, 1.45)[0]) == 2.0
    (order,) = group.iterate(2.0, 1.0)
    assert isinstance(order, Release)
    assert (order.released.managed, order.released.unmanaged, order.released.times) == (1.45, 1.0, 1)


@pytest.mark.parametrize(
    ("managed", "unmanaged", "loses"), [(1.2, 1.0, True), (1.14, 1.0, False), (1.04, 0.8, False)]
)
def test_a_job_may_lose_a_little_and_any_that_is_as_fast_as_alone(
    managed: float, unmanaged: float, loses: bool
) -> None:
    group = Group()
    group.iterate(2.0, managed)
    (order,) = group.iterate(2.0, unmanaged)
    assert isinstance(order, Release) == loses


def test_each_job_is_judged_by_ten_iterations_but_for_those_right_after_a_change() -> None:
    group = Group()
    assert [group.verifier.report(2, 65_000, n) for n in range(WINDOW)] == [[]] * WINDOW
    few = OPTIONS.cooldown + 9
    assert [group.verifier.report(1, 100_000, n) for n in range(few)] == [[]] * few
    assert group.verifier.report(1, 100_000, few) == [Release(Released((1, 2), 1.3))]


def test_a_clock_that_is_set_forward_keeps_nobody_alone_for_days() -> None:
    group = Group()
    group.iterate(1.0, 1.3)
    group.us += 600 * MINUTE_US
    (order,) = group.iterate(1.1, 1.0)
    assert isinstance(order, Release)
    assert order.released.until_us == group.us + 20 * 60 * MINUTE_US


def test_a_job_that_comes_to_lose_is_noticed_though_another_was_slow_before() -> None:
    group = Group()
    group.iterate(2.0, 1.1)
    (again,) = group.iterate(2.0, 1.0)
    assert isinstance(again, Manage)
    assert group.iterate(2.0, 1.14, 2 * WINDOW) == []
    assert slower(group.iterate(2.0, 1.3, 2 * WINDOW)[0]) == 2.0


def test_jobs_of_long_iterations_are_measured_without_only_a_twentieth_of_the_time() -> None:
    group = Group()
    times = {1: 10_000_000, 2: 10_000_000}
    group.verifier.aligned(PAIR, {job: Iterating(1, period_us=us) for job, us in times.items()})
    phases: list[tuple[int, Judgement]] = []
    for turn in range(5_000):
        for job, us in times.items():
            phases += [(turn, one) for one in group.verifier.report(job, round(1.2 * us), turn * 12_000_000)]
    released = [turn for turn, one in phases if isinstance(one, Release)]
    managed = [turn for turn, one in phases if isinstance(one, Manage)]
    without = sum(end - begin for begin, end in zip(released, managed, strict=True))
    assert len(released) >= 3
    assert without < 5_000 / 20


def test_what_was_measured_without_holds_for_a_while() -> None:
    group = Group()
    group.iterate(1.0, 1.3)
    group.iterate(1.0, 1.3)
    group.us += 31 * MINUTE_US
    assert group.iterate(1.0, 1.3) == [Release(Released((1, 2), 1.3))]


def test_a_clock_that_is_set_back_keeps_nobody_alone() -> None:
    group = Group()
    group.released()
    (again,) = group.verifier.passed(0)
    assert isinstance(again, Manage)


def test_only_high_jobs_are_judged_where_there_are_any() -> None:
    group = Group({**RUNNING, 1: replace(RUNNING[1], high=True)})
    assert group.iterate(1.0, 3.0, 3 * WINDOW) == []
    assert 1.05 < slower(group.iterate(1.2, 3.0, 2 * WINDOW)[0]) <= 1.2


def test_single_iterations_that_take_long_do_not_count() -> None:
    group = Group()
    found = []
    for _ in range(20):
        found += group.iterate(1.0, 1.0, 15)
        found += group.iterate(1.0, 30.0, 1)
    assert found == []


def test_silent_jobs_and_those_without_a_profile_are_not_judged() -> None:
    group = Group()
    assert [group.verifier.report(2, 500_000, n) for n in range(200)] == [[]] * 200
    assert Group({1: RUNNING[1], 2: Iterating(1)}).iterate(9.0, 9.0) == []
    assert Group({1: RUNNING[1]}).iterate(9.0, 9.0) == []
    off = Verifier(replace(OPTIONS, verify=False))
    off.aligned(PAIR, RUNNING)
    assert [off.report(job, 900_000, n) for n in range(200) for job in (1, 2)] == [[]] * 400


def test_a_group_that_has_changed_is_managed_and_measured_anew() -> None:
    group = Group()
    found = group.released()
    assert group.verifier.aligned(replace(PAIR, released=(found,)), RUNNING) == []
    other = {**RUNNING, 2: replace(RUNNING[2], attempt=2)}
    (again,) = group.verifier.aligned(replace(PAIR, released=(found,)), other)
    assert isinstance(again, Manage)
    assert group.iterate(1.0, 1.3)[0] == Release(Released((1, 2), 1.3))


@pytest.mark.parametrize(
    "wrong",
    [{"verify_periods": 9}, {"verify_slow": 0.9}, {"verify_margin": -0.1}, {"verify_again_min": 0.0}],
)
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"\[regulate\]"):
        replace(OPTIONS, **wrong)  # type: ignore[arg-type]


# -- in the core -------------------------------------------------------------------------------


def test_groups_share_links_or_classes_directly_or_through_others() -> None:
    links = [
        LinkAlignment(name, 100.0, 1, jobs) for name, jobs in (("a", (1, 5)), ("b", (5, 3)), ("c", (2, 4)))
    ]
    rules = tuple(ShapingRule(job, host, 0, 1, 1) for job, host in ((6, "d"), (4, "d"), (5, "a"), (9, "e")))
    unmanaged = LinkAlignment("f", 80.0, 1, (7, 8))
    assert groups(Alignment(80.0, (*links, unmanaged), shaping=rules)) == ((1, 3, 5), (2, 4, 6))


def naive_groups(alignment: Alignment) -> tuple[tuple[int, ...], ...]:
    shared: dict[str, set[int]] = {}
    for link in alignment.links:
        shared.setdefault(link.link, set()).update(link.jobs)
    for rule in alignment.shaping:
        shared.setdefault(rule.host, set()).add(rule.job)
    found: list[set[int]] = []
    for jobs in shared.values():
        found = [met for met in found if met.isdisjoint(jobs)] + [
            jobs.union(*(met for met in found if not met.isdisjoint(jobs)))
        ]
    managed = {s.job for s in alignment.schedules} | {rule.job for rule in alignment.shaping}
    return tuple(sorted(tuple(sorted(met)) for met in found if len(met) > 1 and met & managed))


JOB, LINK = st.integers(0, 9), st.sampled_from("abcdef")


@given(
    st.dictionaries(LINK, st.lists(JOB, max_size=4, unique=True), max_size=5),
    st.lists(st.tuples(JOB, LINK), max_size=5),
    st.sets(JOB, max_size=4),
)
def test_groups_are_what_a_search_by_sets_finds(
    on: dict[str, list[int]], ruled: list[tuple[int, str]], scheduled: set[int]
) -> None:
    links = tuple(LinkAlignment(name, 100.0, 1, tuple(jobs)) for name, jobs in on.items())
    rules = tuple(ShapingRule(job, host, 0, 1, 1) for job, host in ruled)
    alignment = Alignment(100.0, links, tuple(Schedule(job, 0, 0, 1, 1) for job in scheduled), rules)
    assert groups(alignment) == naive_groups(alignment)


def test_what_is_left_alone_has_no_slots_and_no_classes() -> None:
    rules = tuple(ShapingRule(job, host, 0, 1, 1) for job, host in ((1, "a"), (2, "a"), (7, "b")))
    alignment = replace(pair(), shaping=rules)
    assert left_alone(alignment, {}) == replace(alignment, together=((1, 2),))
    found = left_alone(alignment, {(1, 2): Released((1, 2), 1.3, 1.1, 5), (1, 3): Released((1, 3), 2)})
    assert (found.schedules, found.shaping, found.unmatched) == ((), rules[2:], (1, 2))
    assert (found.links, found.score) == (alignment.links, alignment.score)
    reason = why_alone(found, 2)
    assert reason is not None
    assert reason.code is ReasonCode.LEFT_ALONE
    assert "1.30 times" in reason.message
    assert "1.10 times" in reason.message
    assert dict(reason.numbers) == {"jobs": 2, "managed": 1.3, "unmanaged": 1.1, "managed_again_us": 5}
    assert why_alone(found, 7) is None


def cycle() -> Cycle:
    """Two jobs that have rotations on the link that they share."""
    metronome = load("comm", "metronome", {"bursts": False})
    one = Cycle(ClusterState(), Policies(load("queue", "fifo"), load("placement", "first-fit"), metronome))
    hosts = [builders.host(name, cpus=8, nic_mbps=100) for name in "ab"]
    one.step([ev.HostAdded(h) for h in hosts], 1)
    one.step([ev.HostUp(h.name, "boot", "1") for h in hosts], 2)
    for number in (1, 2):
        submit(one, number)
    return one


def submit(one: Cycle, number: int) -> None:
    traffic = builders.profile(200, (0, 60, 100))
    spec = builders.spec(ntasks=2, tasks_per_host=1, traffic=traffic)
    one.step([ev.JobSubmitted(number, spec)], 10 + number)


def test_the_core_leaves_them_alone_until_they_are_managed_or_another_joins() -> None:
    one = cycle()
    managed = one.state.alignment
    assert len(managed.schedules) == 2
    alone = Released((1, 2), 1.3, 1.1, 100)
    assert one.step([ev.JobsReleased(alone)], 20).realigned
    assert (one.state.alignment.schedules, one.state.alignment.shaping) == ((), ())
    assert "left alone" in one.state.jobs[1].history[-1][1]
    known = restore_state(dump_state(one.state, 21), 21)
    assert (known.released, known.alignment) == (one.state.released, one.state.alignment)
    one.step([ev.ClockStepped(50)], 71)
    assert one.state.released[1, 2].until_us == 150
    one.step([ev.JobsManaged((1, 2), "it is time")], 80)
    assert one.state.alignment == managed
    assert one.state.jobs[2].history[-1][1] == "its links are managed again: it is time"
    one.step([ev.JobsReleased(alone)], 90)
    submit(one, 3)
    assert one.state.released == {}
    assert len(one.state.alignment.schedules) == 3


def test_a_turn_that_is_taken_back_forgets_nobody_who_is_left_alone() -> None:
    one = cycle()
    one.step([ev.JobsReleased(Released((1, 2), 1.3, 1.1, 100))], 20)
    state = one.state
    stored = Loaded(1, 3, 1, jobs=tuple(state.jobs.values()), hosts=tuple(state.hosts.values()))
    restore(state, stored, 21)
    one.start_over(aligned=False)
    one.step([], 22)
    assert (list(state.released), state.alignment.schedules) == ([(1, 2)], ())


def test_jobs_that_have_gone_meanwhile_are_no_error() -> None:
    one = cycle()
    one.step([ev.CancelRequested(2, "alice")], 20)
    one.step([ev.JobsReleased(Released((1, 2), 1.3)), ev.JobsManaged((8, 9), "never")], 21)
    one.step([ev.TaskExited(2, 1, h, n, 0, 15, None, 22) for n, h in enumerate("ab")], 22)
    assert one.state.released == {}


# -- in the daemon -----------------------------------------------------------------------------


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    yield from turning_house(monkeypatch)


def test_the_daemon_posts_what_was_judged(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(replace(pair(), together=((1, 2),)))
    for job in (1, 2):
        items = [[0, n, 100_000 * n, 120_000, 0, None] for n in range(WINDOW)]
        house.report(job, *items)
    assert house.posted.wait(ev.JobsReleased) == ev.JobsReleased(Released((1, 2), 1.2))
    house.see(Alignment(100.0, together=((1, 2),), released=(Released((1, 2), 1.2),)))
    for job in (1, 2):
        items = [[0, n, 100_000 * n, 125_000, 0, None] for n in range(WINDOW)]
        house.report(job, *items)
    managed = house.posted.wait(ev.JobsManaged)
    assert managed.jobs == (1, 2)
