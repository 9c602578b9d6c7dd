"""What people may do on the page: forms, and what the API is asked when they are sent.

Each act has a page of its own under /do/, which asks what it needs to know; the API decides who may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from rm.api.alerts import Acknowledged, OneSilence
from rm.api.answer import Answer
from rm.api.hosts import OneHost
from rm.api.jobs import OneJob
from rm.api.monitoring import OneMesh
from rm.api.playbooks import OnePlaybookRun, OnePlaybookSchedule
from rm.errors import RmError, UsageError
from rm.units import parse_duration_us
from rm.web.pages.forms import form_of
from rm.web.pages.frame import Frame
from rm.web.pages.login import PERSON
from rm.web.pages.people import Sessions
from rm.web.pages.source import WHENEVER, Source, View
from rm.web.pages.text import shown

AT_ONCE_S = 2.0  # what takes longer goes on while the page is shown
NAME_MOST, NAMES_MOST = 300, 20_000  # characters shown, and taken
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """Of a form; `fixed` ones say what it is about and come with the address."""

    name: str
    label: str
    fixed: bool = False
    usual: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """`title` names it and its button, `means` what it does to {what is fixed}. `send` asks the API and says
    what was done; `then` is the page afterwards."""

    title: str
    means: str
    fields: tuple[Field, ...]
    send: Callable[[View, Form], Awaitable[str]]
    then: Callable[[Form], str]
    grave: bool = False


def number_of(form: Form, field: str, what: str) -> str:
    text = form.get(field, "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(f"'{shown(text)}' is not the number of a {what}.")
    return text


def job_id(form: Form) -> str:
    return number_of(form, "job", "job")


def named(form: Form, field: str) -> str:
    text = form.get(field, "").strip()
    if not text or len(text) > NAMES_MOST:
        raise UsageError(f"Name the {field}.")
    return text


def words(form: Form, field: str) -> list[str]:
    return [word for word in form.get(field, "").replace(",", " ").split() if word]


async def _cancel(view: View, form: Form) -> str:
    job = (await view.change(OneJob, "DELETE", f"jobs/{job_id(form)}")).job
    return f"Job {job.id} is {job.state}."


def _change(verb: str) -> Callable[[View, Form], Awaitable[str]]:
    async def send(view: View, form: Form) -> str:
        job = (await view.change(OneJob, "POST", f"jobs/{job_id(form)}/{verb}")).job
        return f"Job {job.id} is {job.state}{' and held' if job.held else ''}."

    return send


async def _drain(view: View, form: Form) -> str:
    name = named(form, "host")
    body = {"reason": form.get("reason", "").strip()}
    host = (await view.change(OneHost, "POST", f"hosts/{quote(name, safe='')}/drain", body)).host
    return f"Host {host.name} is {host.state}."


async def _resume(view: View, form: Form) -> str:
    name = named(form, "host")
    host = (await view.change(OneHost, "POST", f"hosts/{quote(name, safe='')}/resume")).host
    return f"Host {host.name} takes jobs again."


async def _acknowledge(view: View, form: Form) -> str:
    named(form, "alert")
    body = {"alerts": form.get("alert", "").splitlines(), "comment": form.get("comment", "").strip()}
    keys = (await view.change(Acknowledged, "POST", "alerts/acknowledge", body)).acknowledged
    return f"Acknowledged: {', '.join(keys)}."


async def _silence(view: View, form: Form) -> str:
    body = {
        "conditions": words(form, "conditions"),
        "hosts": words(form, "hosts"),
        "for_s": parse_duration_us(form.get("for", "")) / 1e6,
        "comment": form.get("comment", "").strip(),
    }
    silence = (await view.change(OneSilence, "POST", "alerts/silences", body)).silence
    return f"Silence {silence.id} holds."


async def _end_silence(view: View, form: Form) -> str:
    number = form.get("silence", "")
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise UsageError(f"'{shown(number)}' is not the number of a silence.")
    await view.change(Answer, "DELETE", f"alerts/silences/{number}")
    return f"Silence {number} has ended."


async def _stop_run(view: View, form: Form) -> str:
    run = number_of(form, "run", "run")
    told = (await view.change(OnePlaybookRun, "POST", f"playbook-runs/{run}/stop")).run
    return f"Run {run} is {told.state}." if told.ended_us else f"Run {run} is being broken off."


async def _unschedule(view: View, form: Form) -> str:
    schedule = number_of(form, "schedule", "schedule")
    await view.change(OnePlaybookSchedule, "DELETE", f"playbook-schedules/{schedule}")
    return f"Schedule {schedule} is removed."


_runs: set[asyncio.Task[OneMesh]] = set()  # the loop forgets tasks that nobody holds


async def _run_mesh(view: View, form: Form) -> str:
    """A run may take minutes: only what goes wrong at once is said."""
    name = named(form, "mesh")
    path = f"monitor/{quote(name, safe='')}/run"
    run = asyncio.ensure_future(view.change(OneMesh, "POST", path, {}, WHENEVER))
    _runs.add(run)
    run.add_done_callback(_runs.discard)
    run.add_done_callback(lambda done: done.cancelled() or done.exception())
    done, _ = await asyncio.wait({run}, timeout=AT_ONCE_S)
    if not done:
        return f"Mesh {name} runs."
    told = run.result().mesh
    return f"Mesh {name} has run: {told.measured} measured, {told.failed} failed."


JOB = Field("job", "Job", fixed=True)
HOST = Field("host", "Host", fixed=True)
COMMENT = Field("comment", "Comment", hint="for the others; may be left out")


def _job_page(form: Form) -> str:
    return f"/job/{job_id(form)}"


def _to(part: str) -> Callable[[Form], str]:
    return lambda form: f"/#{part}"


ACTS: Mapping[str, Act] = {
    "hold": Act(
        "Hold the job", "Job {job} will not start until it is released.", (JOB,), _change("hold"), _job_page
    ),
    "release": Act("Release the job", "Job {job} may start.", (JOB,), _change("release"), _job_page),
    "requeue": Act(
        "Requeue the job", "Job {job} is stopped, and waits for another start from the beginning.", (JOB,),
        _change("requeue"), _job_page, grave=True,
    ),
    "cancel": Act("Cancel the job", "Job {job} is stopped for good.", (JOB,), _cancel, _job_page, grave=True),
    "drain": Act(
        "Drain the host", "Host {host} finishes its jobs and takes no new ones.",
        (HOST, Field("reason", "Reason", hint="for the others")), _drain, _to("network"),
    ),
    "resume": Act("Resume the host", "Host {host} takes jobs again.", (HOST,), _resume, _to("network")),
    "acknowledge": Act(
        "Acknowledge", "Everybody sees that you look after {alert}.",
        (Field("alert", "Alert", fixed=True), COMMENT), _acknowledge, _to("alerts"),
    ),
    "silence": Act(
        "Silence alerts", "Alerts of these conditions and hosts do not fire for a while.",
        (
            Field("conditions", "Conditions", hint="with commas; empty for all"),
            Field("hosts", "Hosts", hint="names or patterns, with commas; * is all"),
            Field("for", "For", usual="2h", hint="30m, 2h, 1d"), COMMENT,
        ), _silence, _to("alerts"),
    ),
    "endsilence": Act(
        "End the silence", "Alerts that silence {silence} holds back may fire.",
        (Field("silence", "Silence", fixed=True),), _end_silence, _to("alerts"),
    ),
    "runmesh": Act(
        "Run the mesh", "The next rounds of mesh {mesh} are measured now.",
        (Field("mesh", "Mesh", fixed=True),), _run_mesh, _to("network"),
    ),
    "stoprun": Act(
        "Stop the run", "Run {run} is broken off: tasks that have begun on a host may finish there, and what "
        "follows them is not begun.", (Field("run", "Run", fixed=True),), _stop_run,
        lambda form: f"/run/{number_of(form, 'run', 'run')}", grave=True,
    ),
    "unschedule": Act(
        "Remove the schedule", "Schedule {schedule} begins no more runs.",
        (Field("schedule", "Schedule", fixed=True),), _unschedule, lambda form: "/playbooks",
    ),
}  # fmt: skip


class Acts:
    """`forget` drops what was drawn at a door."""

    def __init__(
        self, source: Source, sessions: Sessions, frame: Frame, forget: Callable[[str], None]
    ) -> None:
        self._source = source
        self._sessions = sessions
        self._frame = frame
        self._forget = forget

    def routes(self) -> list[web.RouteDef]:
        return [web.get(r"/do/{act:[a-z]+}", self.form), web.post(r"/do/{act:[a-z]+}", self.do)]

    async def form(self, request: web.Request) -> web.Response:
        act = _act(request)
        given = {field.name: request.query.get(field.name, field.usual) for field in act.fields}
        return self._shown(request, act, given, None)

    async def do(self, request: web.Request) -> web.Response:
        act, person = _act(request), request[PERSON]
        sent = await form_of(request)
        form = {field.name: str(sent.get(field.name, "")) for field in act.fields}
        try:
            told = await act.send(self._source.at(person.door), form)
            then = act.then(form)
        except RmError as error:
            return self._shown(request, act, form, error)
        finally:
            self._forget(person.door.key)
        self._sessions.note(person.door, told)
        return web.Response(status=303, headers={"Location": then})

    def _shown(self, request: web.Request, act: Act, given: Form, error: RmError | None) -> web.Response:
        fixed = {
            f.name: shown(", ".join(given.get(f.name, "").splitlines()), NAME_MOST)
            for f in act.fields
            if f.fixed
        }
        if not all(fixed.values()):
            raise web.HTTPNotFound
        fields = {
            "act": act, "name": request.match_info["act"], "given": given, "error": error,
            "means": act.means.format(**fixed),
        }  # fmt: skip
        return self._frame.page("act.html", request[PERSON], fields, error.http_status if error else 200)


def _act(request: web.Request) -> Act:
    act = ACTS.get(request.match_info["act"])
    if act is None:
        raise web.HTTPNotFound
    if not request[PERSON].known:
        raise web.HTTPSeeOther("/login")
    return act
