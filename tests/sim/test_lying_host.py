"""A host whose agent says anything at all, beside an honest one: nobody else notices, and nothing ends.

The leader, the executor, the regulator, the prober and the store are the real ones; messages are read as the
channel reads them. Each example is a thousand hostile messages of one seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm.adapters.clock import SystemClock
from rm.adapters.store.log_directory import LogDirectory
from rm.adapters.store.opening import open_store
from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.published import Published
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.model.host import HostState
from rm.core.model.identity import NO_CLUSTER
from rm.core.model.job import JobState
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.launch import LaunchRules, launch_request
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome
from rm.daemon.execution.streams import Streams
from rm.daemon.leading.inbox import Inbox as LeaderInbox
from rm.daemon.leading.leader import Leader
from rm.daemon.leading.listeners import Listeners
from rm.daemon.leading.outbox import revivable
from rm.daemon.monitoring.probe import Prober
from rm.daemon.regulation.regulator import Regulator
from rm.policies.regulate.controller import ControllerOptions
from rm.protocol.attempts import Fence
from rm.protocol.codes import Code
from rm.protocol.line import Misfit, read_answer, read_line, read_notification, read_refusal
from rm.protocol.notifications import Asked, Communication, Hello, Iterations, Reflecting, Streamed
from rm.protocol.request import Request, name_of
from tests import builders
from tests.fakes import PATIENCE_S, Inbox

MESSAGES = 1_000  # of one example
EXAMPLES = 100
HELLO_EVERY = 100  # the liar's channel is opened anew after so many messages
LIAR, HONEST = "liar", "honest"
DEEP = "[" * 100_000
NUMBERS = (
    0,
    1,
    2,
    3,
    -1,
    7,
    64,
    65,
    255,
    1 << 20,
    1 << 31,
    1 << 53,
    (1 << 53) + 1,
    1 << 63,
    1 << 70,
    1e300,
    0.5,
)
TEXTS = ("", "x", "cancel", "\x1b[31mred", "a" * 20_000, "ERROR rm: forged", "é\u202e", "-1", "null")
EVENTS = (
    "exit",
    "exit",
    "exit",
    "started",
    "started",
    "iterations",
    "reflecting",
    "hello",
    "counters",
    "communication",
    "stream",
    "stepped",
    "asked",
    "room",
    "nonsense",
)
KEYS = (
    "job",
    "attempt",
    "rank",
    "code",
    "signal",
    "started_us",
    "ended_us",
    "oom",
    "why",
    "items",
    "port",
    "pid",
    "number",
    "ended",
    "place",
    "stream",
    "offset",
    "data",
    "ack",
    "waiting",
)


class Shaping:
    enabled = True
    queue_packets = 30


class Liar:
    """Random messages of one seed: some true, most nearly."""

    def __init__(self, seed: int, jobs: list[int]) -> None:
        self.random = random.Random(seed)
        self.jobs = jobs

    def value(self, depth: int = 0) -> Any:
        pick = self.random.random()
        if pick < 0.5:
            return self.random.choice(NUMBERS)
        if pick < 0.7:
            return self.random.choice(TEXTS)
        if pick < 0.85 or depth > 3:
            return self.random.choice((None, True, False, [], {}))
        inner = [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return inner if pick < 0.93 else {self.random.choice(KEYS): one for one in inner}

    def fields(self) -> dict[str, Any]:
        """A true notification's fields."""
        rank = self.random.choice((0, 0, 1, 2))
        now_us = self.random.choice((5, 1_000_000, 1 << 52))
        item = [rank, self.random.randrange(9), now_us, 100_000, 0, None]
        return {
            "job": self.random.choice(self.jobs), "attempt": self.random.choice((1, 1, 1, 2)), "rank": rank,
            "code": 0, "signal": self.random.choice((0, 9)), "started_us": now_us, "ended_us": now_us,
            "why": "", "pid": 5, "items": [item] * self.random.randrange(4), "port": 8_760,
            "number": 3, "ended": False, "place": self.random.randrange(3), "stream": "0", "offset": 0,
            "data": "eA==", "ack": 0, "waiting": 2,
        }  # fmt: skip

    def text(self) -> bytes:
        pick = self.random.random()
        if pick < 0.01:
            return self.random.choice(
                (DEEP, '{"event":' + DEEP, "", "hello", '{"id":1}', '"', "[]", "{}")
            ).encode()
        message = {"event": self.random.choice(EVENTS), **self.fields()}
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2))):
            message[self.random.choice(KEYS)] = self.value()
        if pick < 0.1:
            del message[self.random.choice(tuple(message))]
        text = msgspec.json.encode(message)
        if pick > 0.97:
            at = self.random.randrange(len(text))
            text = text[:at] + bytes([self.random.randrange(256)]) + text[at + 1 :]
        return text

    def answer(self, request: Request[Any]) -> bytes:
        """To `tasks`, `facts`, `launch`, `discard` or whatever: the result, or a refusal, nearly."""
        pick = self.random.random()
        if pick < 0.2:
            refusal = {
                "ok": False,
                "code": self.random.choice([*Code, 5, "x"]),
                "error": self.random.choice(TEXTS),
            }
            return msgspec.json.encode(refusal)
        task = {**self.fields(), "state": self.random.choice(("running", "exited", "lost", "prepared", 3))}
        result: dict[str, Any] = {
            "tasks": [task] * self.random.randrange(3), "boot_id": "boot", "cpus": 8, "mem_bytes": 1 << 30,
            "now_us": 5, "data": "", "offset": 0, "size": 0, "done": True, "class": "1:10", "missing": [],
            "classifier": "x", "verified": False, "interfaces": [], "gpus": [], "phases": [[0, 1, 1]],
            "period_us": 5, "confidence": 1.0,
        }  # fmt: skip
        for _ in range(self.random.choice((0, 0, 1, 2))):
            result[self.random.choice(tuple(result))] = self.value()
        return msgspec.json.encode({"ok": True, "result": result})


