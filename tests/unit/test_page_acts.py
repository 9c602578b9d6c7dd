"""What people do on the page: what the daemon is asked, for whom, and what they are told."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from rm.core.alerts.silence import Silence
from rm.core.model.job import JobState, Task
from rm.errors import Forbidden, NotFound
from tests.fake_page import PageAlerts, PageMonitoring, PageService
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S
from tests.page_visitor import Tokens, Told, Visit, Visitor, visiting

SCRIPT = "#!/bin/sh\r\n#SBATCH --nodes=2 --time=10:00\r\nhostname\r\n"


def kept() -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(None)
    return done


class Alerts(PageAlerts):
    """Those of the page, which remember what they were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []

    @property
    def silences(self) -> Alerts:
        return self

    def acknowledge(self, names: Sequence[str], by: str, comment: str) -> tuple[list[str], Future[Any]]:
        self.asked.append(("acknowledge", names, by, comment))
        return list(names), kept()

    def add(
        self, conditions: Sequence[str], hosts: Sequence[str], for_us: int, by: str, comment: str
    ) -> tuple[Silence, Future[Any]]:
        self.asked.append(("silence", conditions, hosts, for_us, by, comment))
        return Silence(7, tuple(conditions), tuple(hosts), 1, 1 + for_us, by, comment), kept()

    def end(self, number: int) -> tuple[Silence, Future[Any]]:
        if number != 7:
            raise NotFound(f"There is no silence {number}.")
        self.asked.append(("end", number))
        return Silence(7, (), ("*",), 1, 2, "boss"), kept()


