"""Jobs that were stopped, and of which one host never says that they have ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Rules
from rm.core.model.job import JobState
from rm.core.sharing.accounts import Accounts, Qos
from rm.daemon.alerts.unended import Unended
from rm.daemon.leading.leader import Leader
from tests.fakes import ManualClock
from tests.unit.test_lifecycle import World

S = 1_000_000


class Decides:
    """The leader's two doors, on the state of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def ask(self, question: Callable[[Any, int], Any]) -> Future[Any]:
        world = self.world
        return _done(lambda: question(SimpleNamespace(state=world.state, rules=world.rules), world.now_us))

    def request(self, make: Callable[[Any], list[ev.Event]]) -> Future[Any]:
        return _done(lambda: self.world.do(*make(self.world.state)))


def _done(what: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(what())
    except Exception as error:
        future.set_exception(error)
    return future


class Watched:
    def __init__(self, **spec: Any) -> None:
        self.world = World(rules=Rules(grace_us=30 * S, down_after_us=20 * S), **spec)
        self.clock = ManualClock()
        self.unended = Unended(cast(Leader, Decides(self.world)), self.clock, grace_s=30, after_s=600)
        self.world.do(ev.HostUp("h1", "boot", "0.1"), ev.HostUp("h2", "boot", "0.1"))
        self.world.run()

    def look(self, after_s: int) -> JobState:
        self.clock.us += after_s * S
        self.unended.look()
        return self.world.job.state

    def drained(self) -> dict[str, str]:
        return {host.name: host.drained_by for host in self.world.state.hosts.values()}


def test_a_host_on_which_a_job_never_ends_holds_its_other_hosts_for_a_bounded_time() -> None:
    it = Watched()
    it.world.do(ev.CancelRequested(1, "alice"))
    it.world.exit(0, signal=15, why="cancel")
    it.world.exit(1, signal=15, why="cancel")  # h1 is done, h2 says nothing
    assert it.look(0) is JobState.COMPLETING
    assert it.look(629) is JobState.COMPLETING
    assert it.drained() == {"h1": "", "h2": ""}
    assert it.look(1) is JobState.CANCELLED
    assert it.world.is_at_rest()
    assert it.drained()["h1"] == ""
    assert it.drained()["h2"] == "tasks of job 1 have not ended 630 s after they were stopped (rm)"
    assert it.world.exit(2, signal=15, why="cancel") == []  # it may still tell


def test_who_ends_in_time_is_left_alone() -> None:
    it = Watched()
    it.look(1000)  # it runs
    it.world.do(ev.CancelRequested(1, "alice"))
    it.look(0)
    for rank in range(3):
        it.world.exit(rank, signal=15, why="cancel")
    assert it.look(1000) is JobState.CANCELLED
    assert it.drained() == {"h1": "", "h2": ""}


def test_the_longest_grace_that_a_qos_gives_counts_beside_that_of_all_jobs() -> None:
    it = Watched()  # with --signal a job is warned for the one, and has the other after that
    it.world.state.accounts = Accounts(qos=(Qos("patient", grace_s=3000),))
    it.world.do(ev.CancelRequested(1, "alice"))
    it.look(0)
    assert it.look(3629) is JobState.COMPLETING
    assert it.look(1) is JobState.CANCELLED


def test_a_host_that_does_not_answer_is_waited_for_until_it_is_lost() -> None:
    it = Watched()
    it.world.do(ev.CancelRequested(1, "alice"), ev.HostSilent("h1", "away"), ev.HostSilent("h2", "away"))
    it.look(0)
    assert it.look(649) is JobState.COMPLETING
    assert it.drained() == {"h1": "", "h2": ""}


@pytest.mark.parametrize("always", [False, True], ids=["at some looks", "at all looks"])
def test_a_host_that_falls_silent_again_and_again_gains_no_time_by_it(always: bool) -> None:
    it = Watched()
    it.world.do(ev.CancelRequested(1, "alice"))
    it.look(0)
    it.world.exit(0, signal=15, why="cancel")
    it.world.exit(1, signal=15, why="cancel")
    for _ in range(64):
        it.world.do(ev.HostSilent("h2", "away"))
        it.look(5)
        it.world.do(ev.HostUp("h2", "boot", "0.1"))
        if always:
            it.clock.us += 5 * S
        else:
            it.look(5)
    it.look(20)  # as long as one silence may be
    assert it.world.job.state is JobState.CANCELLED
    assert "tasks of job 1 have not ended" in it.drained()["h2"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_waits_again_afterwards_is_not_begun_while_it_may_still_run(cancelled: bool) -> None:
    it = Watched()
    it.world.do(ev.RequeueRequested(1, "alice"))
    if cancelled:  # then somebody has said that it is not to run again
        it.world.do(ev.CancelRequested(1, "alice"))
    it.look(0)
    assert it.look(1000) is (JobState.CANCELLED if cancelled else JobState.COMPLETING)
