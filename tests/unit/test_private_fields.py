"""What of a job is its user's own: no field of it, and no answer to whatever is asked, tells others.

The other user's jobs are hindered by the first one's in every way: preempted, without the licence, beyond a
limit, kept off by a reservation.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from rm.config import PrivacyConfig
from rm.core.jobs import events as ev
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import JobSpec, JobState
from rm.core.people.privacy import SHOWN, veiled
from rm.core.people.rights import Role
from rm.core.sharing.accounts import Account, Accounts, Member, Qos
from rm.core.sharing.ended import Sums
from rm.web.callers import identity
from rm.web.callers.sight import sight_of
from tests import builders
from tests.unit.test_privacy import ANN, BOB, World, answers, cluster, leaks, pending

WORD = "secretword"  # in every text that a user writes for himself
# everybody sees these where jobs are not private; the last is what a host said of its own spool
SEEN = {"annsecret", "secretname", "secretnote"}
HOUR_US = 3_600_000_000


def own_texts() -> dict[str, str]:
    """Each field of text that is not shown, with something in it."""
    texts = {f.name: f"/{WORD}" for f in fields(JobSpec) if f.name not in SHOWN and f.default == ""}
    fit = {"container_mounts": f"/{WORD}:/x", "container_name": WORD}
    return texts | fit | {"mail_events": "END", "open_mode": "append"}


def hinder(world: World) -> None:
    """Ann's jobs stand in Bob's way."""
    accounts = Accounts(
        (Account("physics"),), (Member("physics", ANN), Member("physics", BOB)),
        (Qos("batch"), Qos("urgent", preempts=("batch",)), Qos("tiny", limits={"running": 1})),
    )  # fmt: skip
    world.do(ev.AccountsSet(accounts, "op"))
    world.do(*(ev.HoldRequested(job, "op") for job in pending(world)))  # the new hosts are for these below
    for name in ("g1", "g2"):
        world.do(ev.HostAdded(builders.host(name)), ev.HostUp(name, "boot", "0.1"))
    world._submit(ANN, hold=True, traffic=None, **own_texts())
    world._submit(BOB, qos="batch", traffic=None, cpus_per_task=8, ntasks=1, hosts_only=("g1",))
    world._start(world.jobs[BOB][-1])
    world._submit(ANN, qos="urgent", traffic=None, cpus_per_task=8, ntasks=1, hosts_only=("g1",))
    world._submit(ANN, qos="tiny", traffic=None, cpus_per_task=1, ntasks=1, hosts_only=("g2",))
    world._submit(BOB, qos="tiny", traffic=None, cpus_per_task=1, ntasks=1, hosts_only=("g2",))
    failed = world.jobs[ANN][0]
    task = world.job(failed).tasks[0]
    why = f"The working directory /{WORD} cannot be entered."
    world.do(ev.TaskExited(failed, 1, task.host, task.rank, 1, 0, None, world.clock.us, why=why))
    window = (world.clock.us + HOUR_US, world.clock.us + 2 * HOUR_US)
    kept = HostReservation(
        "course", ("g2",), (window,), (ANN, BOB), playbook=f"/{WORD}", result=WORD, by="op"
    )
    world.do(ev.ReservationSet(kept))
    world._submit(BOB, traffic=None, cpus_per_task=1, ntasks=1, hosts_only=("g2",), time_limit_us=None)


async def changes(world: World, socket: str) -> dict[str, str]:
    """What Bob is answered when he changes his own jobs."""
    told = {}
    headers = {"Authorization": f"Bearer {BOB}"}
    bodies = {
        "hold": {},
        "release": {},
        "update": {"comment": "x"},
        "requeue": {},
        "array-limit": {"limit": 1},
    }
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket), headers=headers) as session:
        for job in world.jobs[BOB]:
            for verb, body in bodies.items():
                path = f"/v1/jobs/{job}/{verb}"
                async with session.post(f"http://rm{path}", json=body) as response:
                    told[path] = await response.text()
        async with session.delete(f"http://rm/v1/jobs?user={BOB}") as response:
            told["cancel_all"] = await response.text()
            assert response.status == 200
    return told


def told_to_bob(folder: Path, monkeypatch: pytest.MonkeyPatch, **privacy: Any) -> dict[str, list[str]]:
    """By request, what of Ann's was in its answer."""
    with cluster(folder, 0, monkeypatch, **privacy) as (world, socket):
        hinder(world)
        preempted = world.job(world.jobs[BOB][-3])
        assert preempted.preempted_by in world.jobs[ANN]
        told = asyncio.run(answers(world, socket, BOB)) | asyncio.run(changes(world, socket))
        found = {}
        for request, answer in told.items():
            words = leaks(world, request, answer) + [WORD] * (WORD in answer)
            if words:
                found[request] = words
        return found


