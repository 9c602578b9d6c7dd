"""What ended attempts count for, how that is added up and asked for, and `rmx usage`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.api import jobs as api
from rm.api.usage import UsageLine
from rm.cli.usage import SUMS
from rm.core.jobs import events as ev
from rm.core.model.job import Job, JobState, Task
from rm.core.model.used import HostUsed, NetworkUsed, Used, together
from rm.core.sharing.ended import DAY_US, HOUR_US, WAIT_KINDS, Ended, Heap, Sums, added_up, ended_parts
from rm.core.sharing.usage_query import Asked, answer, asked
from rm.daemon.services.usage_service import HOURS_KEPT_US
from rm.daemon.services.usage_totals import ACCOUNTS_MOST, UsageTotals
from rm.errors import UsageError
from rm.protocol import used as protocol
from rm.web.metric_families import Told, families
from tests import builders
from tests.agent_process import AGENTS
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.unit.test_job_arrays import Cluster

sys.path.insert(0, str(AGENTS))
import rm_gpu_used
import rm_used

SECOND_US = 1_000_000
GIB = 1 << 30
USED = Used(3_000_000, 1_000_000, GIB, 2 * GIB, 100, 200)


def job_on(*hosts: str, **more: object) -> Job:
    """It ran for 10 s with two processors and one GPU on each host; its tasks ended at 20 s."""
    spec = builders.spec(ntasks=len(hosts), cpus_per_task=2, mem_bytes_per_task=4 * GIB, gpus_per_task=1)
    tasks = tuple(
        Task(rank, host, (rank % 2,), started_us=10 * SECOND_US, ended_us=20 * SECOND_US)
        for rank, host in enumerate(hosts)
    )
    made = Job(1, spec, 4 * SECOND_US, tasks=tasks, started_us=10 * SECOND_US, account="a", qos="q")
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_job_counts_once_and_on_each_host_with_what_it_held_there() -> None:
    used = (HostUsed("h1", -1, replace(USED, gpu_us=8, gpu_busy_us=2, energy_mj=7)),)
    first, second = ended_parts(job_on("h1", "h2", used=used), {})
    assert (first.ended_us, first.account, first.qos, first.host) == (20 * SECOND_US, "a", "q", "h1")
    assert first.of_job == Sums(jobs=1, elapsed_us=10 * SECOND_US, waited_us=6 * SECOND_US)
    assert first.on_host == Sums(
        cpu_us=20 * SECOND_US, cpu_watched_us=20 * SECOND_US, cpu_busy_us=4_000_000, mem_mib_s=40_960,
        gpu_us=10 * SECOND_US, gpu_watched_us=8, gpu_busy_us=2, energy_mj=7, read_bytes=100,
        written_bytes=200,
    )  # fmt: skip
    assert second.of_job == Sums()
    # its host has told nothing: that is no time in which nothing was busy
    assert second.on_host == Sums(cpu_us=20 * SECOND_US, mem_mib_s=40_960, gpu_us=10 * SECOND_US)


def test_the_tasks_of_a_large_job_are_not_gone_through_for_each_host() -> None:
    gone_through = 0

    class Tasks(tuple[Task, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Task]:
            nonlocal gone_through
            gone_through += 1
            return super().__iter__()

    job = job_on(*(f"h{number % 100}" for number in range(400)))
    parts = ended_parts(replace(job, tasks=Tasks(job.tasks)), {})
    assert [part.host for part in parts] == [f"h{number}" for number in range(100)]
    assert {part.on_host.cpu_us for part in parts} == {80 * SECOND_US}
    assert gone_through <= 3


def test_time_that_it_stood_still_does_not_count_as_held() -> None:
    (part,) = ended_parts(job_on("h1", stood_us=4 * SECOND_US), {})
    assert part.of_job.elapsed_us == 6 * SECOND_US
    assert part.on_host.cpu_us == 12 * SECOND_US


def test_a_host_tells_of_no_more_than_it_could_have_done_in_the_time() -> None:
    lie = Used(1 << 53, 1 << 53, gpu_us=1 << 53, gpu_busy_us=1 << 53)
    hosts = {"h1": builders.host("h1", cpus=64, gpus=8)}
    (part,) = ended_parts(job_on("h1", used=(HostUsed("h1", -1, lie),)), hosts)
    assert part.on_host.cpu_busy_us == 640 * SECOND_US  # a job may have more than it asked for
    assert (part.on_host.gpu_watched_us, part.on_host.gpu_busy_us) == (10 * SECOND_US, 10 * SECOND_US)


def test_an_exclusive_job_holds_all_of_its_host() -> None:
    hosts = {"h1": builders.host("h1", cpus=64, gpus=8)}
    job = job_on("h1")
    (part,) = ended_parts(replace(job, spec=replace(job.spec, exclusive=True)), hosts)
    assert part.on_host.cpu_us == 640 * SECOND_US
    assert part.on_host.gpu_us == 80 * SECOND_US


@pytest.mark.parametrize(
    ("ending", "counts"),
    [
        (None, (1, 0, 0)),
        (JobState.COMPLETED, (1, 0, 0)),
        (JobState.TIMEOUT, (1, 1, 0)),
        (JobState.PENDING, (0, 0, 1)),
    ],
)
def test_how_it_ended_is_counted(ending: JobState | None, counts: tuple[int, int, int]) -> None:
    (part,) = ended_parts(job_on("h1", ending=ending), {})
    assert part.of_job[:3] == counts


def test_what_never_ran_counts_nothing() -> None:
    assert ended_parts(job_on("h1", started_us=None), {}) == ()


def test_of_all_hosts_together_the_memory_is_the_largest() -> None:
    lines = (
        HostUsed("h1", -1, USED),
        HostUsed("h2", -1, replace(USED, mem_bytes=5)),
        HostUsed("h1", 0, replace(USED, user_us=99)),
    )
    whole = together(lines)
    assert whole is not None
    assert (whole.user_us, whole.mem_bytes, whole.read_bytes) == (6_000_000, GIB, 200)
    assert together(lines[2:]) is None


# -- over the core


def test_the_end_of_tasks_is_kept_with_what_they_used_and_counted_once() -> None:
    cluster = Cluster()
    job = cluster.submit("", ntasks=2)
    attempt = cluster.state.jobs[job].attempt
    cluster.do(ev.TasksStarted(job, attempt, "h1", cluster.now_us, (0, 1)))
    own = replace(USED, user_us=1)
    cluster.now_us += 10 * SECOND_US
    at_us = cluster.now_us
    cluster.do(ev.TaskExited(job, attempt, "h1", 0, 0, 0, None, at_us, used=own))
    last = ev.TaskExited(job, attempt, "h1", 1, 0, 0, None, at_us, used=own, whole=USED)
    out = cluster.do(last)
    told = (HostUsed("h1", 0, own), HostUsed("h1", 1, own), HostUsed("h1", -1, USED))
    assert cluster.state.jobs[job].used == told
    (part,) = out.changes.ended
    assert part.on_host.cpu_busy_us == 4_000_000
    assert cluster.do(last).changes.ended == []


def test_an_attempt_that_a_requeue_follows_is_counted_and_its_job_begins_anew() -> None:
    cluster = Cluster()
    job = cluster.submit("")
    attempt = cluster.state.jobs[job].attempt
    cluster.do(ev.TasksStarted(job, attempt, "h1", cluster.now_us, (0,)))
    cluster.do(ev.RequeueRequested(job, "root"))
    out = cluster.do(
        ev.TaskExited(job, attempt, "h1", 0, 0, 15, None, cluster.now_us, why="abort", whole=USED)
    )
    (part,) = out.changes.ended
    assert (part.of_job.jobs, part.of_job.requeued, part.on_host.read_bytes) == (0, 1, 100)
    assert cluster.state.jobs[job].used == ()


# -- added up

names = st.sampled_from(["", "a", "b"])
counts = st.integers(0, 1 << 40)
parts = st.lists(
    st.builds(
        Ended,
        st.integers(0, 5 * DAY_US), names, names, names, names, st.sampled_from(["h1", "h2"]),
        st.builds(Sums, jobs=st.integers(0, 1), elapsed_us=counts), st.builds(Sums, cpu_us=counts),
    ),
    max_size=20,
)  # fmt: skip
hours = st.integers(0, 5 * 24)


@given(
    parts,
    hours,
    hours,
    st.sampled_from([("account",), ("user", "qos"), ("host",), ("day",), ("host", "day")]),
)
def test_nothing_is_lost_or_doubled(some: list[Ended], first: int, last: int, by: tuple[str, ...]) -> None:
    """Whatever the time is cut into: all lines together are what ended in it."""
    first, last = sorted((first, last))
    what = Asked(by, first * HOUR_US, (last + 1) * HOUR_US)
    lines = answer(what, added_up(some))
    there = [part for part in some if what.since_us <= part.ended_us < what.until_us]
    total = Sums()
    for part in there:
        total = total.plus(part.of_job.plus(part.on_host))
    found = Sums()
    for _, sums in lines:
        found = found.plus(sums)
    assert found == total
    assert len({heap for heap, _ in lines}) == len(lines)


def test_whole_days_are_read_as_days() -> None:
    what = Asked(("user",), 22 * HOUR_US, 3 * DAY_US + 2 * HOUR_US)
    assert what.spans() == [
        (HOUR_US, 22 * HOUR_US, DAY_US),
        (DAY_US, DAY_US, 3 * DAY_US),
        (HOUR_US, 3 * DAY_US, 3 * DAY_US + 2 * HOUR_US),
    ]
    assert Asked(("user",), HOUR_US, 2 * HOUR_US).spans() == [(HOUR_US, HOUR_US, 2 * HOUR_US)]


def test_the_time_is_of_whole_hours_and_of_days_where_hours_are_forgotten() -> None:
    what = asked(["user"], DAY_US + 90, 2 * DAY_US + 1, [], 0, 0)
    assert (what.since_us, what.until_us) == (DAY_US, 2 * DAY_US + HOUR_US)
    old = asked(["user"], DAY_US + HOUR_US, 2 * DAY_US + HOUR_US, [], 9 * DAY_US, 0)
    assert (old.since_us, old.until_us) == (DAY_US, 3 * DAY_US)


@pytest.mark.parametrize(
    ("by", "only", "words"),
    [
        (["colour"], [], "cannot be shown by 'colour'"),
        (["host", "user"], [], "not for both: user and host"),
        (["host"], [("account", "a")], "not for both: account and host"),
        (["user"], [("host", "h1")], "not for both: user and host"),
    ],
)
def test_what_cannot_be_asked_is_refused(by: list[str], only: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked(by, 0, DAY_US, only, 0, 0)


def test_a_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="ends before it begins"):
        asked([], 2 * DAY_US, DAY_US, [], 0, 0)
    assert HOURS_KEPT_US > 31 * DAY_US  # a month by the hour


def test_what_is_forgotten_is_not_in_the_time_that_is_answered() -> None:
    """Or a sum of the days that are left would stand for the whole time."""
    what = asked([], 0, 30 * DAY_US, [], 20 * DAY_US, 10 * DAY_US + HOUR_US)
    assert (what.since_us, what.until_us) == (11 * DAY_US, 30 * DAY_US)
    assert asked([], 12 * DAY_US, 30 * DAY_US, [], 0, 11 * DAY_US).since_us == 12 * DAY_US
    with pytest.raises(UsageError, match="forgotten") as refusal:
        asked([], 0, 11 * DAY_US, [], 20 * DAY_US, 11 * DAY_US)
    assert "after 1970-01-12" in (refusal.value.hint or "")


# -- the command


def ended(user: str, host: str = "h1", at_us: int = HOUR_US, **more: int) -> Ended:
    of_job = Sums(jobs=1, elapsed_us=HOUR_US, waited_us=90 * SECOND_US)
    on_host = Sums(
        cpu_us=4 * HOUR_US, cpu_watched_us=4 * HOUR_US, cpu_busy_us=HOUR_US, mem_mib_s=2 * 1024 * 3600
    )
    return Ended(at_us, f"of_{user}", user, "normal", "main", host, of_job, on_host.plus(Sums(**more)))


@pytest.fixture
def used(daemon: Daemon) -> None:
    gpus = {"gpu_us": 2 * HOUR_US, "gpu_watched_us": 2 * HOUR_US, "gpu_busy_us": HOUR_US}
    daemon.service.ended = [
        ended("ann", read_bytes=GIB),
        ended("ann", "h2"),
        ended("bob", at_us=DAY_US, **gpus),
    ]


def test_usage_is_a_table_with_all_together(rmx: Rmx, used: None) -> None:
    lines = rmx("usage", "--from=1970-01-01", "--to=1970-01-03").out.splitlines()
    assert lines[0] == "Jobs that ended from 1970-01-01T00:00:00 to 1970-01-03T00:00:00"
    header, *rows = (line.split() for line in lines[1:])
    assert header == [
        "ACCOUNT", "JOBS", "FAILED", "WAITED", "CPU-H", "BUSY", "GIB-H", "GPU-H", "GPU-BUSY", "KWH", "READ",
        "WRITTEN",
    ]  # fmt: skip
    assert [row[:5] for row in rows] == [
        ["of_ann", "2", "0", "1:30", "8.0"],
        ["of_bob", "1", "0", "1:30", "4.0"],
        ["all", "3", "0", "1:30", "12.0"],
    ]
    assert rows[0][5:] == ["25", "%", "4.0", "0.0", "-", "0.0", "1", "GiB", "0", "B"]
    assert rows[1][8:11] == ["2.0", "50", "%"]


def test_more_than_all_processors_held_is_explained(rmx: Rmx, daemon: Daemon, used: None) -> None:
    words = ("usage", "--from=1970-01-01", "--to=1970-01-03")
    assert rmx(*words).err == ""
    daemon.service.ended = [ended("ann", cpu_busy_us=31 * HOUR_US)]
    told = rmx(*words)
    assert "800 %" in told.out
    assert "BUSY is over 100 % where hosts let jobs have more processors than they held." in told.err


def test_usage_says_what_is_forgotten(rmx: Rmx, daemon: Daemon, used: None) -> None:
    daemon.service.forgotten_us = DAY_US
    told = rmx("usage", "--from=1970-01-01", "--to=1970-01-03")
    assert told.out.splitlines()[0] == "Jobs that ended from 1970-01-02T00:00:00 to 1970-01-03T00:00:00"
    assert "What ended before 1970-01-02T00:00:00 is forgotten: rm.toml's jobs.usage_days" in told.err
    told = rmx("usage", "--from=1970-01-01", "--to=1970-01-02")
    assert (told.code, "What was used then is forgotten" in told.err) == (2, True)


def test_usage_by_host_and_day_of_some_time(rmx: Rmx, used: None) -> None:
    out = rmx("usage", "--by=day,host", "--from=1970-01-01", "--to=1970-01-02", "--csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["day"], row["host"], row["jobs"]) for row in rows] == [
        ("1970-01-01", "h1", "1"),
        ("1970-01-01", "h2", "1"),
    ]


def test_usage_of_one_user_as_json(rmx: Rmx, used: None) -> None:
    found = json.loads(rmx("usage", "--by=user,qos", "--user=bob", "--from=1970-01-01", "--json").out)
    (line,) = found["lines"]
    assert (line["user"], line["qos"], line["gpu_busy_us"]) == ("bob", "normal", HOUR_US)


def test_usage_cannot_be_two_things_at_once(rmx: Rmx, daemon: Daemon) -> None:
    assert "mutually exclusive" in rmx("usage", "--csv", "--json").err
    assert "cannot be shown by 'week'" in rmx("usage", "--by=week").err


def test_heaps_are_in_the_order_of_their_names() -> None:
    assert sorted([Heap(0, 0, "b"), Heap(0, 0, "a", "z")]) == [Heap(0, 0, "a", "z"), Heap(0, 0, "b")]


def test_prometheus_has_counters_of_each_account(daemon: Daemon, used: None) -> None:
    told = Told(accounts=daemon.service.totals())
    found = {
        (sample.name, sample.labels["account"]): sample.value
        for family in families(told)
        for sample in family.samples
        if "account" in sample.labels and "kind" not in sample.labels
    }
    assert found["rm_account_jobs_ended_total", "of_ann"] == 2
    assert found["rm_account_waited_seconds_total", "of_bob"] == 90
    assert found["rm_account_cpu_held_seconds_total", "of_ann"] == 8 * 3600
    assert found["rm_account_cpu_used_seconds_total", "of_ann"] == 2 * 3600
    assert found["rm_account_gpu_busy_seconds_total", "of_bob"] == 3600
    assert found["rm_account_gpu_busy_seconds_total", "of_ann"] == 0
    totals = {"physics": Sums(waited_network_us=90 * SECOND_US)}
    waits = {
        sample.labels["kind"]: sample.value
        for family in families(Told(accounts=totals))
        for sample in family.samples
        if sample.name == "rm_account_waited_for_seconds_total"
    }
    assert waits == {**dict.fromkeys(WAIT_KINDS, 0), "network": 90}


def test_there_is_no_end_of_series() -> None:
    totals = UsageTotals()
    totals.add([ended(f"user{n}") for n in range(ACCOUNTS_MOST + 5)])
    totals.add([ended("user0")])
    assert len(totals.now()) == ACCOUNTS_MOST
    assert totals.now()["of_user0"].jobs == 2


def test_the_sums_are_the_same_everywhere() -> None:
    assert Sums._fields == SUMS
    names = {field.name for field in msgspec.structs.fields(UsageLine)}
    assert names == {*Sums._fields, "account", "user", "qos", "partition", "host", "day_us"}


def test_what_is_measured_is_the_same_everywhere() -> None:
    told = (*rm_used.KEYS, *rm_gpu_used.KEYS, "network")
    assert tuple(field.name for field in fields(NetworkUsed)) == rm_used.NETWORK
    assert told == tuple(field.name for field in fields(Used))
    for wire in (protocol.Used, api.Used):
        assert told == tuple(field.name for field in msgspec.structs.fields(wire))
