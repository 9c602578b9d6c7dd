"""The use cases: what the HTTP API offers, in terms of the leader, the fleet and the store.

Changes go through `Leader.request` and are answered after their commit; reads either ask the
leader between two steps or, for jobs that left memory, the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rm.adapters.playbook.catalogue import Catalogue
from rm.core.jobs.actions import Collect
from rm.core.model.logs import LogPlace
from rm.core.ports import Clock
from rm.core.scheduling.engine import Policies
from rm.core.store import Store
from rm.daemon.agents import Hosts
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.execution.log_reader import LogReader
from rm.daemon.leading.audit_log import AuditLog
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.playbooks.service import Playbooks
from rm.daemon.services.account_service import AccountService
from rm.daemon.services.asking import Asking
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.daemon_status import DaemonStatus
from rm.daemon.services.foresight import Foresight
from rm.daemon.services.host_keys import Keys
from rm.daemon.services.host_service import HostService
from rm.daemon.services.job_changes import JobChanges
from rm.daemon.services.job_reading import JobReading
from rm.daemon.services.job_submissions import JobSubmissions
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.network_service import NetworkService
from rm.daemon.services.priorities import Priorities
from rm.daemon.services.reservation_service import Again, ReservationService
from rm.daemon.services.sessions import Sessions
from rm.daemon.services.steps_service import Steps
from rm.daemon.services.stored import StoredCounts
from rm.daemon.services.token_keeper import TokenKeeper
from rm.daemon.services.usage_service import UsageService
from rm.daemon.services.usage_totals import UsageTotals
from rm.daemon.services.used_now import UsedNow

USAGE_DAYS = 800.0  # for which usage is known by the day


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The topics of the API, one per daemon; None where the daemon has no such topic."""

    asking: Asking
    reading: JobReading
    submissions: JobSubmissions
    changes: JobChanges
    job_logs: LogReader
    used_now: UsedNow
    iterations: Callable[[int], Mapping[str, Any]]  # of a job
    host_service: HostService
    reservation_service: ReservationService
    foresight: Foresight
    priorities: Priorities
    account_service: AccountService
    usage_service: UsageService
    network_service: NetworkService
    daemon_status: DaemonStatus
    monitoring: MonitorService | None = None
    alerting: Alerting | None = None
    steps: Steps | None = None
    sessions: Sessions | None = None
    tokens: TokenKeeper | None = None
    audit: AuditLog | None = None
    playbooks: Playbooks | None = None

    def close(self) -> None:
        self.asking.close()


def make_service(
    *,
    leader: Leader,
    store: Store,
    hosts: Hosts,
    keys: Keys,
    iterations: Callable[[int], Mapping[str, Any]],
    measure: Callable[[str | None], Measured],
    clock: Clock,
    logs: LogPlace,
    again: Again,
    recent_us: int,
    facts: Mapping[str, Any],
    policies: Policies,
    backlog: Backlog,
    waiters: JobWaiters,
    collecting: Callable[[int, int], Sequence[Collect]],
    policy_faults: Mapping[str, str],
    refuse_never: bool = True,
    monitoring: MonitorService | None = None,
    alerting: Alerting | None = None,
    steps: Steps | None = None,
    sessions: Sessions | None = None,
    tokens: TokenKeeper | None = None,
    audit: AuditLog | None = None,
    usage: UsageService | None = None,
    playbooks: Playbooks | None = None,
    check_playbook: Callable[[str, bool], None] | None = None,
) -> Service:
    """Put the topics together.

    Args:
        leader, store, hosts, clock: of the daemon.
        keys: shows and pins the hosts' SSH keys.
        iterations: what the regulator knows of a job's iterations.
        measure: measures the network now, of one zone or of all.
        logs: where the logs are that came home; `collecting` names those that are on their way.
        recent_us: how long ended jobs are in the leader's state.
        facts: of the daemon, for its status: version, agents, started_us, epoch.
        policies: of its own, for the thread that thinks: the leader's remember what they saw last.
        backlog, waiters: how many jobs wait, and who waits for one; the leader tells both of changed jobs.
        policy_faults: sentences about policies that failed, by their names.
        refuse_never: refuse at the submission what limits would keep waiting for ever.
        monitoring, alerting, steps, sessions, tokens, audit, playbooks: the other topics of the API.
        usage: what jobs used, where it is kept for another time than usual.
        check_playbook: of ReservationService; None: there is no folder of playbooks.
    """
    asking = Asking(leader)
    reading = JobReading(
        asking=asking,
        store=store,
        clock=clock,
        policies=policies,
        waiters=waiters,
        recent_us=recent_us,
        collecting=collecting,
    )
    submissions = JobSubmissions(
        asking=asking,
        leader=leader,
        reading=reading,
        policies=policies,
        backlog=backlog,
        refuse_never=refuse_never,
    )
    changes = JobChanges(
        asking=asking,
        leader=leader,
        reading=reading,
        submissions=submissions,
        store=store,
        hosts=hosts,
        epoch=facts["epoch"],
    )
    stored = StoredCounts(store, clock, lambda: leader.version, leader.waiting)
    status = DaemonStatus(
        asking=asking, stored=stored, policies=policies, facts=facts, policy_faults=policy_faults
    )
    return Service(
        asking=asking,
        reading=reading,
        submissions=submissions,
        changes=changes,
        job_logs=LogReader(hosts, logs, reading.job, store.logs, collecting),
        used_now=UsedNow(hosts, reading.job),
        iterations=iterations,
        host_service=HostService(asking=asking, hosts=hosts, keys=keys, monitoring=monitoring),
        reservation_service=ReservationService(
            asking=asking,
            leader=leader,
            clock=clock,
            again=again,
            check_playbook=check_playbook or Catalogue("").check_maintenance,
        ),
        foresight=Foresight(asking=asking, policies=policies, clock=clock),
        priorities=Priorities(asking=asking, policies=policies),
        account_service=AccountService(asking),
        usage_service=usage
        or UsageService(store=store, clock=clock, keep_days=USAGE_DAYS, totals=UsageTotals()),
        network_service=NetworkService(asking=asking, measure=measure),
        daemon_status=status,
        monitoring=monitoring,
        alerting=alerting,
        steps=steps,
        sessions=sessions,
        tokens=tokens,
        audit=audit,
        playbooks=playbooks,
    )
