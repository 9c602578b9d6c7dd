"""Every route of the API, called by everybody in every way, is open to exactly those whom docs/http-api.md
and the table of scopes in docs/remote.md name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import aiohttp
import pytest

from rm.api.people import ACTING_FOR
from rm.api.routes import ROUTES
from rm.config import Config, LimitsConfig, PlaybooksConfig, PrivacyConfig, RolesConfig
from rm.core.model.job import Job
from rm.core.people.audit import Act, Outcome
from rm.core.people.rights import Role, Scope
from rm.errors import NotFound
from rm.web.callers import access, accounts
from rm.web.callers.accounts import Account
from rm.web.callers.identity import OfJob
from rm.web.doors.job_door import JobDoors
from scripts.http_api_tables import FILE
from tests import builders
from tests.fake_service import Daemon, FakeService, serving
from tests.fakes import PATIENCE_S

UIDS = {"ann": 54321, "bob": 54322, "op": 54323, "boss": 54324, "root": 0}
ROLES = {"ann": Role.USER, "bob": Role.USER, "op": Role.OPERATOR, "boss": Role.ADMIN, "root": Role.ADMIN}
OWNER = "ann"  # of job 1
NAMED = {"{id}": "1", "{name}": "h1", "{host}": "h1", "{mesh}": "m", "{token}": "x", "{user}": "zoe",
         "{source}": "h1", "{destination}": "h2", "{check}": "loss"}  # fmt: skip
NO_ACTS = ("/v1/plan", "/v1/playbook-runs/{id}/progress")  # it changes nothing; it is a part of an act
OF_OWNERS = ("/v1/jobs/{id}", "/v1/jobs/{id}/logs")
QUERIES = {"/v1/jobs/{id}/wait": "?timeout_s=0"}
ROW = re.compile(r"\| `(GET|POST|DELETE) (/[^?`]*)[^`]*` \| (\w*) \|")
UNBOUNDED = LimitsConfig(requests_per_s=1e6, request_burst=1_000_000)
SCRIPT = "#!/bin/sh\nhunter2\n"


class Call(NamedTuple):
    """A request for `user`, "" = nobody, with a token of `scope`, None = by the kernel's word."""

    method: str
    path: str
    user: str
    scope: Scope | None


class Keeper:
    """A token's text is its user and its scope."""

    def find(self, text: str) -> Any:
        user, _, scope = text.partition("-")
        return SimpleNamespace(id=text, user=user, uid=UIDS[user], scope=Scope(scope))

    def use(self, id: str, origin: str) -> None: ...

    def tokens(self, user: str = "") -> list[Any]:
        return []

    def token(self, id: str) -> Any:
        raise NotFound("There is no such token.")

    async def revoke(self, id: str, by: str) -> Any:
        return self.token(id)


class Audit:
    def __init__(self) -> None:
        self.acts: list[Act] = []

    async def record(self, act: Act) -> None:
        self.acts.append(act)

    async def read(self, *what: Any) -> list[tuple[int, Act]]:
        return []


class Service(FakeService):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.audit = Keeper(), Audit()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_look_up", lambda user, _: Account(UIDS.get(user)))
    monkeypatch.setattr(access, "REFUSALS", 10**9)  # that are recorded of one user


def config(**sections: Any) -> Config:
    return Config(roles=RolesConfig(operators=("op",), admins=("boss",)), limits=UNBOUNDED, **sections)


def documented() -> Iterator[tuple[str, str, str]]:
    """Method, path and `who` of each route."""
    for line in FILE.read_text().splitlines():
        if found := ROW.match(line):
            yield found[1], found[2], found[3]


def calls(method: str, path: str) -> Iterator[Call]:
    for user in ("", "ann", "bob", "op", "boss"):
        yield Call(method, path, user, None)
    for user in UIDS:
        for scope in Scope:
            yield Call(method, path, user, scope)


def role_of(call: Call) -> Role:
    """A token gives no more than its owner's role, and no more than its scope's."""
    role = ROLES.get(call.user, Role.NOBODY)
    if call.scope in (Scope.READ, Scope.SUBMIT):
        return min(role, Role.USER, key=lambda one: one.rank)
    if call.scope is Scope.OPERATE:
        return min(role, Role.OPERATOR, key=lambda one: one.rank)
    return role


