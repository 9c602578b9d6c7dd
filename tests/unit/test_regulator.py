"""The plan against what the hosts were told: differences are sent, on each host's clock."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rm.core.jobs import events as ev
from rm.core.model.network.alignment import Alignment, Bursts, ShapingRule
from rm.core.model.network.paths import JobPath
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.regulation import iterations, reporting
from rm.daemon.regulation import regulator as module
from rm.daemon.regulation.iterations import KEPT_JOBS, IterationBook
from rm.daemon.regulation.running import RunningJobs
from rm.daemon.regulation.watching import REGULATE_US
from rm.protocol.notifications import Iterations
from tests import builders
from tests.regulating import FIRST_PAUSE, MEASURED, TRAFFIC, House, pair, turning_house


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    yield from turning_house(monkeypatch)


def rule(job: int, host: str, priority: int = 0) -> ShapingRule:
    return ShapingRule(job, host, priority, 400, 900)


def test_shaping_follows_the_plan_by_its_differences(house: House) -> None:
    house.run(1)
    house.see(Alignment(100.0, shaping=(rule(1, "a"), rule(1, "b"))))
    first = house.hosts.take("shape", "a")
    assert first.args == {
        "job": 1, "attempt": 1, "interface": "eth0", "epoch": 7, "cluster": "", "priority": 0,
        "queue_packets": 30, "rate_bps": 1_000_000_000, "class_rate_bps": 400, "ceil_bps": 900,
    }  # fmt: skip
    house.hosts.take("shape", "b")
    house.see(Alignment(100.0, shaping=(rule(1, "a"), rule(1, "b", priority=1))))
    assert house.hosts.take("shape").host == "b"
    house.see(Alignment(100.0, shaping=(rule(1, "a"),)))
    assert house.hosts.take("unshape").host == "b"
    house.do(ev.CancelRequested(1, "alice"))
    house.see(Alignment(100.0, shaping=(rule(1, "a"),)))
    assert house.hosts.take("unshape").host == "a"
    assert house.hosts.untaken("shape") == []


def test_paths_follow_the_plan_by_their_differences(house: House) -> None:
    house.run(1)
    house.see(Alignment(100.0, paths=(JobPath(1, "a", 0), JobPath(1, "b", 1))))
    told = {"job": 1, "attempt": 1, "interface": "eth0", "epoch": 7, "cluster": ""}
    assert house.hosts.take("path", "a").args == {**told, "dscp": 3}
    assert house.hosts.take("path", "b").args == {**told, "dscp": 7}
    house.see(Alignment(100.0, paths=(JobPath(1, "a", 1), JobPath(1, "b", 1))))
    assert house.hosts.take("path").args == {**told, "dscp": 7}
    house.see(Alignment(100.0, paths=(JobPath(1, "b", 1),)))
    assert house.hosts.take("unpath").host == "a"
    house.do(ev.CancelRequested(1, "alice"))
    house.see(Alignment(100.0, paths=(JobPath(1, "b", 1),)))
    assert house.hosts.take("unpath").host == "b"
    assert house.hosts.untaken("path") == []


def test_bursts_are_ordered_where_the_plan_says_so(house: House) -> None:
    house.run(1)
    ordered = replace(rule(1, "a"), bursts=Bursts(10_000, 1_000_000))
    house.see(Alignment(100.0, shaping=(rule(1, "a"),)))
    assert "bursts" not in house.hosts.take("shape", "a").args
    house.see(Alignment(100.0, shaping=(ordered,)))
    assert house.hosts.take("shape", "a").args["bursts"] == {"gap_us": 10_000, "longest_us": 1_000_000}


def test_a_host_that_says_hello_again_is_told_again(house: House) -> None:
    house.run(1)
    plan = Alignment(100.0, shaping=(rule(1, "a"), rule(1, "b")))
    house.see(plan)
    for host in ("a", "b"):
        house.hosts.take("shape", host)
    house.clock.us += 1
    house.do(ev.HostUp("b", "boot", "1"))
    house.see(plan)
    assert house.hosts.take("shape").host == "b"
    house.see(Alignment(100.0, shaping=(rule(1, "a"),)))
    house.hosts.take("unshape", "b")
    assert house.hosts.untaken("shape") == []


def test_a_schedule_is_told_to_every_host_on_its_own_clock(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(pair())
    house.report(1, [0, 0, 5_000, 100_000, 0, None], [1, 0, 9_999, 1, 0, None])
    told = [house.hosts.take("schedule", h).args for h in ("a", "b")]
    documents = [t["schedule"] for t in told]
    assert [t["job"] for t in told] == [2, 2]  # nothing is asked of the reference
    assert documents[0]["epoch_us"] % 100_000 == 5_000
    assert documents[1]["epoch_us"] == documents[0]["epoch_us"] + 700
    assert {(d["shift_us"], d["period_us"], d["gate"], d["pause_seq"]) for d in documents} == {
        (50_000, 100_000, True, 0)
    }
    slot = {"epoch_us": 5_000, "shift_us": 0, "period_us": 100_000}  # when job 1 was last seen to begin
    assert [house.regulator.of(job)["slot"] for job in (1, 2, 3)] == [
        slot,
        {**slot, "shift_us": 50_000},
        None,
    ]


def test_a_host_that_says_hello_again_is_told_the_schedule_without_the_pause_that_is_over(
    house: House,
) -> None:
    house.run(1)
    house.run(2)
    house.report(1, [0, 0, 0, 100_000, 0, None])
    house.report(2, [0, 0, 20_000, 100_000, 0, None])
    house.see(pair(gate=False))
    paused = house.hosts.take("schedule", "a").args["schedule"]
    assert paused["pause_length_us"] == 30_000
    house.hosts.take("schedule", "b").refuse("unreachable")
    house.clock.us += 1
    house.do(ev.HostUp("b", "boot", "1"))
    house.see(pair(gate=False))
    again = house.hosts.take("schedule", "b").args
    expected = {**paused, "epoch_us": paused["epoch_us"] + 700, "pause_length_us": 0}
    assert (again["job"], again["schedule"]) == (2, expected)
    house.see(pair(gate=False))
    assert house.hosts.untaken("schedule") == []


def test_a_job_that_is_not_regulated_is_told_when_to_adjust_itself_and_never_paused(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(pair(gate=False, adjust=0.05, regulated=False))
    house.report(1, [0, 0, 5_000, 100_000, 0, None])
    document = house.hosts.take("schedule", "a").args["schedule"]
    assert (document["gate"], document["adjust_us"], document["pause_seq"]) == (False, 5_000, 0)
    house.hosts.take("schedule", "b")
    for n in range(8):  # far above its period, again and again
        house.report(2, [0, n, 60_000 + n * 150_000, 150_000, 0, None])
    assert house.regulator.of(2)["pauses"] == 0
    assert house.hosts.untaken("schedule") == []


def test_a_job_that_need_not_wait_any_more_is_told_so(house: House) -> None:
    house.run(1)
    house.run(2)
    house.report(1, [0, 0, 0, 100_000, 0, None])
    house.report(2, [0, 0, 50_000, 100_000, 0, None])
    house.see(pair(inject_us=3_000))
    assert house.hosts.take("schedule", "a").args["schedule"]["gate"]
    house.hosts.take("schedule", "b")
    house.see(pair(gate=False))
    document = house.hosts.take("schedule", "a").args["schedule"]
    assert (document["gate"], document["inject_us"], document["adjust_us"]) == (False, 0, 0)
    house.hosts.take("schedule", "b")
    house.see(pair(gate=False, cushion_us=9_000))
    assert house.hosts.untaken("schedule") == []


def test_a_job_off_its_slot_is_paused_once_with_a_new_number(house: House) -> None:
    house.run(1)
    house.run(2)
    house.report(1, [0, 0, 0, 100_000, 0, None])
    house.report(2, [0, 0, 20_000, 100_000, 0, None])
    house.see(pair(gate=False))
    paused = house.hosts.take("schedule", "a").args["schedule"]
    house.hosts.take("schedule", "b")
    # its next iteration is due at 120 ms, its slot at 50 ms after the reference's at 100 ms
    # and its number is above those of the leaders before, which the hosts may have seen
    assert (paused["pause_seq"], paused["pause_length_us"]) == (FIRST_PAUSE, 30_000)
    assert house.regulator.of(2)["pauses"] == 1
    house.report(2, [0, 0, 20_000, 100_000, 0, None])
    house.see(pair(gate=False, cushion_us=11_000))  # another plan
    again = house.hosts.take("schedule", "a").args["schedule"]
    assert again["pause_seq"] == FIRST_PAUSE + 1


def test_a_job_that_leaves_the_plan_loses_its_schedule(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(pair())
    house.report(1, [0, 0, 5_000, 100_000, 0, None])
    for host in ("a", "b"):
        assert house.hosts.take("schedule", host).args["schedule"] is not None
    house.see()
    for host in ("a", "b"):
        gone = house.hosts.take("schedule", host).args
        assert (gone["job"], gone["schedule"]) == (2, None)


def test_a_host_that_was_away_when_a_job_lost_its_schedule_is_told_at_its_hello(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(pair())
    house.report(1, [0, 0, 5_000, 100_000, 0, None])
    for host in ("a", "b"):
        house.hosts.take("schedule", host)
    house.see()
    house.hosts.take("schedule", "a")
    house.hosts.take("schedule", "b").refuse("unreachable")
    house.clock.us += 1
    house.do(ev.HostUp("b", "boot", "1"))
    house.see()
    again = house.hosts.take("schedule", "b").args
    assert (again["job"], again["schedule"]) == (2, None)
    house.see()
    assert house.hosts.untaken("schedule") == []


def test_silent_jobs_of_the_plan_are_watched_from_outside(house: House) -> None:
    house.run(1)
    house.run(2)
    house.run(3)
    house.see(pair())
    for job in (1, 3):
        house.report(job, [0, 0, 5_000, 100_000, 0, None])
    house.settle()
    house.clock.us += module.SILENT_US
    for host, rank in (("a", 0), ("b", 1)):
        call = house.hosts.take("regulate", host)
        assert (call.args["job"], call.args["rank"], call.args["phases"]) == (2, rank, 1)
        if host == "a":
            house.clock.us += REGULATE_US
            call.answer()  # its hour is over
    assert house.hosts.take("regulate").host == "a"
    assert house.hosts.untaken("regulate") == []


def test_who_drains_or_resumes_a_host_has_its_jobs_watched_and_told_nothing_anew(house: House) -> None:
    for job in (1, 2, 3):
        house.run(job)
    house.see(pair())
    for job in (1, 3):
        house.report(job, [0, 0, 5_000, 100_000, 0, None])
    house.settle()
    house.clock.us += module.SILENT_US
    for host in ("a", "b"):
        house.hosts.take("regulate", host)
        house.hosts.take("schedule", host)
    drain = ev.HostDrained("b", "ann", "fan")
    for event in (drain, ev.HostResumed("b", "ann"), drain):
        house.clock.us += 1
        house.do(event)
        house.see(pair())
    assert [house.hosts.untaken(method) for method in ("regulate", "schedule")] == [[], []]


def test_a_job_without_a_profile_gets_one_and_tries_again_when_it_is_unclear(house: House) -> None:
    house.run(1, traffic=None)
    house.see()
    house.clock.us += module.SILENT_US
    first = house.hosts.take("profile")
    house.settle()  # the regulator listens to the answer before it is given
    first.answer(phases=[], confidence=0)
    house.settle()
    house.clock.us += module.PROFILE_AGAIN_US - 5 * module.TURN_US
    house.report(1, [0, 0, 5, 100_000, 0, None])
    house.settle()
    assert house.hosts.untaken("profile") == []
    house.clock.us += 10 * module.TURN_US
    house.hosts.take("profile").answer(**MEASURED)
    measured = house.posted.wait(ev.ProfileMeasured)
    assert measured == ev.ProfileMeasured(1, 1, TRAFFIC, cooperative=True)
    assert [c.op for c in house.hosts.made].count("profile") == 2


def test_a_profile_beside_jobs_that_hardly_communicate_is_taken_as_measured(house: House) -> None:
    half = {**MEASURED, "phases": [[0, 40_000, 500_000_000]]}
    house.run(1, traffic=None)
    house.run(2, traffic=None, low_comm=True)
    house.see()
    house.clock.us += module.SILENT_US
    house.hosts.take("profile").answer(**half)
    house.settle()
    half_rate = builders.profile(100, (0, 40, 500))
    assert house.posted.wait(ev.ProfileMeasured) == ev.ProfileMeasured(1, 1, half_rate, cooperative=False)


def test_reports_are_on_the_daemons_clock(house: House) -> None:
    house.run(1)
    house.see()
    house.report(1, [0, 0, 5_700, 100_000, 0, None], host="b")
    house.settle()
    assert house.regulator.recent(1) == [(5_000, 100_000)]


def test_jobs_that_stay_on_one_host_or_say_low_comm_are_left_alone(house: House) -> None:
    house.run(1, traffic=None, low_comm=True)
    house.do(
        ev.JobSubmitted(2, builders.spec()),
        ev.JobPlaced(2, builders.placement("a")),
        ev.TasksStarted(2, 1, "a", 5, (0,)),
    )
    assert set(RunningJobs().of(house.state)) == {1}
    house.run(3)
    house.see(Alignment(100.0, shaping=(rule(3, "a"),)))
    house.clock.us += 2 * module.SILENT_US
    house.settle()
    house.settle()  # the jobs are looked after between two items
    assert house.hosts.untaken("profile") == []


def test_the_last_words_of_an_earlier_attempt_do_not_count(house: House) -> None:
    house.run(1)
    house.see()
    house.report(1, [0, 0, 5_000, 80_000, 0, None], attempt=2)
    house.report(1, [0, 0, 5_000, 100_000, 0, None], attempt=1)
    house.see(Alignment(100.0, shaping=(rule(1, "a"),)))
    house.hosts.take("shape")
    summary = house.regulator.of(1)
    assert (summary["count"], summary["mean_us"], summary["p99_us"]) == (1, 80_000, 80_000)


def test_what_is_inspected_again_is_installed_again_even_if_nothing_changed(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(pair(gate=False, inject_us=0))
    house.report(1, [0, 0, 0, 100_000, 0, None])
    for n in range(6):  # slow, and computing otherwise than its profile says
        house.report(2, [0, n, n * 130_000, 130_000, 0, 40_000])
    call = house.hosts.take("profile")
    assert call.args["job"] == 2
    call.answer(**MEASURED)
    paused = house.hosts.take("schedule", "a").args
    assert (paused["job"], paused["schedule"]["pause_seq"]) == (2, FIRST_PAUSE)
    assert house.posted.items == []


def test_alerts_hear_of_a_job_that_cannot_be_kept_in_its_slot(house: House) -> None:
    house.run(1)
    house.run(2)
    house.see(pair(gate=False, inject_us=0, cushion_us=0))
    house.report(1, *([0, n, n * 100_000, 100_000, 0, None] for n in range(10)))
    for begin in (0, 100):
        # somebody else is in its way: communication takes longer, computing does not
        house.report(2, *([0, n, n * 130_000, 130_000, 0, 70_000] for n in range(begin, begin + 60)))
        house.settle()
        house.clock.us += module.TURN_US
        house.settle()
        house.settle()  # looked at between two items
        why = house.regulator.standings()[2]
        house.hosts.take("profile").answer(**MEASURED)  # nothing is found: the same plan again
        house.hosts.take("profile").answer(**MEASURED)
        house.settle()
        house.report(1, *([0, n, n * 100_000, 100_000, 0, None] for n in range(begin + 20, begin + 30)))
        assert why == ("it had to be moved back again and again" if begin else None)
    house.report(2, *([0, n, n * 100_000 + 50_000, 100_000, 0, 40_000] for n in range(300, 310)))
    house.settle()
    house.clock.us += module.TURN_US
    house.settle()
    house.settle()
    assert house.regulator.standings()[2] == ""


def test_the_real_policy_pair_comes_to_rest(house: House) -> None:
    """The wiring with the product's own communication policy: contended jobs get schedules."""
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "metronome"))
    cycle = Cycle(house.state, policies)
    house.run(1, priority=100)
    house.run(2)
    cycle.step([], house.clock.us)
    assert {s.job for s in house.state.alignment.schedules} == {1, 2}
    house.see(house.state.alignment)
    house.report(1, [0, 0, 5_000, 100_000, 0, None])
    house.report(2, [0, 0, 5_000, 100_000, 0, None])
    assert house.hosts.take("schedule").args["job"] == 2


