"""The use cases: what the HTTP API offers, in terms of the leader, the fleet and the store.

Changes go through `Leader.request` and are answered after their commit; reads either ask the
leader between two steps or, for jobs that left memory, the store.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from rm import __version__
from rm.config import LimitsConfig
from rm.core.jobs.actions import Collect
from rm.core.model.demand import Demand
from rm.core.model.host import Host
from rm.core.model.logs import LogPlace
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.store import Store
from rm.daemon.agents import Hosts
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.execution.log_reader import LogReader
from rm.daemon.leading.audit_log import AuditLog
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.host_keys import Keys
from rm.daemon.services.host_service import HostService, shown
from rm.daemon.services.job_changes import JobChanges
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.sessions import Sessions
from rm.daemon.services.steps_service import Steps
from rm.daemon.services.stored import StoredCounts
from rm.daemon.services.token_keeper import TokenKeeper
from rm.errors import StoreUnavailable

NO_FAULTS: Mapping[str, str] = MappingProxyType({})


class Iterations(Protocol):
    """Iteration statistics of running and recent jobs."""

    def of(self, job: int) -> Mapping[str, Any]: ...


class Service(JobChanges, HostService):
    """One per daemon; its methods run in the web server's event loop.

    Args:
        leader, store, hosts, clock: of the daemon.
        keys: shows and pins the hosts' SSH keys.
        iterations: what the regulator knows of jobs' iterations.
        measure: measures the network now, of one zone or of all.
        logs: where the logs are that came home; `collecting` names those that are on their way.
        recent_us: how long ended jobs are in the leader's state.
        facts: of the daemon, for its status: version, agents, started_us, epoch.
        policies: of its own, for the thread that thinks: the leader's remember what they saw last.
        backlog, waiters: how many jobs wait, and who waits for one; the leader tells both of changed jobs.
        policy_faults: sentences about policies that failed, by their names.
        monitoring, alerting, steps, sessions, tokens, audit: the other topics of the API; None where there
            is none.
    """

    def __init__(
        self,
        *,
        leader: Leader,
        store: Store,
        hosts: Hosts,
        keys: Keys,
        iterations: Iterations,
        measure: Callable[[str | None], Measured],
        clock: Clock,
        logs: LogPlace,
        recent_us: int,
        facts: Mapping[str, Any],
        policies: Policies,
        backlog: Backlog | None = None,
        waiters: JobWaiters | None = None,
        collecting: Callable[[int, int], Sequence[Collect]] = lambda job, attempt: (),
        policy_faults: Mapping[str, str] = NO_FAULTS,
        monitoring: MonitorService | None = None,
        alerting: Alerting | None = None,
        steps: Steps | None = None,
        sessions: Sessions | None = None,
        tokens: TokenKeeper | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(leader=leader, hosts=hosts, keys=keys, measure=measure, monitoring=monitoring)
        self.alerting = alerting
        self.steps = steps
        self.sessions = sessions
        self.tokens = tokens
        self.audit = audit
        self._policy_faults = policy_faults
        self._store = store
        self._iterations = iterations
        self._clock = clock
        self._collecting = collecting
        self._reader = LogReader(hosts, logs, self.job, store.logs, collecting)
        self._recent_us = recent_us
        self._facts = facts
        self._possible: set[Demand] = set()
        self._possible_for: tuple[Host, ...] = ()
        self._policies = policies
        self._backlog = backlog or Backlog(LimitsConfig().pending_jobs, LimitsConfig().pending_bytes)
        self._bulks: dict[str, asyncio.Lock] = {}
        self._waiters = waiters or JobWaiters()
        self._stored = StoredCounts(store, clock, lambda: leader.version, leader.waiting)

    def iterations(self, job_id: int) -> Mapping[str, Any]:
        return self._iterations.of(job_id)

    async def status(self) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Any]:
            state = cycle.state
            jobs = dict(Counter(job.state for job in state.jobs.values() if not job.state.final))
            hosts: dict[str, int] = {}
            for host in state.hosts.values():
                seen = shown(host, state.jobs_on.get(host.name, set())).state
                hosts[seen] = hosts.get(seen, 0) + 1
            ours = self._facts["agents"]
            others = [h.name for h in state.hosts.values() if h.agent_version not in ("", ours)]
            return {**known, "jobs": jobs, "hosts": hosts, "other_agents": sorted(others)}

        policies = self._policies
        known = {
            "daemon": {"version": __version__, "pid": os.getpid(), **self._facts},
            "policies": {
                "queue": policies.queue.name,
                "placement": policies.placement.name,
                "comm": policies.comm.name,
            },
        }
        try:
            answer = await self._ask(ask)
            held = await self._stored.now()
        except StoreUnavailable as error:  # that is how the daemon is
            return {**known, "jobs": {}, "hosts": {}, "waiting": str(error)}
        jobs = answer["jobs"] | {state: count for state, count in held.counts.items() if state.final}
        faults = list(self._policy_faults.values())
        return {**answer, "jobs": jobs, "set_aside": [one.why for one in held.aside], "policy_faults": faults}