class Hosts:
    """Two agents: the honest one does what it is asked, the other one answers as it likes."""

    def __init__(self) -> None:
        self.liar: Liar | None = None
        self.misfits = 0
        self.world: World | None = None
        self.guard = threading.Lock()
        self.heard: set[tuple[str, int]] = set()  # of the honest host: (request, job)

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        future: Future[Any] = Future()
        if name == LIAR and self.liar is not None:
            with self.guard:
                text = self.liar.answer(request)
            self.lie(request, text, future)
            return future
        self.heard.add((name_of(type(request)), getattr(request, "job", 0)))
        tasks: list[dict[str, Any]] = []
        if name_of(type(request)) == "launch":
            tasks = [{"rank": t.rank, "state": "running", "started_us": 5} for t in request.tasks]  # type: ignore[attr-defined]
        result = {
            "tasks": tasks, "boot_id": "boot", "cpus": 8, "mem_bytes": 1 << 30, "now_us": 5, "data": "",
            "offset": 0, "size": 0, "done": True, "class": "1:10", "classifier": "x", "verified": True,
            "missing": [],
        }  # fmt: skip
        future.set_result(read_answer(type(request), msgspec.json.encode(result)))
        return future

    def lie(self, request: Request[Any], text: bytes, future: Future[Any]) -> None:
        """As `AgentChannel._reply`."""
        try:
            line = read_line(text)
            assert line is not None
            if not line.ok:
                future.set_exception(read_refusal(text))
                return
            future.set_result(read_answer(type(request), line.result))
        except Misfit as misfit:
            self.misfits += 1
            future.set_exception(misfit)
            assert self.world is not None
            self.world.executor.on_misfit(LIAR, str(misfit))

    def hello(self, name: str) -> Hello | None:
        return Hello(version="0.1.0", protocol=1, epoch=0 if name == HONEST else 3)

    def clock_offset_us(self, name: str) -> int | None:
        return 0

    cluster = NO_CLUSTER

    def raise_epoch(self, name: str, epoch: int) -> None: ...
    def reconnect(self, name: str) -> None: ...
    def peers(self, name: str) -> list[str]:
        return []

    def knows(self, name: str) -> bool:
        return True

    def add(self, host: Any) -> None: ...
    def remove(self, name: str) -> None: ...


