"""Hosts of nobody, of other clusters and of other names: no order goes where it is not obeyed."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rm.core.jobs import events as ev
from rm.core.model.identity import ClusterIdentity
from rm.daemon.execution.claims import take_over
from rm.daemon.execution.executor import FOREIGN_TRIES
from rm.errors import Conflict
from rm.protocol.codes import Code
from tests import builders
from tests.executing import LAUNCH, House, executing


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    yield from executing(tmp_path)


def test_a_host_that_belongs_to_nobody_is_made_this_clusters_first(house: House) -> None:
    house.hosts.cluster = ClusterIdentity("c1", "here:/run/rm.sock")
    house.hosts.names["h1"] = ""
    house.executor.on_state("h1", True, "")
    adopt = house.hosts.take("adopt", "h1")
    assert adopt.args == {
        "cluster": "c1",
        "led_at": "here:/run/rm.sock",
        "instead_of": "",
        "stop_jobs": False,
        "host": "h1",
        "renamed_from": "",
    }
    assert house.hosts.untaken("facts") == []
    adopt.answer()
    house.hosts.take("facts", "h1")


@pytest.mark.parametrize("told", ["by its hello", "just then"])
def test_a_machine_has_one_name_until_that_is_removed(house: House, told: str) -> None:
    hosts = house.hosts
    hosts.cluster, hosts.clusters["h1"] = ClusterIdentity("c1"), "c1"
    hosts.boots.update(h1="boot", h2="boot")
    hosts.added["h2"] = builders.host("h2")
    hosts.names["h1"] = "h2" if told == "by its hello" else ""
    house.executor.on_state("h1", True, "")
    if told == "just then":
        hosts.take("adopt").answer(known_as="h2")
    assert "h1 is the machine that this cluster knows as h2" in house.inbox.wait(ev.HostSilent).reason
    assert hosts.untaken("facts") == []
    del hosts.added["h2"]
    asked = hosts.take("adopt")
    assert (asked.args["host"], asked.args["renamed_from"]) == ("h1", hosts.names["h1"])
    asked.answer(known_as="h1")
    hosts.take("facts", "h1")
    assert len(house.inbox.of(ev.HostSilent)) == 1


def test_a_name_that_another_machine_answers_for_by_now_is_given_anew(house: House) -> None:
    hosts = house.hosts
    hosts.cluster, hosts.clusters["h1"] = ClusterIdentity("c1"), "c1"
    hosts.added["h2"], hosts.names["h1"] = builders.host("h2"), "h2"
    house.executor.on_state("h1", True, "")
    hosts.take("adopt").answer(known_as="h1")
    hosts.take("facts", "h1")


@pytest.mark.parametrize("when", ["at its hello", "just then", "by an order"])
def test_nothing_is_asked_of_another_clusters_host(house: House, when: str) -> None:
    house.hosts.cluster = ClusterIdentity("c1")
    if when == "at its hello":
        house.hosts.clusters["h1"] = "c2"
        house.executor.on_state("h1", True, "")
    elif when == "just then":
        house.executor.on_state("h1", True, "")
        house.hosts.take("adopt").refuse("foreign-cluster")
    else:
        house.hosts.clusters["h1"] = "c1"
        house.connect()
        house.submit(LAUNCH)
        house.hosts.take("launch").refuse("foreign-cluster")
        house.reconnected("h1", "c2")
    silent = house.inbox.wait(ev.HostSilent)
    assert "rmx host adopt h1" in silent.reason
    assert [c.op for c in house.hosts.made if c.op in ("facts", "tasks")] == (
        ["facts", "tasks"] if when == "by an order" else []
    )
    assert house.inbox.of(ev.LaunchFailed) == []


def test_a_host_that_says_it_is_ours_and_refuses_our_orders_fails_its_launches(house: House) -> None:
    house.hosts.cluster, house.hosts.clusters["h1"] = ClusterIdentity("c1"), "c1"
    house.connect()
    house.submit(LAUNCH)
    for _ in range(FOREIGN_TRIES + 1):
        assert house.inbox.of(ev.HostMisbehaved) == []
        house.hosts.take("launch").refuse("foreign-cluster")
    house.settled(1)
    assert house.hosts.reconnected == ["h1"] * FOREIGN_TRIES
    assert "refuses its orders" in house.inbox.wait(ev.HostMisbehaved).what
    (failed,) = house.inbox.of(ev.LaunchFailed)
    assert failed.code is Code.FOREIGN_CLUSTER


def test_a_host_is_taken_over_when_the_others_jobs_have_ended(house: House) -> None:
    house.hosts.cluster, house.hosts.clusters["h1"] = ClusterIdentity("c1"), "c2"
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(asyncio.run, take_over(house.hosts, "h1", stop_jobs=False))
        house.hosts.take("adopt").answer(running=[4, 5])
        with pytest.raises(Conflict, match="4, 5") as error:
            refused.result()
        assert "--stop-jobs h1" in error.value.hint
        done = pool.submit(asyncio.run, take_over(house.hosts, "h1", stop_jobs=True))
        house.hosts.take("adopt").answer(running=[4])
        assert house.hosts.reconnected == []
        last = house.hosts.take("adopt")
        assert (last.args["instead_of"], last.args["stop_jobs"]) == ("c2", True)
        last.answer()
        done.result()
    assert house.hosts.reconnected == ["h1"]
    house.hosts.clusters["h1"] = "c1"
    with pytest.raises(Conflict, match="no other cluster"):
        asyncio.run(take_over(house.hosts, "h1", stop_jobs=False))
