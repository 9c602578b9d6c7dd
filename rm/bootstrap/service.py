"""The use cases behind the API, over all parts of the daemon, and what is done for them regularly."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rm import __version__
from rm.adapters.cron import Timers, windows_us, zone_of
from rm.adapters.playbook.catalogue import Catalogue
from rm.adapters.playbook.shipped import agents_version
from rm.bootstrap.choices import digests_of, letters_of, policies_of, retention_of, ssh_settings
from rm.bootstrap.ground import Ground
from rm.bootstrap.host_keys import HostKeys
from rm.bootstrap.jobs import Jobs
from rm.bootstrap.monitoring import Monitoring
from rm.bootstrap.playbooks import RMX, wire_playbooks
from rm.collector import look_at_all
from rm.core.scheduling.guarded import Faults
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.leading.audit_log import AuditLog
from rm.daemon.leading.prune import prune, prune_history, prune_journal
from rm.daemon.services.digests import Digests
from rm.daemon.services.maintenance import Maintenance
from rm.daemon.services.service import Service, make_service
from rm.daemon.services.sessions import Sessions
from rm.daemon.services.steps_service import Steps
from rm.daemon.services.token_keeper import TokenKeeper
from rm.daemon.services.usage_service import UsageService


def _digests(ground: Ground, jobs: Jobs) -> Digests | None:
    """None: nobody is to get one."""
    config = ground.config
    to, letters = digests_of(config), letters_of(config)
    if not to or letters is None:
        return None
    return Digests(
        store=ground.store,
        leader=jobs.leader,
        clock=ground.clock,
        letters=letters,
        cluster=config.jobs.cluster_name,
        to=to,
        hour=config.sharing.digest_hour,
        stored=ground.loaded.documents,
    )


def wire_service(
    *, ground: Ground, jobs: Jobs, monitoring: Monitoring, alerting: Alerting, faults: Faults, timers: Timers
) -> Service:
    config, store, clock = ground.config, ground.store, ground.clock
    tokens = TokenKeeper(jobs.leader, clock, ground.loaded.tokens)
    audit = AuditLog(jobs.leader, store, clock, keep_days=config.audit.keep_days)
    keep = retention_of(config)
    kept = config.jobs.keep_days, config.jobs.keep_finished, config.limits.finished_bytes
    journal_days = config.daemon.journal_days
    usage = UsageService(store=store, clock=clock, keep_days=config.jobs.usage_days, totals=jobs.totals)
    timers.every(60, "tokens", tokens.write_down)
    if digests := _digests(ground, jobs):
        timers.every(600, "weekly digests", digests.send, at_once=True)
    timers.every(3600, "prune the sums of usage", usage.prune)
    timers.every(3600, "look for garbage", look_at_all)
    timers.every(3600, "prune the audit log", audit.prune)
    timers.every(3600, "prune", lambda: prune(store, jobs.logs, clock, *kept))
    timers.every(3600, "prune the journal", lambda: prune_journal(store, clock, journal_days))
    timers.every(600, "prune the history", lambda: prune_history(store.history, clock, keep))
    catalogue = Catalogue(config.playbooks.directory, config.playbooks.shipped)
    service = make_service(
        leader=jobs.leader,
        store=store,
        hosts=ground.fleet,
        keys=HostKeys(ssh_settings(config), ground.fleet),
        iterations=jobs.regulator.of,
        measure=monitoring.monitor.measure,
        clock=clock,
        logs=jobs.logs,
        again=partial(windows_us, zone_of(config.monitor.timezone)),
        recent_us=ground.recent_us,
        facts={
            "version": __version__,
            "agents": agents_version(),
            "started_us": clock.now_us(),
            "epoch": ground.lease.epoch,
        },
        policies=policies_of(config, faults),
        backlog=jobs.backlog,
        waiters=jobs.waiters,
        collecting=jobs.executor.collecting,
        policy_faults=faults.sentences,
        refuse_never=config.sharing.refuse_never,
        monitoring=monitoring.service,
        alerting=alerting,
        steps=Steps(ground.fleet),
        sessions=Sessions(
            ground.fleet,
            ground.fleet.cluster.id,
            most_of_user=config.limits.sessions,
            most_on_host=config.hosts.sessions,
        ),
        tokens=tokens,
        audit=audit,
        usage=usage,
        playbooks=wire_playbooks(ground=ground, jobs=jobs, timers=timers, catalogue=catalogue),
        check_playbook=catalogue.check_maintenance,
    )
    timers.every(30, "renew reservations", service.reservation_service.renew)
    maintenance = Maintenance(
        jobs.leader,
        command=lambda playbook, hosts: [
            *RMX,
            config.daemon.socket,
            "playbook",
            "run",
            playbook,
            "--limit",
            hosts,
        ],
        logs=Path(config.daemon.state_dir) / "maintenance",
        check=catalogue.check_unchanged,
    )
    timers.every(5, "maintenance", maintenance.begin)
    return service
