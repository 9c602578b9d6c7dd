"""Rows that a daemon keeps as it wrote them: whatever has happened since, it lists what a fresh one lists."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from rm.client.client import Client
from rm.client.connection import Connection
from rm.config import Config, PrivacyConfig
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobState, Task
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.people.rights import Role
from rm.errors import RmError
from rm.protocol.codes import Code
from rm.web import kept_rows
from rm.web.callers.identity import Caller
from rm.web.callers.sight import Sight, sight_of
from rm.web.kept_rows import KeptRows
from tests import builders
from tests.examples import seeds
from tests.fake_service import FakeService, serving
from tests.fakes import PATIENCE_S
from tests.unit.test_privacy import ANN, BOB, HOSTS, World, by_token

S = JobState
STEPS = 30
OPERATOR = Caller(0, "op", Role.OPERATOR)
QUERIES = ("", f"?user={ANN}&limit=3")


class Changing(World):
    """A world in which everything happens that changes what a queue shows of a job."""

    def _fill(self) -> None:
        for name in HOSTS:
            self.do(ev.HostAdded(builders.host(name, cpus=3, partitions=("a", "b"))))
            self.do(ev.HostUp(name, "boot", "0.1"))
        self.happened: Counter[str] = Counter()
        for _ in range(6):
            self.submit()

    def settled(self) -> None:
        """Nothing more comes of what has happened, as long as the clock stands still."""

        def ready(cycle: Any, now_us: int) -> bool:
            due_us = cycle.next_due_us()
            return due_us is None or due_us > now_us

        while not self.leader.ask(ready).result(PATIENCE_S):
            pass

    def all(self) -> list[Job]:
        return list(self.leader.ask(lambda cycle, _: list(cycle.state.jobs.values())).result(PATIENCE_S))

    def step(self) -> None:
        what = self.chance.choice((
            self.submit, self.submit, self.submit_array, self.start, self.start, self.end, self.end,
            self.fail_launch, self.hold, self.release, self.release, self.set, self.split, self.requeue,
            self.cancel, self.suspend, self.resume, self.limit, self.drain, self.resume_host, self.later,
        ))  # fmt: skip
        with contextlib.suppress(RmError):  # not of a job in this state
            what()
            self.happened[what.__name__] += 1

    def submit(self, **more: Any) -> None:
        chance = self.chance
        spec = builders.spec(
            chance.choice(("train", 'a "quoted" näme')), user=chance.choice((ANN, BOB)),
            ntasks=chance.choice((1, 2, 5, 30)), comment=chance.choice(("", "secretcomment")),
            chdir="/secretpath", partition=chance.choice(("", "a", "a,b")),
            priority=chance.choice((0, 5)), time_limit_us=chance.choice((None, 60_000_000)),
            expected_us=chance.choice((None, 30_000_000)), gpus_per_host=chance.choice((0, 0, 0, 2)),
            mem_bytes_per_host=chance.choice((0, 1 << 30)), hosts_only=chance.choice(((), (), ("h1",))),
            begin_us=chance.choice((None, None, self.clock.us + 50_000_000)), **more,
        )  # fmt: skip

        def make(state: ClusterState) -> list[ev.Event]:
            return [ev.JobSubmitted(state.next_job, spec)]

        self.leader.request(make).result(PATIENCE_S)

    def submit_array(self) -> None:
        self.submit(array=self.chance.choice(("0-3", "0-9%2", "1,3,7-9")))

    def start(self) -> None:
        self._start(self._one(S.CONFIGURING).id)

    def end(self) -> None:
        job = self._one(S.RUNNING, S.COMPLETING)
        code = self.chance.choice((0, 3))
        for task in job.tasks:
            if task.ended_us is None:
                self.do(ev.TaskExited(job.id, job.attempt, task.host, task.rank, code, 0, 5, self.clock.us))

    def fail_launch(self) -> None:
        job = self._one(S.CONFIGURING)
        for task in job.tasks[:1]:
            self.do(ev.LaunchFailed(job.id, job.attempt, task.host, Code.SPOOL, "/spool: full"))

    def hold(self) -> None:
        job = self._one(S.PENDING)
        admin = self.chance.random() < 0.5
        self.do(ev.HoldRequested(job.id, "root", self._some(job), as_admin=admin))

    def release(self) -> None:
        held = [job for job in self.all() if job.held or (job.array is not None and job.array.held)]
        job = self.chance.choice(held) if held else self._one(S.PENDING)
        self.do(ev.ReleaseRequested(job.id, "root", "", as_admin=True))

    def set(self) -> None:
        update = self.chance.choice((
            JobUpdate(name="renamed"), JobUpdate(comment="noted"), JobUpdate(priority=7),
            JobUpdate(partition="b"), JobUpdate(time_limit_us=5_000_000), JobUpdate(ntasks=1),
        ))  # fmt: skip
        self.do(ev.JobUpdated(self._one(S.PENDING).id, "root", update))

    def split(self) -> None:
        """Elements get jobs of their own."""
        arrays = [job for job in self.all() if job.array is not None and job.array.waiting]
        job = self.chance.choice(arrays) if arrays else self._one()

        def make(state: ClusterState) -> list[ev.Event]:
            tasks = self._some(state.jobs[job.id]) or "1"
            update = JobUpdate(name="apart")
            return [ev.JobUpdated(job.id, "root", update, array_tasks=tasks, first_job=state.next_job)]

        self.leader.request(make).result(PATIENCE_S)

    def requeue(self) -> None:
        self.do(ev.RequeueRequested(self._one().id, "root", hold=self.chance.random() < 0.3))

    def cancel(self) -> None:
        job = self._one()
        self.do(ev.CancelRequested(job.id, "root", self._some(job)))

    def suspend(self) -> None:
        self.do(ev.SuspendRequested(self._one(S.RUNNING).id, "root"))

    def resume(self) -> None:
        self.do(ev.ResumeRequested(self._one(S.SUSPENDED, S.RUNNING).id, "root"))

    def limit(self) -> None:
        self.do(ev.ArrayLimitSet(self._one().id, "root", self.chance.choice((0, 1, 4))))

    def drain(self) -> None:
        self.do(ev.HostDrained(self.chance.choice(HOSTS), "root", "disk"))

    def resume_host(self) -> None:
        self.do(ev.HostResumed(self.chance.choice(HOSTS), "root"))

    def later(self) -> None:
        self.clock.us += self.chance.choice((1_000_000, 100_000_000))
        self.do(ev.Tick())

    def _one(self, *states: JobState) -> Job:
        """Of these states, if there is any."""
        jobs = self.all()
        return self.chance.choice([job for job in jobs if job.state in states] or jobs)

    def _some(self, job: Job) -> str:
        """Of an array now and then one element that waits."""
        if job.array is None or not job.array.waiting or self.chance.random() < 0.3:
            return ""
        return job.array.waiting.replace("-", ",").split(",")[0]


async def listed(socket: str) -> dict[tuple[str, str], bytes]:
    """What everybody gets of each list, by user and query."""
    told = {}
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as session:
        for user in ("op", BOB):
            for query in QUERIES:
                headers = {"Authorization": f"Bearer {user}"}
                async with session.get(f"http://rm/v1/jobs/rows{query}", headers=headers) as response:
                    assert response.status == 200
                    told[user, query] = await response.read()
    return told


@contextmanager
def daemon(world: World, path: Path, privacy: PrivacyConfig) -> Iterator[str]:
    """Its API, which has written nothing yet."""
    kind: Any = lambda: world.service  # noqa: E731
    with serving(path, Config(privacy=privacy), kind) as door:
        yield door.socket


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("private", [(), ("hosts", "usage"), ("jobs",)])
def test_a_daemon_lists_what_a_fresh_one_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, private: tuple[str, ...]
) -> None:
    monkeypatch.setattr("rm.web.callers.access.caller_of", by_token)
    privacy = PrivacyConfig(**dict.fromkeys(private, True))
    world = Changing(tmp_path, seed)
    try:
        with daemon(world, tmp_path / "old.sock", privacy) as old:
            for _ in range(STEPS):
                world.step()
                world.settled()
                found = asyncio.run(listed(old))
                with daemon(world, tmp_path / "fresh.sock", privacy) as fresh:
                    assert found == asyncio.run(listed(fresh)), world.happened
    finally:
        world.close()


def test_each_change_that_rows_show_comes_to_pass_in_the_other_test(tmp_path: Path) -> None:
    world = Changing(tmp_path, 0)
    wanted = {S.PENDING, S.CONFIGURING, S.RUNNING, S.SUSPENDED, S.FAILED, S.CANCELLED,
              ReasonCode.RESOURCES, ReasonCode.HELD_USER, ReasonCode.HELD_ADMIN}  # fmt: skip
    elements = False
    try:
        for _ in range(20 * STEPS):
            world.step()
            jobs = world.all()
            found, reasons = asyncio.run(
                world.service.reading.jobs_and_reasons(
                    states=frozenset(), user="", name="", limit=0, everything=False
                )
            )
            wanted -= {job.state for job in jobs}
            wanted -= {reason.code for job in found if (reason := reasons.of_job(job)) is not None}
            elements = elements or any(job.array_job for job in jobs)
            if not wanted and elements and len(world.happened) > 15:
                return
        raise AssertionError((wanted, elements, world.happened))
    finally:
        world.close()


class Whys:
    """The reasons of all jobs that wait."""

    def __init__(self, code: ReasonCode | None) -> None:
        self.partitions: dict[int, str] = {}
        self.reason = None if code is None else Reason(code, "why")

    def of_job(self, job: Job) -> Reason | None:
        return self.reason

    def codes(self) -> Callable[[Job, Any], ReasonCode | None]:
        return lambda job, demand: None if self.reason is None else self.reason.code

    def shown(self, job: Job) -> Job:
        return job


def rows(kept: KeptRows, jobs: list[Job], whys: Whys, sight: Sight) -> list[list[Any]]:
    return [msgspec.json.decode(text) for text in kept.texts(jobs, whys, sight)]


def test_a_row_is_written_once_until_its_job_reason_or_partition_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    values = kept_rows.row_values

    def noted(job: Job, reason: Reason | None, partition: str) -> Any:
        written.append(job.id)
        return values(job, reason, partition)

    monkeypatch.setattr(kept_rows, "row_values", noted)
    kept, sight, jobs = KeptRows(), Sight(OPERATOR), [builders.job(1), builders.job(2, partition="a,b")]
    whys = Whys(ReasonCode.RESOURCES)

    def again(expected: list[int]) -> None:
        kept.texts(jobs, whys, sight)
        assert written == expected
        written.clear()

    again([1, 2])
    again([])
    jobs[0] = builders.job(1)  # another version, though it is alike
    again([1])
    whys.partitions[2] = "b"
    again([2])
    whys.reason = Reason(ReasonCode.RESOURCES, "another sentence")
    again([])
    whys.reason = Reason(ReasonCode.PRIORITY, "why")
    again([1, 2])
    whys.reason = None
    again([1, 2])
    again([])


def test_others_get_neither_an_owners_row_nor_the_hosts() -> None:
    kept, whys = KeptRows(), Whys(None)
    job = builders.job(1, state=S.RUNNING, tasks=(Task(0, "h1"),), user=ANN, comment="secret", chdir="/there")
    ann, bob = Caller(1, ANN, Role.USER), Caller(2, BOB, Role.USER)
    told = []
    for hosts in (False, True, False):
        privacy = PrivacyConfig(hosts=hosts)
        for caller in (OPERATOR, bob, ann, bob):
            [row] = rows(kept, [job], whys, sight_of(privacy, caller, ()))
            told.append((row[16], row[18], row[19]))
    whole, veiled, hidden = (["h1"], "/there", "secret"), (["h1"], "", ""), ([], "", "")
    assert told[:4] == [whole, veiled, whole, veiled]
    assert told[4:8] == [whole, hidden, whole, hidden]
    assert told[8:] == [whole, veiled, whole, veiled]


def test_what_nobody_lists_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "IDLE_S", 0.0)
    job, kept = builders.job(1), KeptRows()
    before = sys.getrefcount(job)

    async def story() -> None:
        kept.texts([job], Whys(None), Sight(OPERATOR))
        assert sys.getrefcount(job) > before
        kept.stay()
        async with asyncio.timeout(PATIENCE_S):
            while sys.getrefcount(job) > before:
                await asyncio.sleep(0)

    asyncio.run(story())


def test_rows_that_are_kept_have_a_bound() -> None:
    kept, whys = KeptRows(most=10), Whys(None)
    for first in range(0, 100, 5):
        kept.texts([builders.job(first + i + 1) for i in range(5)], whys, Sight(OPERATOR))
        assert len(kept._new) + len(kept._old) <= 20
    page = [builders.job(i) for i in range(1, 13)]  # one page beyond the bound is joined all the same
    assert [row[0] for row in rows(kept, page, whys, Sight(OPERATOR))] == list(range(1, 13))


def test_rows_that_are_kept_are_no_more_than_two_generations_whatever_is_listed() -> None:
    kept, whys = KeptRows(most=10), Whys(None)
    for first in range(0, 80, 10):
        kept.texts([builders.job(first + i + 1) for i in range(10)], whys, Sight(OPERATOR))
        assert len(kept._new) + len(kept._old) <= 20


def test_a_long_row_is_written_and_not_kept() -> None:
    """A control character is six bytes of JSON: a comment makes a row of 24 kB."""
    kept, whys, sight = KeptRows(), Whys(None), Sight(OPERATOR)
    long = [builders.job(i, comment="\x01" * 4_096) for i in range(1, 51)]
    short = [builders.job(i) for i in range(1, 51)]
    for jobs in (short, long, long):  # what was kept of them before is gone, too
        found = rows(kept, jobs, whys, sight)
        assert [row[19] for row in found] == [job.spec.comment for job in jobs]
    held = [row for rows_of in (kept._new, kept._old) for row in rows_of.values()]
    assert sum(len(row[4]) for row in held) == 0
    rows(kept, short, whys, sight)
    held = [row for rows_of in (kept._new, kept._old) for row in rows_of.values()]
    assert len(held) == len(short)
    assert all(len(row[4]) <= kept_rows.ROW_BYTES for row in held)


def test_jobs_out_of_the_store_are_listed_as_they_are_stored(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock", kind=FakeService) as door, Client(Connection(door.socket)) as client:
        door.service.table[1] = builders.job(1, name="before")
        assert [row.name for row in client.rows()] == ["before"]
        door.service.table[1] = builders.job(1, name="after")
        assert [row.name for row in client.rows(ended=True)] == ["after"]
        assert [row.name for row in client.rows()] == ["after"]
