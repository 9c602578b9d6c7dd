"""`[privacy]`: in no answer of the daemon is there anything of what the configuration hides."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rm.adapters.store.memory import MemoryStore
from rm.api.routes import ROUTES, Route, Who
from rm.config import AlertsConfig, Config, PrivacyConfig
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held
from rm.core.model.earlier_attempt import EarlierAttempt
from rm.core.model.job import JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.people.privacy import without_others
from rm.core.people.rights import Role
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.alerts.setup import rules_of
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.service import make_service
from rm.errors import Unreachable
from rm.protocol.codes import Code
from rm.protocol.request import Request
from rm.web.callers import identity
from rm.web.callers.sight import sight_of
from rm.web.pages.parts import ALL_PARTS
from tests import builders
from tests.examples import seeds
from tests.fake_page import PageMonitoring
from tests.fake_service import serving
from tests.fakes import PATIENCE_S, FakeHosts, ManualClock
from tests.page_visitor import Visit, visiting
from tests.unit.test_leader import FakeExecutor

ANN, BOB = "annsecret", "bobvisible"
HOSTS = ("h1", "h2", "h3")
FIRST = 71_717_100  # a job's number, which nothing else is like
SECRETS = ("annsecret", "secretname", "scriptword", "secretcomment", "/secretpath", "secretenv", "secretnote")
LEAST_FIRST = (0, 2, 3, 4, 5, 1)  # seeds, the least work first
PLANNED = {"name": "wide", "script": "#!/bin/sh\ntrue\n", "ntasks": 6, "cpus_per_task": 4}
TRAFFIC = (  # some pairs of these have a rotation, some none, and some no common period
    builders.profile(200, (0, 80, 900)),
    builders.profile(200, (0, 150, 900)),
    builders.profile(173, (0, 90, 800)),
)


class SilentHosts(FakeHosts):
    """Hosts that cannot be asked: what is told is what the daemon knows by itself."""

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        raise Unreachable(f"{name} does not answer.")


class Monitoring(PageMonitoring):
    async def sources(self) -> Mapping[str, Any]:
        return {"sources": [], "malformed": []}

    async def archives(self) -> Mapping[str, Any]:
        return {"archives": [], "malformed": []}


class World:
    """A daemon without hosts at the other end: jobs of two users, drawn by lot, that share hosts and links,
    run, wait, fail and are held."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_000_000_000)
        store = MemoryStore()
        assert store.acquire_lease("here", self.clock.us, 10**15)
        policies = Policies(
            load("queue", "backfill"), load("placement", "first-fit"), load("comm", "metronome")
        )
        state = ClusterState()
        state.next_job = FIRST
        anything: Any = None
        executor: Any = FakeExecutor()
        self.leader = Leader(
            inbox=Inbox(), cycle=Cycle(state, policies), store=store, version=0, clock=self.clock,
            executor=executor,
        )  # fmt: skip
        self.leader.start(())
        self.alerting = Alerting(
            leader=self.leader, agents=FakeHosts(), clock=self.clock, cells=lambda hosts: (),
            standings=lambda: self._standings(), windows=(), zone=UTC,
            rules=rules_of([{"name": "r", "after_s": 0}], []), channels={}, settings=AlertsConfig(),
            stored=(), cluster="here",
        )  # fmt: skip
        monitoring: Any = Monitoring()
        self.service = make_service(
            leader=self.leader, store=store, hosts=SilentHosts(), keys=anything, iterations=self.of,
            measure=lambda zone: Measured(0), clock=self.clock,
            logs=folder, again=lambda cron, after_us, lasts_us, number: [],
            recent_us=10**9,
            facts={"epoch": 7, "started_us": 5, "agents": "0a1b"}, policies=policies,
            backlog=Backlog(1000, 1 << 20, 1000), waiters=JobWaiters(), collecting=lambda job, attempt: (),
            policy_faults={},
            monitoring=monitoring, alerting=self.alerting,
        )  # fmt: skip
        self.jobs: dict[str, list[int]] = {ANN: [], BOB: []}
        self._fill()

    def of(self, job: int) -> Mapping[str, Any]:
        """Iterations."""
        return {
            "baseline_us": 200_000,
            "mean_us": 1.0,
            "p90_us": 1,
            "p99_us": 1,
            "count": 7,
            "pauses": 1,
            "items": [],
        }

    def do(self, *events: ev.Event) -> None:
        self.leader.request(lambda state: list(events)).result(PATIENCE_S)

    def _standings(self) -> dict[int, str | None]:
        return dict.fromkeys(self.jobs[ANN] + self.jobs[BOB], "its iterations are slow")

    def _fill(self) -> None:
        for name in HOSTS:
            self.do(ev.HostAdded(builders.host(name)), ev.HostUp(name, "boot", "0.1"))
        for user in (ANN, BOB):  # these share a link
            self._submit(user, ntasks=2, cpus_per_task=1, traffic=TRAFFIC[0], time_limit_us=60_000_000)
            self._start(self.jobs[user][0])
        for _ in range(12):
            self._submit(self.chance.choice((ANN, BOB)))
            self._happen()
        for user in (ANN, BOB):  # for which there is no room
            self._submit(user, ntasks=24, cpus_per_task=1)
        titles = ((ANN, "scriptword"), (BOB, "train"))
        steps = [
            JobStep(StepName(self.jobs[user][0], 1, 0), title, "h1", 1, 1, 1, 5, submit_line=f"srun {title}")
            for user, title in titles
        ]
        self.leader.keep_steps(tuple(steps)).result(PATIENCE_S)
        gone = self.jobs[ANN][0]  # an earlier attempt still runs, and holds what it uses
        self.do(ev.StrayFound(gone, 99, "h3", True, Held((0,), 1, 1 << 20, ())))
        self.clock.us += 60_000_000
        self.alerting.look()
        self.alerting.look()

    def job(self, number: int) -> Any:
        return self.leader.ask(lambda cycle, now_us: cycle.state.jobs[number]).result(PATIENCE_S)

    def _submit(self, user: str, **fields: Any) -> None:
        chance, number = self.chance, FIRST + sum(map(len, self.jobs.values()))
        own: dict[str, Any] = {"name": "plain"}
        if user == ANN:
            own = {
                "name": "secretname", "comment": "secretcomment", "chdir": "/secretpath",
                "output": "/secretpath/o", "env": (("A", "secretenv"),),
                "script": "#!/bin/sh\nscriptword\n", "script_args": ("scriptword",),
                "submit_line": "sbatch scriptword", "script_path": "/secretpath/s",
            }  # fmt: skip
        drawn: dict[str, Any] = {
            "ntasks": chance.choice((1, 2, 3)), "cpus_per_task": chance.choice((1, 2, 4)),
            "traffic": chance.choice((None, *TRAFFIC)), "time_limit_us": chance.choice((None, 60_000_000)),
            "priority": chance.choice((0, 5)),
        }  # fmt: skip
        spec = builders.spec(user=user, **{**own, **drawn, **fields})
        self.jobs[user].append(number)

        def make(state: ClusterState) -> list[ev.Event]:
            state.next_job = number + 1
            return [ev.JobSubmitted(number, spec)]

        self.leader.request(make).result(PATIENCE_S)

    def _happen(self) -> None:
        """Something to one of the jobs."""
        number = self.chance.choice(self.jobs[ANN] + self.jobs[BOB])
        job = self.job(number)
        open_tasks = [task for task in job.tasks if task.ended_us is None]
        if job.state is JobState.PENDING:
            self.do(ev.HoldRequested(number, job.spec.user)) if self.chance.random() < 0.1 else None
        elif open_tasks and job.state is JobState.CONFIGURING:
            host = open_tasks[0].host
            if self.chance.random() < 0.15:
                what = f"/spool/{number}.1: {'secretnote' if job.spec.user == ANN else 'full'}"
                self.do(ev.LaunchFailed(number, job.attempt, host, Code.SPOOL, what))
                return
            self._start(number)
        elif open_tasks and self.chance.random() < 0.3:
            task = open_tasks[0]
            self.do(ev.TaskExited(number, job.attempt, task.host, task.rank, 3, 0, 5, self.clock.us))

    def _start(self, number: int) -> None:
        job = self.job(number)
        for host in dict.fromkeys(task.host for task in job.tasks):
            ranks = tuple(task.rank for task in job.tasks if task.host == host)
            self.do(ev.TasksPrepared(number, job.attempt, host))
            self.do(ev.TasksStarted(number, job.attempt, host, self.clock.us, ranks))

    def close(self) -> None:
        self.alerting.close()
        self.service.close()
        self.leader.stop()


