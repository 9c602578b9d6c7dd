"""Accounts over a real leader and a store: for which a job runs, and that neither is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import IllegalTransition
from rm.core.jobs.state import ClusterState
from rm.core.journal.restoring import accounts_in, restore
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job
from rm.core.model.replacing import replace
from rm.core.sharing.accounts import NO_ACCOUNTS, Accounts
from rm.errors import Conflict, ImpossibleRequest, NotFound, UsageError
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
        ("import_accounts", NO_ACCOUNTS, "root"),
    ):
        with pytest.raises(Conflict, match=r"not ended are for chess \(of alice\)"):
            change(house, what, *words)
    house.do(ev.CancelRequested(job.id, "alice"))
    assert [one.account for one in change(house, "remove_members", "chess", ["alice"], "root").members] == [
        "physics"
    ]
    assert [one.name for one in change(house, "remove_account", "chess", "root").accounts] == ["physics"]


def test_what_a_reservation_is_for_cannot_go_before_it(house: House) -> None:
    change(house, "add_account", {"name": "teaching"}, "root")
    end_us = house.clock.now_us() + 1_000_000
    house.do(ev.ReservationSet(HostReservation("seminar", ("h1",), ((0, end_us),), accounts=("teaching",))))
    without = change(house, "accounts")
    without = replace(without, accounts=tuple(a for a in without.accounts if a.name != "teaching"))
    for what, *words in (("remove_account", "teaching", "root"), ("import_accounts", without, "root")):
        with pytest.raises(Conflict, match=r"Reservation seminar is for teaching\."):
            change(house, what, *words)
    house.do(ev.ReservationDeleted("seminar", "root"))
    assert change(house, "remove_account", "teaching", "root") == without


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


def limit(house: House, **limits: int) -> None:
    change(house, "set_account", "physics", {"limits": limits}, "root")


def test_jobs_beyond_a_limit_of_submitted_ones_are_refused_whole(house: House) -> None:
    limit(house, submitted=5)
    submit(house, array="0-2", hold=True)
    specs = [builders.spec(user="alice", hold=True) for _ in range(3)]
    with pytest.raises(Conflict, match=r"physics has 3 of at most 5 submitted jobs, and would have 6"):
        asyncio.run(house.service.submissions.submit(specs))
    asyncio.run(house.service.submissions.submit(specs[:2]))
    with pytest.raises(Conflict, match="AssocGrpSubmitJobsLimit"):
        submit(house, hold=True)
    assert submit(house, "chess").account == "chess"
    house.do(ev.CancelRequested(1, "alice", "0"))
    submit(house, hold=True)


def test_what_limits_would_never_let_run_is_refused(house: House) -> None:
    limit(house, **{"cpus": 4, "job.minutes": 10, "job.elements": 3})
    for spec, says in (
        ({"cpus_per_task": 5}, "AssocGrpCpuLimit"),
        ({"time_limit_us": 11 * 60 * 10**6}, "AssocMaxWallDurationPerJobLimit"),
        ({"array": "0-3"}, "has 4 elements"),
    ):
        with pytest.raises(ImpossibleRequest, match=says):
            submit(house, **spec)
    job = submit(house, key="again")
    assert job.spec.time_limit_us == 10 * 60 * 10**6
    assert submit(house, key="again") == job


def test_a_change_beyond_what_limits_would_ever_let_run_is_refused_but_for_administrators(
    house: House,
) -> None:
    limit(house, **{"cpus": 4, "job.minutes": 10})
    job = submit(house, hold=True, time_limit_us=5 * 60 * 10**6)
    array = submit(house, hold=True, array="0-9", time_limit_us=5 * 60 * 10**6)

    def to(job_id: int, may_raise: bool = False, tasks: str = "", **asked: Any) -> None:
        change = house.service.changes.update
        asyncio.run(change(job_id, "alice", JobUpdate(**asked), lambda _: True, may_raise, tasks))

    minutes = 60 * 10**6
    for beyond in (11 * minutes, 0):
        for one, tasks in ((job, ""), (array, ""), (array, "2")):
            with pytest.raises(ImpossibleRequest, match="AssocMaxWallDurationPerJobLimit"):
                to(one.id, tasks=tasks, time_limit_us=beyond)
    with pytest.raises(ImpossibleRequest, match="AssocGrpCpuLimit"):
        to(job.id, cpus_per_task=5)
    to(job.id, time_limit_us=10 * minutes)
    to(array.id, tasks="2", time_limit_us=9 * minutes)
    assert house.cycle.state.jobs[job.id].spec.time_limit_us == 10 * minutes
    to(job.id, may_raise=True, time_limit_us=11 * minutes)
    assert house.cycle.state.jobs[job.id].spec.time_limit_us == 11 * minutes
    to(job.id, comment="its limits are as they are")
    to(array.id, may_raise=True, tasks="2", time_limit_us=11 * minutes)
    to(array.id, tasks="2", comment="its limits are as they are")


def test_a_qos_is_the_accounts_and_cannot_go_before_its_jobs_end(house: House) -> None:
    change(house, "add_qos", {"name": "fast", "accounts": ["physics"]}, "root")
    change(house, "add_qos", {"name": "slow"}, "root")
    change(house, "set_account", "physics", {"qos": "fast"}, "root")
    assert submit(house, hold=True).qos == "fast"
    assert submit(house, "chess").qos == ""
    with pytest.raises(UsageError, match="QOS fast is not for account chess"):
        submit(house, "chess", qos="fast")
    with pytest.raises(UsageError, match="QOS fast is not for jobs without an account"):
        asyncio.run(house.service.submissions.submit([builders.spec(user="bob", qos="fast")]))
    with pytest.raises(UsageError, match="There is no QOS 'night'"):
        submit(house, qos="night")
    with pytest.raises(Conflict, match="fast is the QOS of account physics"):
        change(house, "remove_qos", "fast", "root")
    change(house, "set_account", "physics", {"qos": "slow"}, "root")
    with pytest.raises(Conflict, match="not ended run in QOS fast"):
        change(house, "remove_qos", "fast", "root")
    house.do(ev.CancelRequested(1, "alice"))
    assert [one.name for one in change(house, "remove_qos", "fast", "root").qos] == ["slow"]


def test_a_plan_is_for_the_account_that_the_job_would_have(house: House) -> None:
    """Of a partition that is for an account, and of an account with a limit."""
    house.do(ev.HostAdded(builders.host("h1", partitions=("gpu",))), ev.HostUp("h1", "boot", "1"))
    change(house, "add_partition", {"name": "gpu", "accounts": ["physics"]}, "root")
    change(house, "set_account", "physics", {"limits": {"cpus": 0}}, "root")
    plan = house.service.submissions.plan
    told = asyncio.run(plan(builders.spec(user="alice", partition="gpu")))
    assert [reason.code for reason in told["reasons"]][:1] == ["AssocGrpCpuLimit"]
    assert told["placement"] is None, "there is room on the host, and it would not start"
    with pytest.raises(UsageError, match="Partition gpu is not for account chess"):
        asyncio.run(plan(builders.spec(user="alice", account="chess", partition="gpu")))
    change(house, "set_account", "physics", {"limits": {"cpus": None}}, "root")
    assert asyncio.run(plan(builders.spec(user="alice", partition="gpu")))["placement"] is not None


def test_a_submission_that_is_repeated_is_the_same_without_the_partitions_that_took_no_new_jobs(
    house: House,
) -> None:
    house.do(ev.HostAdded(builders.host("h1", partitions=("gpu", "cpu"))))
    change(house, "add_partition", {"name": "gpu", "state": "drain"}, "root")
    first = submit(house, key="k", partition="gpu,cpu")
    assert first.spec.partition == "cpu"
    change(house, "set_partition", "gpu", {"state": "up"}, "root")
    assert submit(house, key="k", partition="gpu,cpu") == first
    with pytest.raises(Conflict):
        submit(house, key="k", partition="gpu")


def test_what_several_administrators_change_at_the_same_moment_is_all_kept(house: House) -> None:
    service, stands, goes_on = house.service, threading.Event(), threading.Event()

    def stand(state: ClusterState) -> list[ev.Event]:
        stands.set()
        goes_on.wait(PATIENCE_S)
        return []

    async def at_once() -> list[Any]:
        """All of these wait while the leader is in a turn, so that it could take them together."""
        standing = house.leader.request(stand)
        assert stands.wait(PATIENCE_S)
        asked = [
            *(service.account_service.add_qos({"name": name}, "root") for name in ("a", "b", "c")),
            service.account_service.set_account("chess", {"shares": 7}, "root"),
            *(
                service.reservation_service.create(
                    {"name": name, "hosts": ["h1"], "accounts": ["physics"], "lasts_us": 10**9}, "root"
                )
                for name in ("one", "two")
            ),
            service.account_service.remove_account("nothing", "root"),
        ]
        waiting = [asyncio.ensure_future(one) for one in asked]
        while house.leader._inbox._items.qsize() < len(waiting):
            await asyncio.sleep(0.01)
        goes_on.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        standing.result(PATIENCE_S)
        return found

    found = asyncio.run(at_once())
    assert [type(one) for one in found if isinstance(one, Exception)] == [Conflict, NotFound]
    accounts = house.cycle.state.accounts
    assert [one.name for one in accounts.qos] == ["a", "b", "c"]
    assert accounts.by_name["chess"].shares == 7
    assert [*house.cycle.state.reservations] == ["one"]