def let_in(call: Call, who: str, metrics: Role, playbooks: Role) -> bool:
    """By the words of the documents."""
    role = role_of(call)
    least = {
        "": Role.NOBODY, "user": Role.USER, "owner": Role.OPERATOR, "reader": Role.ADMIN,
        "operator": Role.OPERATOR, "admin": Role.ADMIN, "programs": metrics, "playbooks": playbooks,
    }[who]  # fmt: skip
    owns = who in ("owner", "reader") and call.user == OWNER
    if not (role.rank >= least.rank or owns):
        return False
    if call.scope is None:
        return True
    if (call.method, call.path) == ("POST", "/v1/tokens"):
        return False  # it would outlive its own end
    reads = call.method == "GET" and not call.path.endswith("/session")
    needed = Scope.READ if reads or call.path == "/v1/plan" else Scope.SUBMIT
    if who in ("operator", "playbooks"):
        needed = Scope.OPERATE
    if who == "admin":
        needed = Scope.ADMIN
    return call.scope.rank >= needed.rank


async def ask(session: aiohttp.ClientSession, call: Call) -> tuple[int, str]:
    path = call.path
    for part, value in NAMED.items():
        path = path.replace(part, value)
    headers = {ACTING_FOR: call.user}
    if call.scope is not None:
        headers = {"Authorization": f"Bearer {call.user}-{call.scope}"}
    body = {} if call.method == "POST" else None
    url = f"http://rm{path}{QUERIES.get(call.path, '')}"
    async with session.request(call.method, url, json=body, headers=headers) as answer:
        return answer.status, await answer.text()


def fits(call: Call, status: int, recorded: list[tuple[str, str, Outcome]]) -> bool:
    """What is refused is recorded, once, and so are what changes something and what administrators read of
    others. What takes long is recorded when it begins, too."""
    who = (call.user, f"{call.user}-{call.scope}" if call.scope is not None else "")
    ends = [one for one in recorded if one[2] is not Outcome.BEGUN]
    if status == 403:
        return ends == [(*who, Outcome.REFUSED)]
    changes = call.method != "GET" and call.path not in NO_ACTS
    reads = (
        call.method == "GET" and call.path in OF_OWNERS and role_of(call) is Role.ADMIN and call.user != OWNER
    )
    if status >= 300 or not (changes or reads):
        return True
    return recorded in ([(*who, Outcome.DONE)], [(*who, Outcome.BEGUN)])


def wrongly_answered(
    daemon: Daemon, metrics: Role = Role.NOBODY, playbooks: Role = Role.OPERATOR, only: tuple[str, ...] = ()
) -> list[str]:
    """The calls that are let in and may not be, or may and are not; and what a refused one has done."""
    service = daemon.service

    async def all_calls() -> list[str]:
        found = []
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(daemon.socket)) as session:
            for method, path, who in documented():
                for call in calls(method, path) if not only or who in only else ():
                    service.table[1] = builders.job(1, user=OWNER, script=SCRIPT)
                    service.inventory.setdefault("h1", builders.host("h1"))
                    service.audit.acts.clear()
                    before = (dict(service.table), dict(service.inventory), len(service.log))
                    status, text = await ask(session, call)
                    assert status != 500, (call, text)
                    if (status != 403) is not let_in(call, who, metrics, playbooks):
                        found.append(f"{call} for {who or 'everybody'}: {status}")
                    after = (service.table, service.inventory, len(service.log))
                    if status == 403 and before != after:
                        found.append(f"{call}: refused, and done")
                    recorded = [(act.user, act.token, act.outcome) for act in service.audit.acts]
                    if not fits(call, status, recorded):
                        found.append(f"{call}: {status} is in the audit log as {recorded}")
        return found

    return asyncio.run(all_calls())


def test_each_route_is_for_those_whom_the_document_names(tmp_path: Path, known: None) -> None:
    assert {row[:2] for row in documented()} == {(route.method, route.path) for route in ROUTES}
    with serving(tmp_path / "rm.sock", config(), Service) as daemon:
        assert wrongly_answered(daemon) == []


def test_metrics_and_playbooks_are_for_the_roles_that_are_configured(tmp_path: Path, known: None) -> None:
    settings = config(privacy=PrivacyConfig(metrics="operator"), playbooks=PlaybooksConfig(role="admin"))
    with serving(tmp_path / "rm.sock", settings, Service) as daemon:
        assert wrongly_answered(daemon, Role.OPERATOR, Role.ADMIN, ("programs", "playbooks")) == []


def test_a_script_is_shown_to_its_owner_and_to_administrators_whose_token_says_so(
    tmp_path: Path, known: None
) -> None:
    async def readers(daemon: Daemon) -> set[Call]:
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(daemon.socket)) as session:
            asked = [(call, await ask(session, call)) for call in calls("GET", "/v1/jobs/{id}")]
        assert {status for _, (status, _) in asked} == {200}
        return {call for call, (_, text) in asked if "hunter2" in text}

    with serving(tmp_path / "rm.sock", config(), Service) as daemon:
        daemon.service.table[1] = builders.job(1, user=OWNER, script=SCRIPT)
        expected = {
            call
            for call in calls("GET", "/v1/jobs/{id}")
            if call.user == OWNER or role_of(call) is Role.ADMIN
        }
        assert asyncio.run(readers(daemon)) == expected


