"""`GET /metrics`: Prometheus' text format 0.0.4, or OpenMetrics on request."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from rm.core.model.job import JobState
from rm.errors import RmError
from rm.web.callers.sight import Sight
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.metric_families import JOBS_MOST, Told, families
from rm.web.ports import Service

log = logging.getLogger("rm.web")

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ITERATING = frozenset({JobState.RUNNING, JobState.SUSPENDED})


class _Once:
    """What the writer wants: something that yields families."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def metrics_routes(service: Service, visible: VisibleJobs) -> list[web.RouteDef]:
    """Jobs that the caller may not know of have no series of their own; they count."""

    async def metrics(request: web.Request) -> web.Response:
        told = seen(await gather(service), await visible.sight(request))
        wants = "application/openmetrics-text" in request.headers.get("Accept", "")

        def write() -> bytes:
            found = _Once(families(told))
            if wants:
                body: bytes = openmetrics.generate_latest(found)  # type: ignore[no-untyped-call]
                return body
            return generate_latest(found)

        body = await asyncio.to_thread(write)
        return web.Response(body=body, headers={"Content-Type": OPEN if wants else PLAIN})

    return [web.get("/metrics", metrics)]


def seen(told: Told, sight: Sight) -> Told:
    iterations = {job: one for job, one in told.iterations.items() if sight.of(job)}
    rotations = [link["rotations"] for link in sight.links(told.links)]
    links = [{**link, "rotations": r} for link, r in zip(told.links, rotations, strict=True)]
    return replace(told, iterations=iterations, links=links)


async def gather(service: Service) -> Told:
    """Ask the service for everything; a part that fails is named, and the others stay."""
    failed: list[str] = []
    none = frozenset[JobState]()

    async def part(name: str, ask: Callable[[], Any], empty: Any) -> Any:
        try:
            answer = ask()
            return await answer if inspect.isawaitable(answer) else answer
        except (RmError, TimeoutError) as error:
            log.warning("metrics go without %s: %s", name, error)
            failed.append(name)
            return empty

    async def monitored(name: str) -> list[Any]:
        if service.monitoring is None:
            return []
        ask = getattr(service.monitoring, name, None)
        return list((await ask())[name]) if ask is not None else []

    status, hosts, (jobs, reasons), links, pairs, meshes, sources, archives, accounts = await asyncio.gather(
        part("status", service.daemon_status.status, {}),
        part("hosts", service.host_service.hosts, ()),
        part(
            "jobs",
            lambda: service.reading.jobs_and_reasons(
                states=none, user="", name="", limit=0, everything=False
            ),
            ((), None),
        ),
        part("links", service.network_service.links, ()),
        part("network", service.network_service.pairs, ()),
        part("meshes", lambda: monitored("meshes"), ()),
        part("sources", lambda: monitored("sources"), ()),
        part("archives", lambda: monitored("archives"), ()),
        part("accounts", service.usage_service.totals, {}),
    )
    iterations = {}
    for job in [j for j in jobs if j.state in ITERATING][-JOBS_MOST:]:
        iterations[job.id] = await part(f"job {job.id}", partial(service.iterations, job.id), None)
    known = {job: told for job, told in iterations.items() if told is not None}
    now_us = time.time_ns() // 1_000
    return Told(
        status, hosts, jobs, reasons, known, links, pairs, meshes, sources, archives, accounts, failed, now_us
    )