class World:
    def __init__(self, folder: Path) -> None:
        self.store = open_store(f"sqlite:///{folder / 'rm.db'}")
        clock = SystemClock()
        epoch = self.store.acquire_lease("here", clock.now_us(), 10**15)
        assert epoch is not None
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
        state = ClusterState()
        rules = Rules(grace_us=0, down_after_us=10**15)
        self.hosts, self.fatal, self.deposed = Hosts(), Inbox(), Inbox()
        self.hosts.world = self
        inbox, published = LeaderInbox(), Published(state)
        self.communicates: list[Communication] = []  # what admission would hear
        self.asked: set[int] = set()  # the jobs for whose programs a client would run
        self.user_of = published.user_of
        self.streams = Streams(
            hosts=self.hosts, epoch=epoch, hosts_of=published.hosts_of, may_act=lambda: True
        )
        self.regulator = Regulator(
            agents=self.hosts,
            post=inbox.post,
            clock=clock,
            options=ControllerOptions(),
            shaping=Shaping(),
            dscp=(3, 7),
            epoch=epoch,
        )
        self.prober = Prober(self.hosts)
        rules_of_launches = LaunchRules(
            0, False, "", "rm", False, "/opt/rm", Fence(), 1_000, 0, lambda user: None
        )
        launches = launch_request(state, rules_of_launches, epoch)
        logs = folder / "logs"
        self.executor = Executor(
            hosts=self.hosts,
            post=inbox.post,
            clock=clock,
            leadership=Leadership(epoch, lambda: self.store.epoch() == epoch, self.deposed),
            launch_of=launches,
            home=LogHome(self.hosts, LogDirectory(logs), logs, 1_000),
            placed=published.task,
            is_stray=published.is_stray,
            launch_within_us=10_000_000,
            on_iterations=self.regulator.iterations,
            on_communication=self.communicates.append,
            owner_of=lambda job: "",
            delivery_of=lambda action: None,
        )
        self.leader = Leader(
            inbox=inbox,
            cycle=Cycle(state, policies, rules),
            store=self.store,
            version=self.store.load().version,
            clock=clock,
            executor=self.executor,
            listeners=Listeners(on_alignment=self.regulator.aligned, on_fatal=self.fatal),
            published=published,
        )
        self.regulator.start()
        self.leader.start(())
        for name in (HONEST, LIAR):
            self.do(ev.HostAdded(builders.host(name, cpus=8)))
            self.executor.on_state(name, True, "")
        self.wait(lambda s: all(h.state is HostState.UP for h in s.hosts.values()))
        self.do(ev.JobSubmitted(1, builders.spec(hosts_only=(HONEST,))))
        self.wait(lambda s: s.jobs[1].state is JobState.RUNNING)
        self.jobs = [1]

    def do(self, *events: ev.Event) -> None:
        self.leader.request(lambda state: list(events)).result(PATIENCE_S)

    def state(self) -> ClusterState:
        found: ClusterState = self.leader.ask(lambda cycle, now_us: cycle.state).result(PATIENCE_S)
        return found

    def wait(self, true: Any) -> None:
        """Until the state is so; every look waits for the leader."""
        deadline = threading.Event()
        for _ in range(int(PATIENCE_S / 0.01)):
            if true(self.state()):
                return
            deadline.wait(0.01)
        raise AssertionError("it did not become so")

    def submit_to_the_liar(self) -> None:
        number = self.state().next_job
        self.do(
            ev.HostResumed(LIAR, "root"),
            ev.JobSubmitted(number, builders.spec(hosts_only=(LIAR,), ntasks=2)),
        )
        self.jobs = [1, 2, number, number]

    def hear(self, text: bytes) -> None:
        """As `AgentChannel.notifications` and the composition root."""
        try:
            line = read_line(text)
            if line is None:
                raise Misfit("its line is not a JSON object")
            if line.event is None:
                return  # a reply that nobody waits for
            message = read_notification(line.event, text)
        except Misfit as misfit:
            self.hosts.misfits += 1
            self.executor.on_misfit(LIAR, str(misfit))
            return
        if isinstance(message, Reflecting):
            self.prober.heard(LIAR, message)
        elif isinstance(message, Streamed):
            self.streams.pass_on(LIAR, message)
        elif isinstance(message, Asked):
            if self.user_of(LIAR, message.job, message.attempt):
                self.asked.add(message.job)
        else:
            self.executor.on_event(LIAR, message)

    def lies(self, seed: int) -> None:
        liar = self.hosts.liar = Liar(seed, self.jobs)
        for number in range(MESSAGES):
            if number % HELLO_EVERY == HELLO_EVERY - 1:
                self.executor.on_state(LIAR, False, "gone")
                self.executor.on_state(LIAR, True, "")
            with self.hosts.guard:
                text = liar.text()
            self.hear(text)

    def close(self) -> None:
        self.leader.stop()
        self.regulator.stop()
        self.executor.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()
    made.store.close()


def test_a_lying_host_harms_nobody_else_and_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    before = world.state().jobs[1]
    heard: list[int] = []
    take = world.regulator.iterations

    def iterations(host: str, message: Iterations) -> None:
        heard.append(message.job)
        take(host, message)

    monkeypatch.setattr(world.executor, "_on_iterations", iterations)

    @settings(
        max_examples=EXAMPLES,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 1 << 32))
    def lie(seed: int) -> None:
        world.submit_to_the_liar()
        world.lies(seed)
        state = world.state()
        assert world.fatal.items == []
        assert world.deposed.items == []
        assert state.jobs[1] == before
        assert state.hosts[HONEST].schedulable

    lie()
    assert 1 not in heard
    assert 1 not in {said.job for said in world.communicates}
    assert world.asked  # for jobs of its own
    assert 1 not in world.asked
    assert not [job for name, job in world.hosts.heard if name == "stream"]
    assert world.hosts.misfits > EXAMPLES
    world.close()
    loaded = world.store.load()
    assert loaded.damaged == ()
    _, damaged = revivable(loaded.actions)
    assert damaged == []
    network = {(m.source, m.destination): m.stats for m in loaded.measurements}
    again = rebuild(
        loaded.jobs, loaded.hosts, loaded.zones, network, loaded.next_job_id, loaded.next_action_id, 1
    )
    assert again.jobs[1] == before
