"""Alerts: what is looked at, by which rules, and who gets to know."""

from __future__ import annotations

import socket

from rm.adapters.cron import Timers
from rm.bootstrap.choices import alert_rules, channel_of
from rm.bootstrap.ground import Ground
from rm.bootstrap.jobs import Jobs
from rm.bootstrap.monitoring import Monitoring
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.alerts.setup import channels_of


def wire_alerts(*, ground: Ground, jobs: Jobs, monitoring: Monitoring, timers: Timers) -> Alerting:
    config = ground.config
    alerting = Alerting(
        leader=jobs.leader,
        agents=ground.fleet,
        clock=ground.clock,
        cells=monitoring.service.cells,
        paused=monitoring.service.paused,
        standings=jobs.regulator.standings,
        windows=monitoring.meshes.windows,
        zone=ground.zone,
        rules=alert_rules(config),
        channels={table.name: channel_of(table) for table in channels_of(config.alerts.channel)},
        settings=config.alerts,
        stored=ground.loaded.documents,
        cluster=socket.gethostname(),
        connect_s=config.ssh.connect_timeout_s,
        mails=bool(config.jobs.mail),
    )
    if config.alerts.enabled:
        timers.every(config.alerts.every_s, "alerts", alerting.look)
    return alerting
