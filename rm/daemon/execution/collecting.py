"""Logs come home before their host forgets the attempt, and their users get copies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect
from rm.core.jobs.handlers.transitions import HOST_FAULTS
from rm.core.model.logs import KeptLog
from rm.daemon.agents import Hosts
from rm.daemon.execution.deliver import Deliverer, Delivery
from rm.daemon.execution.greeting import CALL_TIMEOUT_S, Post
from rm.daemon.execution.log_home import LogHome, streams
from rm.daemon.execution.step_book import StepBook
from rm.errors import RmError, StoreError
from rm.protocol import attempts as wire
from rm.protocol.codes import AgentError, Code, code_of

log = logging.getLogger(__name__)
# that the executor deals with: it asks again, or somebody else
REFUSALS = (Code.STILL_RUNNING, Code.STALE_EPOCH, Code.FOREIGN_CLUSTER, *HOST_FAULTS)


class Collector:
    """`deliverer` writes the copies, `steps` keeps the accounting of steps; without them there is none."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        post: Post,
        epoch: int,
        home: LogHome,
        deliverer: Deliverer | None,
        steps: StepBook | None = None,
    ) -> None:
        self._hosts = hosts
        self._post = post
        self._epoch = epoch
        self._home = home
        self._deliverer = deliverer
        self._steps = steps

    def close(self) -> None:
        if self._deliverer is not None:
            self._deliverer.close()

    def collect(self, action: Collect) -> tuple[KeptLog, ...]:
        """What became of the logs, when the host has forgotten the attempt.

        Raises:
            Unreachable, TimeoutError, TooSlow: the host fell silent, or nearly.
            AgentError: it refuses for now, with a code of REFUSALS.
            OSError, StoreError: the logs, or the steps' accounting, cannot be kept here.
        """
        if action.steps and self._steps is not None:
            self._steps.bring_home(action.host, action.job, action.attempt)
        kept = self._bring_home(action)
        self._home.finished(action)
        return kept

    def _bring_home(self, action: Collect) -> tuple[KeptLog, ...]:
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
            if error.code in REFUSALS:
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

    def lost_with_host(self, action: Collect) -> tuple[KeptLog, ...]:
        """What is known of the logs of a host that was removed."""
        with suppress(OSError, StoreError):
            return self._home.found(action, f"host {action.host} was removed before it was collected")
        return ()

    def deliver(self, delivery: Delivery | None, action: Collect, done: Callable[[], None]) -> None:
        """Write what the user gets a copy of; `done` when it is written, or refused."""
        if delivery is None or self._deliverer is None:
            done()
            return

        def delivered(why_not: str) -> None:
            if why_not:
                self._post(ev.Noted(action.job, why_not))
            done()

        self._deliverer.submit(delivery, action.job, action.attempt, delivered)
