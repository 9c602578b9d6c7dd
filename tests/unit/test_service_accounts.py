"""Accounts over a real leader and a store: for which a job runs, and that neither is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import IllegalTransition
from rm.core.journal.restoring import accounts_in, restore
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.job import Job
from rm.core.sharing.accounts import NO_ACCOUNTS, Accounts
from rm.errors import Conflict, UsageError
from tests import builders
from tests.fakes import PATIENCE_S
from tests.unit.test_service import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """alice is in physics, which is her default, and in chess."""
    made = House(tmp_path)
    made.do(ev.HostAdded(builders.host("h1")))
    for name in ("physics", "chess"):
        change(made, "add_account", {"name": name}, "root")
        change(made, "put_members", name, {"users": ["alice"]}, "root")
    yield made
    made.leader.stop()


def change(house: House, what: str, *words: Any) -> Accounts:
    found: Accounts = asyncio.run(getattr(house.service.account_service, what)(*words))
    return found


def submit(house: House, account: str = "", key: str = "", **more: Any) -> Job:
    spec = builders.spec(user="alice", account=account, **more)
    (number,) = asyncio.run(house.service.submissions.submit([spec], key))
    return asyncio.run(house.service.reading.described(number)).job


def test_a_job_runs_for_the_account_that_it_names_or_for_its_users_default(house: House) -> None:
    assert (submit(house).account, submit(house, "chess").account) == ("physics", "chess")
    change(house, "put_members", "chess", {"users": ["alice"], "default": True}, "root")
    first = asyncio.run(house.service.reading.described(1)).job
    assert (first.account, submit(house).account) == ("physics", "chess")
    array = submit(house, "physics", array="0-1")
    element = asyncio.run(house.service.reading.described(array.id, "1")).job
    assert (array.account, element.account) == ("physics", "physics")


def test_a_submission_that_is_repeated_after_the_default_changed_is_still_the_same(house: House) -> None:
    first = submit(house, key="k")
    change(house, "put_members", "chess", {"users": ["alice"], "default": True}, "root")
    assert submit(house, key="k") == first


def test_an_account_that_is_not_the_users_is_refused_with_those_that_are(house: House) -> None:
    with pytest.raises(UsageError, match="no account 'biology'") as refused:
        submit(house, "biology")
    assert refused.value.hint == "alice is in physics, chess."
    with pytest.raises(IllegalTransition, match="no account 'biology'"):  # by whichever door
        house.do(ev.JobSubmitted(1, builders.spec(user="alice", account="biology")))
    assert submit(house).id == 1


def test_what_jobs_run_for_cannot_go_before_they_end(house: House) -> None:
    job = submit(house, "chess", hold=True)
    for what, *words in (
        ("remove_members", "chess", ["alice"], "root"),
        ("import_accounts", [], [], "root"),
    ):
        with pytest.raises(Conflict, match=r"not ended are for chess \(of alice\)"):
            change(house, what, *words)
    house.do(ev.CancelRequested(job.id, "alice"))
    assert [one.account for one in change(house, "remove_members", "chess", ["alice"], "root").members] == [
        "physics"
    ]
    assert [one.name for one in change(house, "remove_account", "chess", "root").accounts] == ["physics"]


def test_accounts_outlive_the_leader_and_are_in_its_journal(house: House) -> None:
    known = change(house, "accounts")
    assert accounts_in(house.store.load()) == known

    def look(cycle: Any, now_us: int) -> Accounts:
        found = restore_state(dump_state(cycle.state, now_us), now_us).accounts
        restore(cycle.state, house.store.load(), now_us)
        assert cycle.state.accounts == found
        return found

    assert house.leader.ask(look).result(PATIENCE_S) == known


def test_what_is_stored_and_no_tree_is_left_as_it_is(house: House) -> None:
    house.leader.keep((("accounts", {"accounts": 7}),)).result(PATIENCE_S)
    told: list[str] = []
    assert accounts_in(house.store.load(), lambda name, error: told.append(name)) == NO_ACCOUNTS
    assert told == ["accounts"]
