"""For how long jobs wait for what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.cli.usage import WAITS
from rm.core.jobs import events as ev
from rm.core.jobs.state import rebuild
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.waited import NONE, total_us, waits_since_us, with_more
from rm.core.scheduling import cycle as cycles
from rm.core.scheduling import waiting
from rm.core.sharing.ended import Ended, Sums, ended_parts
from rm.core.sharing.waits import by_kind, kind_of
from tests import builders
from tests.command_line import Rmx
from tests.examples import examples
from tests.fake_service import Daemon
from tests.unit.test_job_arrays import Cluster
from tests.unit.test_usage_sums import job_on

SECOND_US = 1_000_000
LIMITED = {"time_limit_us": 60 * SECOND_US}


def test_a_clock_that_is_set_is_no_time_that_a_job_waited() -> None:
    cluster = Cluster(cpus=1)
    first, second = cluster.submit(""), cluster.submit("")
    cluster.now_us += 100
    before = waited_of(cluster, second)
    for by_us in (3600 * SECOND_US, -1800 * SECOND_US):
        cluster.now_us += by_us
        cluster.do(ev.ClockStepped(by_us))
        assert waited_of(cluster, second) == pytest.approx(
            before, abs=1000
        )  # each event takes some microseconds
    cluster.now_us += 10_000
    cluster.end(cluster.state.jobs[first])
    assert dict(cluster.state.jobs[second].waited)["Resources"] == pytest.approx(
        before["Resources"] + 10_000, abs=1000
    )


def waited_of(cluster: Cluster, number: int) -> dict[str, int]:
    return dict(cluster.state.waits.of(cluster.state.jobs[number], cluster.now_us))


def test_each_reason_has_the_time_for_which_it_kept_a_job() -> None:
    cluster = Cluster(cpus=1)
    first = cluster.submit("")
    second = cluster.submit("")
    submitted_us = cluster.now_us
    cluster.now_us += 100
    cluster.do(ev.HoldRequested(second, "alice"))
    held_us = cluster.now_us
    cluster.now_us += 1000
    cluster.do(ev.ReleaseRequested(second, "alice"))
    released_us = cluster.now_us
    by_resources = held_us - submitted_us
    by_hold = released_us - held_us
    assert waited_of(cluster, second) == {"Resources": by_resources, "JobHeldUser": by_hold}
    cluster.now_us += 10_000
    cluster.end(cluster.state.jobs[first])
    job = cluster.state.jobs[second]
    assert job.state is JobState.CONFIGURING
    last = cluster.now_us - released_us
    assert dict(job.waited) == {"Resources": by_resources + last, "JobHeldUser": by_hold}
    assert second not in cluster.state.waits.now
    assert second not in cluster.state.waits.before


def test_what_was_waited_for_before_is_in_the_record_after_a_takeover() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("")
    held = cluster.submit("", hold=True)
    submitted_us = cluster.now_us
    cluster.now_us += 1000
    cluster.do(ev.ReleaseRequested(held, "alice"))
    released_us = cluster.now_us
    state = cluster.state
    assert dict(state.jobs[held].waited) == {"JobHeldUser": released_us - submitted_us}
    hosts, zones = state.hosts.values(), state.zones.values()
    cluster.cycle.state = rebuild(state.jobs.values(), hosts, zones, {}, state.next_job, 99, cluster.now_us)
    cluster.cycle.start_over(aligned=False)
    cluster.now_us += 500
    cluster.do()
    found = waited_of(cluster, held)
    assert found.pop("JobHeldUser") == released_us - submitted_us
    assert sum(found.values()) == cluster.now_us - released_us  # for what the new leader found first


def test_elements_have_waited_as_their_array_and_again_by_themselves() -> None:
    cluster = Cluster(cpus=1)
    other = cluster.submit("", hold=True)
    array = cluster.submit("0-1")
    submitted_us = cluster.now_us
    cluster.now_us += 700
    cluster.end(cluster.job(array, 0))
    element = cluster.job(array, 1)
    assert element.waited == (("Resources", cluster.now_us - submitted_us),)
    cluster.do(ev.ReleaseRequested(other, "alice"))
    cluster.do(ev.RequeueRequested(element.id, "alice"))
    cluster.end(cluster.job(array, 1))
    again = cluster.job(array, 1)
    assert (again.state, again.waited) == (JobState.PENDING, ())
    assert cluster.state.jobs[other].state is JobState.CONFIGURING
    ended_us = waits_since_us(again)
    cluster.now_us += 300
    cluster.end(cluster.state.jobs[other])
    assert total_us(cluster.job(array, 1).waited) == cluster.now_us - ended_us


def test_a_job_that_never_ran_has_waited_until_it_was_cancelled() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("")
    job = cluster.submit("")
    submitted_us = cluster.now_us
    cluster.do(ev.CancelRequested(job, "alice"))
    assert cluster.state.jobs[job].waited == (("Resources", cluster.now_us - submitted_us),)


def test_a_step_writes_few_records_and_later_ones_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "WAITS_WRITTEN", 2)
    cluster = Cluster(cpus=1)
    cluster.submit("")
    jobs = [cluster.submit("", hold=True) for _ in range(5)]
    out = cluster.do(*(ev.ReleaseRequested(job, "alice") for job in jobs))
    assert len(out.recorded) == 5
    written = [sum(bool(cluster.state.jobs[job].waited) for job in jobs)]
    for _ in range(2):
        assert len(cluster.do().changes.jobs) <= 2
        written.append(sum(bool(cluster.state.jobs[job].waited) for job in jobs))
    assert written == [2, 4, 5]
    assert cluster.do().changes.jobs == set()


KINDS = ("submit", "hold", "release", "begin", "after", "array", "end", "cancel", "requeue", "wait")
STEP = st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 5_000))


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(STEP, max_size=30), st.sampled_from(("fifo", "backfill")), st.sampled_from((0, 100)))
def test_the_times_add_up_to_the_wait(steps: list[tuple[str, int, int]], queue: str, few: int) -> None:
    """In any order of events, whichever way the reasons were noted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(waiting, "FEW", few)
        cluster = Cluster(queue=queue)
        for what, number, wait_us in steps:
            cluster.now_us += wait_us
            _take(cluster, what, number)
            for job in cluster.state.jobs.values():
                _adds_up(cluster, job)
                reason = cluster.cycle.reason_of(job)
                if job.state is JobState.PENDING and reason is not None:
                    assert cluster.state.waits.now[job.id][0] is reason.code
        assert set(cluster.state.waits.now) <= set(cluster.state.pending)