def test_jobs_that_said_how_many_iterations_they_make_are_estimated_from_their_reports(house: House) -> None:
    """Also one on a single host, which needs no regulation."""
    house.do(ev.JobSubmitted(5, builders.spec(iterations=50)), ev.JobPlaced(5, builders.placement("a")))
    house.do(ev.TasksStarted(5, 1, "a", house.clock.us, (0,)))
    house.see()
    for n in range(10):
        house.report(5, [0, n, n * 200, 200, 0, None], [1, n, n * 200, 900, 0, None])
    house.settle()
    house.clock.us += 10_000
    told = house.posted.wait(lambda e: isinstance(e, ev.JobsProgressed))
    assert [(p.job, p.attempt, p.served_us) for p in told.progress] == [(5, 1, 10_000)]
    assert told.progress[0].remaining_us == 40 * 200


def test_iterations_of_running_jobs_are_kept_however_many_there_are() -> None:
    book, many = IterationBook(), range(KEPT_JOBS + 100)
    book.see(dict.fromkeys(many))
    for job in many:
        book.entry(job, 1).add(0, 10, 0, None)
    for job in many:  # as every new plan does
        book.entry(job, 1).baseline_us = 10
    assert all(book.entry(job, 1).count == 1 for job in many)
    book.see({})
    book.entry(len(many), 1)
    assert sum(book.find(job) is not None for job in many) < KEPT_JOBS
    assert book.find(many[-1]) is not None


