"""A regulator over a state that events change, with hosts that answer by hand."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment, LinkAlignment, Schedule
from rm.daemon.regulation import regulator
from rm.daemon.regulation.regulator import PAUSES_PER_EPOCH, Regulator
from rm.policies.regulate.controller import ControllerOptions
from rm.protocol.notifications import Iterations
from tests import builders
from tests.fakes import PATIENCE_S, FakeHosts, Inbox, ManualClock, said

TRAFFIC = builders.profile(100, (0, 40, 1_000))
MEASURED = {"period_us": 100_000, "phases": [[0, 40_000, 1_000_000_000]], "confidence": 1.0}

EPOCH = 7
FIRST_PAUSE = EPOCH * PAUSES_PER_EPOCH + 1


class Shaping:
    enabled = True
    queue_packets = 30


class Hosts(FakeHosts):
    """Says when the regulator has taken what came before a mark."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def clock_offset_us(self, name: str) -> int | None:
        if name == "mark":
            self.reached.set()
        return super().clock_offset_us(name)


class House:
    """A regulator over a state that events change, with hosts that answer by hand."""

    def __init__(self, epoch: int = EPOCH) -> None:
        self.hosts, self.posted, self.clock = Hosts(), Inbox(), ManualClock(1_000)
        self.state = ClusterState()
        for name, offset_us in (("a", 0), ("b", 700)):
            self.hosts.offsets_us[name] = offset_us
            self.do(ev.HostAdded(builders.host(name, cpus=8, interface="eth0", nic_mbps=1_000)))
        self.regulator = Regulator(
            agents=self.hosts,
            post=self.posted,
            clock=self.clock,
            options=ControllerOptions(),
            shaping=Shaping(),
            dscp=(3, 7),
            epoch=epoch,
        )
        self.regulator.start()

    def do(self, *events: ev.Event) -> None:
        for event in events:
            apply(self.state, event, self.clock.us, Rules(), Changes())

    def run(self, job: int, traffic: TrafficProfile | None = TRAFFIC, **spec: Any) -> None:
        self.do(
            ev.JobSubmitted(job, builders.spec(ntasks=2, traffic=traffic, **spec)),
            ev.JobPlaced(job, builders.placement("a", "b")),
        )
        self.start(job)

    def start(self, job: int) -> None:
        attempt = self.state.jobs[job].attempt
        for host in ("a", "b"):
            self.do(ev.TasksPrepared(job, attempt, host))
        for rank, host in enumerate(("a", "b")):
            self.do(ev.TasksStarted(job, attempt, host, self.clock.us, (rank,)))

    def see(self, alignment: Alignment = NOTHING_TO_ALIGN) -> None:
        """The regulator has taken the plan in before this returns: the clock may move on at once."""
        self.regulator.aligned(alignment, self.state)
        self.settle()

    def settle(self) -> None:
        """Wait until the regulator has worked off all that was put to it, and looked after due jobs.

        It looks after them once it has worked off a report: it has done so when it takes the next one.
        """
        for _ in range(2):
            self.hosts.reached.clear()
            self.report(0, [0, 0, 0, 0, 0, None], host="mark")
            assert self.hosts.reached.wait(PATIENCE_S)

    def report(self, job: int, *items: list[Any], host: str = "a", attempt: int = 1) -> None:
        message = said("iterations", job=job, attempt=attempt, items=list(items))
        assert isinstance(message, Iterations)
        self.regulator.iterations(host, message)


def schedule(job: int, **fields: Any) -> Schedule:
    return Schedule(job, 1, **{"shift_us": 0, "period_us": 100_000, "base_period_us": 100_000, **fields})


def pair(**low: Any) -> Alignment:
    """Job 1 is the reference, job 2 is kept 50 ms behind it."""
    link = LinkAlignment("a", 100.0, 100_000, (1, 2))
    low = {"shift_us": 50_000, "gate": True, "cushion_us": 10_000, **low}
    return Alignment(100.0, (link,), (schedule(1, reference=True, high=True), schedule(2, **low)))


def turning_house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """For a fixture: its regulator takes a turn each millisecond."""
    monkeypatch.setattr(regulator, "TURN_US", 1_000)
    made = House()
    yield made
    made.regulator.stop()
