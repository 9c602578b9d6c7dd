"""Reservations of hosts in the pure core: who may run there and when, and what their windows do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.jobs.actions import SetLimit
from rm.core.jobs.changes import Changes
from rm.core.journal.restoring import documents_of, reservations_in
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.scheduling.explaining import explain, never_fits
from rm.core.sharing.accounts import Account, Member, checked
from rm.core.store import Loaded
from tests import builders
from tests.unit.test_job_arrays import Cluster

S = JobState
SECOND = 1_000_000


class Reserving(Cluster):
    """Whose clock is told, and whose jobs end with their time limit; after each step it is checked that
    nothing runs where and when it may not."""

    def __init__(self, **options: Any) -> None:
        self._ready = False
        super().__init__(**options)
        self.now_us = 0
        self._ready = True

    def do(self, *events: ev.Event) -> Any:
        out = super().do(*events)
        if self._ready:
            self.check()
        return out

    def at(self, now_us: int) -> None:
        """Let the time pass: what is due in between happens at its time."""
        while True:
            due = self.cycle.next_due_us()
            ends = [ends_us for _, ends_us in self.limits()]
            times = [t for t in ([] if due is None else [due]) + ends if self.now_us < t <= now_us]
            if not times:
                break
            self.now_us = min(times) - 10  # a step takes these
            over = [job for job, ends_us in self.limits() if ends_us <= min(times)]
            exits = [
                ev.TaskExited(j.id, j.attempt, t.host, t.rank, 0, 0, self.now_us, self.now_us)
                for j in over for t in j.tasks
            ]  # fmt: skip
            self.do(*(exits or [ev.Tick()]))
            self.start()
        self.now_us = now_us - 10
        self.do(ev.Tick())

    def start(self) -> None:
        """What was placed runs, as its hosts say."""
        placed = [job for job in self.state.jobs.values() if job.state is S.CONFIGURING]
        ranks = [(job, t.host, t.rank) for job in placed for t in job.tasks]
        told = [ev.TasksStarted(j.id, j.attempt, host, self.now_us, (rank,)) for j, host, rank in ranks]
        if told:
            self.do(*told)

    def limits(self) -> list[tuple[Job, int]]:
        """(a placed job, when its time is over)"""
        found = []
        for job in self.state.jobs.values():
            limit_us = job.allowed_us or job.spec.time_limit_us
            if job.occupies and limit_us is not None:
                placed_us = next(at_us for at_us, what in reversed(job.history) if what.startswith("placed"))
                found.append((job, placed_us + limit_us))
        return found

    def reserve(self, name: str = "r", hosts: tuple[str, ...] = ("h1",), **more: Any) -> None:
        self.do(ev.ReservationSet(HostReservation(name, hosts, **more)))

    def check(self) -> None:
        for job in self.state.jobs.values():
            if not job.occupies:
                continue
            for one in self.state.reservations.values():
                is_open = any(a <= self.now_us < b for a, b in one.windows)
                for task in job.tasks:
                    if is_open and task.host in one.hosts:
                        assert job.spec.reservation == one.name, f"{job.id} runs in {one.name}"
                    if job.spec.reservation == one.name:
                        assert is_open, f"{job.id} runs outside of {one.name}"
                        assert task.host in one.hosts

    def why(self, number: int) -> Reason:
        reason = self.cycle.reason_of(self.state.jobs[number])
        assert reason is not None
        return reason

    def states(self, *numbers: int) -> list[JobState]:
        return [self.state.jobs[number].state for number in numbers]


def limited(seconds: float | None, **more: Any) -> dict[str, Any]:
    return {"time_limit_us": None if seconds is None else round(seconds * SECOND), **more}


def test_a_job_starts_before_a_window_only_if_its_time_limit_ends_it_by_then() -> None:
    cluster = Reserving(cpus=8)
    cluster.reserve(windows=((100 * SECOND, 200 * SECOND),), users=("ann",))
    short, long, endless = (cluster.submit("", **limited(s)) for s in (99, 150, None))
    assert cluster.states(short, long, endless) == [S.CONFIGURING, S.PENDING, S.PENDING]
    job = cluster.state.jobs[long]
    found = explain(job, cluster.state.snapshot(cluster.now_us), cluster.cycle.policies, cluster.cycle.tuning)
    assert found[2][0].refused is not None
    assert "reservation r" in found[2][0].refused.message
    cluster.at(150 * SECOND)
    assert cluster.states(short, long) == [S.COMPLETED, S.PENDING]
    cluster.at(200 * SECOND)
    assert cluster.states(long, endless) == [S.RUNNING, S.RUNNING]
    assert not cluster.state.reservations, "it is over, and was not to come again"


@pytest.mark.parametrize(
    ("users", "accounts", "runs"),
    [
        ((), ("science",), ["ann physics", "bob physics"]),
        ((), ("physics", "chess"), ["ann physics", "ann chess", "bob physics"]),
        (("ann",), ("science",), ["ann physics"]),
        (("ann",), (), ["ann physics", "ann chess"]),
        (("eve",), ("chess",), []),
    ],
)
def test_a_reservation_may_be_for_accounts_and_those_below_them(users, accounts, runs) -> None:
    cluster = Reserving(cpus=8)
    pairs = [("physics", "ann"), ("chess", "ann"), ("physics", "bob")]
    tree = checked(
        [Account("science"), Account("physics", "science"), Account("chess")],
        [Member(account, user) for account, user in pairs],
    )
    cluster.do(ev.AccountsSet(tree, "root"))
    cluster.reserve(windows=((0, 200 * SECOND),), users=users, accounts=accounts)
    jobs = {
        f"{user} {account}": cluster.submit("", user=user, account=account, reservation="r", **limited(60))
        for account, user in pairs
    }
    assert [name for name, job in jobs.items() if cluster.state.jobs[job].occupies] == [
        name for name in jobs if name in runs
    ]
    for name, job in jobs.items():
        if name not in runs:
            assert "is not for" in cluster.why(job).message


def test_jobs_of_a_reservation_run_in_its_window_on_its_hosts() -> None:
    cluster = Reserving(hosts=2, cpus=2)
    cluster.reserve(windows=((100 * SECOND, 200 * SECOND),), users=("ann",), hosts=("h2",))
    mine = cluster.submit("", user="ann", reservation="r", **limited(60))
    other = cluster.submit("", user="bob", reservation="r", **limited(60))
    endless = cluster.submit("", user="ann", reservation="r")
    assert (cluster.why(mine).code, cluster.why(other).code) == (ReasonCode.RESERVATION,) * 2
    assert "begins at 1970-01-01 00:01:40" in cluster.why(mine).message
    assert "is not for bob" in cluster.why(other).message
    cluster.at(100 * SECOND)
    assert cluster.states(mine, other, endless) == [S.RUNNING, S.PENDING, S.RUNNING]
    assert {task.host for task in cluster.state.jobs[mine].tasks} == {"h2"}
    assert cluster.state.jobs[endless].allowed_us == 100 * SECOND, "it ends with the window"
    cluster.at(150 * SECOND)
    late = cluster.submit("", user="ann", reservation="r", **limited(60))
    assert "before its time limit" in cluster.why(late).message
    cluster.at(201 * SECOND)
    assert "is over or was deleted" in cluster.why(late).message


def limits_sent(outcome: Any) -> list[tuple[str, int]]:
    return [(one.host, one.time_limit_us) for one in outcome.changes.actions if isinstance(one, SetLimit)]


def test_a_job_whose_reservation_is_moved_to_come_ends_as_it_would_have() -> None:
    cluster = Reserving(cpus=4)
    cluster.reserve(windows=((100 * SECOND, 200 * SECOND),), users=("ann",))
    endless = cluster.submit("", user="ann", reservation="r")
    cluster.at(120 * SECOND)
    cluster._ready = False  # it runs outside of its reservation from here on
    cluster.reserve(windows=((500 * SECOND, 600 * SECOND),), users=("ann",))
    asked = JobUpdate(time_limit_us=4_000_000 * SECOND)
    sent = limits_sent(cluster.do(ev.JobUpdated(endless, "root", asked, may_raise=True)))
    assert sent == [("h1", 100 * SECOND)]
    sent = limits_sent(cluster.do(ev.JobUpdated(endless, "ann", JobUpdate(time_limit_us=30 * SECOND))))
    assert sent == [("h1", 30 * SECOND)]


def test_jobs_that_run_end_with_their_reservation_when_its_end_is_moved() -> None:
    cluster = Reserving(hosts=2, cpus=4)
    cluster.reserve(windows=((100 * SECOND, 200 * SECOND),), users=("ann",), hosts=("h1", "h2"))
    endless = cluster.submit("", user="ann", reservation="r", ntasks=2, tasks_per_host=1)
    short = cluster.submit("", user="ann", reservation="r", **limited(60))
    other = cluster.submit("", user="bob", hosts_only=("h1",), **limited(30))
    cluster.at(100 * SECOND)
    assert cluster.states(endless, short, other) == [S.RUNNING, S.RUNNING, S.COMPLETED]
    cluster.at(120 * SECOND)

    def moved_to(ends_us: int) -> list[tuple[str, int]]:
        return limits_sent(
            cluster.do(
                ev.ReservationSet(
                    HostReservation("r", ("h1", "h2"), ((100 * SECOND, ends_us),), users=("ann",))
                )
            )
        )

    assert moved_to(300 * SECOND) == [("h1", 200 * SECOND), ("h2", 200 * SECOND), ("h1", 60 * SECOND)]
    assert cluster.state.jobs[endless].history[-1][1] == "its reservation ends at 1970-01-01 00:05:00 UTC now"
    assert moved_to(300 * SECOND) == []
    assert moved_to(150 * SECOND) == [("h1", 50 * SECOND), ("h2", 50 * SECOND), ("h1", 50 * SECOND)]
    cluster.do(ev.JobUpdated(short, "root", JobUpdate(time_limit_us=200 * SECOND), may_raise=True))
    assert cluster.state.jobs[short].allowed_us == 50 * SECOND, "its reservation's end stays"
    cluster.at(150 * SECOND)
    assert cluster.states(endless, short) == [S.COMPLETED] * 2


def test_a_job_without_a_limit_ends_with_its_window_before_a_later_one_begins() -> None:
    """So that the later one, which may be years ahead, does not stand against it."""
    cluster = Reserving(hosts=1, cpus=2)
    cluster.reserve("r", windows=((100 * SECOND, 200 * SECOND),), users=("ann",))
    cluster.reserve("later", windows=((200 * SECOND, 300 * SECOND),), maint=True)
    endless = cluster.submit("", user="ann", reservation="r")
    cluster.at(100 * SECOND)
    assert cluster.states(endless) == [S.RUNNING]
    cluster.reserve("sooner", windows=((150 * SECOND, 160 * SECOND),), maint=True, ignore_jobs=True)
    other = cluster.submit("", user="ann", reservation="r")
    assert "reserved for maintenance" in cluster.why(other).message


def test_for_maintenance_hosts_are_drained_and_given_back() -> None:
    cluster = Reserving(hosts=2)
    cluster.do(ev.HostDrained("h2", "ann", "disk"))
    windows = ((100 * SECOND, 200 * SECOND), (300 * SECOND, 400 * SECOND))
    cluster.reserve("m", ("h1", "h2"), windows=windows, maint=True)

    def drained() -> list[str]:
        return [host.drained_by for host in cluster.state.hosts.values()]

    assert drained() == ["", "disk (ann)"]
    cluster.at(100 * SECOND)
    assert drained() == ["maintenance: reservation m (rm)", "disk (ann)"]
    cluster.at(200 * SECOND)
    assert drained() == ["", "disk (ann)"]
    cluster.at(300 * SECOND)
    assert drained()[0] == "maintenance: reservation m (rm)"
    cluster.do(ev.ReservationDeleted("m", "ann"))
    assert drained() == ["", "disk (ann)"]


def test_one_that_comes_again_gets_further_windows_and_lasts() -> None:
    cluster = Reserving()
    cluster.reserve(windows=((10 * SECOND, 20 * SECOND),), users=("ann",), cron="0 * * * *")
    again = ((10 * SECOND, 20 * SECOND), (30 * SECOND, 40 * SECOND))
    cluster.do(ev.ReservationRenewed("r", again))
    assert cluster.state.reservations["r"].windows == again
    cluster.at(50 * SECOND)
    assert cluster.state.reservations["r"].windows == ()
    cluster.do(ev.ReservationRenewed("r", ((60 * SECOND, 70 * SECOND),)))
    assert cluster.state.reservations["r"].windows == ((60 * SECOND, 70 * SECOND),)


def test_what_is_reserved_now_is_not_forever() -> None:
    cluster = Reserving()
    cluster.reserve(windows=((0, 500 * SECOND),), users=("ann",))
    snapshot, policies = cluster.state.snapshot(cluster.now_us), cluster.cycle.policies
    assert not never_fits(builders.job(1), snapshot, policies)
    wide = builders.job(1, reservation="r", ntasks=2, cpus_per_task=2)
    assert never_fits(wide, snapshot, policies)


def test_the_store_and_the_journal_keep_them() -> None:
    cluster = Reserving()
    cluster.reserve(windows=((100, 200),), users=("ann",), maint=True)
    known = cluster.state.reservations
    ((name, body),) = documents_of(cluster.state, Changes(reservations={"r": known["r"]}))
    assert body is not None
    assert reservations_in(Loaded(1, 1, 1, documents=((name, body), ("alert/1", {})))) == [*known.values()]
    assert documents_of(cluster.state, Changes(reservations={"gone": None})) == (("reservation/gone", None),)
    assert restore_state(dump_state(cluster.state, 100), 100).reservations == known


def test_backfill_expects_a_job_after_the_window_that_keeps_it() -> None:
    cluster = Reserving(queue="backfill")
    cluster.reserve(windows=((100 * SECOND, 200 * SECOND), (250 * SECOND, 300 * SECOND)), users=("ann",))
    wide = cluster.submit("", **limited(120))
    assert ("reserved_start_us", 300 * SECOND) in cluster.why(wide).numbers
    cluster.at(299 * SECOND)
    assert cluster.states(wide) == [S.PENDING]
    cluster.at(300 * SECOND)
    assert cluster.states(wide) == [S.RUNNING]


def could_start(cluster: Reserving, job: Job) -> bool:
    """On some host: by what is there, looked at job by job."""
    now_us, spec = cluster.now_us, job.spec
    end_us = None if spec.time_limit_us is None else now_us + spec.time_limit_us
    for name, host in cluster.state.hosts.items():
        if not host.schedulable:
            continue
        fits = True
        for one in cluster.state.reservations.values():
            windows = [(a, b) for a, b in one.windows if b > now_us]
            if spec.reservation == one.name:
                within = any(a <= now_us and (end_us is None or end_us <= b) for a, b in windows)
                fits &= name in one.hosts and within and spec.user in one.users
            elif name in one.hosts:
                fits &= not any(end_us is None or a < end_us for a, b in windows)
        if spec.reservation and spec.reservation not in cluster.state.reservations:
            fits = False
        there = [cluster.state.jobs[n] for n in cluster.state.jobs_on.get(name, ())]
        used = sum(one.spec.cpus_per_task for one in there)
        if fits and host.cpus - used >= spec.cpus_per_task:
            return True
    return False


def windows() -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    def apart(numbers: list[int]) -> Iterator[tuple[int, int]]:
        edges = sorted(numbers)
        yield from zip(edges[::2], edges[1::2], strict=False)

    numbers = st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True)
    return numbers.map(lambda found: tuple((a * SECOND, b * SECOND) for a, b in apart(found)))


ACT = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 15)),
    st.tuples(
        st.just("submit"), st.sampled_from("ab"), st.sampled_from(["", "", "r", "q"]),
        st.sampled_from([None, 3, 10, 30]), st.integers(1, 2),
    ),
    st.tuples(st.just("set"), st.sampled_from("rq"), windows(), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("rq")),
)  # fmt: skip


@pytest.mark.parametrize("queue", ["fifo", "backfill"])
@given(acts=st.lists(ACT, max_size=20))
@settings(max_examples=80, deadline=None)
def test_nobody_runs_where_and_when_he_may_not_and_nothing_waits_that_fits(
    queue: str, acts: list[tuple[Any, ...]]
) -> None:
    """`check` looks at every step. Of two reservations each has its own host; one host is nobody's."""
    cluster = Reserving(hosts=3, queue=queue)
    for kind, *values in acts:
        if kind == "pass":
            cluster.at(cluster.now_us + values[0] * SECOND)
        elif kind == "submit":
            user, reservation, limit_s, cpus = values
            more = limited(limit_s, user=user, reservation=reservation, cpus_per_task=cpus)
            cluster.submit("", **more)
        elif kind == "delete":
            mine = [job for job, _ in cluster.limits() if job.spec.reservation == values[0]]
            if not mine:
                cluster.do(ev.ReservationDeleted(values[0], "ann"))
        else:
            name, found, maint = values
            host = "h1" if name == "r" else "h2"
            ahead = tuple((a, b) for a, b in found if a > cluster.now_us + 20)
            busy = cluster.state.jobs_on.get(host) or any(
                job.spec.reservation == name for job in cluster.state.jobs.values() if job.occupies
            )
            if ahead and not busy:  # who makes one looks at what runs there
                cluster.reserve(name, (host,), windows=ahead, users=("a",), maint=maint)
        if queue == "fifo":
            waits = [cluster.state.jobs[job] for job in cluster.state.pending]
            stuck = [job.id for job in waits if could_start(cluster, job)]
            assert not stuck, f"{stuck} could start at {cluster.now_us}"
