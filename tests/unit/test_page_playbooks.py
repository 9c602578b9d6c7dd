"""Playbooks on the page and in the HTTP API, without a browser: who may, what is asked, what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.client import Client
from rm.client.connection import Connection
from rm.config import Config, PlaybooksConfig, RolesConfig
from rm.core.people.rights import Role
from rm.errors import NotFound, UsageError
from rm.web.callers import identity
from tests.cluster import until
from tests.fake_page import PageService
from tests.fake_service import Daemon, serving
from tests.page_visitor import Tokens, Visit, Visitor, visiting
from tests.playing import Playing, folder_of, outcome

PASSWORD = "of-the-mirror"


class Operators(Tokens):
    """ann is a user, opal an operator, boss an administrator."""

    async def caller_of(self, request: Any, keeper: Any) -> identity.Caller:
        found = await super().caller_of(request, keeper)
        if found.user != "opal":
            return found
        return identity.Caller(12346, "opal", Role.OPERATOR, "page")


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    playing = Playing(folder_of(tmp_path))
    yield playing
    for process in playing.processes:
        process.die()
    playing.service.close()


@pytest.fixture
def daemon(
    playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Daemon]:
    people = Operators({"t-ann": "ann", "t-opal": "opal", "t-boss": "boss"}, ("boss",))
    monkeypatch.setattr("rm.web.callers.access.caller_of", people.caller_of)
    config = Config(
        playbooks=PlaybooksConfig(role=getattr(request, "param", "operator")), roles=RolesConfig()
    )
    with serving(tmp_path / "rm.sock", config=config, kind=PageService) as daemon:
        daemon.service.playbooks = playing.service
        yield daemon


async def logged_in(visit: Visit, token: str) -> Visitor:
    visitor = visit()
    assert (await visitor.log_in(token)).status == 303
    return visitor


async def shown(visitor: Visitor, path: str, text: str) -> str:
    """The page when it shows the text: what was drawn a moment before is kept for a second."""
    for _ in range(600):
        told = (await visitor.get(path)).text
        if text in told:
            return told
        await asyncio.sleep(0.1)
    raise AssertionError(f"{path} does not show {text}")


def test_an_operator_starts_a_playbook_and_follows_it(daemon: Daemon, playing: Playing) -> None:
    async def story(visit: Visit) -> None:
        opal = await logged_in(visit, "t-opal")
        assert 'href="/playbooks"' in (await opal.get("/")).text
        listed = (await opal.get("/playbooks")).text
        assert 'href="/playbook/site"' in listed
        assert "Updates the cluster" in listed
        form = (await opal.get("/playbook/site")).text
        assert 'type="password"' in form
        assert "otherwise 7.2" in form
        wrong = await opal.send(
            "/playbook/site", **{"answer.password": PASSWORD, "answer.release": "{{ 7 }}", "limit": "z1"}
        )
        assert (wrong.status, PASSWORD in wrong.text) == (400, False)
        assert "marks of a template" in wrong.text
        assert 'value="z1"' in wrong.text
        deep = await opal.send(
            "/playbook/site", **{"answer.password": PASSWORD, "answer.mirrors": "[" * 70_000}
        )
        assert (deep.status, "more than 65536" in deep.text) == (400, True)
        begun = await opal.send(
            "/playbook/site",
            **{"answer.password": PASSWORD, "answer.reboot": "yes", "answer.mirrors": "a, b", "limit": "z1",
               "tags": "x y", "diff": "on"},
        )  # fmt: skip
        assert (begun.status, begun.where) == (303, "/run/1")
        process = await asyncio.to_thread(playing.next)
        assert process.orders["prompted"] == {"password": PASSWORD}
        assert process.orders["extra"] == {"channel": "stable", "reboot": True, "mirrors": ["a", "b"]}
        assert (process.orders["tags"], process.orders["diff"]) == (["x", "y"], True)
        process.say(kind="start", host="h2", task="Reboot <now>")
        process.task(outcome(1))
        await asyncio.to_thread(until, lambda: playing.runs.outcomes(1), "a task is kept")
        live = (await opal.get("/part/run?run=1")).text
        assert "Install &lt;b&gt;it&lt;/b&gt;" in live
        assert "Reboot &lt;now&gt;" in live
        assert "Stop the run" in live
        process.task(outcome(2, host="h2", status="failed", message="no space", diffs=(), output=""))
        process.end("failed", recap={"h1": {"ok": 1, "changed": 1}, "h2": {"failed": 1}})
        await asyncio.to_thread(until, lambda: playing.run(1).ended_us, "it is over")
        whole = await shown(opal, "/run/1", "no space")
        for text in ("+new", "no space", "site.yml:7", "private", "1.5 s"):
            assert text in whole
        assert PASSWORD not in whole
        only = (await opal.get("/run/1?host=h2&status=failed")).text
        assert "no space" in only
        assert "Install" in only
        assert "+new" not in only
        assert "failed" in (await opal.get("/part/runs")).text

    visiting(daemon.socket, story)


def test_a_long_report_has_pages(daemon: Daemon, playing: Playing) -> None:
    async def story(visit: Visit) -> None:
        opal = await logged_in(visit, "t-opal")
        await opal.send("/playbook/plain")
        process = await asyncio.to_thread(playing.next)
        for number in range(1, 451):
            process.task(outcome(number, task=f"task {number}."))
        process.end()
        await asyncio.to_thread(until, lambda: playing.run(1).ended_us, "it is over")
        first = (await opal.get("/run/1")).text
        assert "task 200." in first
        assert "task 201." not in first
        assert "/run/1?after=200" in first
        last = (await opal.get("/run/1?after=400")).text
        assert "task 450." in last
        assert "The next tasks" not in last

    visiting(daemon.socket, story)


def test_a_run_is_stopped_and_a_schedule_made_and_removed(daemon: Daemon, playing: Playing) -> None:
    async def story(visit: Visit) -> None:
        boss = await logged_in(visit, "t-boss")
        await boss.send("/playbook/plain", check="on")
        process = await asyncio.to_thread(playing.next)
        assert process.orders["check"] is True
        assert "broken off" in (await boss.get("/do/stoprun?run=1")).text
        stopped = await boss.send("/do/stoprun?run=1", run="1")
        assert stopped.where == "/run/1"
        assert process.stopped.is_set()
        refused = await boss.send("/playbook/plain", schedule="1", cron="daily")
        assert refused.status == 400
        assert "cron expression" in refused.text
        runs = (await boss.get("/playbooks")).text.count('href="/run/')
        entered = await boss.send("/playbook/plain", cron="0 3 * * *", check="on")  # Enter in the field
        assert entered.status == 400
        assert "A cron line is given, so nothing was started." in entered.text
        assert 'value="0 3 * * *"' in entered.text
        assert (await boss.get("/playbooks")).text.count('href="/run/') == runs
        private = await boss.send(
            "/playbook/site", schedule="1", cron="0 3 * * *", **{"answer.password": PASSWORD}
        )
        assert "never stored" in private.text
        made = await boss.send("/playbook/plain", schedule="1", cron="0 3 * * *", check="on")
        assert made.where == "/playbooks"
        assert "<code>0 3 * * *</code>" in (await boss.get("/playbooks")).text
        gone = await boss.send("/do/unschedule?schedule=1", schedule="1")
        assert gone.where == "/playbooks"
        assert "<code>0 3 * * *</code>" not in (await boss.get("/playbooks")).text

    visiting(daemon.socket, story)


def test_users_and_strangers_and_forged_forms_are_refused(daemon: Daemon, playing: Playing) -> None:
    async def story(visit: Visit) -> None:
        ann = await logged_in(visit, "t-ann")
        assert 'href="/playbooks"' not in (await ann.get("/")).text
        for path in ("/playbooks", "/playbook/plain", "/run/1"):
            told = await ann.get(path)
            assert told.status == 403
            assert "operator" in told.text
        stranger = visit()
        for path in ("/playbooks", "/playbook/plain", "/run/1"):
            assert (await stranger.get(path)).where.startswith("/login")
        opal = await logged_in(visit, "t-opal")
        assert (await opal.post("/playbook/plain", {})).status == 403
        secret = await opal.secret("/playbook/plain")
        away = await opal.post("/playbook/plain", {"secret": secret}, Origin="http://evil.example")
        assert away.status == 403
        for name in ("other", "..%2Fsite", "site.survey", "broken%00"):
            assert (await opal.get(f"/playbook/{name}")).status == 404
        assert playing.processes == []

    visiting(daemon.socket, story, anonymous=True)


@pytest.mark.parametrize("daemon", ["admin"], indirect=True)
def test_where_only_administrators_may(daemon: Daemon) -> None:
    async def story(visit: Visit) -> None:
        opal, boss = await logged_in(visit, "t-opal"), await logged_in(visit, "t-boss")
        assert (await opal.get("/playbooks")).status == 403
        assert (await boss.get("/playbooks")).status == 200

    visiting(daemon.socket, story)


def test_the_client_gets_what_the_api_gives(playing: Playing, tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock") as daemon:
        client = Client(Connection(daemon.socket))
        daemon.service.playbooks = playing.service
        assert [one.name for one in client.playbooks.list()] == ["broken", "plain", "site"]
        assert [one.default for one in client.playbooks.survey("site").questions][:2] == [None, "7.2"]
        run = client.playbooks.start("plain", limit="h1", tags=["a"])
        process = playing.next()
        for number in range(1, 1_204):
            process.task(outcome(number))
        process.end("ok", recap={"h1": {"ok": 1_203, "changed": 1_203}})
        until(lambda: client.playbooks.run(run.id).run.ended_us, "it is over")
        assert [one.number for one in client.playbooks.outcomes(run.id)] == list(range(1, 1_204))
        assert list(client.playbooks.outcomes(run.id, status="failed")) == []
        assert client.playbooks.runs()[0].recap["h1"].changed == 1_203
        made = client.playbooks.schedule("plain", "0 3 * * *", check=True)
        assert client.playbooks.schedules() == [made]
        assert client.playbooks.unschedule(made.id).id == made.id
        for wrong in (lambda: client.playbooks.run(99), lambda: client.playbooks.survey("other")):
            with pytest.raises(NotFound):
                wrong()
        with pytest.raises(UsageError, match="no status"):
            list(client.playbooks.outcomes(run.id, status="good"))
        with pytest.raises(UsageError, match="nobody asks"):
            client.playbooks.start("plain", {"ansible_host": "x"})
