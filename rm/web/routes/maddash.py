"""MaDDash's REST API over rm's meshes: one grid a mesh, the rows its sources, the columns its destinations.

For the dashboards and scripts that MaDDash left behind. It reads only. Times are whole seconds since
the epoch, statuses 0 ok, 1 warn, 2 critical, 3 unknown, 4 not run, 5 maintenance, as everywhere in rm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from aiohttp import web

from rm.core.monitoring.cells import Status
from rm.core.monitoring.metrics import SERVICES
from rm.errors import NotFound, UsageError
from rm.web import wire
from rm.web.handling import monitoring_of
from rm.web.ports import Monitoring, Service
from rm.web.routes.maddash_history import bad_times, seconds, tries_of

DASHBOARD = "rm"
ROOT = "/maddash"
PAGE = 20  # tries of a check's history a page
TRIES = 200  # that a history goes back, at most
SPAN_MIN_US, SPAN_MAX_US = 3_600_000_000, 86_400_000_000
PAST_US = 400 * 86_400_000_000  # for which changes of a check's status are listed
CHANGES = 1_000  # of a check, at most
EVENTS_US = 7 * 86_400_000_000
EVENTS = 200  # of a grid, at most


class Maddash:
    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _monitoring(self) -> Monitoring:
        return monitoring_of(self._service)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(ROOT + "/dashboards", self.dashboards),
            web.get(ROOT + "/grids", self.grids),
            web.get(ROOT + "/grids/{grid}", self.grid),
            web.get(ROOT + "/grids/{grid}/{row}", self.row),
            web.get(ROOT + "/grids/{grid}/{row}/{column}", self.cell),
            web.get(ROOT + "/grids/{grid}/{row}/{column}/{check}", self.check),
            web.get(ROOT + "/events", self.events),
        ]

    async def _mesh(self, name: str) -> Mapping[str, Any]:
        rows: Sequence[Mapping[str, Any]] = (await self._monitoring.meshes())["meshes"]
        for row in rows:
            if row["name"] == name:
                return row
        raise NotFound(f"There is no grid '{name}'.", f"{ROOT}/grids lists them.")

    async def _listed(self) -> list[dict[str, Any]]:
        return [_named(m["name"], m["name"]) for m in (await self._monitoring.meshes())["meshes"]]

    async def dashboards(self, request: web.Request) -> web.Response:
        return _answer({"dashboards": [{"name": DASHBOARD, "grids": await self._listed()}]})

    async def grids(self, request: web.Request) -> web.Response:
        return _answer({"grids": await self._listed()})

    async def grid(self, request: web.Request) -> web.Response:
        name = request.match_info["grid"]
        mesh, grid = await self._mesh(name), await self._monitoring.grid(name)
        return await asyncio.to_thread(_grid, name, mesh["checks"], grid)  # it may be large

    async def row(self, request: web.Request) -> web.Response:
        grid, row = request.match_info["grid"], request.match_info["row"]
        found = await self._monitoring.grid(grid)
        hosts = [h["name"] for h in found["hosts"]]
        alone = set(found["checks"]) <= set(SERVICES)
        _must_be(row, hosts, grid)
        return _answer(
            {"name": row, "cells": [_named(h, grid, row, h) for h in hosts if (h == row) is alone]}
        )

    async def cell(self, request: web.Request) -> web.Response:
        grid, row, column = (request.match_info[n] for n in ("grid", "row", "column"))
        mesh, hosts = await self._mesh(grid), (await self._monitoring.grid(grid))["hosts"]
        for name in (row, column):
            _must_be(name, [h["name"] for h in hosts], grid)
        return _answer({"checks": [_named(c, grid, row, column, c) for c in mesh["checks"]]})

    async def check(self, request: web.Request) -> web.Response:
        grid, row, column, check = (request.match_info[n] for n in ("grid", "row", "column", "check"))
        mesh, found = await self._mesh(grid), await self._monitoring.grid(grid)
        cell = next(
            (
                c
                for c in found["cells"]
                if (c["source"], c["destination"], c["check"]) == (row, column, check)
            ),
            None,
        )
        if cell is None:
            raise NotFound(f"Grid {grid} has no check '{check}' from {row} to {column}.")
        every_us = mesh["every_us"]
        span_us = min(SPAN_MAX_US, max(TRIES * every_us, min(SPAN_MIN_US, 5 * TRIES * every_us)))
        history = await self._monitoring.history(row, column, span_us)
        changes = await self._monitoring.changes(grid, check, row, column, PAST_US, CHANGES)
        tries = tries_of(mesh, check, history["samples"], changes["changes"], cell["status"])
        page, pages = _page(request), max(1, -(-len(tries) // PAGE))
        checked, interval_s = seconds(cell["checked_us"]), round(every_us / 1e6)
        return _answer(
            {
                "gridName": grid,
                "rowName": row,
                "colName": column,
                "checkName": check,
                "description": f"{check} from {row} to {column}",
                "prevCheckTime": checked,
                "nextCheckTime": checked + interval_s if checked else 0,
                "status": cell["status"],
                "returnCode": cell["result"],
                "message": cell["message"],
                "returnCodeCount": cell["streak"],
                "type": f"rm.{check}",
                "params": {
                    "command": f"rmx network show {row} {column}",
                    "maUrl": f"/v1/network/history?source={quote(row)}&destination={quote(column)}",
                    "graphUrl": "",
                },
                "checkInterval": interval_s,
                "retryInterval": interval_s,
                "retryAttempts": mesh["retry_attempts"],
                "statusShortName": Status(cell["status"]).word,
                "historyPageNum": page,
                "historyPageCount": pages,
                "history": tries[page * PAGE : (page + 1) * PAGE],
            }
        )

    async def events(self, request: web.Request) -> web.Response:
        """Maintenance windows, the open ones and those to come, and when cells were in a bad status lately;
        what the query names may narrow them."""
        asked = {name: request.query.getall(name, []) for name in ("gridName", "rowName", "columnName")}
        hosts = {*asked["rowName"], *asked["columnName"]}
        found = []
        told = await self._monitoring.meshes()
        for event in told["maintenance"]:
            if event["mesh"] and asked["gridName"] and event["mesh"] not in asked["gridName"]:
                continue
            if hosts and not hosts & set(event["hosts"]):
                continue
            found.append(
                {
                    "name": f"{event['mesh'] or 'hosts'}: {event['when']}",
                    "description": _meant(event),
                    "startTime": seconds(event["begins_us"]),
                    "endTime": seconds(event["ends_us"]),
                    "changeStatus": True,
                }
            )
        for name in (mesh["name"] for mesh in told["meshes"]):
            if not asked["gridName"] or name in asked["gridName"]:
                changes = await self._monitoring.changes(name, "", "", "", EVENTS_US, EVENTS)
                found += bad_times(name, asked, changes["changes"])
        return _answer({"events": found})


def _grid(name: str, checks: Sequence[str], told: Mapping[str, Any]) -> web.Response:
    hosts = [host["name"] for host in told["hosts"]]
    props = {host["name"]: _props(host) for host in told["hosts"]}
    place = {host: number for number, host in enumerate(hosts)}
    check_at = {check: number for number, check in enumerate(checks)}
    uris = {word: quote(word, safe="") for word in (*hosts, *checks)}
    untried: list[Any] = [None] * len(check_at)
    drawn: list[list[Any]] = [[None if a == b else untried for b in hosts] for a in hosts]
    root = _uri(name)
    for cell in told["cells"]:
        source, destination, check = cell["source"], cell["destination"], cell["check"]
        if source not in place or destination not in place or check not in check_at:
            continue
        row, column = drawn[place[source]], place[destination]
        if row[column] is untried or row[column] is None:
            row[column] = [None] * len(check_at)
        row[column][check_at[check]] = {
            "prevCheckTime": seconds(cell["checked_us"]),
            "message": cell["message"],
            "status": cell["status"],
            "uri": f"{root}/{uris[source]}/{uris[destination]}/{uris[check]}",
        }
    return _answer(
        {
            "name": name,
            "statusLabels": [status.word for status in Status],
            "lastUpdateTime": max((seconds(c["checked_us"]) for c in told["cells"]), default=0),
            "rows": [{**_named(h, name, h), "props": props[h]} for h in hosts],
            "columnNames": hosts,
            "columnProps": [props[h] for h in hosts],
            "checkNames": list(checks),
            "grid": drawn,
        }
    )


def _meant(event: Mapping[str, Any]) -> str:
    if event["mesh"]:
        return f"Maintenance of mesh {event['mesh']}"
    return f"Maintenance of {', '.join(event['hosts']) or 'no host'}"


def _page(request: web.Request) -> int:
    text = request.query.get("page", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise UsageError(f"'page' is '{text:.20}', and must be a whole number.")
    return int(text)


def _must_be(name: str, hosts: Sequence[str], grid: str) -> None:
    if name not in hosts:
        raise NotFound(f"Grid {grid} has no host '{name}'.")


def _props(host: Mapping[str, Any]) -> dict[str, str]:
    return {"label": host["name"], "zone": host["zone"]}


def _uri(*parts: str) -> str:
    return "/".join((f"{ROOT}/grids", *(quote(part, safe="") for part in parts)))


def _named(name: str, *parts: str) -> dict[str, Any]:
    return {"name": name, "uri": _uri(*parts)}


def _answer(fields: Mapping[str, Any]) -> web.Response:
    """Without the version that rm's own API bears: MaDDash has none."""
    return web.Response(body=wire.encode(fields), content_type="application/json")
