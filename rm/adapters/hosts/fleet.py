"""The fleet: one kept-open channel of JSON lines to the agent of every host (docs/agent-protocol.md)."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from rm.adapters.hosts.channel import AgentChannel
from rm.adapters.hosts.commands import attend_command
from rm.adapters.hosts.heartbeat import Heartbeat
from rm.adapters.hosts.known_hosts import stamp
from rm.adapters.hosts.pace import Pace
from rm.adapters.hosts.retries import Retries
from rm.adapters.hosts.session_connections import SessionConnections
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.core.model.identity import NO_CLUSTER, ClusterIdentity
from rm.errors import HostKeyError, RmError, Unreachable
from rm.protocol.codes import NotConnected
from rm.protocol.hosts import Ping, Pong
from rm.protocol.line import Misfit
from rm.protocol.notifications import Hello, Unasked
from rm.protocol.request import Answer, Request

log = logging.getLogger("rm.fleet")

CLOSE_S = 5.0
STREAM_BYTES = 1 << 20  # that a session's channel may be ahead of who reads it
NEWS_BURST, NEWS_PER_S = 20_000, 5_000  # notifications of one host
LOOK_S = 0.25  # between two looks for calls without a reply, and agents without a sign of life
CLOCK_EVERY_S = 30.0
CLOCK_PINGS = 8
STEP_S = 0.1
KEYS_EVERY_S = 1.0  # between two looks at the accepted keys, for a host whose key was refused
PEERS_MAX, ADDRESS_MAX = 32, 255

OnEvent = Callable[[str, Unasked], None]
OnState = Callable[[str, bool, str], None]
OnMisfit = Callable[[str, str], None]


class Fleet:
    """Channels to many hosts, connected and reconnected in the background, from `start` on.

    `on_event(host, notification)` and `on_state(host, up, sentence)` are called from the
    host's own thread, in the order in which things happened: `on_state(h, True, "")` comes
    before the first event of a connection, `on_state(h, False, why)` after its last. They
    must be quick and may use `call`, but must not wait for its result. `on_misfit(host, sentence)`
    comes when the host said what does not fit the protocol: its channel is closed then. Orders carry the
    id of `cluster`.
    """

    def __init__(
        self,
        settings: SshSettings,
        cluster: ClusterIdentity = NO_CLUSTER,
    ) -> None:
        self.cluster = cluster
        self._settings = settings
        self._listener: Listener | None = None
        self._hosts: dict[str, _Member] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._clerk = threading.Thread(target=self._keep_time, name="fleet-clerk", daemon=True)

    def start(
        self, *, on_event: OnEvent, on_state: OnState, on_misfit: OnMisfit = lambda host, what: None
    ) -> None:
        """Before the first host is added."""
        self._listener = Listener(on_event, on_state, on_misfit)
        self._clerk.start()

    def add(self, host: Host) -> None:
        """Start to connect; a host of that name with another address or login is replaced, and so is one of
        which the inventory declares something else: only a hello tells what it has besides. Nothing, once
        the fleet is closed."""
        with self._lock:
            known = self._hosts.get(host.name)
            if self._closed.is_set() or (known is not None and known.same_door(host)):
                return
            assert self._listener is not None, "the fleet has not been started"
            member = _Member(host, self._settings, self._listener, self.cluster.id)
            self._hosts[host.name] = member
            member.start()  # in the lock: `close` waits for its end
        if known is not None:
            known.close()

    def remove(self, name: str) -> None:
        with self._lock:
            member = self._hosts.pop(name, None)
        if member is not None:
            member.close()

    def retry(self, name: str) -> None:
        """Connect now instead of when the pause is over (say, after a key was accepted)."""
        member = self._hosts.get(name)
        if member is not None:
            member.wake.set()

    def call(self, name: str, request: Request[Answer], timeout_s: float = 10) -> Future[Answer]:
        """Send one request; the future holds the agent's answer.

        It fails with AgentError when the agent refuses, or would (a request that does not fit the
        protocol is not sent), with NotConnected when nothing was
        sent, and with any other Unreachable when the outcome is unknown: the channel was lost
        or no reply came within `timeout_s`.
        """
        member = self._hosts.get(name)
        channel = member.channel if member is not None else None
        if channel is None:
            why = member.why if member is not None else f"Host {name} is not known to the daemon."
            future: Future[Answer] = Future()
            future.set_exception(NotConnected(why or f"Host {name} is not connected yet."))
            return future
        return channel.call(request, timeout_s)

    def attend(self, name: str) -> Any:
        """A channel of its own to a host, whose program attends a session of a job (`agents/rm_attend.py`):
        a `paramiko.Channel`, over the agent's connection or, where that is full, over one for sessions.

        Raises:
            NotConnected: the host's agent is not connected.
            LimitReached: no connection takes another channel.
            Unreachable: the connection was lost.
        """
        member = self._hosts.get(name)
        channel = member.channel if member is not None else None
        if member is None or channel is None:
            why = member.why if member is not None else f"Host {name} is not known to the daemon."
            raise NotConnected(why or f"Host {name} is not connected yet.")
        command = attend_command(member.host, self._settings)
        return member.sessions.open(channel.beside, command, STREAM_BYTES)

    def raise_epoch(self, name: str, epoch: int) -> None:
        """On the channel that is open now, orders carry at least this epoch (`Executor` says when)."""
        member = self._hosts.get(name)
        channel = member.channel if member is not None else None
        if channel is not None:
            channel.least_epoch = epoch

    def reconnect(self, name: str) -> None:
        """Close the channel to a host: it is opened again, and says hello."""
        member = self._hosts.get(name)
        channel = member.channel if member is not None else None
        if channel is not None:
            channel.close()

    def cancel(self, name: str, future: Future[Any]) -> None:
        """End a slow operation on the host whose result nobody waits for any more."""
        member = self._hosts.get(name)
        channel = member.channel if member is not None else None
        if channel is not None:
            channel.cancel(future)

    def doors(self) -> list[tuple[Host, Hello]]:
        """The hosts whose agents are connected, as they were connected to, and each agent's hello."""
        found = [(member.host, member.channel) for member in list(self._hosts.values())]
        return [(host, channel.hello) for host, channel in found if channel is not None]

    def connected(self, name: str) -> bool:
        member = self._hosts.get(name)
        return member is not None and member.channel is not None

    def hello(self, name: str) -> Hello | None:
        """What the agent said of itself when it was connected: version, boot_id, features."""
        member = self._hosts.get(name)
        channel = member.channel if member is not None else None
        return channel.hello if channel is not None else None

    def knows(self, name: str) -> bool:
        return name in self._hosts

    def peers(self, name: str) -> list[str]:
        """Addresses of some other hosts, of its own zone first: where its jobs' traffic goes."""
        with self._lock:
            member = self._hosts.get(name)
            others = [one.host for one in self._hosts.values() if one is not member]
        zone = member.host.zone if member is not None else ""
        others.sort(key=lambda host: (host.zone != zone, host.name))
        return list(dict.fromkeys(host.address[:ADDRESS_MAX] for host in others))[:PEERS_MAX]

    def clock_offset_us(self, name: str) -> int | None:
        """The host's clock minus ours, by the ping with the shortest way; None before the first."""
        member = self._hosts.get(name)
        return member.clock.offset_us if member is not None else None

    def close(self) -> None:
        """Close every channel; tasks on the hosts go on."""
        with self._lock:
            self._closed.set()
            members, self._hosts = list(self._hosts.values()), {}
        for member in members:
            member.close()
        until = time.monotonic() + CLOSE_S  # for all together; one that is connecting may take long
        for thread in (*members, *([self._clerk] if self._clerk.is_alive() else [])):
            thread.join(max(0.0, until - time.monotonic()))

    def _keep_time(self) -> None:
        """Expire calls without a reply, and measure the clocks again."""
        offset_s = time.time() - time.monotonic()
        while not self._closed.wait(LOOK_S):
            now = time.monotonic()
            if abs(time.time() - now - offset_s) > STEP_S:  # our clock was set: theirs are elsewhere now
                offset_s = time.time() - now
                for member in list(self._hosts.values()):
                    member.clock.due_at = 0.0
            for member in list(self._hosts.values()):
                try:
                    self._look_after(member, now)
                except Exception:  # one host's defect must not stop the clock for the others
                    log.exception("the calls of %s are not looked after", member.host.name)

    def _look_after(self, member: _Member, now: float) -> None:
        channel = member.channel
        member.sessions.tidy()
        if channel is not None:
            channel.expire(now)
            if not member.heartbeat.look(channel, now):
                channel.close(
                    f"The agent on {member.host.name} has not answered for "
                    f"{self._settings.agent_dead_after_s:g} s, although its SSH server does: it hangs or was "
                    "stopped. Another is started."
                )
            elif now >= member.clock.due_at:
                member.clock.measure(channel)


