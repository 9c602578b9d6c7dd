"""Core values to and from the rows that the store keeps: a few columns, and the rest as JSON.

Fields that a reader does not know are ignored and fields that are missing get their default, so
that a database written by an older or a newer rm of the same schema can be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from rm.arrays import INDEX_MAX, mask, parse
from rm.core.model.asked.array import SETS, Array
from rm.core.model.choice import Choice
from rm.core.model.element import sharing
from rm.core.model.host import Host, Zone
from rm.core.model.job import Job, JobSpec
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import KeptLog, LogName
from rm.core.model.network.links import LinkStats
from rm.core.model.step_used import StepUsed
from rm.core.monitoring.cells import Cell, Change, Status
from rm.core.monitoring.history import Sample, Stat, Summary
from rm.core.monitoring.mesh import MeshState
from rm.core.people.audit import Act, Outcome, clean
from rm.core.people.token import Token
from rm.core.store import Entry, Measured, StoredAction
from rm.errors import StoreError, Unstorable, UsageError
from rm.typed import convert, decoder_of

Value = TypeVar("Value")
Row = dict[str, Any]

SHOWN = 80  # characters of a list of indices in a sentence
NUMBER_MAX = (1 << 63) - 1  # of a column
SPECS_REMEMBERED = 256
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
_encode = msgspec.json.Encoder().encode
_EMPTY = (None, False, 0, "", ())


class StepBody(msgspec.Struct, frozen=True, array_like=True):
    """As it is stored; what an earlier rm has written ends sooner."""

    title: str
    hosts: str
    hosts_count: int
    tasks: int
    cpus: int
    started_us: int
    ended_us: int | None
    code: int | None
    signal: int | None
    why: str
    used: StepUsed | None = None
    submit_line: str = ""


def _sparing(cls: type, without: str = "") -> Callable[[object], msgspec.Struct]:
    """What gives a value's fields, to be encoded without those that are empty and would be read as empty if
    they were not there: rows of most jobs are half as long, or a tenth. A default that says something is
    written: it may be another one day, and what is stored may not change by that.

    As a struct, since msgspec leaves out its defaults: in Python the 70 fields of a job cost five times that.
    """
    kept = [f for f in fields(cls) if f.name != without]
    # by identity, as msgspec compares: 0 is another value than False, and one not recognised is only written
    empty = [f for f in kept if any(f.default is one for one in _EMPTY)]
    written = [f for f in kept if f not in empty]
    columns = [(f.name, object) for f in written] + [(f.name, object, f.default) for f in empty]
    sparing: Callable[..., msgspec.Struct] = msgspec.defstruct(cls.__name__, columns, omit_defaults=True)
    values_of = attrgetter(*(name for name, *_ in columns))
    return lambda of: sparing(*values_of(of))


_job_fields = _sparing(Job, without="spec")
_spec_fields = _sparing(JobSpec)
_spec = decoder_of(JobSpec)
_host = decoder_of(Host)
_zone = decoder_of(Zone)
_token = decoder_of(Token)
_act = decoder_of(Act)
_stats = decoder_of(LinkStats)
_object = decoder_of(dict[str, Any])
_choice = decoder_of(Choice)
_kept = decoder_of(tuple[int, int, str])
_job_step = decoder_of(StepBody)
_cell = decoder_of(Cell)
NOTHING_KEPT = ',"path":"","packets":[],"values":[]}'
_change = decoder_of(tuple[Status, Status, str, float | None])
_mesh_state = decoder_of(MeshState)
_summary = decoder_of(tuple[int, int, dict[str, tuple[float, float, float, int]]])


def to_text(value: object, what: str) -> str:
    """The value's JSON.

    Raises:
        Unstorable: it holds something JSON cannot say, such as an integer beyond 64 bits or text
            that is not Unicode; `what` names it in the sentence.
    """
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        raise Unstorable(f"{what} cannot be stored: {e}.") from e


def spec_row(job: Job) -> Row:
    return {"id": job.id, "body": to_text(_spec_fields(job.spec), f"The specification of job {job.id}")}


def job_row(job: Job) -> Row:
    spec = job.spec
    return {
        "id": job.id,
        "state": job.state.value,
        "user_name": spec.user,
        "name": spec.name,
        "partition": spec.partition,
        "priority": spec.priority,
        "submitted_us": job.submitted_us,
        "started_us": job.started_us,
        "ended_us": job.ended_us,
        "body": _job_to_text(job),
        "spec_id": job.array_job or job.id,
        "array_task": job.array_task,
    }


def token_row(token: Token) -> Row:
    what = f"Token {token.id}"
    return {"id": token.id, "user_name": token.user, "body": to_text(token, what)}


def act_row(act: Act) -> Row:
    text = to_text(act, "An entry of the audit log")
    return {"at_us": act.at_us, "user_name": act.user, "body": text}


def kept_log_row(log: KeptLog) -> Row:
    name = log.name
    body = to_text((log.size_bytes, log.kept_bytes, log.why), f"What became of a log of job {name.job}")
    return {
        "job": name.job, "attempt": name.attempt, "rank": name.rank, "stream": name.stream, "body": body
    }  # fmt: skip


def kept_log(row: Any) -> KeptLog:
    body = from_text(_kept, row.body, f"What became of a log of job {row.job}")
    return KeptLog(LogName(row.job, row.attempt, row.rank, row.stream), *body)


def job_step_row(step: JobStep) -> Row:
    name = step.name
    body = (step.title, step.hosts, step.hosts_count, step.tasks, step.cpus, step.started_us, step.ended_us,
            step.code, step.signal, step.why, step.used, step.submit_line)  # fmt: skip
    text = to_text(body, f"Step {name.step} of job {name.job}")
    return {"job": name.job, "attempt": name.attempt, "step": name.step, "body": text}


def job_step(row: Any) -> JobStep:
    body = from_text(_job_step, row.body, f"Step {row.step} of job {row.job}")
    return JobStep(StepName(row.job, row.attempt, row.step), *msgspec.structs.astuple(body))


def choice_row(job: int, choice: Choice) -> Row:
    return {"job": job, "body": to_text(choice, f"How job {job} was placed")}


def choice(row: Any) -> Choice:
    return from_text(_choice, row.body, f"How job {row.job} was placed")


def named_row(name: str, value: object, what: str) -> Row:
    return {"name": name, "body": to_text(value, f"{what} {name}")}


def measured_row(m: Measured) -> Row:
    what = f"The measurement {m.source} to {m.destination}"
    return {"source": m.source, "destination": m.destination, "body": to_text(m.stats, what)}


def action_row(a: StoredAction) -> Row:
    return {
        "id": a.id,
        "kind": a.kind,
        "job": a.job,
        "attempt": a.attempt,
        "host": a.host,
        "body": to_text(a.body, f"Action {a.id}"),
    }


def entry_row(e: Entry) -> Row:
    body = to_text(e.body, f"The journal entry {e.kind}")
    return {"at_us": e.at_us, "kind": e.kind, "body": body}


def sample_row(pair: int, s: Sample) -> Row:
    more = {"failed": s.failed, "checks": s.checks}
    body = {**s.values, **{key: value for key, value in more.items() if value}}
    text = to_text(body, f"The measurement {s.source} to {s.destination}")
    return {"pair": pair, "at_us": s.at_us, "mesh": s.mesh, "body": text}


def sample(row: Any) -> Sample:
    _dated(row.at_us, f"The measurement {row.source} to {row.destination}")
    values = from_text(_object, row.body, f"The measurement {row.source} to {row.destination}")
    failed, checks = values.pop("failed", ""), tuple(values.pop("checks", ()))
    return Sample(row.source, row.destination, row.at_us, row.mesh, values, failed, checks)


def summary_row(pair: int, s: Summary) -> Row:
    stats = {name: (t.least, t.mean, t.most, t.count) for name, t in s.stats.items()}
    text = to_text((s.tries, s.failures, stats), f"The summary {s.source} to {s.destination}")
    return {"span_us": s.span_us, "pair": pair, "start_us": s.start_us, "body": text}


def summary(row: Any) -> Summary:
    what = f"The summary {row.source} to {row.destination}"
    _dated(row.start_us, what)
    tries, failures, stats = from_text(_summary, row.body, what)
    known = {name: Stat(*values) for name, values in stats.items()}
    return Summary(row.source, row.destination, row.start_us, row.span_us, known, tries, failures)


def cell_row(cell: Cell) -> Row:
    mesh, check, source, destination = cell.key
    body = to_text(cell, f"The cell {check} of {source} to {destination}")
    if body.endswith(NOTHING_KEPT):  # of a healthy cell, as most: a shorter row
        body = body[: -len(NOTHING_KEPT)] + "}"
    return {
        "mesh": mesh, "check_name": check, "source": source, "destination": destination, "body": body
    }  # fmt: skip


def cell(row: Any) -> Cell:
    return from_text(_cell, row.body, f"The cell {row.check_name} of {row.source} to {row.destination}")


def change_row(change: Change) -> Row:
    where = {"mesh": change.mesh, "check_name": change.check, "at_us": change.at_us}
    body = (change.was, change.status, change.message, change.value)
    text = to_text(body, f"A change of {change.source} to {change.destination}")
    return {**where, "source": change.source, "destination": change.destination, "body": text}


def change(row: Any) -> Change:
    what = f"A change of {row.source} to {row.destination}"
    _dated(row.at_us, what)
    body = from_text(_change, row.body, what)
    return Change(row.mesh, row.check_name, row.source, row.destination, row.at_us, *body)


def mesh_row(state: MeshState) -> Row:
    return {"mesh": state.mesh, "body": to_text(state, f"The mesh {state.mesh}")}


def mesh_state(row: Any) -> MeshState:
    return from_text(_mesh_state, row.body, f"The mesh {row.mesh}")


def job(row: Any) -> Job:
    return job_reader()(row)


def job_reader() -> Callable[[Any], Job]:
    """What reads many jobs. Equal specifications, as jobs from one loop have, are decoded once, which is most
    of the work, and become one value."""
    specs: dict[str, JobSpec] = {}

    def read(row: Any) -> Job:
        id, body, spec_text = row  # by position and without `from_text`: there are many
        try:
            spec = specs.get(spec_text)
            if spec is None:
                if len(specs) == SPECS_REMEMBERED:
                    specs.clear()
                spec = specs[spec_text] = _spec.decode(spec_text)
            fields_of = _object.decode(body)
            fields_of["spec"] = spec
            found = convert(fields_of, Job)
            if found.own is not None and found.array_job:  # whose row of the specification it is
                found = sharing(found, spec)
        except _UNREADABLE as e:
            raise damaged(f"Job {id}", str(e)) from e
        return _sound_job(id, found)

    return read


def _sound_job(id: int, found: Job) -> Job:
    if found.id != id:
        raise damaged(f"Job {id}", f"it says that it is job {found.id}")
    if found.occupies and not found.tasks:
        raise damaged(f"Job {id}", f"it is {found.state} and has no tasks")
    if not 0 <= found.attempt <= NUMBER_MAX:
        raise damaged(f"Job {id}", f"its attempt is {found.attempt}")
    if found.array_task is not None and not (0 <= found.array_task <= INDEX_MAX and found.array_job > 0):
        raise damaged(f"Job {id}", f"it is element {found.array_task} of array {found.array_job}")
    for condition in found.dependencies:
        if not 0 <= condition.job <= NUMBER_MAX:
            raise damaged(f"Job {id}", f"it waits for job {condition.job}")
        for listed in (condition.tasks, condition.undecided, condition.met, condition.lost):
            if listed:
                _indices(f"Job {id}", listed)
    if found.array is not None:
        _sound_array(f"Job {id}", found.array, found.spec.array)
    return found


def _sound_array(what: str, array: Array, asked: str) -> None:
    """Each element that was asked for is in one set, as every use of them takes for granted: one that is in
    none would never run, and its array never end."""
    every = 0
    for name in SETS:
        some = _indices(what, getattr(array, name))
        if some & every:
            raise damaged(what, f"elements of its array that are {name} are something else as well")
        every |= some
    if asked and every != _asked(what, asked):
        raise damaged(what, f"its array has other elements than {asked[:SHOWN]}")
    held = _indices(what, array.held)
    if held & ~_indices(what, array.waiting):
        raise damaged(what, "elements of its array are held that do not wait")
    if _indices(what, array.admin_held) & ~held & ~_indices(what, array.dropped):
        raise damaged(what, "an administrator holds elements of its array that are not held")


def _asked(what: str, array: str) -> int:
    try:
        return parse(array).mask
    except UsageError as error:
        raise damaged(what, f"its array cannot be read: {error.what}") from error


def _indices(what: str, listed: str) -> int:
    try:
        return mask(listed)
    except UsageError as error:
        raise damaged(what, f"a list of indices cannot be read: {error.what}") from error


def host(row: Any) -> Host:
    found = from_text(_host, row.body, f"Host {row.name}")
    if found.name != row.name:
        raise damaged(f"Host {row.name}", f"it says that it is host {found.name}")
    return found


def zone(row: Any) -> Zone:
    return from_text(_zone, row.body, f"Zone {row.name}")


def document(row: Any) -> dict[str, Any]:
    return from_text(_object, row.body, f"Document {row.name}")


def token(row: Any) -> Token:
    return from_text(_token, row.body, f"Token {row.id}")


def act(row: Any) -> Act:
    """One that is damaged stays in its place and says so: nothing is missing from the log in silence."""
    try:
        return from_text(_act, row.body, f"Entry {row.seq} of the audit log")
    except StoreError as error:
        user = clean(str(row.user_name))
        return Act(row.at_us, user, -1, "", "", "", "damaged", outcome=Outcome.FAILED, detail=error.what)


def measured(row: Any) -> Measured:
    what = f"The measurement {row.source} to {row.destination}"
    if not (isinstance(row.source, str) and isinstance(row.destination, str)):
        raise damaged(what, "it names no hosts")
    stats = from_text(_stats, row.body, what)
    return Measured(row.source, row.destination, stats)


def action(row: Any) -> StoredAction:
    body = from_text(_object, row.body, f"Action {row.id}")
    return StoredAction(row.id, row.kind, row.job, row.attempt, row.host, body)


def entry(row: Any) -> Entry:
    body = from_text(_object, row.body, f"Journal entry {row.seq}")
    return Entry(row.at_us, row.kind, body)


def _job_to_text(job: Job) -> str:
    """The job without its specification."""
    reason = job.reason
    if reason and any(isinstance(v, float) and not math.isfinite(v) for _, v in reason.numbers):
        # JSON has no infinity: it becomes the text that the user would see anyway
        numbers = tuple(
            (n, str(v) if isinstance(v, float) and not math.isfinite(v) else v) for n, v in reason.numbers
        )
        job = replace(job, reason=replace(reason, numbers=numbers))
    return to_text(_job_fields(job), f"Job {job.id}")


def from_text(decoder: msgspec.json.Decoder[Value], text: str, what: str) -> Value:
    """The other way; raises StoreError for what is no such value."""
    try:
        return decoder.decode(text)
    except _UNREADABLE as e:
        raise damaged(what, str(e)) from e


def _dated(at_us: Any, what: str) -> None:
    """SQLite keeps anything in a column of integers."""
    if not isinstance(at_us, int):
        raise damaged(what, "its time is no number")


def damaged(what: str, why: str) -> StoreError:
    return StoreError(f"{what} is damaged in the database: {why}.", "Restore the database from a backup.")
