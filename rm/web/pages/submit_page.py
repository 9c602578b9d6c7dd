"""`/submit`: a script with its `#SBATCH` and `#RM` lines, tried or submitted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web

from rm.api.jobs import Submitted
from rm.api.reasons import Plan
from rm.errors import RmError, UsageError
from rm.submission import directives, specification
from rm.submission.remarks import Remarks
from rm.submission.script import SCRIPT_MAX_BYTES, script_text
from rm.units import fold_hosts
from rm.web.pages import why_view
from rm.web.pages.forms import form_of
from rm.web.pages.frame import Frame
from rm.web.pages.login import PERSON
from rm.web.pages.people import Sessions
from rm.web.pages.source import Source

# options of the form, by the names that the directives' lines have for them
FIELDS: tuple[tuple[str, str, str], ...] = (
    ("name", "Name", "of the job"),
    ("nodes", "Hosts", "a number, or a range such as 2-4"),
    ("ntasks", "Tasks", ""),
    ("cpus_per_task", "CPUs for each task", ""),
    ("gpus_per_task", "GPUs for each task", ""),
    ("time", "Time limit", "2:00:00, or days-hours"),
    ("chdir", "Directory", "where the script starts; your home if left out"),
)
EXAMPLE = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --time=10:00\n\nhostname\n"
FILES = ("traffic",)  # options that name a file of the client: here it would be another machine's


@dataclass(frozen=True, slots=True)
class Tried:
    """Where the job would start now: `hosts`, "" = nowhere; what placement thinks of each host."""

    hosts: str
    why: why_view.Thoughts


class SubmitPage:
    def __init__(self, source: Source, sessions: Sessions, frame: Frame) -> None:
        self._source = source
        self._sessions = sessions
        self._frame = frame

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/submit", self.form), web.post("/submit", self.submit)]

    async def form(self, request: web.Request) -> web.Response:
        if not request[PERSON].known:
            raise web.HTTPSeeOther("/login?next=/submit")
        return self._shown(request, {"script": EXAMPLE})

    async def submit(self, request: web.Request) -> web.Response:
        sent = await form_of(request)
        given = {name: str(sent.get(name, "")).strip() for name, _, _ in FIELDS}
        # browsers always send the line ends of MIME
        given["script"] = str(sent.get("script", "")).replace("\r\n", "\n")
        view = self._source.at(request[PERSON].door)
        warnings: Sequence[str] = ()
        try:
            spec, warnings = spec_of(given, datetime.now())
            if "dry" in sent:
                plan = await view.change(Plan, "POST", "plan", {"spec": spec})
                return self._shown(request, given, warnings, tried=tried_of(plan))
            job = (await view.change(Submitted, "POST", "jobs", {"spec": spec})).job
        except RmError as error:
            return self._shown(request, given, warnings, error=error)
        self._sessions.note(request[PERSON].door, " ".join([f"Job {job} is submitted.", *warnings]))
        return web.Response(status=303, headers={"Location": f"/job/{job}"})

    def _shown(
        self,
        request: web.Request,
        given: Mapping[str, str],
        warnings: Sequence[str] = (),
        tried: Tried | None = None,
        error: RmError | None = None,
    ) -> web.Response:
        fields = {"fields": FIELDS, "given": given, "warnings": warnings, "tried": tried, "error": error}
        return self._frame.page("submit.html", request[PERSON], fields, error.http_status if error else 200)


def spec_of(given: Mapping[str, str], now: datetime) -> tuple[dict[str, Any], Sequence[str]]:
    """The job specification of a form, and warnings; what the form says beats the script's lines.

    Raises:
        UsageError: what is wrong.
    """
    script = script_text(given["script"].encode()[: SCRIPT_MAX_BYTES + 1], "that is submitted")
    remarks = Remarks()
    values = directives.parse(script, "the script", remarks)
    values = directives.merge(values, {name: given[name] for name, _, _ in FIELDS if given.get(name)})
    for name in FILES:
        if name in values:
            remarks.errors.append(
                UsageError(f"--{name} names a file, which the page cannot read.", "Submit with `rmx submit`.")
            )
            del values[name]
    # nothing of the page's own process becomes part of the job: neither environment nor directory
    spec = specification.build(values, {}, "/", lambda: now, remarks)
    remarks.refuse()
    if not values.get("chdir"):
        del spec["chdir"]
    return {"name": "script", **spec, "script": script, "script_args": []}, remarks.warnings


def tried_of(plan: Plan) -> Tried:
    placement = plan.placement
    hosts = dict.fromkeys(task.host for task in placement.tasks) if placement else ()
    return Tried(fold_hosts(hosts) if hosts else "", why_view.thoughts(plan, time.time_ns() // 1_000))
