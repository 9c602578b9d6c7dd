"""Keeps the streams of meshes that measure without a pause (latencybg), and takes in their windows.

The agents' processes send and count by themselves; each is asked now and then, which is at once the order
what streams there are to be, and the sign that the daemon still wants them. So they go on while a channel is
lost or another leader takes over, and what they found meanwhile comes afterwards.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace

from rm.core.model.host import Host, HostState
from rm.core.monitoring.cells import Cell
from rm.core.monitoring.history import Sample, complaint
from rm.core.monitoring.latencybg import (
    Direction,
    Door,
    Given,
    Halves,
    Window,
    found_of,
    streams_of,
    told_by,
)
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.metrics import checks_of_test
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.pairing import Pair, Pairing
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.daemon.monitoring.board import Tried
from rm.daemon.monitoring.monitor import Monitor
from rm.errors import RmError
from rm.protocol.latencybg import STREAMS_MOST, Latencybg, OrderLatencybg, Stream
from rm.units import MINUTE_US, SECOND_US

log = logging.getLogger(__name__)

TICK_S, IDLE_TICK_S = 1.0, 10.0  # where there are such meshes, and where there are none
PLAN_S = 5.0  # between two looks which streams there are to be, unless something has changed here
ASK_S = (1.0, 10.0)  # between two questions to a host, as its windows are short or long
ANSWER_S = 30.0
AWAY_US = 10 * MINUTE_US  # after which the others of a host that does not answer end their streams with it
RECENT_US = 5 * MINUTE_US  # of a window, to which the clocks' difference of now applies


@dataclass(slots=True)
class _Host:
    """What is asked of a host. `up_us`: when it was up last; `complaint`: why the newest question failed."""

    host: Host
    up_us: int = 0
    wanted: list[Stream] = field(default_factory=list)
    told: list[Stream] | None = None  # None: it was not asked since the daemon leads
    asked_s: float = 0.0
    waiting: bool = False
    more: bool = False
    complaint: str = ""


class Streaming:
    """One thread; `may_act` is False while another daemon may lead."""

    def __init__(
        self, *, agents: Agents, monitor: Monitor, clock: Clock, epoch: int, cells: Sequence[Cell],
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._agents = agents
        self._monitor = monitor
        self._clock = clock
        self._epoch = epoch
        self._may_act = may_act
        self._meshes = [mesh for mesh in monitor.meshes.values() if mesh.is_continuous]
        self._hosts: dict[str, _Host] = {}
        self._pairs: list[tuple[Mesh, Pair]] = []
        self._directions: dict[int, Direction] = {}
        self._doors: dict[str, Door] = {}
        self._given: dict[
            int, Given
        ] = {}  # of the streams whose senders have followed an order with a secret
        self._halves = Halves()
        names = {mesh.name for mesh in self._meshes}
        # the begin of the newest window that is known, of each direction
        self._known_us = {
            (c.mesh, c.source, c.destination): c.checked_us
            for c in cells
            if c.mesh in names and c.check == "loss"
        }
        self._changed, self._planned_s = True, 0.0
        self._answers: queue.Queue[tuple[str, Future[Latencybg]]] = queue.Queue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="latencybg", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._answers.put(("", Future()))  # it looks
        if self._thread.is_alive():
            self._thread.join(ANSWER_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._changed or time.monotonic() - self._planned_s >= PLAN_S:
                    self.turn()
                else:
                    self._ask_all()
            except (RmError, TimeoutError, CancelledError) as error:
                log.warning("continuous latency tests: %s", error or "the daemon was too busy")
            except Exception:
                log.exception("continuous latency tests: this is a defect of rm")
            self._hear(time.monotonic() + (TICK_S if self._meshes else IDLE_TICK_S))

    def _hear(self, until_s: float) -> None:
        """The answers that come until then; those that are there already in any case."""
        while not self._stopped.is_set():
            try:
                name, answer = self._answers.get(timeout=max(0.0, until_s - time.monotonic()))
                self.answered(name, answer)
            except queue.Empty:
                return
            except (RmError, TimeoutError, CancelledError) as error:
                log.warning("results of continuous latency tests are lost: %s", error)
            except Exception:
                log.exception("continuous latency tests: this is a defect of rm")

    def turn(self) -> None:
        """Look which streams there are to be, and ask the hosts that are due."""
        self._changed, self._planned_s = False, time.monotonic()
        self._plan(self._monitor.hosts())
        self._ask_all()

    def _ask_all(self) -> None:
        for one in self._hosts.values():
            if self._is_due(one) and self._may_act():
                self._ask(one)

    def _plan(self, hosts: Sequence[Host]) -> None:
        now_us = self._clock.now_us()
        for host in hosts:
            known = self._hosts.get(host.name)
            if known is None or host.address != known.host.address:
                known = self._hosts[host.name] = _Host(host)
            known.host = host
            if host.state is HostState.UP:
                known.up_us = now_us
        gone = self._hosts.keys() - {host.name for host in hosts}
        self._halves.forget(gone)
        for name in gone:
            self._hosts.pop(name)
            self._doors.pop(name, None)
        there = {name for name, one in self._hosts.items() if one.up_us and now_us - one.up_us < AWAY_US}
        self._pairs = self._pairs_of(hosts, there)
        # a host that is up earlier than its peers tells what it found while nobody led
        unseen = {name for name, one in self._hosts.items() if not one.up_us}
        self._directions = {
            direction.id: direction
            for mesh, (a, b) in (*(self._pairs_of(hosts, there | unseen) if unseen else ()), *self._pairs)
            for direction in (Direction(mesh, a, b), Direction(mesh, b, a))
        }
        self._given = {stream: one for stream, one in self._given.items() if stream in self._directions}
        self._order()

    def _pairs_of(self, hosts: Sequence[Host], there: set[str]) -> list[tuple[Mesh, Pair]]:
        return [
            (mesh, pair)
            for mesh in self._meshes
            if not self._monitor.state(mesh.name).paused_by
            for pairing in (Pairing(mesh, hosts, there),)
            for number in range(len(pairing))
            for pair in pairing.round(number)
        ]

    def _order(self) -> None:
        archived = frozenset(m.name for m in self._meshes if self._monitor.is_archived(m.name))
        of: dict[str, list[tuple[Mesh, Pair]]] = {}
        for mesh, pair in self._pairs:
            for host in pair:
                of.setdefault(host.name, []).append((mesh, pair))
        for name, one in self._hosts.items():
            one.wanted = streams_of(one.host, of.get(name, ()), self._doors, archived)[:STREAMS_MOST]

    def _is_due(self, one: _Host) -> bool:
        """A host is asked at least once, so that streams of meshes that are no more end there."""
        if one.waiting or one.host.state is not HostState.UP:
            return False
        if one.told is None or one.more or one.wanted != one.told:
            return True
        if not one.wanted:
            return False
        window_s = min(stream.count * stream.interval_us for stream in one.wanted) / SECOND_US
        return time.monotonic() - one.asked_s >= min(max(ASK_S[0], window_s / 3), ASK_S[1])

    def _ask(self, one: _Host) -> None:
        life, after, done = self._halves.asked(one.host.name)
        request = OrderLatencybg(epoch=self._epoch, streams=one.wanted, life=life, after=after, done=done)
        one.waiting, one.asked_s, one.told = True, time.monotonic(), one.wanted
        name = one.host.name
        answer = self._agents.call(name, request, ANSWER_S)
        answer.add_done_callback(lambda found: self._answers.put((name, found)))

    def answered(self, name: str, answer: Future[Latencybg]) -> None:
        """A host's answer, or why there is none."""
        one = self._hosts.get(name)
        if one is None:
            return
        one.waiting = False
        now_us = self._clock.now_us()
        try:
            told = told_by(name, answer.result(0), self._directions, self._given, now_us)
        except (RmError, TimeoutError, CancelledError) as error:
            said = str(error) or "no answer in time"
            if said != one.complaint and one.wanted:
                log.warning("%s makes no continuous latency tests: %s", name, said)
            one.complaint, one.told, one.more = said, one.wanted, False
            return
        one.complaint, one.more = "", told.more
        before = self._doors.get(name)
        if told.port:  # of a host that begins anew the others go on to send where they did
            known = before.secrets if before is not None and before.port == told.port else {}
            self._doors[name] = Door(told.port, {**known, **dict(told.secrets)})
            self._changed = self._changed or self._doors[name] != before
        for stream in one.told or ():
            given = self._given.get(stream.out)
            if given is None or given.secret != stream.secret:
                self._given[stream.out] = Given(stream.secret, now_us)
        self._take(self._halves.take(name, told, now_us))

    def _take(self, windows: Sequence[Window]) -> None:
        tried: dict[str, list[Tried]] = {}
        outcomes: dict[str, list[Outcome]] = {}
        for window in windows:
            direction = self._directions.get(window.sent.stream)
            if direction is None or not window.sent.sent:  # it is no more, or its sender stood still
                continue
            mesh, key = direction.mesh, (direction.source.name, direction.destination.name)
            known_us = self._known_us.get((mesh.name, *key))
            length_us = mesh.packets * mesh.spacing_us
            if (
                known_us is not None and window.at_us <= known_us + length_us // 2
            ):  # an earlier leader has told of it
                continue
            self._known_us[mesh.name, *key] = window.at_us
            one, outcome = self._told_of(direction, window)
            tried.setdefault(mesh.name, []).append(one)
            outcomes.setdefault(mesh.name, []).append(outcome)
        for name, some in tried.items():
            self._monitor.take(self._monitor.meshes[name], some, outcomes[name])
            self._note(name)

    def _told_of(self, direction: Direction, window: Window) -> tuple[Tried, Outcome]:
        mesh, source, destination = direction.mesh, direction.source, direction.destination
        now_us = self._clock.now_us()
        found = found_of(window, self._pinged_us(direction) if now_us - window.at_us < RECENT_US else None)
        sample = Sample(source.name, destination.name, window.at_us, mesh.name, found.values)
        checks = checks_of_test(mesh.tests[0])
        absurd = complaint(sample, now_us)
        if absurd:
            log.warning("%s It is left out.", absurd)
            sample = replace(sample, values={}, failed=absurd)
        begun_us = window.sent.begun_us
        outcome = Outcome(
            mesh, mesh.tests[0], source, destination, begun_us, begun_us + mesh.packets * mesh.spacing_us,
            absurd, {} if absurd else found.told,
        )  # fmt: skip
        return Tried(source, destination, replace(sample, checks=checks), found.packets), outcome

    def _pinged_us(self, direction: Direction) -> int | None:
        """The receiver's clock minus the sender's, as the agents' channels give it."""
        ours = [self._agents.clock_offset_us(h.name) for h in (direction.source, direction.destination)]
        return None if ours[0] is None or ours[1] is None else ours[1] - ours[0]

    def _note(self, name: str) -> None:
        """How many pairs there are results of, and of how many there are none, of late."""
        now_us = self._clock.now_us()
        every_us = self._monitor.every_us(self._monitor.meshes[name])

        def is_fresh(a: Host, b: Host) -> bool:
            ways = ((a.name, b.name), (b.name, a.name))
            return all(now_us - self._known_us.get((name, *way), 0) < 3 * every_us for way in ways)

        pairs = [pair for mesh, pair in self._pairs if mesh.name == name]
        fresh = sum(is_fresh(*pair) for pair in pairs)
        state = self._monitor.state(name)
        begun_us = state.begun_us or now_us
        failed = len(pairs) - fresh if now_us - begun_us > 3 * every_us else 0
        self._monitor.keep(replace(state, begun_us=begun_us, ended_us=now_us, measured=fresh, failed=failed))
