"""`/v1/playbooks`, `/v1/playbook-runs`, `/v1/playbook-schedules`. The contract is docs/http-api.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from rm.api import playbooks as api
from rm.api.answer import Request
from rm.core.playbook_runs import PlaybookRun, PlaybookSchedule, RunOptions
from rm.errors import Conflict, UsageError
from rm.typed import convert
from rm.web import wire
from rm.web.answers import respond, typed
from rm.web.callers.identity import CALLER
from rm.web.handling import decoded, number
from rm.web.playbook_ports import Playbooks
from rm.web.ports import Service

STATUSES = ("ok", "changed", "failed", "unreachable", "skipped", "ignored", "rescued")
PROGRESS_BYTES = 4 << 20  # one task's outcome may be a quarter of it
Asked = TypeVar("Asked", bound=Request)


class PlaybookRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/playbooks", self.playbooks),
            web.get("/v1/playbooks/{name}", self.survey),
            web.post("/v1/playbooks/{name}/start", self.start),
            web.get("/v1/playbook-runs", self.runs),
            web.post("/v1/playbook-runs", self.tell),
            web.post("/v1/playbook-runs/{id}/progress", self.progress),
            web.get("/v1/playbook-runs/{id}", self.run),
            web.get("/v1/playbook-runs/{id}/outcomes", self.outcomes),
            web.post("/v1/playbook-runs/{id}/stop", self.stop),
            web.get("/v1/playbook-schedules", self.schedules),
            web.post("/v1/playbook-schedules", self.schedule),
            web.delete("/v1/playbook-schedules/{id}", self.unschedule),
        ]

    @property
    def _playbooks(self) -> Playbooks:
        found = self._service.playbooks
        if found is None:
            raise Conflict("This daemon starts no playbooks.")
        return found

    async def playbooks(self, request: web.Request) -> web.Response:
        listed = [typed(one, api.ListedPlaybook) for one in await self._playbooks.listed()]
        return respond(api.ListedPlaybooks(playbooks=listed))

    async def survey(self, request: web.Request) -> web.Response:
        found, questions = await self._playbooks.survey(request.match_info["name"])
        told = [
            api.Question(
                name=one.name, text=one.text, kind=one.kind, elements=one.elements,
                default=None if one.private else one.default, required=one.required,
                choices=() if one.private else one.choices,
                private=one.private, pattern=one.pattern,
            )
            for one in questions
        ]  # fmt: skip
        return respond(api.Survey(playbook=typed(found, api.ListedPlaybook), questions=told))

    async def start(self, request: web.Request) -> web.Response:
        asked = await _asked(request, api.StartPlaybook)
        name, by = request.match_info["name"], request[CALLER].user
        made = await self._playbooks.start(name, _options(asked), asked.answers, by)
        return respond(api.OnePlaybookRun(run=_run(made)), 201)

    async def runs(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "limit", "before", "playbook")
        limit = int(number(request, "limit", 50)) or api.RUNS_MOST
        before, playbook = int(number(request, "before", 0)), request.query.get("playbook", "")
        found = await self._playbooks.newest(min(limit, api.RUNS_MOST), before, playbook)
        return respond(api.PlaybookRuns(runs=[_run(one) for one in found]))

    async def run(self, request: web.Request) -> web.Response:
        found, doing = await self._playbooks.run(_id(request))
        told = {host: api.Doing(task=task, since_us=us) for host, (task, us) in doing.items()}
        return respond(api.OnePlaybookRun(run=_run(found), doing=told))

    async def outcomes(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "after", "limit", "host", "status")
        statuses = [word for word in request.query.get("status", "").split(",") if word]
        for word in statuses:
            if word not in STATUSES:
                raise UsageError(f"'{word:.100}' is no status of a task.", f"Use {', '.join(STATUSES)}.")
        after, limit = (int(number(request, name, 0)) for name in ("after", "limit"))
        most = min(limit or api.OUTCOMES_MOST, api.OUTCOMES_MOST)
        host = request.query.get("host", "")
        found, following = await self._playbooks.outcomes(_id(request), after, most, host, statuses)
        told = [typed(one, api.TaskOutcome) for one in found]
        return respond(api.TaskOutcomes(outcomes=told, next=following))

    async def stop(self, request: web.Request) -> web.Response:
        return respond(
            api.OnePlaybookRun(run=_run(await self._playbooks.stop(_id(request), request[CALLER].user)))
        )

    async def tell(self, request: web.Request) -> web.Response:
        asked = await _asked(request, api.TellPlaybook)
        options = RunOptions(asked.limit, tuple(asked.tags), tuple(asked.skip_tags), asked.check, asked.diff)
        by = request[CALLER].user
        made = await self._playbooks.tell(asked.playbook, options, tuple(asked.variables), by)
        return respond(api.OnePlaybookRun(run=_run(made)), 201)

    async def progress(self, request: web.Request) -> web.Response:
        told = await _asked(request, api.TellProgress, PROGRESS_BYTES)
        by = request[CALLER].user
        found = await self._playbooks.progress(_id(request), list(_lines(told)), by, told.batch)
        return respond(api.OnePlaybookRun(run=_run(found)))

    async def schedules(self, request: web.Request) -> web.Response:
        found = [_schedule(*one) for one in await self._playbooks.schedules()]
        return respond(api.PlaybookSchedules(schedules=found))

    async def schedule(self, request: web.Request) -> web.Response:
        asked = await _asked(request, api.SchedulePlaybook)
        made = await self._playbooks.schedule(
            asked.playbook, asked.cron, _options(asked), asked.answers, request[CALLER].user
        )
        return respond(api.OnePlaybookSchedule(schedule=_schedule(*made)), 201)

    async def unschedule(self, request: web.Request) -> web.Response:
        found = await self._playbooks.unschedule(_id(request))
        return respond(api.OnePlaybookSchedule(schedule=_schedule(found, None)))


def _id(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(f"'{text:.100}' is not the number of a run or a schedule.")
    return int(text)


async def _asked(request: web.Request, kind: type[Asked], most_bytes: int = wire.LIST_BYTES) -> Asked:
    """Nothing of the answers is in what is said of them: they may be secrets."""
    body = await decoded(request, most_bytes)
    wire.fields(body, *kind.__struct_fields__)
    try:
        return convert(body, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"The request cannot be read: {error}.") from None


def _lines(told: api.TellProgress) -> Iterator[dict[str, Any]]:
    """As the process of a run of the daemon's says it: what hosts are at comes after what they have done."""
    for text in told.notes:
        yield {"kind": "note", "text": text}
    for outcome in told.outcomes:
        yield {"kind": "task", "outcome": msgspec.to_builtins(outcome)}
    for began in told.began:
        yield {"kind": "start", "host": began.host, "task": began.task}
    if told.end is not None:
        yield {"kind": "end", **msgspec.to_builtins(told.end)}


def _options(asked: api.StartPlaybook) -> RunOptions:
    return RunOptions(asked.limit, tuple(asked.tags), tuple(asked.skip_tags), asked.check, asked.diff)


def _run(run: PlaybookRun) -> api.PlaybookRun:
    return typed(run, api.PlaybookRun)


def _schedule(one: PlaybookSchedule, next_us: int | None) -> api.PlaybookSchedule:
    return msgspec.structs.replace(typed(one, api.PlaybookSchedule), next_us=next_us)
