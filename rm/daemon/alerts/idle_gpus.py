"""Watches jobs whose GPUs do nothing (rm.core.alerts.idle_gpus), and has the leader act on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from rm.core.alerts.alert import Finding
from rm.core.alerts.findings import HostFacts
from rm.core.alerts.idle_gpus import READINGS, GpuJob, Watches, idle_findings, watched
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobState
from rm.daemon.leading.leader import Leader
from rm.errors import Conflict
from rm.units import SECOND_US

log = logging.getLogger(__name__)

Notice = tuple[int, int, int, bool]  # job, attempt, idle since, to stop
SOONEST_US = 5 * SECOND_US  # after which an agent is asked again


class Settings(Protocol):
    @property
    def gpus_idle_s(self) -> float: ...
    @property
    def gpus_idle_stop_s(self) -> float: ...


class IdleGpus:
    """Used in one thread; the leader's answers come in another. `mails`: users can be mailed. What was
    seen is lost with the daemon: the next one counts anew."""

    def __init__(self, leader: Leader, settings: Settings, *, mails: bool) -> None:
        self._leader = leader
        self._mails = mails
        self._idle_us = round(settings.gpus_idle_s * SECOND_US)
        self._stop_us = round(settings.gpus_idle_stop_s * SECOND_US)
        self._watches: Watches = {}
        self._told: set[Notice] = set()
        self._failed: SimpleQueue[Notice] = SimpleQueue()  # by the leader's thread

    def often(self, jobs: Sequence[GpuJob]) -> dict[str, int]:
        """After how many microseconds the hosts of these jobs are to be asked again."""
        if not self._idle_us:
            return {}
        every_us = max(SOONEST_US, self._idle_us // READINGS)
        return {host: every_us for job in jobs for host in job.gpus}

    def look(self, jobs: Sequence[GpuJob], facts: Mapping[str, HostFacts]) -> list[Finding]:
        """What is found now; what is to be done about it has begun."""
        if not self._idle_us:
            return []
        while not self._failed.empty():
            self._told.discard(self._failed.get())
        self._watches = watched(self._watches, jobs, facts, self._idle_us)
        spans = {key: self._watches[key].span_us(job) for job in jobs for key in [(job.job, job.attempt)]}
        self._told = {one for one in self._told if spans.get(one[:2], (0, 0))[0] == one[2]}
        for (job, attempt), (from_us, to_us) in spans.items():
            for_us = to_us - from_us
            if for_us < self._idle_us:
                continue
            stop = bool(self._stop_us) and for_us >= self._stop_us
            key = (job, attempt, from_us, stop)
            if key not in self._told:
                self._told.add(key)
                event = ev.GpusIdle(job, attempt, for_us, stop, self._mails)
                future = self._leader.request(partial(if_still, event))
                future.add_done_callback(partial(self._heard, key))
        return list(idle_findings(jobs, self._watches, self._idle_us))

    def _heard(self, key: Notice, done: Future[Any]) -> None:
        if (error := done.exception()) is not None:
            log.info("idle GPUs of job %d: %s", key[0], error)
            self._failed.put(key)  # the next look tries again


def if_still(event: ev.GpusIdle, state: ClusterState) -> list[ev.Event]:
    job = state.jobs.get(event.job)
    if job is None or job.attempt != event.attempt or job.state is not JobState.RUNNING:
        raise Conflict(f"Job {event.job} does not run any more.")
    return [event]
