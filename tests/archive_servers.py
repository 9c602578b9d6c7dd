"""Archives to read from, in the documented shapes, over real HTTP: esmond, OpenSearch, MaDDash."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any

from aiohttp import web

from tests.fakes import PATIENCE_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.contextmanager
def serving(*routes: web.RouteDef) -> Iterator[str]:
    """A server of these routes in a thread; its URL without a slash at the end."""
    ready = threading.Event()
    box: list[Any] = []

    async def main() -> None:
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop = asyncio.Event()
        box.extend((runner.addresses[0][1], asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield f"http://127.0.0.1:{box[0]}"
    finally:
        box[1].call_soon_threadsafe(box[2].set)
        thread.join()


class Esmond:
    """`series[(source, destination, event type)]` are the points; `asked` the metadata requests."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self.tests: dict[tuple[str, str, str], str] = {}  # what made a series, if it is not a trace
        self.broken: set[str] = set()  # event types whose metadata are not answered
        self.asked: list[dict[str, str]] = []

    def routes(self) -> list[web.RouteDef]:
        base = "/esmond/perfsonar/archive"
        return [web.get(base + "/", self.metadata), web.get(base + "/{key}/{event}/base", self.base)]

    async def metadata(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        event = request.query["event-type"]
        if event in self.broken:
            return web.Response(status=500, text="Server Error (500)")
        return web.json_response(
            [
                {
                    "source": source, "destination": destination, "measurement-agent": source,
                    "input-source": source, "input-destination": destination, "tool-name": "powstream",
                    "metadata-key": f"{n:032x}", "uri": f"/esmond/perfsonar/archive/{n:032x}/",
                    "pscheduler-test-type": self.tests.get((source, destination, kind), "trace"),
                    "event-types": [
                        {
                            "event-type": kind, "time-updated": points[-1]["ts"] if points else None,
                            "base-uri": f"/esmond/perfsonar/archive/{n:032x}/{kind}/base", "summaries": [],
                        }
                    ],
                }
                for n, ((source, destination, kind), points) in enumerate(self.series.items())
                if kind == event
            ]
        )  # fmt: skip

    async def base(self, request: web.Request) -> web.Response:
        points = list(self.series.values())[int(request.match_info["key"], 16)]
        start, end = (int(request.query[name]) for name in ("time-start", "time-end"))
        return web.json_response([p for p in points if start <= p["ts"] <= end])


class OpenSearch:
    """`documents` are found by their start; pages as large as asked."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []
        self.searches: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/{indices}/_search", self.search)]

    def add(
        self,
        at: str,
        kind: str,
        result: dict[str, Any],
        a: str = "10.0.0.1",
        b: str = "10.0.0.2",
        spec: dict[str, Any] | None = None,
    ) -> None:
        self.documents.append(
            {
                "test": {"type": kind, "spec": {"source": a, "dest": b, **(spec or {})}},
                "meta": {
                    "source": {"ip": a, "hostname": f"ps-{a}"},
                    "destination": {"ip": b, "hostname": f"ps-{b}"},
                    "observer": {"ip": a},
                },
                "pscheduler": {"start_time": at, "end_time": at},
                "result": {"succeeded": True, **result},
            }
        )

    async def search(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.searches.append(request.match_info["indices"])
        span = body["query"]["bool"]["filter"][0]["range"]["pscheduler.start_time"]
        first, last = (datetime.fromisoformat(span[end]) for end in ("gte", "lte"))
        found = [
            {"_id": str(n), "_index": "pscheduler", "_source": document}
            for n, document in enumerate(self.documents)
            if first <= datetime.fromisoformat(document["pscheduler"]["start_time"]) <= last
        ]
        found.sort(key=lambda hit: hit["_source"]["pscheduler"]["start_time"])
        page = found[body["from"] : body["from"] + body["size"]]
        return web.json_response({"hits": {"total": {"value": len(found)}, "hits": page}})


class Maddash:
    """One grid, "Mesh"; `checks[(row, column, name)]` are the histories, newest first."""

    def __init__(self, names: list[str], checks: list[str]) -> None:
        self.names, self.kinds = names, checks
        self.checks: dict[tuple[str, str, str], list[dict[str, Any]]] = {}

    def routes(self) -> list[web.RouteDef]:
        base = "/maddash/grids"
        return [
            web.get(base, self.grids),
            web.get(base + "/Mesh", self.grid),
            web.get(base + "/Mesh/{row}/{column}/{check}", self.check),
        ]

    async def grids(self, request: web.Request) -> web.Response:
        return web.json_response({"grids": [{"name": "Mesh", "uri": "/maddash/grids/Mesh"}]})

    async def grid(self, request: web.Request) -> web.Response:
        def cell(a: str, b: str, name: str) -> dict[str, Any] | None:
            history = self.checks.get((a, b, name))
            if not history:
                return None
            newest = history[0]
            return {
                "prevCheckTime": newest["time"], "message": newest["message"],
                "status": newest["status"], "uri": f"/maddash/grids/Mesh/{a}/{b}/{name}",
            }  # fmt: skip

        rows = [
            [[cell(a, b, k) for k in self.kinds] if a != b else None for b in self.names] for a in self.names
        ]
        return web.json_response(
            {
                "name": "Mesh", "statusLabels": ["ok"] * 6, "lastUpdateTime": 0,
                "rows": [{"name": n, "props": {}, "uri": f"/maddash/grids/Mesh/{n}"} for n in self.names],
                "columnNames": self.names, "columnProps": [{}] * len(self.names),
                "checkNames": self.kinds, "grid": rows,
            }
        )  # fmt: skip

    async def check(self, request: web.Request) -> web.Response:
        key = tuple(request.match_info[n] for n in ("row", "column", "check"))
        return web.json_response({"gridName": "Mesh", "status": 0, "history": self.checks[key]})  # type: ignore[index]


def tried(at_s: int, message: str, average: str | None, code: int = 0) -> dict[str, Any]:
    """One item of a MaDDash check's history."""
    params = {} if average is None else {"Average": average, "Min": average, "Max": average, "Count": "1"}
    return {
        "time": at_s, "returnCode": code, "message": message, "returnParams": params,
        "returnCodeCount": 1, "status": code,
    }  # fmt: skip
