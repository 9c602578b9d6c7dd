"""Playbooks that people start from the page or the API: which, by whom, and in what processes."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import sys
from functools import partial

from rm.adapters.cron import Timers, interval_us
from rm.adapters.playbook.catalogue import Catalogue
from rm.bootstrap.ground import Ground
from rm.bootstrap.jobs import Jobs
from rm.core.monitoring.mesh import Cron
from rm.core.people.audit import Act
from rm.core.people.rights import Role
from rm.daemon.playbooks.process import Process
from rm.daemon.playbooks.runner import Runner
from rm.daemon.playbooks.schedules import Schedules
from rm.daemon.playbooks.service import Playbooks
from rm.daemon.playbooks.starting import Starting
from rm.daemon.playbooks.telling import Telling
from rm.units import DAY_US, HOUR_US
from rm.web.callers.accounts import Accounts

# -P: nothing is imported from the directory that the daemon was started in, where others may write
RMX = (
    sys.executable, "-P", "-c", "import sys; from rm.cli.start import main; sys.exit(main())", "--socket",
)  # fmt: skip
log = logging.getLogger(__name__)


def wire_playbooks(*, ground: Ground, jobs: Jobs, timers: Timers, catalogue: Catalogue) -> Playbooks:
    """Nothing is read from the database yet: `Playbooks.take_up` does that."""
    config, clock, runs = ground.config, ground.clock, ground.store.playbook_runs
    asked = config.playbooks
    command = (*RMX, config.daemon.socket, "playbook", "work")
    least = Role(asked.role)
    accounts = Accounts(config)

    def may_start(user: str) -> bool:
        return _is_trusted(user) or asyncio.run(accounts.role_of(user)) >= least

    runner = Runner(
        runs=runs,
        clock=clock,
        start=partial(Process, command),
        at_once=asked.at_once,
        time_limit_us=int(asked.time_limit_hours * HOUR_US),
        may_start=may_start,
    )

    def record(act: Act) -> None:
        jobs.leader.record(act).result()

    if unknown := catalogue.unknown():
        log.warning("playbooks.shipped of rm.toml names %s, which do not come with rm", ", ".join(unknown))
    starting = Starting(
        catalogue=catalogue,
        runner=runner,
        clock=clock,
        vault_password_file=asked.vault_password_file,
    )
    schedules = Schedules(
        runs=runs,
        clock=clock,
        timers=timers,
        start=lambda one: starting.start(one.playbook, one.options, one.answers, one.by, one.id),
        check=lambda expression: interval_us(Cron(expression), ground.zone, clock.now_us()),
        may_start=may_start,
        record=record,
    )
    playbooks = Playbooks(
        starting=starting,
        runs=runs,
        runner=runner,
        schedules=schedules,
        clock=clock,
        telling=Telling(runs=runs, clock=clock, enabled=asked.record),
    )
    keep_us = int(asked.keep_days * DAY_US)
    timers.every(60, "look after runs of shells", playbooks.look)
    timers.every(3600, "prune runs of playbooks", lambda: playbooks.prune(keep_us, asked.keep_runs))
    return playbooks


def _is_trusted(user: str) -> bool:
    """Root, and the daemon's own user, as at its doors."""
    try:
        return pwd.getpwnam(user).pw_uid in (0, os.geteuid())
    except KeyError:
        return False
