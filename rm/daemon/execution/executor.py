"""Carries out intents on the hosts and turns what the hosts say into events.

The plan is already committed when an intent arrives here. An intent stays open until its outcome
is known: one whose channel broke is repeated when the host says hello again, which is safe
because every operation is idempotent for its (job, attempt).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Freeze, Intent, Launch, Mail, SetLimit, Start, Stop, ToHost
from rm.core.jobs.handlers.transitions import HOST_FAULTS
from rm.core.model.job import Task
from rm.core.ports import Clock
from rm.daemon.agents import Hosts
from rm.daemon.execution.agent_news import exited, ours, sentence, started
from rm.daemon.execution.aside import Aside
from rm.daemon.execution.collecting import Collector
from rm.daemon.execution.deliver import Deliverer, Delivery
from rm.daemon.execution.dispatch import Dispatch
from rm.daemon.execution.greeting import NO_MEMORY, Greeter, HostReport, Memory, Post
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome, TooSlow
from rm.daemon.execution.mailing import Mailer
from rm.daemon.execution.outbox import Open, Outbox
from rm.daemon.execution.sending import Sender, failed, request_of
from rm.daemon.execution.step_book import StepBook
from rm.errors import RmError, Unreachable
from rm.protocol import attempts as wire
from rm.protocol.attempts import Launched
from rm.protocol.codes import Code, NotConnected, code_of
from rm.protocol.line import shown
from rm.protocol.notifications import Communication, Exit, Iterations, Room, Started, Stepped, Unasked

log = logging.getLogger(__name__)

FOREIGN_TRIES = 3
LAUNCH_TRIES = 5  # without an answer, of a host that connects again and again
REPEAT_S = 2.0
LATER_S = 60.0  # when our own disk refuses a log


class Executor:
    """One per daemon. `submit` is called by the leader; the rest by the fleet's threads.

    Args:
        hosts: the fleet of connected agents.
        post: hands an event to the leader.
        clock: the daemon's.
        leadership: this daemon's right to act.
        launch_of: builds the request of a launch; called in the leader's thread.
        home: where logs come home to.
        placed: the task of (job, attempt, rank) if it is on this host; called in any thread.
        is_stray: does this host run this (job, attempt) although it was given up? Called in any thread.
        launch_within_us: how long a launch may be under way; less than a host may be silent before its
            jobs are given up, so that none starts after that.
        slice_us: how long after a slice came to its host elements of it may begin.
        on_iterations: receives iteration reports `(host, notification)`.
        owner_of: the user of a job; called in the leader's thread.
        delivery_of: which logs of a collection the user gets a copy of; called in the leader's thread.
        deliverer: writes these copies; without one there are none.
        mailer: sends the mails that jobs ask for.
        memory: which ends hosts are asked for that they remember, and for how long they do.
        steps: keeps the accounting of jobs' steps; without one there is none.
        repeat_s: between two tries of what a host did not answer.
        later_s: before the next try of a log that cannot be kept here.
    """

    def __init__(
        self,
        *,
        hosts: Hosts,
        post: Post,
        clock: Clock,
        leadership: Leadership,
        launch_of: Callable[[Launch], wire.Launch],
        home: LogHome,
        placed: Callable[[str, int, int, int], Task | None],
        is_stray: Callable[[str, int, int], bool],
        launch_within_us: int,
        slice_us: int = 0,
        on_iterations: Callable[[str, Iterations], None],
        on_communication: Callable[[Communication], None] = lambda message: None,
        owner_of: Callable[[int], str],
        delivery_of: Callable[[Collect], Delivery | None],
        deliverer: Deliverer | None = None,
        mailer: Mailer | None = None,
        steps: StepBook | None = None,
        memory: Memory = NO_MEMORY,
        repeat_s: float = REPEAT_S,
        later_s: float = LATER_S,
    ) -> None:
        self._hosts = hosts
        self._post = post
        self._clock = clock
        self._leadership = leadership
        self._launch_of = launch_of
        self._placed = placed
        self._is_stray = is_stray
        self._on_iterations = on_iterations
        self._on_communication = on_communication
        self._owner_of = owner_of
        self._delivery_of = delivery_of
        self._mailer = mailer or Mailer(None, "")
        self._steps = steps
        self._later_s = later_s
        epoch = leadership.epoch
        self._outbox = Outbox()
        self._aside = Aside()
        self._greeter = Greeter(
            hosts=hosts, post=post, clock=clock, leadership=leadership, aside=self._aside, repeat_s=repeat_s,
            memory=memory,
        )  # fmt: skip
        self._collector = Collector(
            hosts=hosts, post=post, epoch=epoch, home=home, deliverer=deliverer, steps=steps
        )
        self._dispatch = Dispatch(
            outbox=self._outbox,
            sender=Sender(hosts=hosts, clock=clock, epoch=epoch, launch_within_us=launch_within_us),
            post=post,
            clock=clock,
            leadership=leadership,
            aside=self._aside,
            is_up=self._greeter.is_up,
            answered=self._take_answer,
            collect=self._collect,
            slice_us=slice_us,
            repeat_s=repeat_s,
        )

    def close(self) -> None:
        self._dispatch.stop()
        self._collector.close()
        self._dispatch.close()
        self._aside.close()
        self._mailer.close()

    # -- the leader's side ---------------------------------------------------------------------

    def submit(self, intents: list[Intent]) -> None:
        """Carry out committed intents, per host in order of their ids."""
        entries: list[Open] = []
        for intent in intents:
            action = intent.action
            if isinstance(action, Mail):
                self._mailer.tell(intent, action, partial(self._mailed, intent, action))
                continue
            try:
                entries.append(self._entry(intent, action))
            except Exception as error:  # the job or a host is gone, or the job cannot be launched at all
                log.log(
                    logging.WARNING if isinstance(error, RmError) else logging.ERROR,
                    "intent %d dropped: %s",
                    intent.id,
                    error,
                    exc_info=not isinstance(error, RmError),
                )
                if isinstance(action, Launch | Start):
                    self._post(failed(action, code_of(error) or Code.DEFECT, error))
                self._post(ev.ActionSettled(intent.id))
        self._outbox.put(entries)
        self._dispatch.send_all([entry for entry in entries if self._greeter.is_up(entry.intent.action.host)])

    def _entry(self, intent: Intent, action: ToHost) -> Open:
        match action:
            case Launch():
                return Open(intent, self._launch_of(action))
            case Collect():
                return Open(intent, None, self._delivery_of(action), self._owner_of(action.job))
            case _:
                return Open(intent, request_of(action, self._leadership.epoch))

    def _mailed(self, intent: Intent, mail: Mail, failed: str) -> None:
        if failed:
            self._post(ev.Noted(mail.job, f"{mail.to} was not mailed: {failed}"))
        self._post(ev.ActionSettled(intent.id))

    def is_current(self, report: HostReport) -> bool:
        """Is the channel that the report came by still open?"""
        return self._greeter.is_current(report)

    def open_intents(self, host: str) -> list[Intent]:
        """The intents whose outcome on the host is not known, in order."""
        return [entry.intent for entry in self._outbox.of(host)]

    def repeat_open(self, host: str) -> None:
        """Send everything that is open for the host, in order; from now on it is connected."""
        if self._greeter.take(host):
            self._dispatch.send_all(self._outbox.of(host))

    def is_worn_out(self, intent: Intent) -> bool:
        """Was it sent so often without an answer that it has failed?"""
        entry = self._outbox.find(intent)
        return entry is not None and entry.tries >= LAUNCH_TRIES

    def drop(self, intent: Intent) -> None:
        """Do not repeat it: its outcome came another way, or the state has given it up."""
        self._dispatch.settle(intent)

    def forget(self, host: str) -> None:
        """The host was removed: nothing can be carried out there any more."""
        self._greeter.forget(host)
        for entry in self._outbox.forget(host):
            action = entry.intent.action
            lost = self._collector.lost_with_host(action) if isinstance(action, Collect) else ()
            self._post(ev.ActionSettled(entry.intent.id, lost))

    def collecting(self, job: int, attempt: int) -> list[Collect]:
        """The collections of this attempt's logs whose outcome is not known; from any thread."""
        return self._outbox.collecting(job, attempt)

    # -- the fleet's side ----------------------------------------------------------------------

    def on_state(self, host: str, up: bool, reason: str) -> None:
        """The channel to a host opened or broke."""
        if up:
            self._greeter.opened(host)
        else:
            self._greeter.lost(host, reason)

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
            case Communication(job=job, attempt=attempt):
                if self._placed(host, job, attempt, 0) is not None:
                    self._on_communication(message)
            case Stepped(job=job, attempt=attempt) if self._steps is not None:
                self._steps.told(host, job, attempt)
            case Room():
                self._greeter.empty(host)

    def _after_exit(self, host: str, job: int, attempt: int) -> None:
        """Whatever waits for the end of an attempt may go on now."""
        if self._greeter.is_up(host):
            for entry in self._outbox.exited(host, job, attempt):
                self._dispatch.send(entry)

    # -- answers -------------------------------------------------------------------------------

    def _take_answer(self, entry: Open, error: BaseException | None, result: Any) -> None:
        """`result` is None where nothing is to be taken of it."""
        intent, action = entry.intent, entry.intent.action
        code = code_of(error)
        if isinstance(error, Unreachable | TimeoutError):
            entry.tries += not isinstance(error, NotConnected)
            self._dispatch.again(
                entry
            )  # outcome unknown: now if the host still answers, or after its next hello
            return
        if code is Code.STALE_EPOCH:
            self._aside.soon(self._dispute, entry, str(error))
            return
        if code is Code.FOREIGN_CLUSTER and self._is_told_foreign(entry, str(error)):
            return
        if code is Code.TOO_LATE:  # nothing was done, and it is wanted still
            self._dispatch.again(entry)
            return
        if isinstance(action, Discard) and (code is Code.STILL_RUNNING or code in HOST_FAULTS):
            self._dispatch.again(entry)  # in the latter case its spool takes no note of it now
            return
        if (
            code is Code.NO_SUCH_ATTEMPT
            and isinstance(action, Stop | SetLimit | Freeze)
            and self._may_yet_launch(action)
        ):
            self._dispatch.again(entry)
            return
        if error is not None:
            if isinstance(action, Launch | Start):
                if code in HOST_FAULTS:
                    self._greeter.fill(action.host)
                self._post(failed(action, code or Code.DEFECT, error))
            elif code is not Code.NO_SUCH_ATTEMPT:
                log.warning("%s of job %d on %s: %s", action.kind, action.job, action.host, error)
        elif isinstance(action, Launch | Start) and result is not None:
            self._launched(action, result)
        self._dispatch.settle(intent)

    def _is_told_foreign(self, entry: Open, said: str) -> bool:
        """A host says that it is another cluster's: its next hello names that. One whose hello names ours all
        the same, again and again, is at fault; then what it was to launch has failed."""
        host = entry.intent.action.host
        entry.foreign += 1
        if entry.foreign <= FOREIGN_TRIES:
            self._hosts.reconnect(host)
            self._dispatch.again(entry)
            return True
        what = f"it says that it belongs to this cluster, and refuses its orders: {shown(said)}"
        self._post(ev.HostMisbehaved(host, what))
        if isinstance(entry.intent.action, Launch | Start):
            return False
        self._dispatch.again(entry, self._later_s)
        return True

    def _may_yet_launch(self, order: Stop | SetLimit | Freeze) -> bool:
        """Is a launch of this attempt open, which would come after its order?"""
        return any(
            isinstance(i.action, Launch) and (i.action.job, i.action.attempt) == (order.job, order.attempt)
            for i in self.open_intents(order.host)
        )

    def _dispute(self, entry: Open, said: str) -> None:
        """A host says that our epoch is over. The database decides; if we lead, the host is at fault."""
        host = entry.intent.action.host
        try:
            leads = self._leadership.confirmed()
        except RmError as error:
            log.error("whether this daemon leads cannot be read: %s", error)
            self._dispatch.again(entry)
            return
        if not leads:
            self._leadership.on_deposed(said)
            return
        what = f"it obeys a leader that this cluster's database does not know: {shown(said)}"
        self._post(ev.HostMisbehaved(host, what))
        self._outbox.rest(entry)
        self._hosts.reconnect(host)  # its hello names the epoch, and what is open is sent again

    def _launched(self, action: Launch | Start, launched: Launched) -> None:
        job, attempt, host = action.job, action.attempt, action.host
        tasks = [t for t in launched.tasks if self._placed(host, job, attempt, t.rank) is not None]
        note = sentence(launched.note)
        notes = tuple((t.rank, note) for t in tasks) if note else ()
        cores = tuple(launched.cores)
        if isinstance(action, Launch) and action.hold:
            self._post(ev.TasksPrepared(job, attempt, host, notes, launched.master_port, cores))
            return
        starts = [(t.rank, t.started_us) for t in tasks if t.started_us]
        if starts:  # else no task could be started: the exits that follow say why
            first_us = ours(min(at_us for _, at_us in starts), self._offset_us(host), self._clock.now_us())
            ranks = tuple(rank for rank, _ in starts)
            self._post(ev.TasksStarted(job, attempt, host, first_us, ranks, notes, cores))

    # -- logs -----------------------------------------------------------------------------------

    def _collect(self, entry: Open, action: Collect) -> None:
        """Logs home, and durable there; then the host forgets. One that fell silent is asked again later."""
        try:
            kept = self._collector.collect(action)
        except (Unreachable, TimeoutError, TooSlow):
            self._dispatch.again(entry)
        except RmError as error:
            code = code_of(error)
            if code is Code.STILL_RUNNING:
                if not self._outbox.rest_until_exit(entry):
                    self._dispatch.send(entry)
            elif code in HOST_FAULTS:
                self._dispatch.again(entry)
            elif code is Code.STALE_EPOCH:
                self._dispute(entry, str(error))
            elif code is Code.FOREIGN_CLUSTER:
                self._is_told_foreign(entry, str(error))
            else:  # the database that keeps logs
                log.error("cannot keep the logs of job %d: %s", action.job, error)
                self._dispatch.again(entry, self._later_s)
        except Exception as error:
            log.error(
                "cannot keep the logs of job %d: %s",
                action.job,
                error,
                exc_info=not isinstance(error, OSError),
            )
            self._dispatch.again(entry, self._later_s)
        else:
            self._collector.deliver(entry.delivery, action, lambda: self._dispatch.settle(entry.intent, kept))

    def _offset_us(self, host: str) -> int:
        return self._hosts.clock_offset_us(host) or 0