async def by_token(request: Any, keeper: Any) -> identity.Caller:
    """The token is the name."""
    user = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not user:
        return identity.Caller(-1, "", Role.NOBODY)
    return identity.Caller(12345, user, Role.OPERATOR if user == "op" else Role.USER)


@contextmanager
def cluster(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch, **privacy: Any
) -> Iterator[tuple[World, str]]:
    monkeypatch.setattr("rm.web.callers.access.caller_of", by_token)
    world = World(folder, seed)
    config = Config(privacy=PrivacyConfig(**privacy))
    kind: Any = lambda: world.service  # noqa: E731
    try:
        with serving(folder / "rm.sock", config, kind) as daemon:
            yield world, daemon.socket
    finally:
        world.close()


def paths(world: World, route: Route) -> list[str]:
    """The route's paths for jobs of both, one that there is not, and each kind of thing."""
    named = {"{name}": ["h1"], "{mesh}": ["latency"], "{host}": ["h1"], "{source}": ["h1"],
             "{destination}": ["h3"], "{check}": ["other"], "{token}": ["x"]}  # fmt: skip
    own = world.jobs[BOB] if route.name != "logs" else []  # which lie on hosts
    named["{id}"] = [str(job) for job in (*world.jobs[ANN], *own, 5)]
    found = [route.path]
    for part, values in named.items():
        found = [path.replace(part, value) for path in found for value in (values if part in path else [""])]
    queries = {"jobs": ["", "?all=1", f"?user={ANN}", "?name=secretname"], "queue": ["", f"?user={ANN}"],
               "job_steps": ["?jobs=" + ",".join(map(str, world.jobs[ANN] + world.jobs[BOB]))],
               "wait": ["?timeout_s=0"], "history": ["?source=h1&destination=h3"],
               "cancel_all": [f"?user={ANN}", "?name=secretname"]}  # fmt: skip
    return [path + query for path in found for query in queries.get(route.name, [""])]


