"""Sends what is open to the hosts, in order and never twice at once, and again where no answer came."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Intent, Launch, Start
from rm.core.jobs.handlers.verdict import UNSTARTED
from rm.core.jobs.reconcile import before_its_end
from rm.core.model.logs import KeptLog
from rm.core.ports import Clock
from rm.daemon.execution.aside import Aside
from rm.daemon.execution.greeting import Post
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.outbox import Open, Outbox
from rm.daemon.execution.sending import Sender
from rm.daemon.execution.slicing import slice_request, together
from rm.daemon.fair_pool import FairPool
from rm.protocol import attempts as wire
from rm.protocol.codes import AgentError, Code, code_of

log = logging.getLogger(__name__)

COLLECTORS = 16  # threads that bring logs home
COLLECTIONS = 2  # of one host, and of one user, while others wait


class Dispatch:
    """One per executor; from any thread.

    Args:
        outbox: what is open, and what of it is under way.
        sender: sends one request to one host.
        post: hands an event to the leader.
        clock: the daemon's.
        leadership: this daemon's right to act.
        aside: runs what comes later.
        is_up: is the host connected, and were its tasks compared?
        answered: takes the error or the result of one entry.
        collect: brings logs home; runs in a thread of its own.
        slice_us: how long after a slice came to its host elements of it may begin.
        repeat_s: between two tries of what a host did not answer.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        sender: Sender,
        post: Post,
        clock: Clock,
        leadership: Leadership,
        aside: Aside,
        is_up: Callable[[str], bool],
        answered: Callable[[Open, BaseException | None, Any], None],
        collect: Callable[[Open, Collect], None],
        slice_us: int,
        repeat_s: float,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._post = post
        self._clock = clock
        self._leadership = leadership
        self._aside = aside
        self._is_up = is_up
        self._answered = answered
        self._collect = collect
        self._slice_us, self._repeat_s = slice_us, repeat_s
        self._pool = FairPool(COLLECTORS, COLLECTORS // 2, COLLECTIONS, "collect")
        self._closed = False

    def stop(self) -> None:
        """Send nothing more."""
        self._closed = True

    def close(self) -> None:
        """Wait for the threads that bring logs home."""
        self._pool.close()

    def send_all(self, entries: list[Open]) -> None:
        """In this order, but the launches of a slice together."""
        for some in together(entries, self._outbox.is_to_end):
            if len(some) == 1:
                self.send(some[0])
            elif isinstance(some[0].intent.action, Discard):
                self._forget_many(some)
            else:
                self._send_slice(some)

    def _may_send(self, begun: list[Open]) -> list[Open]:
        """What is under way now, if anything may be sent now."""
        if self._leadership.may_act():
            return begun
        for entry in begun:
            self.again(entry)
        return []

    def _forget_many(self, entries: list[Open]) -> None:
        if self._closed:
            return
        if begun := self._may_send([entry for entry in entries if self._outbox.begin(entry)]):
            actions = [entry.intent.action for entry in begun]
            names = [(action.job, action.attempt) for action in actions]
            request = wire.Forget(epoch=self._leadership.epoch, attempts=names)
            self._sender.send(actions[0].host, request).add_done_callback(partial(self._hear_forget, begun))

    def _hear_forget(self, entries: list[Open], future: Future[Any]) -> None:
        """What was not forgotten is asked for by itself: its answer may come later. Older agents, too."""
        error = future.exception()
        left = {tuple(name) for name in future.result().left} if error is None else set()

        def take(entry: Open) -> None:
            action = entry.intent.action
            if code_of(error) is Code.NO_SUCH_OP or (action.job, action.attempt) in left:
                self._outbox.rest(entry)
                self.send(entry)
            else:
                self._answered(entry, error, None)

        self._safely(entries, take)

    def _send_slice(self, entries: list[Open]) -> None:
        """As a whole: two parts of it would run side by side, in the place of one."""
        if self._closed:
            return
        host = entries[0].intent.action.host
        begun = self._outbox.begin_whole(entries)
        if begun is None:  # what came of the others is about to be heard
            self._plan(host, self._repeat_s)
            return
        begun = self._may_send(begun)
        if not begun:
            return
        launches = [entry.request for entry in begun if isinstance(entry.request, wire.Launch)]
        request = slice_request(launches, self._slice_us)
        self._sender.send(host, request).add_done_callback(partial(self._hear_slice, begun))

    def _hear_slice(self, entries: list[Open], future: Future[Any]) -> None:
        """An agent that takes no slices runs the first, and none of the others."""
        error = future.exception()
        refused = set() if error is not None else {tuple(name) for name in future.result().refused}
        unknown = code_of(error) is Code.NO_SUCH_OP

        def take(entry: Open) -> None:
            action = entry.intent.action
            why = error
            if (action.job, action.attempt) in refused:
                why = AgentError(Code.DISCARDED, f"Attempt {action.attempt} was discarded on {action.host}.")
            if not unknown:
                self._answered(entry, why, None)
            elif entry is entries[0]:
                self._outbox.rest(entry)
                self.send(entry)
            else:
                self._give_back(entry)

        self._safely(entries, take)

    def _give_back(self, entry: Open) -> None:
        action, now_us = entry.intent.action, self._clock.now_us()
        gone = (action.job, action.attempt, action.host, 0, 0, signal.SIGTERM, None, now_us)
        self._post(ev.TaskExited(*gone, why=UNSTARTED))
        self.settle(entry.intent)

    def send(self, entry: Open) -> None:
        """Carry it out, unless it is under way already: never twice at once."""
        if self._closed or not self._outbox.begin(entry):
            return
        if not self._leadership.may_act():
            self.again(entry)
            return
        action = entry.intent.action
        if isinstance(action, Collect):
            self._pool.submit(action.host, entry.user, partial(self._collect, entry, action))
            return
        request = entry.request
        assert request is not None
        if isinstance(action, Launch | Start) and self._outbox.is_to_end(action):
            held = before_its_end(action)
            if held is None:
                self.settle(entry.intent)
                return
            request = msgspec.structs.replace(request, hold=held.hold)
        self._sender.send(action.host, request).add_done_callback(partial(self._hear, entry))

    def again(self, entry: Open, seconds: float | None = None) -> None:
        """Send it again in a while, with all of that host that failed meanwhile, in order."""
        self._outbox.rest(entry)
        self._plan(entry.intent.action.host, self._repeat_s if seconds is None else seconds)

    def _plan(self, host: str, seconds: float) -> None:
        if self._outbox.plan_repeat(host):
            self._aside.after(seconds, lambda: self._repeat(host))

    def _repeat(self, host: str) -> None:
        waiting = self._outbox.begin_repeat(host)
        if self._is_up(host):
            self.send_all(waiting)

    def settle(self, intent: Intent, logs: tuple[KeptLog, ...] = ()) -> None:
        """Its outcome is known, or nobody asks for it any more."""
        self._outbox.remove(intent)
        self._post(ev.ActionSettled(intent.id, logs))

    def _hear(self, entry: Open, future: Future[Any]) -> None:
        def take(entry: Open) -> None:
            error = future.exception()
            self._answered(entry, error, future.result() if error is None else None)

        self._safely([entry], take)

    def _safely(self, entries: list[Open], take: Callable[[Open], None]) -> None:
        """What comes of an answer, for each by itself."""
        for entry in entries:
            try:
                take(entry)
            except Exception:  # it stays open: no defect of ours may leave it under way for ever
                log.exception("the answer to intent %d was not taken", entry.intent.id)
                self.again(entry)
