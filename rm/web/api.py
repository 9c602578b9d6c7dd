"""The HTTP API over the daemon's Unix socket: parse, check the caller's right, call, answer.

The contract is docs/http-api.md; decisions are the service's. Here the routes of all topics become one
application, which `serve` opens to clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from aiohttp import web

from rm.config import Config
from rm.core.people.rights import Role
from rm.web.callers.access import Gate
from rm.web.callers.accounts import Accounts
from rm.web.callers.identity import Doorkeeper
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.doors.door import Door
from rm.web.doors.limits import LIMITS, Limits
from rm.web.doors.listener import bind
from rm.web.etag import tagged
from rm.web.failures import answering_failures
from rm.web.handling import BESIDE
from rm.web.https import HttpsDoor
from rm.web.metrics import metrics_routes
from rm.web.ports import Service
from rm.web.routes.accounts import AccountRoutes
from rm.web.routes.alerts import AlertRoutes
from rm.web.routes.daemon import DaemonRoutes
from rm.web.routes.hosts import HostRoutes
from rm.web.routes.job_steps import JobStepRoutes
from rm.web.routes.jobs import JobRoutes
from rm.web.routes.logs import LogRoutes
from rm.web.routes.maddash import Maddash
from rm.web.routes.monitor import MonitorRoutes
from rm.web.routes.network import NetworkRoutes
from rm.web.routes.playbook_steps import StepsRoutes
from rm.web.routes.playbooks import PlaybookRoutes
from rm.web.routes.reservations import ReservationRoutes
from rm.web.routes.sessions import SessionRoutes
from rm.web.routes.sharing import SharingRoutes
from rm.web.routes.submit import SubmitRoutes
from rm.web.routes.usage import UsageRoutes

log = logging.getLogger("rm.web")


def make_app(service: Service, config: Config) -> web.Application:
    """The application; administrators and the defaults of jobs are `config`'s."""
    accounts = Accounts(config)
    keeper = Doorkeeper(accounts, service)
    gate = Gate(keeper, config.privacy, service, Role(config.playbooks.role))
    limits, visible = Limits(config.limits), VisibleJobs(service, config.privacy)
    app = web.Application(
        middlewares=[
            answering_failures,
            gate.identifying(),
            limits.middleware(),
            gate.middleware(),
            visible.middleware(),
            tagged,
        ],
        client_max_size=config.limits.body_bytes,
    )
    app[LIMITS] = limits
    app[BESIDE] = asyncio.Semaphore(1)
    for topic in (
        DaemonRoutes(service, config, visible),
        SubmitRoutes(service, config, visible),
        JobRoutes(service, gate, visible),
        JobStepRoutes(service, visible),
        LogRoutes(service, gate, keeper, visible),
        SessionRoutes(service, keeper, visible),
        HostRoutes(service, gate, visible),
        ReservationRoutes(service, visible, accounts),
        SharingRoutes(service, visible),
        UsageRoutes(service, visible),
        NetworkRoutes(service, visible),
        Maddash(service),
        AlertRoutes(service, visible),
        MonitorRoutes(service),
        StepsRoutes(service),
        PlaybookRoutes(service),
        AccountRoutes(service, accounts),
    ):
        app.add_routes(topic.routes())
    app.add_routes(metrics_routes(service, visible))
    return app


async def serve(service: Service, socket_path: str, config: Config, stood_by: bool = False) -> web.AppRunner:
    """Listen on `socket_path`; `await runner.cleanup()` ends it and removes the socket. A daemon that
    `stood_by` until now waits for the port of its HTTPS door, which the leader before it may still have.

    Raises:
        Conflict: another daemon already listens there.
    """
    listener = bind(socket_path, config.daemon.shared)
    mine = os.stat(socket_path).st_ino
    app = make_app(service, config)

    async def remove(_: web.Application) -> None:
        with contextlib.suppress(OSError):
            if os.stat(socket_path).st_ino == mine:  # not a successor's
                os.unlink(socket_path)

    app.on_cleanup.append(remove)
    https = HttpsDoor(config.https) if config.https.listen else None
    if https is not None:
        app.on_cleanup.append(https.stop)
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=config.limits.idle_s,
        shutdown_timeout=2,
    )
    await runner.setup()
    await Door(runner, listener, app[LIMITS].guests).start()
    if https is not None:
        try:
            await https.start(runner, app[LIMITS].guests, "is open for tokens", waits=stood_by)
        except BaseException:
            await runner.cleanup()
            raise
    return runner