async def answers(world: World, socket: str, user: str) -> dict[str, str]:
    """Each answer that a user may get of the API, by its request."""
    told = {}
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket), headers=headers) as session:

        async def ask(method: str, path: str, body: Any = None) -> None:
            async with session.request(method, f"http://rm{path}", json=body) as response:
                assert response.status != 500, path
                told[f"{method} {path}"] = f"{response.status} {await response.text()}"

        for route in ROUTES:
            if route.method == "GET":
                for path in paths(world, route):
                    await ask("GET", path)
        await ask("POST", "/v1/plan", {"spec": {**PLANNED, "traffic": None}})
        await ask("POST", "/v1/plan", {"spec": {"name": "p", "script": "#!\n", "traffic": _traffic()}})
        for route in ROUTES:
            if (route.who in (Who.OWNER, Who.READER) and route.method != "GET") or route.name == "cancel_all":
                for path in paths(world, route):
                    if not any(str(job) in path for job in world.jobs[BOB]):
                        await ask(route.method, path)
    return told


def _traffic() -> Any:
    return {
        "period_us": 200_000,
        "phases": [{"offset_us": 0, "duration_us": 90_000, "rate_bps": 900_000_000}],
    }


def leaks(world: World, request: str, answer: str) -> list[str]:
    """What of Ann's jobs is in the answer, but what the request itself named."""
    words = [word for word in SECRETS if word in answer and word not in request]
    numbers = {int(n) for n in re.findall(r"\d+", answer)} & set(world.jobs[ANN])
    return words + [str(n) for n in numbers if str(n) not in request]


@pytest.mark.parametrize("seed", LEAST_FIRST[: len(seeds(len(LEAST_FIRST)))])
def test_no_answer_has_anything_of_anothers_private_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with cluster(tmp_path, seed, monkeypatch, jobs=True) as (world, socket):
        for user in (BOB, ""):
            told = asyncio.run(answers(world, socket, user))
            found = {request: leaks(world, request, answer) for request, answer in told.items()}
            assert {request: what for request, what in found.items() if what} == {}
            for request, answer in told.items():  # whether there is such a job cannot be told either
                for job in world.jobs[ANN]:
                    if f"/{job}" in request:
                        none = (
                            told[request.replace(str(job), "5")]
                            .replace("job 5", "job N")
                            .replace("Job 5", "Job N")
                        )
                        assert answer.replace(str(job), "N") == none


