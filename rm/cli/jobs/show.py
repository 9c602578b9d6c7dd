"""`rmx show`: one job's whole story. `rmx iterations`: what was measured of its iterations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from rm.arrays import text_of
from rm.cli.jobs.logs import shared_file
from rm.cli.jobs.used import saved_text, slowed_text, used_text, waited_text
from rm.cli.output import note, printable
from rm.cli.session import Session, emit_answer, emit_json, job_operand, json_option, one_job, table
from rm.cli.shown import elapsed_us, exact_moment, job_ref
from rm.client.job_files import errors_of, output_of
from rm.dependencies import Condition, with_standings
from rm.errors import Forbidden, RmError
from rm.missing_program import NOT_FOUND, missing_program
from rm.submission.signals import shown
from rm.units import (
    fold_hosts,
    format_bandwidth,
    format_bytes,
    format_duration,
    format_elapsed,
    format_time_limit,
)

if TYPE_CHECKING:
    from rm.api.job_steps import StepUsed
    from rm.api.jobs import EarlierAttempt, FullJob, Task, Traffic

FAILED = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")
LAST_LINES = 10
LAST_STEPS = 20


def profile_text(profile: Traffic | None) -> str:
    if profile is None:
        return ""
    phases = ", ".join(
        f"{format_duration(phase.duration_us)} at {format_bandwidth(phase.rate_bps)}"
        f" from {format_duration(phase.offset_us)}"
        for phase in profile.phases
    )
    return f"every {format_duration(profile.period_us)}: {phases}"


def _lines(job: FullJob) -> Iterator[tuple[str, Any]]:
    spec = job.spec
    yield "JobId", job.id
    if job.array_task is not None:
        yield "ArrayJobId", job.array_job
        yield "ArrayTaskId", job.array_task
    if job.array is not None:
        yield "Array", spec.array
        for name in ("Waiting", "Held", "Requeued", "Running", "Completed", "Failed", "Cancelled", "Dropped"):
            yield name, getattr(job.array, name.lower())
        yield "ArrayLimit", job.array.limit or "none"
    yield "JobName", spec.name
    yield "User", spec.user
    state = job.state + (" (held)" if job.held else "")
    yield "State", state
    if job.reason:
        numbers = "".join(f" {name}={value}" for name, value in job.reason.numbers.items())
        yield "Reason", f"({job.reason.code}) {job.reason.message}{numbers}"
    if job.exit is not None:
        yield "ExitCode", job.exit
    yield "Priority", "high" if spec.priority >= 100 else spec.priority or "low"
    if spec.nice:
        yield "Nice", spec.nice
    yield "Partition", job.partition or spec.partition
    yield "Zone", spec.zone
    yield "Constraint", spec.constraint
    yield "Prefer", spec.prefer
    yield "Licenses", spec.licenses
    yield "Account", job.account
    yield "QOS", job.qos
    yield "Reservation", spec.reservation
    if spec.switches:
        yield "Switches", f"{spec.switches}@{format_elapsed(spec.switches_wait_us)}"
    yield "ContainerImage", spec.container_image
    yield "ContainerMounts", spec.container_mounts
    yield "ContainerWorkdir", spec.container_workdir
    yield "ContainerName", spec.container_name
    yield "Tasks", spec.ntasks
    yield "Launch", "once, on the first host" if spec.launch == "batch" else "the script for each task"
    if spec.distribution != "block":
        yield "Distribution", spec.distribution
    yield "CpusPerTask", spec.cpus_per_task
    for each, size, gpus in (
        ("Task", spec.mem_bytes_per_task, spec.gpus_per_task),
        ("Host", spec.mem_bytes_per_host, spec.gpus_per_host),
    ):
        if size:
            yield f"MemPer{each}", format_bytes(size)
        if gpus:
            memory = format_bytes(spec.gpu_mem_bytes)
            shared = f", shared, {memory} of each" if spec.gpu_mem_bytes else ""
            yield f"GpusPer{each}", f"{spec.gpu_type}:{gpus}".lstrip(":") + shared
    if spec.mem_all:
        yield "MemPerHost", "all"
    yield "TimeLimit", format_time_limit(spec.time_limit_us)
    if spec.deadline_us is not None:
        yield "Deadline", exact_moment(spec.deadline_us)
    if spec.time_min_us:
        yield "TimeMin", format_time_limit(spec.time_min_us)
    if spec.warn_signal:
        yield "Signal", shown(spec.warn_signal, spec.warn_before_us, spec.warn_batch)
    if spec.fence_us:
        yield "Fence", format_duration(spec.fence_us)
    if spec.expected_us is not None:
        yield "Expected", format_elapsed(spec.expected_us)
    if spec.iterations:
        yield "Iterations", spec.iterations
    if progress := job.progress:
        yield "Remaining", f"{format_elapsed(progress.remaining_us)}, by its iterations"
    yield "Submitted", exact_moment(job.submitted_us)
    if spec.begin_us is not None:
        yield "Begin", exact_moment(spec.begin_us)
    if job.dependencies:
        dependencies = ((Condition(d.kind, d.job, d.delay_us, d.tasks), d.standing) for d in job.dependencies)
        yield "Dependency", with_standings(dependencies, spec.dependency)
    yield "Waited", waited_text(job)
    if job.started_us is not None:
        yield "Started", exact_moment(job.started_us)
        yield "Elapsed", format_elapsed(elapsed_us(job))
    if job.yields_to:
        yield "Suspended", f"for job {', '.join(map(str, job.yields_to))}; it goes on by itself after that"
    if job.ended_us is not None:
        yield "Ended", exact_moment(job.ended_us)
    yield "Used", used_text(job)
    yield "Slowed", slowed_text(job)
    yield "Saved", saved_text(job)
    if job.attempt > 1:
        yield "Attempt", job.attempt
    yield "Hosts", fold_hosts(job.hosts)
    yield "WorkDir", spec.chdir
    yield "Output", output_of(job)
    if spec.input:
        yield "Input", spec.input
    yield "Error", errors_of(job)
    yield "OpenMode", spec.open_mode
    yield "Traffic", "low" if spec.low_comm else profile_text(job.traffic or spec.traffic)
    if schedule := job.schedule:
        role = "reference" if schedule.reference else f"shifted by {format_duration(schedule.shift_us)}"
        idle = f", {format_duration(schedule.inject_us)} idle added" if schedule.inject_us else ""
        yield "Schedule", f"{role}, an iteration every {format_duration(schedule.period_us)}{idle}"
    yield "Comment", spec.comment


@click.command()
@job_operand
@json_option
@click.pass_obj
def show(session: Session, /, job: str | None, job_word: str | None, as_json: bool) -> None:
    """Show JOB: its request, its hosts, each task, and its whole story."""
    found = session.client.job(one_job(job, job_word, "rmx host show"))
    if as_json:
        emit_json({"job": found})
        return
    for name, value in _lines(found):
        if value not in ("", None):
            click.echo(f"{name + ':':<13}{printable(value)}")
    if found.tasks:
        click.echo()
        rows = []
        pinned = any(task.cores for task in found.tasks)
        for task in found.tasks:
            ended = "-" if task.exit_code is None else f"{task.exit_code}:{task.exit_signal or 0}"
            gpus = ",".join(map(str, task.gpus)) or "-"
            cores = (text_of(sum(1 << one for one in task.cores)) or "-",) if pinned else ()
            rows.append((task.rank, task.host, gpus, *cores, exact_moment(task.started_us), ended, task.note))
        columns = ("TASK", "HOST", "GPUS", *(("PROCESSORS",) if pinned else ()), "STARTED", "EXIT", "NOTE")
        table(columns, rows, right=("TASK",))
    if found.spec.launch == "batch" and found.attempt:
        _steps(session, found)
    if found.earlier:
        click.echo()
        _earlier(found.earlier)
    if found.state in FAILED and found.array is None:
        _last_lines(session, found)
    if found.history:
        click.echo()
        for at_us, what in found.history:
            click.echo(f"{exact_moment(at_us)}  {printable(what)}")


def _steps(session: Session, job: FullJob) -> None:
    """What `srun` ran of all attempts; of many the newest."""
    steps = session.client.job_steps([job.id])
    if not steps:
        return
    click.echo()
    rows = []
    for one in steps[-LAST_STEPS:]:
        ref = f"{job_ref(job)}.{one.step}" + (f" of {one.attempt}" if one.attempt != job.attempt else "")
        ended = "-" if one.exit_code is None else f"{one.exit_code}:{one.exit_signal or 0}"
        times = (exact_moment(one.started_us), exact_moment(one.ended_us))
        used = ("-", "-", "-") if one.used is None else _step_used(one.used)
        rows.append((ref, one.name, one.hosts, one.tasks, *times, *used, ended, one.state))
    columns = ("STEP", "NAME", "HOSTS", "TASKS", "STARTED", "ENDED", "CPU", "MEMORY", "GPUS", "EXIT", "STATE")
    table(columns, rows, right=("TASKS", "CPU", "MEMORY", "GPUS"))
    if len(steps) > LAST_STEPS:
        click.echo(f"and {len(steps) - LAST_STEPS} earlier ones, which sacct lists")


def _step_used(used: StepUsed) -> tuple[str, str, str]:
    """Processor time, the most memory on one host at once, and how busy its GPUs were."""
    mem_bytes = max(used.host_bytes, used.mem_bytes.most)
    gpus = f"{100 * used.gpu_busy_us / used.gpu_us:.0f} %" if used.gpu_us else "-"
    return format_elapsed(used.user_us + used.system_us), format_bytes(mem_bytes), gpus


def _earlier(attempts: Sequence[EarlierAttempt]) -> None:
    rows = []
    for one in attempts:
        ended = "-" if one.exit_code is None else f"{one.exit_code}:{one.exit_signal or 0}"
        times = (exact_moment(one.started_us), exact_moment(one.ended_us))
        rows.append((one.attempt, fold_hosts(one.hosts), *times, ended, one.why))
    table(("ATTEMPT", "HOSTS", "STARTED", "ENDED", "EXIT", "WHY"), rows, right=("ATTEMPT",))


def _last_lines(session: Session, job: FullJob) -> None:
    """The end of what the task wrote by which the job failed, to those who may read it."""
    rank = first_failure(job.tasks)
    if all(task.started_us is None for task in job.tasks if task.rank == rank):
        return  # it wrote nothing, and its note says why
    streams: tuple[Literal["out", "err"], ...] = ("out", "err") if job.spec.error else ("out",)
    for stream in streams:
        try:
            data = b"".join(session.client.logs(job.id, rank, stream=stream, lines=LAST_LINES))
        except Forbidden:
            return
        except RmError as error:
            note(str(error))
            continue
        if not data:
            continue
        told = f"that task {rank} wrote{' to standard error' * (stream == 'err')}"
        if shared_file(job.spec, stream == "err"):
            told = f"of the file on {job.tasks[rank].host} that the tasks share"
        click.echo(f"\nThe last lines {told}:")
        lines = data.decode(errors="replace").splitlines()
        for line in lines:
            click.echo(f"  {printable(line)}")
        failed = next((task for task in job.tasks if task.rank == rank), None)
        if failed and failed.exit_code == NOT_FOUND and (program := missing_program(lines)):
            missing = f"The program {printable(program)} was not found on {failed.host}"
            click.echo(f"{missing}: install it there, or set PATH in the script.")


def first_failure(tasks: Sequence[Task]) -> int:
    """The rank of the task that failed first; 0 when none did."""
    failed = [task for task in tasks if task.exit_code or task.exit_signal]
    return min(failed, key=lambda task: task.ended_us or 0).rank if failed else 0


@click.command()
@job_operand
@json_option
@click.pass_obj
def iterations(session: Session, /, job: str | None, job_word: str | None, as_json: bool) -> None:
    """Show the measured iteration times of JOB beside those without contention."""
    answer = session.client.iterations(one_job(job, job_word))
    if as_json:
        emit_answer(answer)
        return
    times = {
        "Baseline": answer.baseline_us,
        "Mean": answer.mean_us,
        "P90": answer.p90_us,
        "P99": answer.p99_us,
    }
    for name, value in times.items():
        click.echo(f"{name + ':':<13}{'-' if value is None else format_duration(round(value))}")
    click.echo(f"{'Iterations:':<13}{answer.count}")
    click.echo(f"{'Pauses:':<13}{answer.pauses}")
