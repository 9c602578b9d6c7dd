"""The accounting of jobs' steps: fetched from the jobs' first hosts while they run, and before these forget
them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

from rm.core.model.job import Task
from rm.core.model.job_step import STEPS_MOST, JobStep, StepName
from rm.core.model.step_used import Spread, StepUsed
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.daemon.execution.agent_news import ours
from rm.daemon.execution.greeting import CALL_TIMEOUT_S
from rm.errors import RmError
from rm.protocol import job_steps as wire
from rm.protocol.codes import AgentError, Code, code_of

log = logging.getLogger(__name__)

KEEP_S = 30.0  # for a commit, before the host is asked again
RECORD_BYTES = 64 << 20  # no record of an attempt is larger
PART_BYTES = 64 << 10  # a host that has more to say says a quarter of a MiB at once
KNOWN = 100_000  # attempts
POSITIONS = 10_000  # of attempts that are remembered; of the others all is fetched again
GONE = (Code.NO_SUCH_OP, Code.NO_SUCH_ATTEMPT, Code.DISCARDED)  # there is nothing more to be had
Key = tuple[int, int]


class StepBook:
    """Args:
    placed: the task of (job, attempt, rank) if it is on this host; called in any thread.
    keep: makes steps durable; the future ends then.
    """

    def __init__(
        self,
        *,
        hosts: Agents,
        clock: Clock,
        placed: Callable[[str, int, int, int], Task | None],
        keep: Callable[[tuple[JobStep, ...]], Future[Any]],
    ) -> None:
        self._hosts, self._clock, self._placed, self._keep = hosts, clock, placed, keep
        self._known: dict[Key, None] = {}  # whose steps this daemon has reported since it leads
        self._asks_all = False  # there were too many to remember
        self._positions: dict[Key, int] = {}  # up to where the record of (job, attempt) is durable
        self._asking: dict[Key, bool] = {}  # those under way; True: there is more news
        self._lock = threading.Lock()

    def told(self, host: str, job: int, attempt: int) -> None:
        """The host says that it has recorded more; while the attempt runs only its first host is believed."""
        key = (job, attempt)
        with self._lock:
            self._known[key] = None
            if len(self._known) > KNOWN:
                self._known, self._asks_all = {}, True
        if self._placed(host, job, attempt, 0) is None:
            return
        with self._lock:
            under_way = key in self._asking
            self._asking[key] = under_way
        if not under_way:
            self._ask(host, key)

    def bring_home(self, host: str, job: int, attempt: int) -> None:
        """Fetch and keep what is left, before the host forgets the attempt. Most jobs have no steps, and
        their hosts are not asked: one that has records says so before it reports the end.

        Raises:
            Unreachable, TimeoutError: the host or the database is silent.
            AgentError: the host refuses for now.
            StoreError: the database refuses.
        """
        key = (job, attempt)
        if key not in self._known and not self._asks_all:
            return
        position, more = self._positions.get(key, 0), True
        try:
            while more:
                request = wire.JobSteps(job=job, attempt=attempt, offset=position)
                told = self._hosts.call(host, request).result(CALL_TIMEOUT_S)
                if steps := self._steps(host, key, told.steps):
                    self._keep(steps).result(KEEP_S)
                position, more = told.offset, _goes_on(told, position)
        except AgentError as error:
            if error.code not in GONE:
                raise
        with self._lock:
            self._positions.pop(key, None)
            self._known.pop(key, None)

    def _ask(self, host: str, key: Key) -> None:
        position = self._positions.get(key, 0)
        request = wire.JobSteps(job=key[0], attempt=key[1], offset=position)
        self._hosts.call(host, request).add_done_callback(partial(self._heard, host, key, position))

    def _heard(self, host: str, key: Key, position: int, future: Future[wire.JobStepsTold]) -> None:
        error = future.exception()
        if error is not None:  # its next word, or the end of the job, is an occasion
            self._rest(key)
            if not isinstance(error, RmError) or code_of(error) not in GONE:
                log.debug("steps of job %d on %s: %s", key[0], host, error)
            return
        told = future.result()
        more = _goes_on(told, position)
        steps = self._steps(host, key, told.steps)
        if steps:
            self._keep(steps).add_done_callback(partial(self._kept, host, key, told.offset, more))
        else:
            self._go_on(host, key, told.offset, more)

    def _kept(self, host: str, key: Key, position: int, more: bool, future: Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._rest(key)
        else:
            self._go_on(host, key, position, more)

    def _go_on(self, host: str, key: Key, position: int, more: bool) -> None:
        with self._lock:
            self._positions[key] = position
            if len(self._positions) > POSITIONS:
                del self._positions[next(iter(self._positions))]
            more = more or self._asking.get(key, False)
            if more:
                self._asking[key] = False
            else:
                self._asking.pop(key, None)
        if more:
            self._ask(host, key)

    def _rest(self, key: Key) -> None:
        with self._lock:
            self._asking.pop(key, None)

    def _steps(self, host: str, key: Key, told: Iterable[wire.JobStep]) -> tuple[JobStep, ...]:
        """The newest of each, with our instants."""
        offset_us, now_us = self._hosts.clock_offset_us(host) or 0, self._clock.now_us()

        def instant(at_us: int) -> int:
            return ours(at_us, offset_us, now_us)

        found = {
            one.step: JobStep(
                StepName(*key, one.step),
                one.name,
                one.hosts,
                one.hosts_count,
                one.tasks,
                one.cpus,
                instant(one.started_us),
                None if one.ended_us is None else instant(one.ended_us),
                one.code,
                one.signal,
                one.why,
                None if one.used is None else step_used(one.used),
                one.typed,
            )
            for one in told
            if one.step < STEPS_MOST
        }
        return tuple(found.values())


def step_used(told: wire.StepUsed) -> StepUsed:
    def spread(one: wire.Spread) -> Spread:
        most = one.most, one.most_host, one.most_rank
        return Spread(one.total, *most, one.least, one.least_host, one.least_rank)

    return StepUsed(
        told.tasks,
        told.user_us,
        told.system_us,
        spread(told.cpu_us),
        spread(told.mem_bytes),
        spread(told.read_bytes),
        spread(told.written_bytes),
        told.host_bytes,
        told.peak_bytes,
        told.gpu_us,
        told.gpu_busy_us,
        told.gpu_mem_bytes,
        told.energy_mj,
    )


def _goes_on(told: wire.JobStepsTold, position: int) -> bool:
    """Is there more? A host whose record hardly advances, or never ends, is not asked for ever."""
    return told.more and position + PART_BYTES <= told.offset < RECORD_BYTES