class Monitoring(PageMonitoring):
    """A run lasts until `over` is set."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.runs: list[str] = []

    async def run(self, name: str, everything: bool) -> Mapping[str, Any]:
        self.runs.append(name)
        if name != "latency":
            raise NotFound(f"There is no mesh '{name}'.")
        await self.over.wait()
        return (await self.meshes())["meshes"][0]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    known = Tokens({"t-ann": "ann", "t-boss": "boss"}, ("boss",))
    monkeypatch.setattr("rm.web.callers.access.caller_of", known.caller_of)
    with serving(tmp_path / "rm.sock", kind=PageService) as daemon:
        busy = daemon.service.busy("high", "low", "wide")  # type: ignore[attr-defined]
        asyncio.run_coroutine_threadsafe(busy, daemon.loop).result(PATIENCE_S)
        for job in daemon.service.table:
            spec = dataclasses.replace(daemon.service.table[job].spec, user="ann")
            daemon.service.put(job, spec=spec)
        daemon.service.alerting, daemon.service.monitoring = Alerts(), Monitoring()
        yield daemon


async def someone(visit: Visit, token: str) -> Visitor:
    visitor = visit()
    assert (await visitor.log_in(token)).status == 303
    return visitor


async def after(visitor: Visitor, told: Told) -> str:
    """What the page says that follows a form."""
    assert told.status == 303, told.text
    return (await visitor.get(told.where.partition("#")[0])).text


def test_a_job_is_held_released_requeued_and_cancelled_by_its_owner(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        page = (await ann.get("/job/3")).text
        assert 'id="do-hold"' in page
        assert 'id="do-release"' not in page
        assert "Job 3 is PENDING and held." in await after(ann, await ann.send("/do/hold?job=3", job="3"))
        page = (await ann.get("/job/3")).text
        assert "PENDING (held)" in page  # at once, not after what was kept is old
        assert "Job 3 is PENDING and held." not in page  # said once
        assert 'id="do-release"' in page
        assert "Job 3 is PENDING." in await after(ann, await ann.send("/do/release?job=3", job="3"))
        assert "Job 1 is PENDING." in await after(ann, await ann.send("/do/requeue?job=1", job="1"))
        assert "Job 2 is CANCELLED." in await after(ann, await ann.send("/do/cancel?job=2", job="2"))
        cancelled = [entry for entry in daemon.service.log if entry[0] == "cancel"]
        assert cancelled == [("cancel", 2, "ann", None, "steps")]
        again = await ann.send("/do/cancel?job=2", job="2")
        assert (again.status, "Job 2 has already ended." in again.text) == (409, True)
        for job in ("77", "-1", "../hosts/h1", ""):
            assert (await ann.send("/do/cancel?job=1", job=job)).status in (400, 404)
        assert (await ann.get("/do/nothing?job=1")).status == 404

    visiting(daemon.socket, story)


def test_operators_drain_acknowledge_silence_and_run(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        boss, alerts = await someone(visit, "t-boss"), daemon.service.alerting
        told = await boss.send("/do/drain?host=h1", host="h1", reason="cable <b>")
        assert "Host h1 is UP." in await after(boss, told)
        assert daemon.service.inventory["h1"].drained_by == "cable <b> (boss)"
        page = (await boss.get("/part/network")).text
        assert "/do/resume?host=h1" in page
        assert "<b>" not in page.replace('class="ck', "").split("cable")[1][:20]
        await after(boss, await boss.send("/do/resume?host=h1", host="h1"))
        assert daemon.service.inventory["h1"].drained_by == ""
        alert = "all/loss/h3@1"
        assert "/do/acknowledge?alert=all%2Floss%2Fh3%401" in (await boss.get("/part/alerts")).text
        await after(boss, await boss.send(f"/do/acknowledge?alert={alert}", alert=alert, comment="on it"))
        both = "all/disk/h1@1\nall/disk/h2@1"
        told = await boss.send(f"/do/acknowledge?{urlencode({'alert': both})}", alert=both)
        assert "Acknowledged: all/disk/h1@1, all/disk/h2@1." in await after(boss, told)
        form = {"conditions": "loss, delay", "hosts": "h*", "for": "30m", "comment": "new switch"}
        assert "Silence 7 holds." in await after(boss, await boss.send("/do/silence", **form))
        await after(boss, await boss.send("/do/endsilence?silence=7", silence="7"))
        assert alerts.asked == [
            ("acknowledge", [alert], "boss", "on it"), ("acknowledge", both.splitlines(), "boss", ""),
            ("silence", ["loss", "delay"], ["h*"], 1_800_000_000, "boss", "new switch"), ("end", 7),
        ]  # fmt: skip
        wrong = await boss.send("/do/silence", **{**form, "for": "soon"})
        assert wrong.status == 400
        assert 'value="loss, delay"' in wrong.text  # nobody types it again
        for number in ("8", "x", "", "1" * 20):
            assert (await boss.send("/do/endsilence?silence=7", silence=number)).status in (400, 404)

    visiting(daemon.socket, story)


def test_a_mesh_runs_on_while_the_page_is_shown(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.web.pages.acts.AT_ONCE_S", 0.05)

    async def story(visit: Visit) -> None:
        boss, mesh = await someone(visit, "t-boss"), daemon.service.monitoring
        told = await boss.send("/do/runmesh?mesh=latency", mesh="latency")
        assert "Mesh latency runs." in await after(boss, told)
        monkeypatch.setattr("rm.web.pages.acts.AT_ONCE_S", 60)
        missing = await boss.send("/do/runmesh?mesh=latency", mesh="no/such")
        assert (missing.status, "There is no mesh" in missing.text) == (404, True)
        daemon.call(mesh.over.set)
        told = await boss.send("/do/runmesh?mesh=latency", mesh="latency")
        assert "Mesh latency has run: 2 measured, 0 failed." in await after(boss, told)
        assert mesh.runs == ["latency", "no/such", "latency"]

    visiting(daemon.socket, story)


def test_users_are_told_that_they_may_not(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        for path, form in (
            ("/do/drain?host=h1", {"host": "h1"}), ("/do/resume?host=h1", {"host": "h1"}),
            ("/do/silence", {"hosts": "*", "for": "2h"}), ("/do/runmesh?mesh=latency", {"mesh": "latency"}),
            ("/do/acknowledge?alert=h3", {"alert": "h3"}), ("/do/endsilence?silence=7", {"silence": "7"}),
        ):  # fmt: skip
            told = await ann.send(path, **form)
            assert told.status == 403, path
            assert "Only an operator may" in told.text
        assert daemon.service.alerting.asked == daemon.service.monitoring.runs == []

    visiting(daemon.socket, story)


def test_a_script_is_tried_and_submitted_as_rmx_submit_would(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_PAGE", "hunter2")

    async def story(visit: Visit) -> None:
        ann, before = await someone(visit, "t-ann"), set(daemon.service.table)
        form = {"script": SCRIPT, "name": "first", "cpus_per_task": "2"}
        tried = await ann.send("/submit", **form, dry="1")
        assert tried.status == 200
        assert "It would start now on h1" in tried.text
        assert "97.5" in tried.text  # what placement thinks of it
        assert 'value="first"' in tried.text
        assert (
            "It would not start now"
            in (await ann.send("/submit", **{**form, "cpus_per_task": "9"}, dry="1")).text
        )
        assert set(daemon.service.table) == before
        told = await ann.send("/submit", **form)
        (job,) = set(daemon.service.table) - before
        assert told.where == f"/job/{job}"
        spec = daemon.service.table[job].spec
        assert (spec.user, spec.name, spec.hosts_min, spec.cpus_per_task) == ("ann", "first", 2, 2)
        assert spec.script == SCRIPT.replace("\r\n", "\n")
        assert (spec.env, spec.chdir, spec.submit_host) == ((), "", "")
        assert spec.time_limit_us == 600_000_000
        text = (await ann.get(told.where)).text
        assert f"Job {job} is submitted." in text
        assert "#SBATCH --nodes=2 --time=10:00" in text

    visiting(daemon.socket, story)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("", "is empty"), ("hostname", "does not look like a batch script"),
        ("#!/bin/sh\n#RM --traffic=/etc/shadow\n", "names a file, which the page cannot read"),
        ("#!/bin/sh\n#SBATCH --nodes=none\n", "--nodes is"),
        ("#!/bin/sh\n#SBATCH --network=ours\n", "is not supported"),
        ("#!/bin/sh\n<script>alert(1)</script>\n#SBATCH --ntasks=101", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_script_is_said_and_it_is_still_there(
    daemon: Daemon, script: str, sentence: str
) -> None:
    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        told = await ann.send("/submit", script=script, ntasks="101" if not sentence else "")
        assert told.status in (400, 422)
        assert sentence in told.text
        assert "<script>alert" not in told.text
        assert script.split("\n")[0] in told.text

    visiting(daemon.socket, story)


@pytest.mark.parametrize("code", [1, 127])
def test_the_page_names_the_program_that_a_shell_did_not_find(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("rm.web.pages.job_page.END_S", PATIENCE_S)
    daemon.service.output["out"] = b"x: line 3: <b>srun: command not found\n"
    sentence = "The program <bdi>&lt;b&gt;srun</bdi> was not found on <bdi>h1</bdi>"

    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        daemon.service.put(1, tasks=(Task(0, "h1", started_us=1, exit_code=code),), attempt=1)
        daemon.call(daemon.service.finish, 1)
        assert (sentence in (await ann.get("/job/1")).text) == (code == 127)

    visiting(daemon.socket, story)


def test_nobody_reads_so_many_logs_that_none_are_left_for_others(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        ann, boss = await someone(visit, "t-ann"), await someone(visit, "t-boss")
        reading = [await ann.session.get(f"{ann.url}/job/1/log?follow=1") for _ in range(8)]
        told = await ann.get("/job/1/log")
        assert (told.status, "You are reading 8 logs already." in told.text) == (429, True)
        assert (await boss.get("/job/1/log")).text == "hello\nworld\n"
        while daemon.service.waiting < len(reading):
            await asyncio.sleep(0.01)
        daemon.call(daemon.service.finish, 1)
        for response in reading:
            assert (await response.read()).endswith(b"more\n")
        assert (await ann.get("/job/1/log")).text == "hello\nworld\n"

    visiting(daemon.socket, story)


def test_no_text_commands_or_reverses_what_stands_beside_it(daemon: Daemon) -> None:
    """The headline of a job's page showed its name as it was."""
    script = "#!/bin/sh\r\n\techo \u202ehcae\u2066\n"
    spec = dataclasses.replace(daemon.service.table[1].spec, name="a\u202eb\x1b[31m\u2028", script=script)
    daemon.service.put(1, spec=spec)

    async def story(visit: Visit) -> None:
        text = (await (await someone(visit, "t-ann")).get("/job/1")).text
        assert "<bdi>a?b?[31m?</bdi>" in text
        assert "\techo ?hcae?\n" in text
        assert not set(text) & set("\u202e\u2066\u2028\x1b")

    visiting(daemon.socket, story)


