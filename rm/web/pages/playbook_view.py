"""Playbooks as the page shows them: the fields of a survey, runs, the report of one, schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rm.api.playbooks import (
    OnePlaybookRun,
    PlaybookRun,
    PlaybookSchedule,
    Question,
    TaskOutcome,
    TaskOutcomes,
)
from rm.units import format_elapsed
from rm.web.pages.text import duration, moment, shown, since

SHOWN_MOST = 200  # tasks of one page of a report
RUNS_MOST = 30
COUNTED = ("ok", "changed", "failed", "unreachable", "skipped", "rescued", "ignored")
STATUSES = COUNTED
# the style of a state or status: what the words mean is in the words
STYLES = {
    "ok": "s-cd", "running": "s-r", "failed": "s-f", "unreachable": "s-f", "interrupted": "a-pending",
    "changed": "a-pending",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Input:
    """A question as a field of the form; `kind`: text, secret, choice or long. `hint` says what fits."""

    name: str
    label: str
    kind: str
    required: bool
    hint: str = ""
    choices: tuple[str, ...] = ()
    value: str = ""


@dataclass(frozen=True, slots=True)
class RunRow:
    id: int
    playbook: str
    state: str
    style: str
    by: str
    at: str
    took: str
    hosts: int
    changed: int
    failed: int
    check: bool
    schedule: int


@dataclass(frozen=True, slots=True)
class TaskRow:
    number: int
    task: str
    where: str
    host: str
    status: str
    style: str
    took: str
    message: str
    output: str
    diffs: tuple[str, ...]
    items: tuple[tuple[str, str, str], ...]

    @property
    def has_more(self) -> bool:
        return bool(self.output or self.diffs or self.items or self.message)


@dataclass(frozen=True, slots=True)
class HostRow:
    name: str
    counts: tuple[int, ...]
    bad: bool
    doing: str


@dataclass(frozen=True, slots=True)
class Report:
    run: RunRow
    over: bool
    message: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    hosts: tuple[HostRow, ...]
    tasks: tuple[TaskRow, ...]
    next: int  # `after` of the next page; 0 = there is none


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    id: int
    playbook: str
    cron: str
    by: str
    next: str
    last_run: int
    message: str
    answers: str


def input_of(one: Question, value: str = "") -> Input:
    """`value` is what was given before; a private answer is never shown."""
    default = "" if one.default is None or one.private else _words(one.default)
    hints = []
    if one.kind in ("list", "dict"):
        hints.append(
            "with commas, or as JSON" if one.kind == "list" else "as JSON, or NAME=VALUE with commas"
        )
    elif one.kind in ("int", "float", "bytes", "bits"):
        hints.append("a number" if one.kind in ("int", "float") else "a size, such as 10M")
    if default:
        hints.append(f"otherwise {shown(default, 100)}")
    if one.private:
        hints.append("at least four characters; it is neither stored nor shown")
    choices = tuple(map(_words, one.choices)) or (("yes", "no") if one.kind == "bool" else ())
    kind = "secret" if one.private else "choice" if choices else "text"
    hint = "; ".join(hints)
    return Input(one.name, one.text, kind, one.required, hint, choices, "" if one.private else value)


def answers_of(questions: Sequence[Question], given: Mapping[str, str]) -> dict[str, Any]:
    """The answers of a form, without those that say nothing. A list or mapping may be JSON."""
    found: dict[str, Any] = {}
    for one in questions:
        text = given.get(one.name, "")
        if not one.private:
            text = text.strip()
        if not text:
            continue
        found[one.name] = text
        if one.kind == "list" and text.startswith("["):
            # a text that only looks so: the daemon says what does not fit
            with suppress(ValueError, RecursionError):
                found[one.name] = json.loads(text)
    return found


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ("yes" if value else "no") if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def run_row(run: PlaybookRun, now_us: int) -> RunRow:
    counts = run.recap.values()
    began_us = run.began_us or run.asked_us
    took = format_elapsed((run.ended_us or now_us) - run.began_us) if run.began_us else "–"
    return RunRow(
        id=run.id,
        playbook=shown(run.playbook),
        state=run.state,
        style=STYLES.get(run.state, ""),
        by=shown(run.by, 32),
        at=moment(began_us),
        took=took,
        hosts=len(run.recap),
        changed=sum(one.changed for one in counts),
        failed=sum(one.failed + one.unreachable for one in counts),
        check=run.options.check,
        schedule=run.schedule,
    )


def task_row(one: TaskOutcome) -> TaskRow:
    return TaskRow(
        number=one.number,
        task=shown(one.task, 200),
        where=f"{one.file.rpartition('/')[2]}:{one.line}" if one.line else "",
        host=shown(one.host) + (f" > {shown(one.delegated)}" if one.delegated else ""),
        status=one.status,
        style=STYLES.get(one.status, ""),
        took=duration(one.took_us) if one.status != "skipped" else "–",
        message=one.message,
        output=one.output,
        diffs=tuple(one.diffs),
        items=tuple(one.items),
    )


def report(told: OnePlaybookRun, found: TaskOutcomes, now_us: int) -> Report:
    run = told.run
    options = run.options
    facts = [
        ("Hosts", options.limit or "all of the playbook"),
        ("Mode", "check: nothing is changed" if options.check else "changes what differs"),
        ("Tags", ", ".join(options.tags)),
        ("Without tags", ", ".join(options.skip_tags)),
        ("Schedule", str(run.schedule) if run.schedule else ""),
        *((name, _words(value)) for name, value in run.answers.items()),
        *((name, "private") for name in run.private),
    ]
    names = dict.fromkeys([*run.recap, *told.doing, *run.not_reached])
    hosts = []
    for name in sorted(names):
        counts = run.recap.get(name)
        numbers = tuple(getattr(counts, word) if counts else 0 for word in COUNTED)
        doing = told.doing.get(name)
        said = f"{shown(doing.task)} ({since(doing.since_us, now_us)})" if doing else ""
        if name in run.not_reached:
            said = "not finished"
        bad = bool(counts and (counts.failed or counts.unreachable))
        hosts.append(HostRow(shown(name), numbers, bad, said))
    tasks = tuple(map(task_row, found.outcomes))
    return Report(
        run=run_row(run, now_us),
        over=bool(run.ended_us),
        message=run.message,
        facts=tuple((what, shown(value, 300)) for what, value in facts if value),
        notes=tuple(run.notes),
        hosts=tuple(hosts),
        tasks=tasks,
        next=found.next,
    )


def schedule_row(one: PlaybookSchedule) -> ScheduleRow:
    answers = ", ".join(f"{name}={_words(value)}" for name, value in one.answers.items())
    return ScheduleRow(
        one.id, shown(one.playbook), shown(one.cron), shown(one.by, 32), moment(one.next_us), one.last_run,
        shown(one.message, 300), shown(answers, 300),
    )  # fmt: skip