def test_a_job_is_held_and_released_with_the_rights_that_its_caller_has(tmp_path: Path, known: None) -> None:
    found: list[tuple[str, str, bool]] = []

    class Holds(Service):
        async def hold(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Job:
            found.append(("hold", by, as_admin))
            return self.table[job_id]

        async def release(
            self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False
        ) -> Job:
            found.append(("release", by, as_admin))
            return self.table[job_id]

    async def change(daemon: Daemon) -> list[int]:
        verbs = ("hold", "hold?uhold=1", "release")
        asked = [(user, f"/v1/jobs/{{id}}/{verb}") for user in (OWNER, "op") for verb in verbs]
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(daemon.socket)) as session:
            return [(await ask(session, Call("POST", path, user, Scope.ADMIN)))[0] for user, path in asked]

    with serving(tmp_path / "rm.sock", config(), Holds) as daemon:
        daemon.service.table[1] = builders.job(1, user=OWNER)
        assert asyncio.run(change(daemon)) == [200] * 6
    assert found == [
        ("hold", OWNER, False), ("hold", OWNER, False), ("release", OWNER, False),
        ("hold", "op", True), ("hold", "op", False), ("release", "op", True),
    ]  # fmt: skip


# what a client asks that runs for a program of a job: with the daemon's account, through a door of its own

AS_SOMEBODY_ELSE = {ACTING_FOR: "boss", "Authorization": "Bearer boss-admin", "Rm-Via": "page"}


def doors_of(daemon: Daemon) -> JobDoors:
    return JobDoors(daemon.runner, str(Path(daemon.socket).parent))


@asynccontextmanager
async def through_a_door(daemon: Daemon, user: str, scope: Scope) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        doors_of(daemon).open(OfJob(user, scope, "job 7 on h1")) as door,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(door)) as session,
    ):
        yield session


async def ask_for_job(session: aiohttp.ClientSession, call: Call) -> tuple[int, str]:
    path = call.path
    for part, value in NAMED.items():
        path = path.replace(part, value)
    async with session.request(
        call.method,
        f"http://rm{path}{QUERIES.get(call.path, '')}",
        json={} if call.method == "POST" else None,
        headers=AS_SOMEBODY_ELSE,
    ) as answer:
        return answer.status, await answer.text()


def test_a_program_of_a_job_has_the_rights_of_the_jobs_user_whatever_it_says(
    tmp_path: Path, known: None
) -> None:
    """One door for each user and scope, through which all routes are asked for."""

    async def all_calls(daemon: Daemon, user: str, scope: Scope) -> list[str]:
        found = []
        async with through_a_door(daemon, user, scope) as session:
            for method, path, who in documented():
                call = Call(method, path, user, scope)
                daemon.service.table[1] = builders.job(1, user=OWNER, script=SCRIPT)
                daemon.service.inventory.setdefault("h1", builders.host("h1"))
                daemon.service.audit.acts.clear()
                status, text = await ask_for_job(session, call)
                assert status != 500, (call, text)
                if (status != 403) is not let_in(call, who, Role.NOBODY, Role.OPERATOR):
                    found.append(f"{call} for {who or 'everybody'}: {status}")
                acts = {(act.user, act.via, act.origin) for act in daemon.service.audit.acts}
                if not acts <= {(user, "job", "job 7 on h1")}:
                    found.append(f"{call}: {acts}")
        return found

    found = []
    with serving(tmp_path / "rm.sock", config(), Service) as daemon:
        for user in UIDS:
            for scope in (Scope.READ, Scope.SUBMIT):
                asked = asyncio.run_coroutine_threadsafe(all_calls(daemon, user, scope), daemon.loop)
                found += asked.result(PATIENCE_S)
    assert found == []


def test_a_job_of_nobody_whom_the_daemons_machine_knows_asks_nothing(tmp_path: Path, known: None) -> None:
    with serving(tmp_path / "rm.sock", config(), Service) as daemon:

        async def ask_once() -> tuple[int, str]:
            async with through_a_door(daemon, "zoe", Scope.SUBMIT) as session:
                return await ask_for_job(session, Call("GET", "/v1/jobs", "zoe", Scope.SUBMIT))

        asked = asyncio.run_coroutine_threadsafe(ask_once(), daemon.loop)
        status, text = asked.result(PATIENCE_S)
    assert (status, "no account 'zoe'" in text) == (403, True)
