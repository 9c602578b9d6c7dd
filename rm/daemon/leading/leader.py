"""The leader's loop: batches what arrives, steps the cycle, commits, answers, acts. Nothing else
touches the state."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from rm import __version__
from rm.adapters.store.audit_scope import Deed
from rm.collector import uncollected
from rm.core.jobs import events as ev
from rm.core.jobs.promised import Promised
from rm.core.jobs.published import Published
from rm.core.jobs.state import ClusterState
from rm.core.journal.journal import Recorder, named
from rm.core.journal.restoring import documents_of, restore
from rm.core.model.host import Host
from rm.core.model.job_step import JobStep
from rm.core.people.audit import Act, with_targets
from rm.core.people.token import Token
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle, Outcome, Recomputation
from rm.core.store import Batch, Entry, Measured, Store, StoredAction
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.greeting import HostReport
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.items import Keep, Question, Request, begin, refuse, stopping, weight_of
from rm.daemon.leading.listeners import NOBODY, Listeners
from rm.daemon.leading.outbox import revive, stored
from rm.daemon.leading.patience import Patience
from rm.daemon.leading.returns import Returns
from rm.errors import StoreError, StoreUnavailable, Unstorable

log = logging.getLogger(__name__)

# A turn, in which nobody else is served, takes about as many changes: some tens of milliseconds. One
# request has at most this many.
TURN_WEIGHT = 200
STEP_US = 500_000  # less than that between two turns is not a clock that was set, but a machine that is busy
# News of the hosts, for which nobody waits, makes a turn (and a commit) at most this often: many
# short jobs then share one. An idle cluster's first news is acted upon at once.
NEWS_EVERY_US = 5_000


class Leader:
    """Owns the state. Everything else posts events, requests and questions to its inbox."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        cycle: Cycle,
        store: Store,
        version: int,
        clock: Clock,
        executor: Executor,
        recorder: Recorder | None = None,
        recent_us: int = 0,
        listeners: Listeners = NOBODY,
        published: Published | None = None,
    ) -> None:
        self._inbox = inbox
        self._cycle = cycle
        self._executor = executor
        self._listeners = listeners
        self._published = published or Published(cycle.state)
        self._promised = Promised(cycle.state)
        self._hosts = tuple(cycle.state.hosts.values())
        self._recorder = recorder or Recorder(__version__, named(cycle.policies))
        self._store = store
        self._version = version
        self._clock = clock
        self._clock_offset_us = clock.now_us() - clock.monotonic_us()
        self._returns = Returns(cycle.state, executor)
        self._recent_us = recent_us  # how long ended jobs are kept in the state
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
        self._stopping = False
        self._turned_us = 0
        self._later: list[Any] = []  # for the next turn
        self._patience = Patience(self._answer_meanwhile)
        self._offline = ThreadPoolExecutor(1, thread_name_prefix="offline")

    def start(self, open_actions: tuple[StoredAction, ...]) -> None:
        """Begin with the outbox of the last life: its actions are carried out first."""
        self._executor.submit([revive(a) for a in open_actions])
        self.post(ev.Tick())  # why each job waits is known before a host says hello
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._patience.end()
        self.post(ev.Tick())
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(10)

    def post(self, item: ev.Event | HostReport) -> None:
        """An event, from any thread."""
        self._inbox.post(item)

    def request(
        self,
        make: Callable[[ClusterState], list[ev.Event]],
        answer: Callable[[ClusterState], Any] = lambda state: None,
        weight: int = 1,
        alone: bool = False,
    ) -> Future[Any]:
        """Ask for a change; the future is answered after it is durable, or carries the refusal."""
        return self._enter(Request(make, answer, weight, alone))

    def is_busy(self) -> bool:
        """Does anything wait for its turn? From any thread."""
        return bool(self._later) or not self._inbox.is_empty()

    @property
    def promised(self) -> Promised:
        """What the requests of this turn were promised so far: for a request's `make`, which runs in it."""
        return self._promised

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts as of the last commit, in inventory order. From any thread."""
        return self._hosts

    def ask(self, question: Callable[[Cycle, int], Any]) -> Future[Any]:
        """Read the state between two steps."""
        return self._enter(Question(question))

    def keep(self, documents: tuple[tuple[str, dict[str, Any] | None], ...]) -> Future[Any]:
        """Make documents durable (None forgets one), in the order of the calls; the future ends then."""
        return self._enter(Keep(Batch(documents=documents)))

    def keep_tokens(self, tokens: tuple[Token, ...], removed: tuple[str, ...] = ()) -> Future[Any]:
        """Make tokens durable, and forget others."""
        return self._enter(Keep(Batch(tokens=tokens, removed_tokens=removed)))

    def keep_steps(self, steps: tuple[JobStep, ...]) -> Future[Any]:
        """Make steps of jobs durable, in place of what was recorded of them before."""
        return self._enter(Keep(Batch(job_steps=steps), deed=None))

    def record(self, act: Act) -> Future[Any]:
        """Into the audit log, on its own."""
        return self._enter(Keep(Batch(acts=(act,)), deed=None))

    @property
    def version(self) -> int:
        """The state after the last commit. From any thread."""
        return self._version

    def waiting(self) -> StoreUnavailable | None:
        """Why nothing can be asked or changed now: the database does not answer. From any thread."""
        return self._patience.waiting()

    def _enter(self, item: Request | Question | Keep) -> Future[Any]:
        """Into the inbox, unless nobody will read it any more, or not now."""
        if (waiting := self.waiting()) is not None:
            item.done.set_exception(waiting)
            return item.done
        if not self._inbox.enter(item):
            item.done.set_exception(stopping())
        return item.done

    # -- the loop ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # what was put in before the end is still done: not every Keep is waited for
            while not self._stopping or self.is_busy():
                self._turn(self._gather())
                self._turned_us = self._clock.now_us()
        except StoreError as error:
            if self._stopping and isinstance(error, StoreUnavailable):  # its wait was ended, as was asked
                log.warning("ended while the database was away; what it did not take was promised to nobody")
                return
            log.critical("%s", error)
            self._listeners.on_fatal(str(error))
        except Exception as error:
            log.exception("the leader's loop broke: this is a defect of rm")
            self._listeners.on_fatal(f"internal error: {error}")
        finally:
            self._offline.shutdown(wait=False, cancel_futures=True)
            self._refuse_rest()

    def _gather(self) -> list[Any]:
        """Wait for something to do, then take all that is there: group commit."""
        due_us = self._cycle.next_due_us()
        timeout = 5.0
        if due_us is not None:
            timeout = min(timeout, max(0.0, (due_us - self._clock.now_us()) / 1e6))
        items, self._later = self._later, []
        if items:
            timeout = 0.0
        weight = 0
        try:
            while weight < TURN_WEIGHT:
                item = self._inbox.take(timeout)
                if items and isinstance(item, Request) and item.alone:
                    self._later.append(item)
                    break
                items.append(item)
                weight += weight_of(item)
                timeout = self._pause_s(items)
        except queue.Empty:
            pass
        return items

    def _pause_s(self, items: list[Any]) -> float:
        """How long more news may be waited for; 0 when somebody waits for an answer."""
        if self._stopping or isinstance(items[-1], Request | Question | Keep | HostReport):
            self._turned_us = 0
        left_us = self._turned_us + NEWS_EVERY_US - self._clock.now_us()
        return left_us / 1e6 if 0 < left_us <= NEWS_EVERY_US else 0.0

    def _turn(self, items: list[Any]) -> None:
        """One step with all of these; every request is answered in any case."""
        # one whose asker has gone (a cancelled HTTP request) is not begun, and cannot be cancelled later
        items = [i for i in items if not isinstance(i, Request | Question | Keep) or begin(i)]
        try:
            try:
                self._take(items)
            except Exception as error:
                if not _of_one_item(error):
                    raise
                self._take_apart(items, error)
        except Exception as error:  # nothing of this turn is promised to anybody
            for item in items:
                refuse(item, error)
            raise

    def _take_apart(self, items: list[Any], error: Exception) -> None:
        """A turn failed before its commit, by a defect: again from the last commit, one item after the other,
        without those that fail. When it fails without any of them, it is not an item's fault, and raises."""
        log.error("a turn of %d items failed; each is tried by itself now", len(items), exc_info=error)
        self._restore()
        self._step([], [], self._clock.now_us())
        for item in items:
            if isinstance(item, Request | Question | Keep) and item.done.done():
                continue
            try:
                self._take([item])
            except Exception as cause:
                if not _of_one_item(cause):
                    raise
                log.error("left out, because it cannot be processed: %.1000r", item, exc_info=cause)
                refuse(item, cause)
                self._restore()

    def _restore(self) -> None:
        """The state as it was after the last commit."""
        now_us = self._clock.now_us()
        loaded = self._patience.on(lambda: self._store.load(ended_after_us=now_us - self._recent_us))
        restore(self._cycle.state, loaded, now_us)
        self._version = loaded.version
        self._hosts = tuple(self._cycle.state.hosts.values())
        self._published.renew_all(self._cycle.state)
        self._cycle.start_over(aligned=False)
        self._recorder.start_over()

    def _stepped(self, now_us: int) -> list[ev.Event]:
        """Whether the clock was set since the last turn."""
        offset_us = now_us - self._clock.monotonic_us()
        by_us = offset_us - self._clock_offset_us
        if abs(by_us) < STEP_US:
            return []
        self._clock_offset_us = offset_us
        log.warning("the clock of this machine was set by %+.1f s; durations go on as they were", by_us / 1e6)
        return [ev.ClockStepped(by_us)]

    def _take(self, items: list[Any]) -> None:
        now_us = self._clock.now_us()
        if stepped := self._stepped(now_us):  # by itself: what fails beside it must not undo it
            self._step(stepped, [], now_us)
        self._promised = Promised(self._cycle.state)
        events: list[ev.Event] = []
        requests: list[tuple[Request, int, int]] = []
        questions: list[Question] = []
        kept: list[Keep] = []
        for item in items:
            if isinstance(item, Request):
                first = len(events)
                try:
                    events += item.make(self._cycle.state)
                    requests.append((item, first, len(events)))
                except Exception as error:  # the asker gets any error; nobody else is touched
                    item.done.set_exception(error)
            elif isinstance(item, Question):
                questions.append(item)
            elif isinstance(item, Keep):
                kept.append(item)
            elif isinstance(item, HostReport):
                events += self._returns.events(item, now_us)
            else:
                events.append(item)
        due_us = self._cycle.next_due_us()
        if events or requests or due_us is None or due_us <= now_us:  # a request may make no event at all
            self._step(events, requests, now_us)
        if kept:
            self._keep(kept)
        for question in questions:
            try:
                question.done.set_result(question.ask(self._cycle, now_us))
            except Exception as error:  # the asker gets any error
                question.done.set_exception(error)

    def _keep(self, kept: list[Keep]) -> None:
        acts = [act for item in kept if item.deed is not None for act in _recorded(item.deed, ())]
        batch = Batch(
            documents=tuple(d for item in kept for d in item.batch.documents),
            tokens=tuple({t.id: t for item in kept for t in item.batch.tokens}.values()),
            removed_tokens=tuple(id for item in kept for id in item.batch.removed_tokens),
            job_steps=tuple({s.name: s for item in kept for s in item.batch.job_steps}.values()),
            acts=tuple([a for item in kept for a in item.batch.acts] + acts),
        )
        try:
            self._store_durably(batch)
        except Unstorable as error:  # nothing was written; what was decided in this turn is
            for item in kept:
                item.done.set_exception(error)
            return
        for item in kept:
            item.done.set_result(None)

    def _step(self, events: list[ev.Event], requests: list[tuple[Request, int, int]], now_us: int) -> None:
        begun = self._recorder.before(self._cycle, now_us)
        with uncollected():  # a pass may make 100,000 values, which stay or hold no cycle
            outcome = self._cycle.step(events, now_us)
        self._published.renew(self._cycle.state, outcome.changes)
        made = self._recorder.after(self._cycle, events, outcome, now_us)
        for index, refusal in outcome.refused.items():
            if not any(a <= index < b for _, a, b in requests):
                log.info("ignored %s: %s", type(events[index]).__name__, refusal)
        acts = []
        for request, first, last in requests:
            if request.deed is not None and not _refusal(outcome, first, last):
                acts += _recorded(request.deed, events[first:last])
        self._commit(outcome, (*begun, *made), tuple(acts))
        if outcome.changes.hosts or outcome.changes.removed_hosts:
            self._hosts = tuple(self._cycle.state.hosts.values())
        for request, first, last in requests:
            self._answer(request, outcome, first, last)
        try:
            self._act(outcome)
        except Exception:  # it is durable: what was not done now is done after a restart
            log.exception("a decision was not passed on to all: this is a defect of rm")
        self._cycle.state.forget_finished()

    def _act(self, outcome: Outcome) -> None:
        """Hand what is durable to those who carry it out."""
        state, listeners = self._cycle.state, self._listeners
        for host in outcome.changes.removed_hosts:
            self._executor.forget(host)
        self._executor.submit(outcome.intents)
        if outcome.recompute is not None:
            self._offline.submit(self._recompute, outcome.recompute)
        if outcome.changes.jobs:
            changed = [state.jobs[j] for j in outcome.changes.jobs]
            for on_jobs in listeners.on_jobs:
                on_jobs(changed)
        if outcome.changes.ended:
            listeners.on_ended(outcome.changes.ended)
        if outcome.realigned or outcome.changes.jobs or outcome.changes.hosts:
            listeners.on_alignment(state.alignment, state)

    def _recompute(self, work: Recomputation) -> None:
        if work.placed_version != self._cycle.state.placed_version:
            return  # the plan has moved on while this waited for its turn
        try:
            self.post(work.run())
        except Exception:
            log.exception("the offline recomputation failed; the feasible alignment stays")

    def _commit(self, outcome: Outcome, entries: tuple[Entry, ...], acts: tuple[Act, ...] = ()) -> None:
        changes, state = outcome.changes, self._cycle.state
        batch = Batch(
            events=entries,
            jobs=tuple(state.jobs[j] for j in sorted(changes.jobs)),
            hosts=tuple(state.hosts[h] for h in sorted(changes.hosts)),
            removed_hosts=tuple(sorted(changes.removed_hosts)),
            zones=tuple(state.zones[z] for z in sorted(changes.zones)),
            actions=tuple(stored(i) for i in outcome.intents),
            finished_actions=tuple(changes.settled),
            logs=tuple(changes.logs),
            choices=tuple((job, taken.choice()) for job, taken in outcome.taken.items()),
            measurements=tuple(Measured(a, b, s) for a, b, s in changes.measured),
            ended=tuple(changes.ended),
            documents=documents_of(state, changes),
            acts=acts,
        )
        if batch != Batch():
            self._store_durably(batch)

    def _store_durably(self, batch: Batch) -> None:
        self._version = self._patience.on(lambda: self._store.commit(batch, self._version))
        self._listeners.on_commit(self._version)

    def _answer_meanwhile(self) -> None:
        """What was asked just before is refused for now; news is kept."""
        while True:
            try:
                item = self._inbox.take()
            except queue.Empty:
                return
            if not isinstance(item, Request | Question | Keep):
                self._later.append(item)
            elif begin(item):
                item.done.set_exception(self.waiting() or stopping())

    def _answer(self, request: Request, outcome: Outcome, first: int, last: int) -> None:
        refusal = _refusal(outcome, first, last)
        if refusal is not None:
            request.done.set_exception(refusal)
            return
        try:
            request.done.set_result(request.answer(self._cycle.state))
        except Exception as error:  # it is done and durable; only the telling failed
            request.done.set_exception(error)

    def _refuse_rest(self) -> None:
        self._inbox.close()
        with suppress(queue.Empty):
            while True:
                self._later.append(self._inbox.take())
        for item in self._later:
            if isinstance(item, Request | Question | Keep) and begin(item):
                item.done.set_exception(stopping())


def _of_one_item(error: Exception) -> bool:
    """May one item of a turn be to blame? Not for a database that is gone or has another leader."""
    return isinstance(error, Unstorable) or not isinstance(error, StoreError)


def _refusal(outcome: Outcome, first: int, last: int) -> Exception | None:
    """Why one of these events changed nothing."""
    return next((outcome.refused[i] for i in range(first, last) if i in outcome.refused), None)


def _recorded(deed: Deed, events: Sequence[ev.Event]) -> list[Act]:
    """The entry of the audit log for a request that is about to be committed; one for each request."""
    if deed.recorded:
        return []
    deed.recorded = True
    return [with_targets(deed.act, events)]
