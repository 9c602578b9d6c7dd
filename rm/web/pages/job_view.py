"""One job: what it asked for, its script where the person may read it, and what they can do with it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET

from rm.api.job_steps import JobSteps
from rm.api.jobs import FullJob, Job, Spec
from rm.client.job_files import errors_of, output_of
from rm.dependencies import Condition, with_standings
from rm.units import format_bytes, format_elapsed
from rm.web.pages.people import Person
from rm.web.pages.queue_view import Row, group_of, row
from rm.web.pages.text import Look, look, moment, shown

STEPS_MOST = 100  # that are shown
SCRIPT_MOST = 200_000  # characters


@dataclass(frozen=True, slots=True)
class JobView:
    """`facts` are (what, value). `acts`: (name, label) of what the person may do at once; `asked`: of what
    they are asked about first."""

    row: Row
    facts: tuple[tuple[str, str], ...]
    acts: tuple[tuple[str, str], ...]
    asked: tuple[tuple[str, str], ...]


def job(told: Job, person: Person, now_us: int, look: Look = look) -> JobView:
    spec, group = told.spec, group_of(told.state)
    acts: list[tuple[str, str]] = []
    asked: list[tuple[str, str]] = []
    if person.may_change(spec.user):
        if group == "pending":
            acts.append(("release", "Release") if told.held else ("hold", "Hold"))
        if group != "pending":
            asked.append(("requeue", "Requeue"))
        if group != "ended":
            asked.append(("cancel", "Cancel"))
    return JobView(
        row=row(told, now_us, look),
        facts=tuple((what, value) for what, value in _facts(told) if value),
        acts=tuple(acts),
        asked=tuple(asked),
    )


@dataclass(frozen=True, slots=True)
class StepRow:
    ref: str
    name: str
    state: str
    elapsed: str
    hosts: str
    tasks: int
    exit: str


@dataclass(frozen=True, slots=True)
class StepsView:
    rows: tuple[StepRow, ...]
    more: bool


def steps(job: Job, told: JobSteps, now_us: int) -> StepsView:
    """What `srun` ran, of the first attempts first."""
    rows = []
    for one in told.steps:
        of_attempt = f" of attempt {one.attempt}" if one.attempt != job.attempt else ""
        end_us = now_us if one.ended_us is None else one.ended_us
        ended = "" if one.exit_code is None else f"{one.exit_code}:{one.exit_signal or 0}"
        rows.append(
            StepRow(
                ref=f"{job.id}.{one.step}{of_attempt}",
                name=shown(one.name, 60),
                state=one.state,
                elapsed=format_elapsed(max(0, end_us - one.started_us)),
                hosts=shown(one.hosts, 80),
                tasks=one.tasks,
                exit=ended,
            )
        )
    return StepsView(tuple(rows), told.more)


def script(told: FullJob) -> str | None:
    text = told.spec.script
    return None if text is UNSET else tame(text)


def first_failure(told: Job) -> int:
    """The rank of the task that failed first, whose log explains most; 0 when none did."""
    failed = [task for task in told.tasks if task.exit_code or task.exit_signal]
    return int(min(failed, key=lambda task: task.ended_us or 0).rank) if failed else 0


def tame(text: str) -> str:
    """Line ends and tabs stay; nothing else that steers."""
    kept = text[:SCRIPT_MOST]
    more = f"\n… {len(text) - SCRIPT_MOST:,} more characters" if len(text) > SCRIPT_MOST else ""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in kept) + more


def _facts(told: Job) -> list[tuple[str, str]]:
    spec = told.spec
    limit = spec.time_limit_us
    per_task = _resources(spec.mem_bytes_per_task, spec.gpus_per_task, spec)
    per_host = _resources(spec.mem_bytes_per_host, spec.gpus_per_host, spec)
    if spec.mem_all:
        per_host.append("all memory")
    dependencies = [
        (Condition(one.kind, one.job, one.delay_us, one.tasks), one.standing) for one in told.dependencies
    ]
    return [
        ("Submitted", moment(told.submitted_us)),
        ("Started", moment(told.started_us) if told.started_us else ""),
        ("Ended", moment(told.ended_us) if told.ended_us else ""),
        ("Exit", told.exit or ""),
        (
            "Each task",
            ", ".join([f"{spec.cpus_per_task} CPU", *per_task]),
        ),
        ("Each host", ", ".join(per_host)),
        ("Time limit", format_elapsed(limit) if limit else ""),
        ("Priority", str(spec.priority) if spec.priority else ""),
        ("Dependency", shown(with_standings(dependencies, spec.dependency), 300)),
        ("Directory", shown(spec.chdir, 200)),
        ("Output", shown(output_of(told), 200)),
        ("Errors", shown(errors_of(told), 200)),
        ("Comment", shown(spec.comment, 300)),
        ("Reason", shown(told.reason.message, 300) if told.reason else ""),
    ]


def _resources(mem_bytes: int, gpus: int, spec: Spec) -> list[str]:
    """Memory and GPUs that are counted for each task, or for each host."""
    found = []
    if mem_bytes:
        found.append(format_bytes(mem_bytes))
    if gpus:
        found.append(f"{gpus} GPU {shown(spec.gpu_type)}".strip())
    return found
