"""Hosts come and go: what each is and runs when it says hello, and whether the leader has taken that in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rm.core.jobs import events as ev
from rm.core.jobs.reconcile import Reported, ReportedTask
from rm.core.ports import Clock
from rm.daemon.agents import Hosts
from rm.daemon.execution.agent_news import reported, up_event
from rm.daemon.execution.aside import Aside
from rm.daemon.execution.claims import claim
from rm.daemon.execution.leadership import Leadership
from rm.protocol.attempts import Tasks
from rm.protocol.hosts import Facts
from rm.protocol.notifications import Hello

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 30.0
ABOUT_MAX = 50_000  # jobs that one host is asked about
UNHEARD = Hello(version="", protocol=0)  # of a host whose channel has just been lost again


@dataclass(frozen=True, slots=True)
class HostReport:
    """Not an event: what a host says after hello, which the leader reconciles with its state.

    `connection` numbers the channel it came by: a report is of no use when that is lost.
    """

    up: ev.HostUp
    tasks: Reported
    connection: int
    newest_job: int = 0  # the largest id of a job that the host remembers
    remembered: tuple[ReportedTask, ...] = ()  # what it discarded of jobs that are unsure, and how that ended


@dataclass(frozen=True, slots=True)
class Memory:
    """For how long hosts remember the ends of what they have discarded, and of which (job, attempt) on they
    are asked; in any thread."""

    unsure: Callable[[], list[tuple[int, int]]] = list
    keep_s: int = 604_800


NO_MEMORY = Memory()
Post = Callable[[ev.Event | HostReport], None]


class Greeter:
    """A host that says hello is asked for its facts and attempts, until it answers; `repeat_s` between two
    tries. What its report brings counts while the channel is open that it came by."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        post: Post,
        clock: Clock,
        leadership: Leadership,
        aside: Aside,
        repeat_s: float,
        memory: Memory,
    ) -> None:
        self._hosts = hosts
        self._post = post
        self._clock = clock
        self._leadership = leadership
        self._aside = aside
        self._repeat_s = repeat_s
        self._memory = memory
        self._connections: dict[str, int] = {}
        self._connected = 0  # connections so far
        self._up: set[str] = set()  # the hosts whose reports the leader has taken
        self._raised: dict[str, int] = {}  # the epochs that hosts have from us, beyond ours
        self._full: set[str] = set()  # the hosts whose spools cannot be written: they say when they can
        self._lock = threading.Lock()

    # -- channels

    def opened(self, host: str) -> None:
        with self._lock:
            self._up.discard(host)
            self._connected += 1
            connection = self._connections[host] = self._connected
        self._greet(host, connection)

    def lost(self, host: str, reason: str) -> None:
        with self._lock:
            self._up.discard(host)
            self._connections.pop(host, None)
            self._post(ev.HostSilent(host, reason))  # in the lock: after the report of the lost channel

    def forget(self, host: str) -> None:
        """The host was removed."""
        with self._lock:
            self._up.discard(host)
            self._connections.pop(host, None)
            self._raised.pop(host, None)

    def is_current(self, report: HostReport) -> bool:
        """Is the channel that the report came by still open?"""
        with self._lock:
            return self._connections.get(report.up.host) == report.connection

    def take(self, host: str) -> bool:
        """The leader has taken the host's report: it is up. False when its channel is lost already."""
        with self._lock:
            if host not in self._connections:
                return False
            self._up.add(host)
            return True

    def is_up(self, host: str) -> bool:
        with self._lock:
            return host in self._up

    # -- spools

    def fill(self, host: str) -> None:
        """The host cannot write its spool."""
        with self._lock:
            self._full.add(host)

    def empty(self, host: str) -> None:
        """The host says that it can write its spool, which is news where it could not."""
        with self._lock:
            waits, self._full = host in self._full, self._full - {host}
        if waits:
            self._post(ev.SpoolWritable(host))

    # -- hello

    def _greet(self, host: str, connection: int, said: str = "") -> None:
        with self._lock:
            if self._connections.get(host) != connection:
                return
        self._aside.soon(self._welcome, host, connection, said)

    def _welcome(self, host: str, connection: int, said: str) -> None:
        """A host says hello: learn what it is and what it runs; the leader does the rest. `said` is why it
        was not taken before."""
        try:
            hello = self._hosts.hello(host) or UNHEARD
            if why_not := claim(self._hosts, host, hello):
                if why_not != said:
                    log.warning("%s", why_not)
                    self._post(ev.HostSilent(host, why_not))
                if hello.cluster in ("", self._hosts.cluster.id):  # until its other name is removed
                    self._aside.after(self._repeat_s, lambda: self._greet(host, connection, why_not))
                return
            if hello.epoch > self._leadership.epoch and not self._adopt_epoch(host, hello.epoch):
                return
            asked = Facts(towards=self._hosts.peers(host))
            facts = self._hosts.call(host, asked, CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)
            about = self._memory.unsure()[:ABOUT_MAX]
            tasks = Tasks(about=about, keep_s=self._memory.keep_s)
            answer = self._hosts.call(host, tasks, CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)
            if not hello.room:
                self.fill(host)
            offset_us = self._hosts.clock_offset_us(host) or 0
            report = HostReport(
                up_event(host, facts, hello),
                Reported(reported(t, offset_us, self._clock.now_us()) for t in answer.tasks),
                connection,
                hello.newest_job,
                tuple(reported(t, offset_us, self._clock.now_us()) for t in answer.remembered),
            )
        except Exception as error:  # a host that is connected but never welcomed would be lost for good
            log.warning("host %s is connected, but its facts and attempts cannot be read: %s", host, error)
            self._aside.after(self._repeat_s, lambda: self._greet(host, connection))
            return
        with self._lock:
            if self._connections.get(host) == connection:
                self._post(report)

    def _adopt_epoch(self, host: str, epoch: int) -> bool:
        """The host has obeyed a later leader: of this cluster, which then leads, or of a newer copy of its
        database. There its epochs count from now on: a leader that comes after us reads ours."""
        mine = self._leadership.epoch
        if not self._leadership.confirmed():
            self._leadership.on_deposed(f"Host {host} has obeyed epoch {epoch}, and this leader's is {mine}.")
            return False
        if epoch > self._raised.get(host, 0):  # a hello that names what we told it is no news
            log.warning(
                "%s has obeyed a leader with epoch %d, which this cluster's database (epoch %d) does not "
                "know: was an older copy of the database restored?",
                host,
                epoch,
                mine,
            )
        self._raised[host] = epoch + 1
        self._hosts.raise_epoch(host, epoch + 1)
        return True
