"""Carries out intents on the hosts and turns what the hosts say into events.

The plan is already committed when an intent arrives here. An intent stays open until its outcome
is known: one whose channel broke is repeated when the host says hello again, which is safe
because every operation is idempotent for its (job, attempt).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Intent, Launch, Start, Stop
from rm.core.jobs.reconcile import Reported
from rm.core.jobs.transitions import HOST_FAULTS
from rm.core.model.job import Task
from rm.core.model.logs import KeptLog, LogPlace
from rm.core.ports import Clock
from rm.daemon.agents import Hosts
from rm.daemon.execution.agent_news import WORDS_MAX, exited, ours, reported, started, up_event
from rm.daemon.execution.claims import claim
from rm.daemon.execution.deliver import Deliverer, Delivery
from rm.daemon.execution.log_home import LogHome, TooSlow, streams
from rm.daemon.fair_pool import FairPool
from rm.errors import RmError, StoreError, Unreachable
from rm.protocol import attempts as wire
from rm.protocol.attempts import Launched, Tasks
from rm.protocol.codes import AgentError, Code, NotConnected, code_of
from rm.protocol.hosts import Facts
from rm.protocol.line import shown
from rm.protocol.notifications import Exit, Hello, Iterations, Room, Started, Unasked
from rm.protocol.request import Done, Request

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 30.0
FOREIGN_TRIES = 3
LAUNCH_TRIES = 5  # without an answer, of a host that connects again and again
REPEAT_S = 2.0
COLLECTORS = 16  # threads that bring logs home
COLLECTIONS = 2  # of one host, and of one user, while others wait
LATER_S = 60.0  # when our own disk refuses a log
TOO_OLD_TO_FENCE = (
    "The agent on {host} has a version without leases: it cannot run a job with --fence. Deploy "
    "this one: rmx playbook run agents --limit {host}"
)
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


@dataclass(slots=True)
class Open:
    """An intent whose outcome is not known. `ended`: an exit came while it was under way; `tries`: how often
    it was sent and no answer came."""

    intent: Intent
    request: Request[Launched] | Request[Done] | None  # None: logs are collected, by many requests
    delivery: Delivery | None = None
    user: str = ""
    under_way: bool = False
    waits_for_exit: bool = False
    ended: bool = False
    tries: int = 0
    foreign: int = 0  # how often it was refused as another cluster's


Post = Callable[[ev.Event | HostReport], None]


class Executor:
    """One per daemon. `submit` is called by the leader; the rest by the fleet's threads.

    Args:
        hosts: the fleet of connected agents.
        post: hands an event to the leader.
        clock: the daemon's.
        request_of: builds the request of a launch; called in the leader's thread.
        logs: keeps the logs that come home.
        gathered: the directory of this machine in which they are gathered.
        max_log_bytes: how much of each log comes home; the newest part of a longer one.
        placed: the task of (job, attempt, rank) if it is on this host; called in any thread.
        leads: does the database still say that this daemon leads? It may raise StoreError.
        launch_within_us: how long a launch may be under way; less than a host may be silent before its
            jobs are given up, so that none starts after that.
        on_iterations: receives iteration reports `(host, notification)`.
        delivery_of: which logs of a collection the user gets a copy of; called in the leader's thread.
        deliverer: writes these copies; without one there are none.
        may_act: False while another daemon may lead: then nothing is sent, and all is tried again.
        owner_of: the user of a job; called in the leader's thread.
        log_reserve_bytes: of the disk of `gathered`, which logs leave free.
        is_stray: does this host run this (job, attempt) although it was given up? Called in any thread.
    """

    def __init__(
        self,
        hosts: Hosts,
        post: Post,
        clock: Clock,
        request_of: Callable[[Launch], wire.Launch],
        logs: LogPlace,
        gathered: Path,
        epoch: int,
        max_log_bytes: int,
        placed: Callable[[str, int, int, int], Task | None],
        leads: Callable[[], bool],
        launch_within_us: int,
        on_iterations: Callable[[str, Iterations], None],
        on_deposed: Callable[[str], None],
        delivery_of: Callable[[Collect], Delivery | None] = lambda action: None,
        deliverer: Deliverer | None = None,
        may_act: Callable[[], bool] = lambda: True,
        owner_of: Callable[[int], str] = lambda job: "",
        log_reserve_bytes: int = 0,
        is_stray: Callable[[str, int, int], bool] = lambda host, job, attempt: False,
    ) -> None:
        self._hosts = hosts
        self._post = post
        self._clock = clock
        self._request_of = request_of
        self._epoch = epoch
        self._home = LogHome(hosts, logs, gathered, max_log_bytes, log_reserve_bytes)
        self._owner_of = owner_of
        self._is_stray = is_stray
        self._placed = placed
        self._leads = leads
        self._launch_within_us = launch_within_us
        self._on_iterations = on_iterations
        self._on_deposed = on_deposed
        self._delivery_of = delivery_of
        self._deliverer = deliverer
        self._may_act = may_act
        self._open: dict[str, dict[int, Open]] = {}
        self._connections: dict[str, int] = {}
        self._connected = 0  # connections so far
        self._up: set[str] = set()  # the hosts whose reports the leader has taken
        self._repeating: set[str] = set()
        self._full: set[str] = set()  # the hosts whose spools cannot be written: they say when they can
        self._closed = False
        self._lock = threading.Lock()
        self._pool = FairPool(COLLECTORS, COLLECTORS // 2, COLLECTIONS, "collect")
        # apart, so that no host's hello waits for the logs of one that hangs
        self._greeters = ThreadPoolExecutor(8, thread_name_prefix="greet")

    def close(self) -> None:
        with self._lock:  # who holds it may just be about to hand work to one of the pools
            self._closed = True
        if self._deliverer is not None:
            self._deliverer.close()
        self._pool.close()
        self._greeters.shutdown(wait=False, cancel_futures=True)

    # -- the leader's side ---------------------------------------------------------------------

    def submit(self, intents: list[Intent]) -> None:
        """Carry out committed intents, per host in order of their ids."""
        for intent in intents:
            action = intent.action
            try:
                entry = self._entry(intent)
            except Exception as error:  # the job or a host is gone, or the job cannot be launched at all
                log.log(
                    logging.WARNING if isinstance(error, RmError) else logging.ERROR,
                    "intent %d dropped: %s",
                    intent.id,
                    error,
                    exc_info=not isinstance(error, RmError),
                )
                if isinstance(action, Launch | Start):
                    self._post(self._failed(action, Code.DEFECT, error))
                self._post(ev.ActionSettled(intent.id))
                continue
            with self._lock:
                self._open.setdefault(action.host, {})[intent.id] = entry
                connected = action.host in self._up
            if connected:
                self._send(entry)

    def is_current(self, report: HostReport) -> bool:
        """Is the channel that the report came by still open?"""
        with self._lock:
            return self._connections.get(report.up.host) == report.connection

    def open_intents(self, host: str) -> list[Intent]:
        """The intents whose outcome on the host is not known, in order."""
        with self._lock:
            entries = self._open.get(host, {})
            return [entries[i].intent for i in sorted(entries)]

    def repeat_open(self, host: str) -> None:
        """Send everything that is open for the host, in order; from now on it is connected."""
        with self._lock:
            if host not in self._connections:
                return
            self._up.add(host)
            entries = self._open.get(host, {})
            again = [entries[i] for i in sorted(entries)]
        for entry in again:
            self._send(entry)

    def is_worn_out(self, intent: Intent) -> bool:
        """Was it sent so often without an answer that it has failed?"""
        with self._lock:
            entry = self._open.get(intent.action.host, {}).get(intent.id)
            return entry is not None and entry.tries >= LAUNCH_TRIES

    def drop(self, intent: Intent) -> None:
        """Do not repeat it: its outcome came another way, or the state has given it up."""
        self._settle(intent)

    def forget(self, host: str) -> None:
        """The host was removed: nothing can be carried out there any more."""
        with self._lock:
            entries = self._open.pop(host, {})
            self._connections.pop(host, None)
            self._up.discard(host)
        for number in sorted(entries):
            action = entries[number].intent.action
            lost: tuple[KeptLog, ...] = ()
            if isinstance(action, Collect):
                with suppress(OSError, StoreError):
                    lost = self._home.found(action, f"host {host} was removed before it was collected")
            self._post(ev.ActionSettled(number, lost))

    def collecting(self, job: int, attempt: int) -> list[Collect]:
        """The collections of this attempt's logs whose outcome is not known; from any thread."""
        with self._lock:
            return [
                entry.intent.action
                for entries in self._open.values()
                for entry in entries.values()
                if isinstance(entry.intent.action, Collect)
                and (entry.intent.action.job, entry.intent.action.attempt) == (job, attempt)
            ]

    # -- the fleet's side ----------------------------------------------------------------------

    def on_state(self, host: str, up: bool, reason: str) -> None:
        """The channel to a host opened or broke."""
        with self._lock:
            self._up.discard(host)
            if not up:
                self._connections.pop(host, None)
                self._post(ev.HostSilent(host, reason))  # in the lock: after the report of the lost channel
                return
            self._connected += 1
            connection = self._connections[host] = self._connected
        self._greet(host, connection)

    def on_misfit(self, host: str, what: str) -> None:
        """A host said what does not fit the protocol; its channel is closed."""
        self._post(ev.HostMisbehaved(host, f"it does not keep to the agent protocol: {what}"))

    def on_event(self, host: str, message: Unasked) -> None:
        """A notification of a host's agent: news of tasks that are placed there, and nothing else, counts."""
        match message:
            case Exit(job=job, attempt=attempt, rank=rank):
                task = self._placed(host, job, attempt, rank)
                if task is not None and task.ended_us is None:
                    self._post(exited(host, message, self._offset_us(host), self._clock.now_us()))
                if self._is_stray(host, job, attempt):
                    self._post(ev.StrayEnded(job, attempt, host, rank))
                self._after_exit(host, job, attempt)
            case Started(job=job, attempt=attempt, rank=rank):
                task = self._placed(host, job, attempt, rank)
                if task is not None and task.started_us is None:
                    self._post(started(host, message, self._offset_us(host), self._clock.now_us()))
            case Iterations(job=job, attempt=attempt, items=items):
                ranks = {item[0] for item in items}
                mine = {rank for rank in ranks if self._placed(host, job, attempt, rank) is not None}
                if mine != ranks:
                    items = [item for item in items if item[0] in mine]
                    message = Iterations(job=job, attempt=attempt, items=items)
                if items:
                    self._on_iterations(host, message)
            case Room():
                with self._lock:
                    waits, self._full = host in self._full, self._full - {host}
                if waits:
                    self._post(ev.SpoolWritable(host))

    # -- within --------------------------------------------------------------------------------

    def _greet(self, host: str, connection: int) -> None:
        with self._lock:
            if self._closed or self._connections.get(host) != connection:
                return
            self._greeters.submit(self._welcome, host, connection)

    def _welcome(self, host: str, connection: int) -> None:
        """A host says hello: learn what it is and what it runs; the leader does the rest."""
        try:
            hello = self._hosts.hello(host) or UNHEARD
            if why_not := claim(self._hosts, host, hello):
                log.warning("%s", why_not)
                self._post(ev.HostSilent(host, why_not))
                return
            if hello.epoch > self._epoch and not self._adopt_epoch(host, hello.epoch):
                return
            asked = Facts(towards=self._hosts.peers(host))
            facts = self._hosts.call(host, asked, CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)
            answer = self._hosts.call(host, Tasks(), CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)
            if not hello.room:
                self._fill(host)
            report = HostReport(
                up_event(host, facts, hello),
                Reported(reported(t, self._offset_us(host), self._clock.now_us()) for t in answer.tasks),
                connection,
                hello.newest_job,
            )
        except Exception as error:  # a host that is connected but never welcomed would be lost for good
            log.warning("host %s is connected, but its facts and attempts cannot be read: %s", host, error)
            self._after(REPEAT_S, lambda: self._greet(host, connection))
            return
        with self._lock:
            if self._connections.get(host) == connection:
                self._post(report)

    def _fill(self, host: str) -> None:
        with self._lock:
            self._full.add(host)

    def _adopt_epoch(self, host: str, epoch: int) -> bool:
        """The host has obeyed a later leader: of this cluster, which then leads, or of a newer copy of its
        database. There its epochs count from now on: a leader that comes after us reads ours."""
        if not self._leads():
            self._on_deposed(f"Host {host} has obeyed epoch {epoch}, and this leader's is {self._epoch}.")
            return False
        log.warning(
            "%s has obeyed a leader with epoch %d, which this cluster's database (epoch %d) does not know: "
            "was an older copy of the database restored?",
            host,
            epoch,
            self._epoch,
        )
        self._hosts.raise_epoch(host, epoch + 1)
        return True

    def _dispute(self, entry: Open, said: str) -> None:
        """A host says that our epoch is over. The database decides; if we lead, the host is at fault."""
        host = entry.intent.action.host
        try:
            leads = self._leads()
        except RmError as error:
            log.error("whether this daemon leads cannot be read: %s", error)
            self._again(entry)
            return
        if not leads:
            self._on_deposed(said)
            return
        what = f"it obeys a leader that this cluster's database does not know: {shown(said)}"
        self._post(ev.HostMisbehaved(host, what))
        with self._lock:
            entry.under_way = False
        self._hosts.reconnect(host)  # its hello names the epoch, and what is open is sent again

    def _later(self, work: Callable[..., None], *arguments: Any) -> None:
        """In a thread that may wait."""
        with self._lock:
            if not self._closed:
                self._greeters.submit(work, *arguments)

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, work)
        timer.daemon = True
        timer.start()

    def _entry(self, intent: Intent) -> Open:
        action = intent.action
        match action:
            case Launch():
                return Open(intent, self._request_of(action))
            case Start(job, attempt, _, port):
                start = wire.Start(
                    job=job, attempt=attempt, epoch=self._epoch, not_after_us=0, master_port=port
                )
                return Open(intent, start)
            case Stop(job, attempt, _, grace_us, why):
                request = wire.Stop(job=job, attempt=attempt, epoch=self._epoch, grace_us=grace_us, why=why)
                return Open(intent, request)
            case Discard(job, attempt):
                return Open(intent, wire.Discard(job=job, attempt=attempt, epoch=self._epoch))
            case Collect():
                return Open(intent, None, self._delivery_of(action), self._owner_of(action.job))

    def _send(self, entry: Open) -> None:
        """Carry it out, unless it is under way already: never twice at once."""
        action = entry.intent.action
        with self._lock:
            if entry.under_way or self._closed:
                return
            if entry.intent.id not in self._open.get(action.host, {}):
                return
            if may_act := self._may_act():
                entry.under_way, entry.waits_for_exit = True, False
                if isinstance(action, Collect):
                    self._pool.submit(action.host, entry.user, partial(self._collect, entry, action))
                    return
        if not may_act:
            self._again(entry)
            return
        try:
            assert entry.request is not None
            request = entry.request
            if isinstance(request, wire.Launch | wire.Start):
                until_us = self._clock.now_us() + self._launch_within_us + self._offset_us(action.host)
                request = msgspec.structs.replace(request, not_after_us=until_us)
            future = self._call(action.host, request)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(lambda f: self._hear(entry, f))

    def _call(self, host: str, request: Request[Any]) -> Future[Any]:
        if not isinstance(request, wire.Launch) or not request.lease_us:
            return self._hosts.call(host, request, CALL_TIMEOUT_S)
        return self._launch_leased(host, request)

    def _launch_leased(self, host: str, request: wire.Launch) -> Future[Any]:
        """Ask the host what time it is by its own clock, and then launch: the lease counts from there."""
        launched: Future[Any] = Future()

        def pass_on(answer: Future[Any]) -> None:
            if (error := answer.exception()) is not None:
                launched.set_exception(error)
            else:
                launched.set_result(answer.result())

        def launch(answer: Future[wire.Renewed]) -> None:
            try:
                if code_of(answer.exception()) is Code.NO_SUCH_OP:
                    raise AgentError(Code.NOT_ENFORCED, TOO_OLD_TO_FENCE.format(host=host))
                leased = msgspec.structs.replace(request, heard_us=answer.result().alive_us)
                self._hosts.call(host, leased, CALL_TIMEOUT_S).add_done_callback(pass_on)
            except Exception as error:
                launched.set_exception(error)

        self._hosts.call(host, wire.Renew(epoch=self._epoch), CALL_TIMEOUT_S).add_done_callback(launch)
        return launched

    def _hear(self, entry: Open, future: Future[Any]) -> None:
        try:
            self._answered(entry, future)
        except Exception:  # it stays open: no defect of ours may leave it under way for ever
            log.exception("the answer to intent %d was not taken", entry.intent.id)
            self._again(entry)

    def _answered(self, entry: Open, future: Future[Any]) -> None:
        intent, action = entry.intent, entry.intent.action
        error = future.exception()
        code = code_of(error)
        if isinstance(error, Unreachable | TimeoutError):
            entry.tries += not isinstance(error, NotConnected)
            self._again(entry)  # outcome unknown: now if the host still answers, or after its next hello
            return
        if code is Code.STALE_EPOCH:
            self._later(self._dispute, entry, str(error))
            return
        if code is Code.FOREIGN_CLUSTER and self._is_told_foreign(entry, str(error)):
            return
        if code is Code.TOO_LATE:  # nothing was done, and it is wanted still
            self._again(entry)
            return
        if code is Code.STILL_RUNNING and isinstance(action, Discard):
            self._again(entry)
            return
        if code is Code.NO_SUCH_ATTEMPT and isinstance(action, Stop) and self._may_yet_launch(action):
            self._again(entry)
            return
        if error is not None:
            if isinstance(action, Launch | Start):
                if code in HOST_FAULTS:
                    self._fill(action.host)
                self._post(self._failed(action, code or Code.DEFECT, error))
            elif code is not Code.NO_SUCH_ATTEMPT:
                log.warning("%s of job %d on %s: %s", action.kind, action.job, action.host, error)
        elif isinstance(action, Launch | Start):
            self._launched(action, future.result())
        self._settle(intent)

    def _is_told_foreign(self, entry: Open, said: str) -> bool:
        """A host says that it is another cluster's: its next hello names that. One whose hello names ours all
        the same, again and again, is at fault; then what it was to launch has failed."""
        host = entry.intent.action.host
        entry.foreign += 1
        if entry.foreign <= FOREIGN_TRIES:
            self._hosts.reconnect(host)
            self._again(entry)
            return True
        what = f"it says that it belongs to this cluster, and refuses its orders: {shown(said)}"
        self._post(ev.HostMisbehaved(host, what))
        if isinstance(entry.intent.action, Launch | Start):
            return False
        self._again(entry, LATER_S)
        return True

    def _may_yet_launch(self, stop: Stop) -> bool:
        """Is a launch of this attempt open, which would come after its stop?"""
        return any(
            isinstance(i.action, Launch) and (i.action.job, i.action.attempt) == (stop.job, stop.attempt)
            for i in self.open_intents(stop.host)
        )

    def _again(self, entry: Open, seconds: float = REPEAT_S) -> None:
        """Send it again in a while, with all of that host that failed meanwhile, in order."""
        host = entry.intent.action.host
        with self._lock:
            entry.under_way = False
            if host in self._repeating:
                return
            self._repeating.add(host)
        self._after(seconds, lambda: self._repeat(host))

    def _repeat(self, host: str) -> None:
        with self._lock:
            self._repeating.discard(host)
            entries = self._open.get(host, {}) if host in self._up else {}
            again = [entries[i] for i in sorted(entries) if not entries[i].waits_for_exit]
        for entry in again:
            self._send(entry)

    def _failed(self, action: Launch | Start, code: Code, error: BaseException) -> ev.LaunchFailed:
        return ev.LaunchFailed(action.job, action.attempt, action.host, code, str(error)[:WORDS_MAX])

    def _launched(self, action: Launch | Start, launched: Launched) -> None:
        job, attempt, host = action.job, action.attempt, action.host
        tasks = [t for t in launched.tasks if self._placed(host, job, attempt, t.rank) is not None]
        note = launched.note[:WORDS_MAX]
        notes = tuple((t.rank, note) for t in tasks) if note else ()
        if isinstance(action, Launch) and action.hold:
            port = launched.master_port
            self._post(ev.TasksPrepared(action.job, action.attempt, action.host, notes, port))
            return
        begun = [(t.rank, t.started_us) for t in tasks if t.started_us]
        if not begun:
            return  # no task could be started: the exits that follow say why
        self._post(
            ev.TasksStarted(
                action.job,
                action.attempt,
                action.host,
                ours(min(at_us for _, at_us in begun), self._offset_us(host), self._clock.now_us()),
                tuple(rank for rank, _ in begun),
                notes,
            )
        )

    def _settle(self, intent: Intent, logs: tuple[KeptLog, ...] = ()) -> None:
        with self._lock:
            self._open.get(intent.action.host, {}).pop(intent.id, None)
        self._post(ev.ActionSettled(intent.id, logs))

    def _collect(self, entry: Open, action: Collect) -> None:
        """Logs home, and durable there; then the host forgets. One that fell silent is asked again later."""
        try:
            kept = self._bring_home(action)
        except (Unreachable, TimeoutError, TooSlow):
            self._again(entry)
        except RmError as error:
            code = code_of(error)
            if code is Code.STILL_RUNNING:
                self._wait_for_exit(entry)
            elif code is Code.STALE_EPOCH:
                self._dispute(entry, str(error))
            elif code is Code.FOREIGN_CLUSTER:
                self._is_told_foreign(entry, str(error))
            else:  # the database that keeps logs
                log.error("cannot keep the logs of job %d: %s", action.job, error)
                self._again(entry, LATER_S)
        except Exception as error:
            log.error(
                "cannot keep the logs of job %d: %s",
                action.job,
                error,
                exc_info=not isinstance(error, OSError),
            )
            self._again(entry, LATER_S)
        else:
            self._home.finished(action)
            self._deliver(entry, action, kept)

    def _bring_home(self, action: Collect) -> tuple[KeptLog, ...]:
        """What became of the logs, when the host has forgotten the attempt."""
        kept: tuple[KeptLog, ...] | None = None
        try:
            for rank in action.ranks:
                for stream in streams(action):
                    if note := self._home.fetch(action, rank, stream):
                        self._post(ev.Noted(action.job, note))
            kept = self._home.keep(action)
            discard = wire.Discard(job=action.job, attempt=action.attempt, epoch=self._epoch)
            self._hosts.call(action.host, discard).result(CALL_TIMEOUT_S)
            return kept
        except AgentError as error:
            if error.code in (Code.STILL_RUNNING, Code.STALE_EPOCH, Code.FOREIGN_CLUSTER):
                raise
            return self._not_collected(action, error) if kept is None else kept

    def _not_collected(self, action: Collect, error: RmError) -> tuple[KeptLog, ...]:
        """The host gives no logs. One that discarded the attempt did so when they were kept."""
        if code_of(error) is Code.DISCARDED:
            return self._home.found(action)
        log.warning("logs of job %d on %s: %s", action.job, action.host, error)
        lost = self._home.found(action, f"{action.host} did not give it: {error}")
        if any(one.why for one in lost):
            self._post(ev.Noted(action.job, f"logs of attempt {action.attempt} are lost: {error}"))
        return lost

    def _deliver(self, entry: Open, action: Collect, kept: tuple[KeptLog, ...]) -> None:
        """The logs are home. What the user gets a copy of stays open until that is written, or is refused."""
        delivery = entry.delivery
        if delivery is None or self._deliverer is None:
            self._settle(entry.intent, kept)
            return

        def done(why_not: str) -> None:
            if why_not:
                self._post(ev.Noted(action.job, why_not))
            self._settle(entry.intent, kept)

        self._deliverer.submit(delivery, action.job, action.attempt, done)

    def _wait_for_exit(self, entry: Open) -> None:
        """Processes of the attempt are still being stopped there: their exit brings us back."""
        with self._lock:
            entry.under_way, entry.waits_for_exit = False, not entry.ended
            again, entry.ended = entry.ended, False
        if again:
            self._send(entry)

    def _after_exit(self, host: str, job: int, attempt: int) -> None:
        """Whatever waits for the end of an attempt may go on now."""
        again = []
        with self._lock:
            for entry in self._open.get(host, {}).values() if host in self._up else ():
                action = entry.intent.action
                if isinstance(action, Collect | Discard) and (action.job, action.attempt) == (job, attempt):
                    entry.ended = entry.under_way
                    again.append(entry)
        for entry in again:
            self._send(entry)

    def _offset_us(self, host: str) -> int:
        return self._hosts.clock_offset_us(host) or 0