def _take(cluster: Cluster, what: str, number: int) -> None:
    jobs = cluster.state.jobs
    more: dict[str, dict[str, Any]] = {
        "submit": {},
        "begin": {"begin_us": cluster.now_us + 2_000},
        "after": {"dependency": f"afterany:{number}"} if number in jobs else {},
    }
    if what in more:
        cluster.submit("", **LIMITED, **more[what], cpus_per_task=1 + number % 2)
    elif what == "array":
        cluster.submit("0-2%2", **LIMITED)
    elif what == "end":
        placed = list(cluster.state.placed)
        if placed:
            cluster.end(jobs[placed[number % len(placed)]])
    elif what != "wait" and jobs:
        job = list(jobs)[number % len(jobs)]
        asked = {
            "hold": ev.HoldRequested(job, "alice"),
            "release": ev.ReleaseRequested(job, "alice"),
            "cancel": ev.CancelRequested(job, "alice"),
            "requeue": ev.RequeueRequested(job, "alice"),
        }
        cluster.do(asked[what])
    else:
        cluster.do()


def _adds_up(cluster: Cluster, job: Job) -> None:
    if job.array is not None and job.state is not JobState.PENDING:
        return  # its elements have waited
    waited_us = total_us(cluster.state.waits.of(job, cluster.now_us))
    if job.state is JobState.PENDING:
        assert waited_us == cluster.now_us - waits_since_us(job)
    else:
        over = "placed on" if job.tasks else "cancelled"
        over_us = [at_us for at_us, what in job.history if what.startswith(over)][-1]
        assert waited_us == over_us - waits_since_us(job)


def test_a_clock_that_steps_back_takes_nothing_away() -> None:
    assert with_more((("Priority", 5),), "Priority", -3) == (("Priority", 5),)
    cluster = Cluster(cpus=1)
    cluster.submit("")
    job = cluster.submit("")
    cluster.now_us -= 50
    assert waited_of(cluster, job) == {}


def test_show_says_for_what_a_job_waited(rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--wrap=true")
    waited = (("Resources", 600 * SECOND_US), ("Priority", 4800 * SECOND_US), ("BeginTime", 10))
    daemon.service.put(1, waited=waited)
    (line,) = [line for line in rmx("show", "1").out.splitlines() if line.startswith("Waited:")]
    assert line.split(maxsplit=1)[1] == "1:30:00: 1:20:00 Priority, 10:00 Resources"
    assert replace(builders.job(1), waited=waited).waited == waited


def test_the_account_of_usage_loses_no_wait_and_knows_every_code() -> None:
    waited = tuple((code.value, number + 1) for number, code in enumerate(ReasonCode))
    kinds = by_kind((*waited, (NONE, 1000)))
    assert sum(kinds.values()) == total_us(waited) + 1000
    assert set(kinds) == set(WAITS) <= set(Sums._fields)
    of = {code: kind_of(code) for code in ReasonCode}
    assert {of[ReasonCode.ASSOC_GPUS], of[ReasonCode.QOS_USER_JOBS], of[ReasonCode.PARTITION_TIME]} == {
        "limits"
    }
    assert of[ReasonCode.PARTITION_DOWN] == of[ReasonCode.RESERVATION] == kind_of(NONE) == "other"


def test_an_ended_job_counts_with_what_it_waited_for_on_its_first_host_alone() -> None:
    waited = (("Resources", 5), ("ReqNodeNotAvail", 2), ("Priority", 3), ("BeginTime", 9))
    first, second = ended_parts(job_on("h1", "h2", waited=waited), {})
    of_job = first.of_job
    assert (of_job.waited_resources_us, of_job.waited_priority_us, of_job.waited_begin_us) == (7, 3, 9)
    assert second.of_job == Sums()


def test_usage_shows_what_accounts_waited_for(rmx: Rmx, daemon: Daemon) -> None:
    waits = {"waited_resources_us": 3600 * SECOND_US, "waited_limits_us": 60 * SECOND_US}
    of_job = Sums(jobs=1, **waits)
    daemon.service.ended += [
        Ended(5, f"of_{user}", user, "normal", "main", "h1", of_job, Sums()) for user in ("ann", "bob")
    ]
    lines = rmx("usage", "--waits", "--from=1970-01-01", "--to=1970-01-03").out.splitlines()
    kinds = ["RESOURCES", "PRIORITY", "DEPENDENCY", "HELD", "BEGIN", "LIMITS", "LICENSES", "NETWORK", "OTHER"]
    assert lines[1].split() == ["ACCOUNT", "JOBS", *kinds]
    assert lines[-1].split()[:3] == ["all", "2", "2:00:00"]
    assert lines[-1].split()[7] == "2:00"