def test_what_is_private_was_in_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other test looks for is there to be found."""
    wanted = {
        "GET /v1/jobs", "GET /v1/queue", "GET /v1/hosts", "GET /v1/links", "GET /v1/alerts", "GET /metrics",
        "GET /v1/jobs/ID", "GET /v1/jobs/ID/why", "POST /v1/plan", "GET /v1/jobs/rows",
    }  # fmt: skip
    for seed in LEAST_FIRST:
        with cluster(tmp_path, seed, monkeypatch) as (world, socket):
            told = asyncio.run(answers(world, socket, BOB))
            leaking = {request for request, answer in told.items() if leaks(world, request, answer)}
        wanted -= {re.sub(r"\d{8}", "ID", request) for request in leaking}
        if not wanted:
            return
    raise AssertionError(wanted)


@pytest.mark.parametrize(("hidden", "told"), [(False, {ANN: "", BOB: "train"}), (True, {BOB: "train"})])
def test_steps_of_others_have_no_names_and_of_private_jobs_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool, told: dict[str, str]
) -> None:
    with cluster(tmp_path, 0, monkeypatch, jobs=hidden) as (world, socket):
        said = asyncio.run(answers(world, socket, BOB))
        steps = next(answer for request, answer in said.items() if "/v1/jobs/steps?" in request)
        steps = json.loads(steps.partition(" ")[2])["steps"]
        found = {step["job"]: step["name"] for step in steps}
        lines = {step["job"]: step["submit_line"] for step in steps}
        typed = {ANN: "", BOB: "srun train"}
        assert lines == {world.jobs[user][0]: typed[user] for user in told}
        assert found == {world.jobs[user][0]: name for user, name in told.items()}


def test_no_page_has_anything_of_anothers_private_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path, 0, monkeypatch, jobs=True) as (world, socket):
        theirs, own = world.jobs[ANN], world.jobs[BOB]

        async def story(visit: Visit) -> None:
            visitor = visit()
            assert (await visitor.log_in(BOB)).status == 303
            asked = ["/", f"/?user={ANN}", "/submit"]
            asked += [f"/part/{name}?job={job}" for name in ALL_PARTS for job in (theirs[0], own[0])]
            asked += [f"/job/{job}{more}" for job in theirs for more in ("", "/log")]
            asked += [f"/job/{job}" for job in own]
            for path in asked:
                told = await visitor.get(path)
                assert leaks(world, path, told.text) == [], path
            assert str(own[0]) in (await visitor.get("/")).text
            script = "#!/bin/sh\n#SBATCH --ntasks=6 --cpus-per-task=4\n"
            tried = await visitor.send("/submit", script=script, act="try")
            assert leaks(world, "", tried.text) == []

        visiting(socket, story)


def test_jobs_ahead_of_ones_own_are_counted_where_they_may_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path, 0, monkeypatch, jobs=True) as (world, socket):

        async def place(user: str) -> Any:
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as session:
                path = f"http://rm/v1/jobs/{world.jobs[BOB][-1]}/why"
                async with session.get(path, headers={"Authorization": f"Bearer {user}"}) as response:
                    return (await response.json())["queue_position"]

        world.do(*(ev.HoldRequested(job, "op") for job in pending(world)))
        last = world.jobs[BOB][-1]
        world._submit(ANN, ntasks=24, cpus_per_task=1, priority=9)
        world.do(ev.ReleaseRequested(last, "op"))
        seen, whole = (asyncio.run(place(user)) for user in (BOB, "op"))
        assert whole == {
            "position": 2, "jobs_ahead": 1, "ahead": [{"job": world.jobs[ANN][-1], "user": ANN}]
        }  # fmt: skip
        assert seen == {**whole, "ahead": []}


def pending(world: World) -> list[int]:
    return world.leader.ask(lambda cycle, now_us: list(cycle.state.pending)).result(PATIENCE_S)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobs 7, 8 contend on z1h1: score 3", "jobs 7, 8 contend on z1h1: score 3"),
        ("jobs 7, 9 contend on z1h1: score 3", "job 7 and others contend on z1h1: score 3"),
        ("Jobs 9, 10 contend", "Other jobs contend"),
        ("waits behind job 9, which starts", "waits behind another job, which starts"),
        ("could not launch job 9: /spool/9.1: full", "could not launch another job"),
        ("Job 9 is damaged", "Another job is damaged"),
        ("no job here, 9 hosts", "no job here, 9 hosts"),
        ("job 9_4 ended FAILED", "another job ended FAILED"),
        ("jobs 8_2, 9_[3-5,7] ended", "job 8_2 and others ended"),
        ("Job array 9 has no element 4.", "Another job has no element 4."),
    ],
)
def test_a_sentence_loses_the_jobs_that_may_not_be_known(text: str, told: str) -> None:
    assert without_others(text, {7, 8}.__contains__) == told


def test_the_story_of_ones_own_job_names_no_others() -> None:
    """A job that is moved is not waiting any more, and not ended yet."""
    said = "moved: it shares a link with job 7, and has room without it"
    reason = Reason(ReasonCode.RESOURCES, said, (("with_job", 7), ("links", 1)))
    job = replace(
        builders.job(5, user=BOB), state=JobState.COMPLETING, reason=reason, history=((1, said),),
        earlier=(EarlierAttempt(1, why=said),),
    )  # fmt: skip
    sight = sight_of(PrivacyConfig(jobs=True), identity.Caller(7, BOB), {5})
    told = sight.job(job)
    assert told.reason == replace(
        reason, message=said.replace("job 7", "another job"), numbers=(("links", 1),)
    )
    assert "job 7" not in str(told)
    assert sight_of(PrivacyConfig(jobs=True), identity.Caller(7, BOB), {5, 7}).job(job) == job
    assert sight_of(PrivacyConfig(usage=True), identity.Caller(7, BOB), {5}).job(job) == job


def test_who_uses_up_a_limit_is_not_said_where_jobs_are_private() -> None:
    numbers = (("limit", 1), ("in_use", 1), ("used_by", f"{ANN} 1"))
    reason = Reason(ReasonCode.ASSOC_JOBS, "the cluster has 1 of at most 1 running jobs", numbers)
    for privacy, told in (
        (PrivacyConfig(), reason),
        (PrivacyConfig(jobs=True), replace(reason, numbers=numbers[:2])),
        (PrivacyConfig(usage=True), replace(reason, message="The details are for operators.", numbers=())),
    ):
        assert sight_of(privacy, identity.Caller(7, BOB), {5}).reason(reason) == told


def test_closed_hosts_are_those_without_a_job_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path, 0, monkeypatch, hosts=True) as (world, socket):
        mine = {task.host for job in world.jobs[BOB] for task in world.job(job).tasks}
        world.do(ev.HostAdded(builders.host("host-of-nobody", agent_version="of another rm")))
        told = asyncio.run(answers(world, socket, BOB))
        listed = json.loads(told["GET /v1/hosts"].partition(" ")[2])["hosts"]
        assert {host["name"] for host in listed} <= mine
        assert listed
        for request in (
            "/v1/links",
            "/v1/network",
            "/v1/monitor",
            "/v1/alerts",
            "/metrics",
            "/maddash/grids",
        ):
            assert told[f"GET {request}"].startswith("403")
        assert json.loads(told["GET /v1/status"].partition(" ")[2])["hosts"] == {}
        for request, answer in told.items():  # where a job of one's own would run is told
            assert "host-of-nobody" not in answer or request == "POST /v1/plan", request
        others = [job for job in json.loads(told["GET /v1/jobs"][4:])["jobs"] if job["spec"]["user"] == ANN]
        assert others
        assert all(job["tasks"] == job["hosts"] == [] for job in others)
        everything = asyncio.run(answers(world, socket, "op"))
        assert "host-of-nobody" in everything["GET /v1/hosts"]
        assert "host-of-nobody" in everything["GET /v1/status"]
        assert everything["GET /v1/links"].startswith("200")


def test_closed_usage_is_what_is_free_and_how_much_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path, 0, monkeypatch, usage=True) as (world, socket):
        told = asyncio.run(answers(world, socket, BOB))
        assert all(host["free"] is None for host in json.loads(told["GET /v1/hosts"][4:])["hosts"])
        assert json.loads(told["GET /v1/status"][4:])["jobs"] == {}
        assert told["GET /v1/links"].startswith("403")
        assert told["GET /metrics"].startswith("403")
        waiting = json.loads(told[f"GET /v1/jobs/{world.jobs[BOB][-1]}/why"][4:])
        assert [reason["code"] for reason in waiting["reasons"]]
        assert all(reason["numbers"] == {} for reason in waiting["reasons"])
        assert waiting["verdicts"] == []
        assert waiting["queue_position"] is None
        assert "free" in asyncio.run(answers(world, socket, "op"))["GET /metrics"]
