"""Who may call which route, and what other users see of a job."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rm.api.routes import ROUTES, Who
from rm.config import Config, PrivacyConfig, RolesConfig
from rm.core.model.job import Job, JobState
from rm.core.people.privacy import veiled
from rm.core.people.rights import Role, Scope
from rm.errors import Forbidden
from rm.web.callers import accounts, identity
from rm.web.callers.access import asker_of, check, need_of
from rm.web.callers.accounts import Account, Accounts
from rm.web.callers.identity import Caller
from tests import builders

ROLES = list(Role)


def passes(role: Role, scope: Scope, name: str) -> bool:
    route = next(route for route in ROUTES if route.name == name)
    user = "" if role is Role.NOBODY else "ann"
    try:
        check(Caller(7, user, role, scope=scope), route, need_of(route, PrivacyConfig()))
    except Forbidden:
        return False
    return True


def test_whatever_changes_something_is_for_somebody() -> None:
    for route in ROUTES:
        assert route.method == "GET" or route.who is not Who.ANYBODY, route.name


@pytest.mark.parametrize(
    ("name", "least"),
    [("jobs", Role.NOBODY), ("submit", Role.USER), ("cancel", Role.USER), ("drain", Role.OPERATOR),
     ("add_hosts", Role.ADMIN), ("channels", Role.ADMIN), ("audit", Role.ADMIN)],
)  # fmt: skip
def test_a_route_is_for_its_role_and_those_above(name: str, least: Role) -> None:
    for role in ROLES:
        assert passes(role, Scope.ADMIN, name) is (ROLES.index(role) >= ROLES.index(least)), role


@pytest.mark.parametrize(
    ("name", "least"),
    [("jobs", Scope.READ), ("plan", Scope.READ), ("logs", Scope.READ), ("submit", Scope.SUBMIT),
     ("create_token", Scope.SUBMIT), ("drain", Scope.OPERATE), ("audit", Scope.ADMIN)],
)  # fmt: skip
def test_a_token_serves_its_scope_and_those_below(name: str, least: Scope) -> None:
    for scope in Scope:
        assert passes(Role.ADMIN, scope, name) is (scope.rank >= least.rank), scope


def test_roles_follow_the_rank() -> None:
    for (i, a), (j, b) in itertools.product(enumerate(ROLES), repeat=2):
        assert (a >= b) is (i >= j)


def test_roles_are_of_users_and_of_groups_as_they_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = frozenset({"ops"})
    monkeypatch.setattr(accounts, "_look_up", lambda user, _: Account(7, groups))
    now = [0.0]
    roles = RolesConfig(operators=("@ops",), admins=("boss",))
    known = Accounts(Config(roles=roles), now_s=lambda: now[0])

    def role(user: str) -> Role:
        return asyncio.run(known.role_of(user))

    assert (role("ann"), role("boss")) == (Role.OPERATOR, Role.ADMIN)
    groups = frozenset()
    now[0] += accounts.KEPT_S
    assert role("ann") is Role.USER


def test_the_reason_of_a_waiting_job_is_everybodys_and_that_of_an_ended_one_is_not() -> None:
    job: Job = replace(builders.filled(Job), state=JobState.FAILED)
    assert job.reason is not None
    told = veiled(job)
    assert told.reason is not None
    assert job.reason.message not in str(told)
    assert (told.history, told.spec.chdir, told.spec.env, told.spec.script) == ((), "", (), "")
    assert all(task.note == "" for task in told.tasks)
    waiting = replace(job, state=JobState.PENDING, launch_failures=0)
    assert veiled(waiting).reason == job.reason


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ("uid 1000 pid 7", "uid 1000"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("unknown", "unknown"),
    ],
)
def test_another_process_or_address_does_not_make_another_source(origin: str, source: str) -> None:
    assert asker_of(origin) == source


def test_the_name_of_a_uid_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account is deleted and its number given to somebody else, who must not have its rights."""
    now_s, uid = 1000.0, 54321
    named = {uid: "carol"}
    monkeypatch.setattr(identity, "_names", {})
    monkeypatch.setattr(identity, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(identity.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=named[uid]))
    assert identity._name_of(uid) == "carol"
    named[uid] = "dave"
    now_s += identity.NAME_S
    assert identity._name_of(uid) == "dave"


@pytest.mark.parametrize(("name", "door"), [(b"\xff\xfe", "unix"), (b"sshd", "ssh")])
def test_no_name_of_a_process_keeps_what_it_asked_for_out_of_the_audit_log(name: bytes, door: str) -> None:
    words = f"open('/proc/self/comm', 'wb').write({name!r}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        request = cast(Any, SimpleNamespace(transport=Thread()))  # any object that a weak reference may name
        found = identity.door_of(request, Caller(7, "ann", Role.USER, pid=process.pid))
        process.communicate(b"\n")
    assert found == door
