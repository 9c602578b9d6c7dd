"""The HTTP API is what its table says: routes, types, documentation."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any, get_args

import msgspec

import rm.api
from rm import __version__
from rm.api import hosts, job_requests, jobs, reasons
from rm.api.answer import Request
from rm.api.openapi import document
from rm.api.routes import ROUTES
from rm.config import Config
from rm.core.model.host import Gpu, Host, HostState
from rm.core.model.job import Job, JobSpec, JobState, Task
from rm.core.model.network.alignment import Schedule
from rm.errors import Refusal
from rm.web.answers import job_of, respond, respond_jobs
from rm.web.api import make_app
from rm.web.routes.alerts import COMMENT_MAX, NAMES_MAX
from scripts.http_api_tables import FILE, renewed
from tests import builders
from tests.fake_service import FakeService

ROOT = Path(__file__).parents[2]


def test_the_table_has_all_routes_and_no_other() -> None:
    app = make_app(FakeService(), Config())
    registered = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD" and route.resource is not None
    }
    changes = ("POST", "/v1/jobs/{id}/{verb}")  # one handler of three routes
    assert changes in registered
    registered |= {("POST", f"/v1/jobs/{{id}}/{verb}") for verb in ("hold", "release", "requeue")}
    named = {(route.method, re.sub(r"\{\w+\}", "{}", route.path)) for route in ROUTES}
    assert named == {(m, re.sub(r"\{\w+\}", "{}", p)) for m, p in registered - {changes}}
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def test_the_documentation_has_the_tables_as_they_are() -> None:
    text = FILE.read_text()
    assert renewed(text) == text, "python -m scripts.http_api_tables renews them"


def shape(kind: Any, *without: str) -> dict[str, Any]:
    """Names and defaults of a dataclass or Struct."""
    if dataclasses.is_dataclass(kind):
        found = {f.name: f.default for f in dataclasses.fields(kind)}
        missing: Any = dataclasses.MISSING
    else:
        found = {f.name: f.default for f in msgspec.structs.fields(kind)}
        missing = msgspec.NODEFAULT
    return {
        name: "required" if value is missing else value
        for name, value in found.items()
        if name not in without
    }


def test_no_field_of_a_job_is_left_at_its_default() -> None:
    """Each that may be left out of the answer is filled from the job, of which no field has its default."""
    # the words of conditions are no free text; its progress comes from its iterations, not from the job; the
    # one of several partitions that it runs in comes from its hosts
    job = dataclasses.replace(builders.filled(Job), unstarted=1, dependencies=())
    answer = job_of(job)
    without = {"dependencies", "progress", "partition"}
    for field in msgspec.structs.fields(jobs.Job):
        if not field.required and field.name not in without:
            assert getattr(answer, field.name) != field.default, field.name
    assert answer.restarts == job.attempt - 2


def test_no_field_of_an_answer_is_filled_by_nobody() -> None:
    """Each is named where answers are made, or where what they show is."""
    made = "".join(
        path.read_text()
        for room in ("web", "daemon", "core", "adapters", "policies")
        for path in (ROOT / "rm" / room).rglob("*.py")
    )
    words = set(re.findall(r"\w+", made))
    answers = {
        kind
        for file in pkgutil.iter_modules(rm.api.__path__)
        for _, kind in inspect.getmembers(importlib.import_module(f"rm.api.{file.name}"), inspect.isclass)
        if issubclass(kind, msgspec.Struct) and not issubclass(kind, Request)
    }
    assert jobs.Job in answers
    unfilled = {f"{kind.__name__}.{name}" for kind in answers for name in kind.__struct_fields__}
    assert {field for field in unfilled if field.partition(".")[2] not in words} == set()


def test_jobs_that_are_written_one_by_one_are_the_same_answer() -> None:
    some = [job_of(Job(i, builders.spec(), submitted_us=i)) for i in (1, 2, 3)]
    for listed in ([], some[:1], some):
        for more in (False, True):
            told = respond_jobs(iter(listed), more)
            assert told.body == respond(jobs.Jobs(jobs=listed, more=more)).body
            assert told.content_type == "application/json"


def test_types_of_the_api_follow_the_core_whose_values_they_show() -> None:
    """A field that the core gains is either shown, or left out on purpose, here."""
    asked = shape(job_requests.JobRequest)
    # the daemon itself says who gets a copy of the log, and under which name; rm.toml has defaults of some
    rm_toml = dict.fromkeys(("launch", "output", "partition", "time_limit_us"), msgspec.UNSET)
    assert asked | {"deliver": ""} == shape(JobSpec) | {"user": ""} | rm_toml
    assert "deliver" not in asked
    assert shape(jobs.FullSpec).keys() == shape(JobSpec).keys()
    assert shape(jobs.Spec).keys() == shape(JobSpec, "script", "script_args", "env", "submit_line").keys()
    made = {"short_state", "exit", "hosts", "progress", "restarts"}
    # whoever knows a submission's key may repeat it; the port is for the job's tasks alone; of the
    # launches that full disks refused the time of the next one tells; of the rank that made the job fail
    # the job's reason and exit code tell; how long a lease's end may take, its host alone needs to know
    own = {"key", "master_port", "host_faults", "failed_rank", "fence_grace_us", "freezes", "own"}
    own |= {"slice_of", "unstarted"}  # with which others it was handed out, and came back
    own |= {"touched_us"}  # the history says it
    own |= {"unsure", "admin_held"}  # that it waits held since a restore, or by whom, its reason says
    own |= {"placed_us"}  # the history says it
    assert shape(jobs.Job).keys() - made == shape(Job).keys() - own
    silent = {"silent"}  # its host has told that there is no log to ask for
    assert shape(jobs.Task).keys() == shape(Task).keys() - silent
    assert shape(hosts.Host).keys() - {"free", "jobs", "schedulable"} == shape(Host).keys()
    assert shape(hosts.Gpu) == shape(Gpu)
    assert shape(reasons.Schedule) == shape(Schedule)
    observed = ["state", "drained_by", "drained_us", "reason", "boot_id", "agent_version", "since_us"]
    observed += ["found", "nics", "unenforced", "unshaped", "unwritable", "containers"]
    observed += ["machine", "kernel", "booted_us"]
    assert shape(hosts.HostRequest) == shape(Host, *observed) | {"zone": "default", "address": ""}
    assert set(get_args(jobs.State)) == set(JobState)
    assert set(get_args(hosts.State)) == set(HostState)
    told = msgspec.json.decode(document(__version__))["components"]["schemas"]["Acknowledge"]["properties"]
    assert (told["comment"]["maxLength"], told["alerts"]["maxItems"]) == (COMMENT_MAX, NAMES_MAX)


def test_the_document_names_each_kind_of_refusal() -> None:
    said = re.search(r"<!-- refusals -->(.*?)<!-- end -->", FILE.read_text(), re.S)
    assert said is not None
    assert re.findall(r"`([\w-]+)`", said[1]) == list(Refusal)
