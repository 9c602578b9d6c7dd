"""Leases are renewed on the hosts that run fenced jobs, from what these said of their clocks, by a leader."""

from dataclasses import replace

from rm.core.model.job import Job, JobState, Task
from rm.daemon.execution.renewing import LONGEST_S, RENEWALS, SHORTEST_S, Renewer
from rm.errors import Unreachable
from tests import builders
from tests.fakes import FakeHosts

S = 1_000_000


def fenced(id: int, *hosts: str, lease_s: float = 16, state: JobState = JobState.RUNNING) -> Job:
    tasks = tuple(Task(rank, host, started_us=1) for rank, host in enumerate(hosts))
    return builders.job(id, state=state, tasks=tasks, fence_us=round(lease_s * S))


class House:
    """A renewer with two hosts, both heard."""

    def __init__(self) -> None:
        self.hosts, self.heard, self.leads = FakeHosts(), {"h1", "h2"}, True
        self.hosts.alive_us = {"h1": 100, "h2": 200}
        self.renewer = Renewer(
            hosts=self.hosts, epoch=7, is_heard=lambda host: host in self.heard, may_act=lambda: self.leads
        )

    def renewed(self) -> dict[str, int]:
        """What one round asks: host and heard_us; the hosts answer that 1,000 more have passed."""
        before = len(self.hosts.made)
        self.renewer.renew()
        calls = self.hosts.made[before:]
        assert all((call.op, call.args["epoch"]) == ("renew", 7) for call in calls)
        asked = {call.host: call.args["heard_us"] for call in calls}
        for call in calls:
            call.answer(alive_us=call.args["heard_us"] + 1_000)
        return asked


def test_only_hosts_with_fenced_jobs_are_renewed_as_often_as_the_shortest_lease_asks() -> None:
    house = House()
    house.renewer.jobs_changed([builders.job(1, state=JobState.RUNNING, tasks=(Task(0, "h1"),))])
    assert (house.renewer.pause_s(), house.renewed()) == (None, {})
    house.renewer.jobs_changed([fenced(2, "h1"), fenced(3, "h2", lease_s=3_600)])
    assert house.renewer.pause_s() == 16 / RENEWALS
    assert set(house.renewed()) == {"h1", "h2"}
    house.renewer.jobs_changed([fenced(2, "h1", state=JobState.COMPLETED)])
    assert (house.renewer.pause_s(), set(house.renewed())) == (LONGEST_S, {"h2"})
    short = fenced(4, "h2")
    house.renewer.jobs_changed([replace(short, spec=replace(short.spec, fence_us=S // 10))])
    assert house.renewer.pause_s() == SHORTEST_S


def test_a_rank_that_has_ended_needs_no_renewal() -> None:
    house = House()
    job = fenced(1, "h1", "h2")
    house.renewer.jobs_changed([job])
    house.renewer.jobs_changed([replace(job, tasks=(job.tasks[0], replace(job.tasks[1], ended_us=2)))])
    assert set(house.renewed()) == {"h1"}


def test_a_renewal_counts_from_what_the_host_said_last() -> None:
    house = House()
    house.renewer.jobs_changed([fenced(1, "h1")])
    assert [house.renewed()["h1"] for _ in range(3)] == [100, 1_100, 2_100]
    house.renewer.renew()
    house.hosts.made[-1].refuse(Unreachable("no answer"))
    assert house.renewed() == {"h1": 3_100}
    house.hosts.alive_us["h1"] = 50  # another channel, after a reboot
    assert house.renewed() == {"h1": 50}


def test_a_host_that_is_not_heard_is_not_renewed() -> None:
    house = House()
    house.renewer.jobs_changed([fenced(1, "h1", "h2")])
    house.heard.remove("h1")
    assert set(house.renewed()) == {"h2"}


def test_nothing_is_renewed_while_another_daemon_may_lead() -> None:
    house = House()
    house.renewer.jobs_changed([fenced(1, "h1")])
    house.leads = False
    assert house.renewed() == {}
    house.leads = True
    assert set(house.renewed()) == {"h1"}


def test_the_thread_renews_as_soon_as_there_is_a_lease_and_ends() -> None:
    house = House()
    house.renewer.start()
    try:
        house.renewer.jobs_changed([fenced(1, "h1")])
        assert house.hosts.take("renew", "h1").args["heard_us"] == 100
    finally:
        house.renewer.stop()
