"""`/playbooks`, `/playbook/NAME` and `/run/ID`: what may be started, its survey, and the report of a run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from rm.api.playbooks import (
    ListedPlaybooks,
    OnePlaybookRun,
    OnePlaybookSchedule,
    PlaybookSchedules,
    Survey,
)
from rm.errors import RmError, UsageError
from rm.web.pages import playbook_view
from rm.web.pages.forms import form_of
from rm.web.pages.frame import Frame
from rm.web.pages.login import PERSON
from rm.web.pages.people import Person, Sessions
from rm.web.pages.source import Source, View

PartOf = Callable[[str, Mapping[str, str], Person], Awaitable[tuple[int, str]]]
# (name, label, hint) of the run's options
OPTIONS = (
    ("limit", "Only these hosts", "names and groups with commas; empty for all of the playbook"),
    ("tags", "Only these tags", "with commas"),
    ("skip_tags", "Without these tags", "with commas"),
)
ANSWER = "answer."  # before the names of variables, which may be those of other fields


class PlaybookPage:
    def __init__(self, source: Source, sessions: Sessions, frame: Frame, part_of: PartOf) -> None:
        self._source = source
        self._sessions = sessions
        self._frame = frame
        self._part_of = part_of

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/playbooks", self.playbooks),
            web.get(r"/playbook/{name}", self.form),
            web.post(r"/playbook/{name}", self.start),
            web.get(r"/run/{id:\d{1,18}}", self.run),
        ]

    async def playbooks(self, request: web.Request) -> web.Response:
        person = _known(request)
        view = self._source.at(person.door)
        try:
            listed = (await view.get(ListedPlaybooks, "playbooks")).playbooks
            schedules = (await view.ask_anew(PlaybookSchedules, "playbook-schedules")).schedules
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        fields = {
            "playbooks": listed,
            "schedules": [playbook_view.schedule_row(one) for one in schedules],
            "runs": (await self._part_of("runs", {}, person))[1],
        }
        return self._frame.page("playbooks.html", person, fields)

    async def form(self, request: web.Request) -> web.Response:
        person = _known(request)
        try:
            asked = await _survey(self._source.at(person.door), request.match_info["name"])
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        return self._shown(request, asked, {})

    async def start(self, request: web.Request) -> web.Response:
        """Starts it, or schedules it where the form says when."""
        person, name = _known(request), request.match_info["name"]
        sent = {key: str(value) for key, value in (await form_of(request)).items()}
        view = self._source.at(person.door)
        try:
            asked = await _survey(view, name)
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        given = {one.name: sent.get(ANSWER + one.name, "") for one in asked.questions}
        body = {
            "answers": playbook_view.answers_of(asked.questions, given),
            "limit": sent.get("limit", "").strip(),
            "tags": _words(sent.get("tags", "")),
            "skip_tags": _words(sent.get("skip_tags", "")),
            "check": "check" in sent,
            "diff": "diff" in sent,
        }
        try:
            if "schedule" in sent:
                body |= {"playbook": name, "cron": sent.get("cron", "").strip()}
                made = await view.change(OnePlaybookSchedule, "POST", "playbook-schedules", body)
                told, then = f"Schedule {made.schedule.id} is made.", "/playbooks"
            elif sent.get("cron", "").strip():  # Enter in that field presses the form's first button
                raise UsageError(
                    "A cron line is given, so nothing was started.",
                    "Press Schedule; or empty By cron, and press Start to start it now.",
                )
            else:
                path = f"playbooks/{quote(name, safe='')}/start"
                run = (await view.change(OnePlaybookRun, "POST", path, body)).run
                told, then = f"Run {run.id} has been started.", f"/run/{run.id}"
        except RmError as error:
            return self._shown(request, asked, sent, error)
        self._sessions.note(person.door, told)
        return web.Response(status=303, headers={"Location": then})

    async def run(self, request: web.Request) -> web.Response:
        person, number = _known(request), request.match_info["id"]
        query = {"run": number}
        host, status = request.query.get("host", "")[:255], request.query.get("status", "")
        after = request.query.get("after", "")
        if host:
            query["host"] = host
        if status in playbook_view.STATUSES:
            query["status"] = status
        if after.isascii() and after.isdigit() and len(after) < 16:
            query["after"] = after
        try:
            told = (await self._source.at(person.door).get(OnePlaybookRun, f"playbook-runs/{number}")).run
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        fields = {
            "id": told.id,
            "playbook": told.playbook,
            "hosts": sorted({*told.recap, *told.not_reached, *([host] if host else ())}),
            "statuses": playbook_view.STATUSES,
            "chosen": query,
            "query": urlencode(query),
            "run": (await self._part_of("run", query, person))[1],
        }
        return self._frame.page("run_page.html", person, fields)

    def _shown(
        self, request: web.Request, asked: Survey, sent: Mapping[str, str], error: RmError | None = None
    ) -> web.Response:
        fields: dict[str, Any] = {
            "playbook": asked.playbook,
            "inputs": [
                playbook_view.input_of(one, sent.get(ANSWER + one.name, "")) for one in asked.questions
            ],
            "options": OPTIONS,
            "given": {name: sent.get(name, "") for name in ("limit", "tags", "skip_tags", "cron")},
            "check": "check" in sent,
            "diff": "diff" in sent or not sent,
            "error": error,
            "prefix": ANSWER,
            "now": time.strftime("%H:%M"),
        }
        return self._frame.page("playbook.html", request[PERSON], fields, error.http_status if error else 200)


def _known(request: web.Request) -> Person:
    person = request[PERSON]
    if not person.known:
        raise web.HTTPSeeOther(f"/login?{urlencode({'next': request.path_qs})}")
    return person


async def _survey(view: View, name: str) -> Survey:
    return await view.ask_anew(Survey, f"playbooks/{quote(name, safe='')}")


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]