def test_a_log_is_followed_to_its_end(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        async with ann.session.get(f"{ann.url}/job/1/log?follow=1") as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert await response.content.readline() == b"hello\n"
            while not daemon.service.waiting:  # for what follows
                await asyncio.sleep(0.01)
            daemon.call(daemon.service.finish, 1)
            assert (await response.content.read()).endswith(b"world\nmore\n")
        missing = await ann.get("/job/1/log?task=5")
        assert (missing.status, missing.text) == (404, "Job 1 has no task 5.\n")

    visiting(daemon.socket, story)


def test_a_log_that_the_daemon_gives_up_has_no_end_and_nothing_else_comes(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second response came inside of the first, which said that the daemon does not answer."""
    taken = asyncio.Event()

    async def until_taken(*_: Any) -> None:
        while not taken.is_set():
            await asyncio.sleep(0.01)
        raise Forbidden("Your rights were taken away meanwhile.")

    monkeypatch.setattr("rm.web.routes.logs.until_not_let", until_taken)

    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        async with ann.session.get(f"{ann.url}/job/1/log?follow=1") as response:
            assert await response.content.readline() == b"hello\n"
            taken.set()
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(aiohttp.ClientPayloadError, match="not complete"):
                    await response.content.read()

    visiting(daemon.socket, story)


def test_the_page_of_a_failed_job_shows_the_log_of_the_task_that_failed(daemon: Daemon) -> None:
    ended = (Task(0, "h1", exit_code=0, ended_us=5), Task(1, "h1", exit_code=3, ended_us=6))
    job = daemon.service.table[1]
    spec = dataclasses.replace(job.spec, ntasks=2)
    failed = dataclasses.replace(job, spec=spec, tasks=ended, attempt=3, state=JobState.FAILED)
    daemon.service.table[1] = failed

    async def story(visit: Visit) -> None:
        ann = await someone(visit, "t-ann")
        page = (await ann.get("/job/1")).text
        assert 'data-log="/job/1/log?task=1&amp;stream=out&amp;attempt=0"' in page
        assert '<option value="2">2</option>' in page
        page = (await ann.get("/job/1?task=0&attempt=2")).text
        assert '<option value="2" selected>2</option>' in page
        assert (await ann.get("/job/1/log?task=0&attempt=2")).status == 200
        asked = [entry for entry in daemon.service.log if entry[0] == "logs"][-1]
        assert (asked[2], asked[-1]) == (0, 2)

    visiting(daemon.socket, story)