def test_the_regulator_keeps_what_all_running_jobs_reported(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterations, "KEPT_JOBS", 1)
    jobs = range(1, 5)
    for job in jobs:
        house.run(job, traffic=None)
    house.see()
    for job in jobs:
        house.report(job, [0, 0, 0, 100, 0, None])
    house.settle()
    assert [house.regulator.recent(job) for job in jobs] == [[(0, 100)]] * len(jobs)


def test_a_flood_of_reports_takes_one_bounded_turn_at_a_time(house: House) -> None:
    """Else a host that says more than the regulator can take fills the daemon's memory, and no report of
    another job is heard for minutes."""
    house.run(1)
    house.run(2)
    house.see(pair())
    flood = [[0, n, 10**12 + n, 100_000, 0, None] for n in range(16_384)]
    for _ in range(4):
        house.report(1, *flood)
    house.report(2, [0, 1, 10**12, 100_000, 0, None])
    house.settle()
    assert house.regulator.of(2)["count"] == 1
    assert 0 < house.regulator.of(1)["count"] <= 4 * reporting.WAITING_MAX


def test_of_what_waits_the_newest_reports_are_kept() -> None:
    due: list[int] = []
    reports = reporting.Reports(due.append)
    for n in range(3 * reporting.WAITING_MAX):
        reports.add("a", Iterations(job=1, attempt=2, items=[(0, n, n, 1, 0, None), (1, n, n, 1, 0, None)]))
    reports.add("b", Iterations(job=3, attempt=1, items=[(0, 7, 7, 1, 0, None)]))
    reports.add("b", Iterations(job=1, attempt=1, items=[(0, 0, 0, 1, 0, None)]))
    assert due == [1, 3]  # each job has one turn
    host, job, attempt, items = reports.take(1) or pytest.fail("nothing waits")
    assert (host, job, attempt) == ("a", 1, 2)
    assert [number for _, number, *_ in items] == [
        *range(2 * reporting.WAITING_MAX, 3 * reporting.WAITING_MAX)
    ]
    reports.add("a", Iterations(job=1, attempt=2, items=[(0, 9, 9, 1, 0, None)]))
    assert due == [1, 3, 1]


def test_a_job_has_a_bounded_rate_of_reports() -> None:
    """However fast the regulator takes them."""
    now_s = 0.0
    reports = reporting.Reports(lambda job: None, lambda: now_s)

    def flood() -> int:
        taken = 0
        for n in range(2 * reporting.BURST):
            reports.add("a", Iterations(job=1, attempt=1, items=[(0, n, n, 1, 0, None)]))
            found = reports.take(1)
            taken += len(found.items) if found is not None else 0
        return taken

    assert flood() == reporting.BURST
    now_s += 1
    assert flood() == reporting.PER_S
