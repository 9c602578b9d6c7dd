"""Renews the leases of fenced jobs (docs/fences.md) on the hosts that run them, while this daemon leads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from rm.core.model.job import Job
from rm.daemon.agents import Hosts
from rm.protocol.attempts import Renew, Renewed
from rm.protocol.notifications import Hello

log = logging.getLogger(__name__)

RENEWALS = 8  # within a lease: some may be lost
SHORTEST_S, LONGEST_S = 0.25, 5.0
CALL_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Heard:
    """What time it was on a host, by its clock since its boot, when it was heard last on this channel."""

    hello: Hello
    alive_us: int


class Renewer:
    """`jobs_changed` is called by the leader with every new version of a job.

    A host is renewed only while the leader counts it as heard (`is_heard`): from the moment at which it does
    not, it waits for the lease. Nothing is renewed while another daemon may lead (`may_act`).
    """

    def __init__(
        self, *, hosts: Hosts, epoch: int, is_heard: Callable[[str], bool], may_act: Callable[[], bool]
    ) -> None:
        self._hosts = hosts
        self._epoch = epoch
        self._is_heard = is_heard
        self._may_act = may_act
        self._leases_us: dict[str, dict[int, int]] = {}  # by host and job
        self._heard: dict[str, Heard] = {}
        self._lock = threading.Lock()
        self._some = threading.Event()  # to be renewed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._some.set()
        if self._thread.is_alive():
            self._thread.join(CALL_TIMEOUT_S)

    def jobs_changed(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if not job.spec.fence_us:
                continue
            running = {t.host for t in job.tasks if t.ended_us is None} if job.occupies else set()
            with self._lock:
                for host in running:
                    self._leases_us.setdefault(host, {})[job.id] = job.spec.fence_us
                for host in [h for h, jobs in self._leases_us.items() if job.id in jobs and h not in running]:
                    del self._leases_us[host][job.id]
                    if not self._leases_us[host]:
                        del self._leases_us[host]
            self._some.set()

    def pause_s(self) -> float | None:
        """Between two renewals, by the shortest lease; None while there is none."""
        with self._lock:
            shortest_us = min((us for jobs in self._leases_us.values() for us in jobs.values()), default=None)
        if shortest_us is None:
            return None
        return min(LONGEST_S, max(SHORTEST_S, shortest_us / 1e6 / RENEWALS))

    def renew(self) -> None:
        """Ask each host that has leases once; its answer is for the next time."""
        with self._lock:
            hosts = list(self._leases_us)
        for gone in self._heard.keys() - hosts:
            del self._heard[gone]
        for host in hosts:
            hello = self._hosts.hello(host)
            if hello is None or not self._is_heard(host):
                continue
            known = self._heard.get(host)
            if known is None or known.hello != hello:
                known = self._heard[host] = Heard(hello, hello.alive_us)
            if not self._may_act():
                return
            asked = Renew(epoch=self._epoch, heard_us=known.alive_us)
            self._hosts.call(host, asked, CALL_TIMEOUT_S).add_done_callback(self._hearing(host, known))

    def _hearing(self, host: str, known: Heard) -> Callable[[Future[Renewed]], None]:
        def hear(answer: Future[Renewed]) -> None:
            error = answer.exception()
            if error is None:
                known.alive_us = max(known.alive_us, answer.result().alive_us)
            else:  # the executor finds out what it means, too
                log.info("the leases on %s were not renewed: %s", host, error)

        return hear

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._some.clear()
            pause_s = self.pause_s()
            if pause_s is None:
                self._some.wait()
                continue
            try:
                self.renew()
            except Exception:  # the next time may go better, and a lease is longer than several times
                log.exception("leases were not renewed: this is a defect of rm")
            self._stopped.wait(pause_s)