class _Clock:
    """The offset of one host's clock: half-way of the fastest of several pings (Cristian, 1989)."""

    def __init__(self) -> None:
        self.offset_us: int | None = None
        self.due_at = 0.0

    def begin(self, hello: Hello) -> None:
        """A new channel: pings are due; before their answers a first hello is better than nothing."""
        self.due_at = 0.0
        if self.offset_us is None and hello.now_us:
            self.offset_us = hello.now_us - time.time_ns() // 1000

    def measure(self, channel: AgentChannel) -> None:
        self.due_at = time.monotonic() + CLOCK_EVERY_S
        self._ping(channel, CLOCK_PINGS, None)

    def _ping(self, channel: AgentChannel, left: int, best: tuple[int, int] | None) -> None:
        sent_us = time.time_ns() // 1000
        since = time.perf_counter_ns()

        def heard(reply: Future[Pong]) -> None:
            if reply.exception() is not None:
                return  # the loss is reported elsewhere; the clock is measured again after the next hello
            trip_us = (time.perf_counter_ns() - since) // 1000
            measured = (trip_us, reply.result().now_us - (sent_us + trip_us // 2))
            quickest = min(best, measured) if best is not None else measured
            if left > 1:
                self._ping(channel, left - 1, quickest)
            else:
                self.offset_us = quickest[1]

        channel.call(Ping(), 10).add_done_callback(heard)


class Listener(NamedTuple):
    """Listeners to the hosts' news: the arguments of `Fleet`."""

    on_event: OnEvent
    on_state: OnState
    on_misfit: OnMisfit


class _Member(threading.Thread):
    """One host: connect, listen until the channel is lost, wait a little, again."""

    def __init__(self, host: Host, settings: SshSettings, listener: Listener, cluster: str) -> None:
        super().__init__(name=f"fleet-{host.name}", daemon=True)
        self.host = host
        self.channel: AgentChannel | None = None
        self.why = ""
        self.clock = _Clock()
        self.heartbeat = Heartbeat(settings.agent_dead_after_s)
        self.wake = threading.Event()
        self.sessions = SessionConnections(host, settings)
        self._settings = settings
        self._listener = listener
        self._cluster = cluster
        self._opening: AgentChannel | None = None
        self._closed = threading.Event()
        self._told: tuple[bool, str] | None = None
        self._greeted = False  # did the agent say hello in this conversation?
        self._pace = Pace(NEWS_BURST, NEWS_PER_S)

    def same_door(self, host: Host) -> bool:
        mine, its = self.host, host
        return (mine.address, mine.port, mine.login, mine.variables, mine.declared) == (
            its.address,
            its.port,
            its.login,
            its.variables,
            its.declared,
        )

    def close(self) -> None:
        self._closed.set()
        self.wake.set()
        opening = self._opening
        if opening is not None:
            opening.close()
        self.sessions.close()

    def run(self) -> None:
        retries = Retries(self._settings.down_after_s, time.monotonic())
        while True:
            self.wake.clear()  # before the look: `close` sets both
            if self._closed.is_set():
                return
            began, refused, misfit = time.monotonic(), False, False
            keys = stamp(self._settings.known_hosts)  # before the try, which reads them
            self._greeted = False
            try:
                self._converse()
            except Misfit as error:
                misfit = True
                self._complain(str(error))
            except HostKeyError as error:
                refused = True
                self._tell(False, str(error))
            except RmError as error:
                self._tell(False, str(error))
            except Exception as error:  # a defect on one host must not silence it for ever
                log.exception("the channel to %s failed", self.host.name)
                self._tell(False, f"The channel to {self.host.name} failed by a defect of rm: {error!r}.")
            pause_s = retries.pause_s(began, time.monotonic(), self._greeted and not misfit, refused)
            pause_s *= random.uniform(0.7, 1.3)
            if self._awaited_key(keys, pause_s) if refused else self.wake.wait(pause_s):
                retries.hurry()

    def _awaited_key(self, keys: object, pause_s: float) -> bool:
        """Wait for another key to be accepted, by this daemon or by `rmx host accept-key --inventory`."""
        until = time.monotonic() + pause_s
        while (left_s := until - time.monotonic()) > 0:
            if self.wake.wait(min(left_s, KEYS_EVERY_S)) or stamp(self._settings.known_hosts) != keys:
                return True
        return False

    def _converse(self) -> None:
        self._opening = channel = AgentChannel(self.host, self._settings, self._cluster)
        try:
            if self._closed.is_set():
                return
            channel.open()
            self.heartbeat = Heartbeat(self._settings.agent_dead_after_s)
            self.channel, self._greeted = channel, True
            self.clock.begin(channel.hello)
            self._tell(True, "")
            for notification in channel.notifications():
                self._pass_on(notification)
        except Unreachable:
            if not self._closed.is_set():
                raise
        finally:
            self.channel = self._opening = None
            channel.close()

    def _complain(self, what: str) -> None:
        """The host sent a message that does not fit: the listener decides what follows."""
        self._tell(False, f"{self.host.name} does not keep to the agent protocol: {what}.")
        try:
            self._listener.on_misfit(self.host.name, what)
        except Exception:
            log.exception("the misfit of %s was not taken", self.host.name)

    def _pass_on(self, notification: Unasked) -> None:
        wait_s = self._pace.wait_s()
        if wait_s:  # it is this host's thread: only it has to wait
            self._closed.wait(wait_s)
        try:
            self._listener.on_event(self.host.name, notification)
        except Exception:  # the listener's defect; the channel goes on
            log.exception("a notification of %s was not taken: %.500s", self.host.name, notification)

    def _tell(self, up: bool, why: str) -> None:
        """Say each change once: a host that stays away is not reported at every try."""
        self.why = why
        if self._closed.is_set() or self._told == (up, why):
            return
        self._told = (up, why)
        if not up:
            log.warning("%s: %s", self.host.name, why)
        try:
            self._listener.on_state(self.host.name, up, why)
        except Exception:
            log.exception("the state of %s was not taken", self.host.name)