def test_what_a_user_writes_for_himself_is_shown_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no switch of `[privacy]` is on."""
    found = told_to_bob(tmp_path, monkeypatch)
    own = {
        request: [w for w in words if w not in SEEN and not w.isdigit()] for request, words in found.items()
    }
    assert {request: words for request, words in own.items() if words} == {}
    assert any("secretname" in words for words in found.values())


@pytest.mark.parametrize("more", [{}, {"usage": True}, {"hosts": True}])
def test_who_stands_in_the_way_is_not_told_where_jobs_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, bool]
) -> None:
    assert told_to_bob(tmp_path, monkeypatch, jobs=True, **more) == {}


def test_a_new_field_of_a_job_is_its_users_own_until_it_is_shown() -> None:
    """Whoever adds one decides: no text of a user is among those that are shown by accident."""
    made = builders.spec(user=ANN, **{name: text for name, text in own_texts().items() if name != "script"})
    job = builders.job(7, user=ANN)
    object.__setattr__(job, "spec", made)
    seen = veiled(job).spec
    assert WORD not in str(seen)
    assert all(getattr(seen, name) == getattr(made, name) for name in SHOWN)
    assert {f.name for f in fields(JobSpec)} > SHOWN


def test_users_find_themselves_among_accounts_and_reservations() -> None:
    members = (Member("physics", ANN), Member("physics", BOB))
    accounts = Accounts((Account("physics"),), members)
    kept = HostReservation("course", ("h1",), ((1, 2),), (ANN, BOB), playbook="/p", result="failed")
    private = sight_of(PrivacyConfig(jobs=True), identity.Caller(7, BOB), {5})
    assert private.accounts(accounts).members == members[1:]
    assert (private.reservation(kept).users, private.reservation(kept).playbook) == ((BOB,), "")
    plain = sight_of(PrivacyConfig(), identity.Caller(7, BOB), {5})
    assert plain.accounts(accounts) == accounts
    assert (plain.reservation(kept).users, plain.reservation(kept).result) == ((ANN, BOB), "")
    operator = sight_of(PrivacyConfig(jobs=True), identity.Caller(8, "op", Role.OPERATOR), ())
    assert operator.accounts(accounts) == accounts
    assert operator.reservation(kept) == kept


def test_why_anothers_job_could_not_run_is_not_in_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path, 0, monkeypatch) as (world, socket):
        hinder(world)
        assert world.job(world.jobs[ANN][0]).state is not JobState.RUNNING
        told = asyncio.run(answers(world, socket, "op"))
        shown = [
            job for job in json.loads(told["GET /v1/jobs"][4:])["jobs"] if job["id"] == world.jobs[ANN][0]
        ]
        assert WORD in str(shown)  # operators need it


@pytest.mark.parametrize(
    ("private", "user", "query", "only"),
    [
        (True, BOB, "by=user", [("user", BOB)]),
        (True, BOB, f"by=account&user={BOB}", [("user", BOB)]),
        (True, BOB, f"by=account&user={ANN}", None),
        (True, BOB, "by=account&account=physics", [("account", "physics")]),
        (True, "op", f"user={ANN}", [("user", ANN)]),
        (False, BOB, f"by=user&user={ANN}", [("user", ANN)]),
        (False, BOB, "by=user", []),
    ],
)
def test_of_what_users_used_only_ones_own_is_told_where_jobs_are_private(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    private: bool,
    user: str,
    query: str,
    only: list[tuple[str, str]] | None,
) -> None:
    with cluster(tmp_path, 0, monkeypatch, jobs=private) as (world, socket):
        asked: list[Any] = []

        async def usage(by: Any, since_us: int, until_us: int, only: Any) -> Any:
            asked.append(list(only))
            heap = SimpleNamespace(account="", user=ANN, qos="", partition="", host="", start_us=0)
            return SimpleNamespace(since_us=0, until_us=1, by=by), [(heap, Sums())]

        monkeypatch.setattr(world.service.usage_service, "usage", usage)

        async def ask() -> Any:
            headers = {"Authorization": f"Bearer {user}"}
            way = aiohttp.UnixConnector(socket)
            async with (
                aiohttp.ClientSession(connector=way, headers=headers) as session,
                session.get(f"http://rm/v1/usage?{query}") as response,
            ):
                assert response.status == 200, await response.text()
                return (await response.json())["lines"]

        lines = asyncio.run(ask())
        if only is None:
            assert lines == []
        else:
            assert (asked, len(lines)) == ([only], 1)
