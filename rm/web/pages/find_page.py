"""`/find`: jobs, of now and of long ago, by id, name or user, and hosts by name. `/host/NAME`: one host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import quote

from aiohttp import web

from rm.api.hosts import Host, Hosts
from rm.api.jobs import Job, Jobs, WholeJob
from rm.errors import NotFound, RmError
from rm.units import format_bytes
from rm.web.pages.frame import Frame
from rm.web.pages.login import PERSON
from rm.web.pages.network_view import host_row
from rm.web.pages.queue_view import row
from rm.web.pages.source import Source, View
from rm.web.pages.text import rate, shown

MOST = 50  # jobs by name, and by user
WORD_MOST = 255  # characters
HOSTS_MOST = 50


class FindPage:
    def __init__(self, source: Source, frame: Frame) -> None:
        self._source = source
        self._frame = frame

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/find", self.find), web.get(r"/host/{name}", self.host)]

    async def find(self, request: web.Request) -> web.Response:
        """What fits `q`; the only host or job of that very name is gone to at once."""
        person, word = request[PERSON], request.query.get("q", "").strip()[:WORD_MOST]
        view = self._source.at(person.door)
        jobs: dict[int, Job] = {}
        hosts: Sequence[Host] = ()
        try:
            if word.isascii() and word.isdigit() and len(word) < 19 and await _is_job(view, word):
                raise web.HTTPSeeOther(f"/job/{int(word)}")
            if word:
                hosts = [host for host in await _hosts(view) if word.lower() in host.name.lower()]
                if [host.name for host in hosts] == [word]:
                    raise web.HTTPSeeOther(f"/host/{quote(word, safe='')}")
                for key in ("name", "user"):
                    path = f"jobs?all=1&limit={MOST}&{key}={quote(word, safe='')}"
                    jobs |= {job.id: job for job in (await view.get(Jobs, path)).jobs}
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        newest = [jobs[number] for number in sorted(jobs, reverse=True)]
        now_us = time.time_ns() // 1_000
        fields = {
            "word": word,
            "jobs": [row(job, now_us, lambda _: "") for job in newest],
            "hosts": [host_row(host) for host in hosts[:HOSTS_MOST]],
            "more_hosts": max(0, len(hosts) - HOSTS_MOST),
            "most": MOST,
        }
        return self._frame.page("find.html", person, fields)

    async def host(self, request: web.Request) -> web.Response:
        person, name = request[PERSON], request.match_info["name"]
        try:
            found = [host for host in await _hosts(self._source.at(person.door)) if host.name == name]
            if not found:
                raise NotFound(f"There is no host '{shown(name)}'.", "The overview lists those there are.")
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        (host,) = found
        fields = {
            "host": host_row(host),
            "facts": _facts(host),
            "gpus": host.gpus,
            "nics": [(nic, rate(nic.speed_bps) if nic.speed_bps else "–") for nic in host.nics],
            "size": format_bytes,
        }
        return self._frame.page("host_page.html", person, fields)


async def _is_job(view: View, number: str) -> bool:
    try:
        await view.get(WholeJob, f"jobs/{int(number)}")
    except NotFound:
        return False
    return True


async def _hosts(view: View) -> Sequence[Host]:
    return (await view.get(Hosts, "hosts")).hosts


def _facts(host: Host) -> list[tuple[str, str]]:
    """(what, value) of what the table has no column for."""
    told = [
        ("Zone", host.zone),
        ("Partitions", ", ".join(host.partitions)),
        ("Address", f"{host.address}:{host.port}"),
        ("Interface", host.interface),
        ("Agent", host.agent_version),
        ("Not limited here", ", ".join(host.unenforced)),
        ("Traffic not kept apart by", ", ".join(host.unshaped)),
    ]
    return [(what, shown(value, 300)) for what, value in told if value]
