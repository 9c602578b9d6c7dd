"""Steps of jobs, as their accounting keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.job import Job, JobState
from rm.core.model.step_used import StepUsed

STEPS_MOST = 10_000  # of one attempt


@dataclass(frozen=True, slots=True, order=True)
class StepName:
    """A step of one attempt of a job: as of Slurm `job.step`."""

    job: int
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class JobStep:
    """`hosts` is a folded list of hosts, `cpus` the processors that the step held; instants are microseconds
    since the epoch. `ended_us` is None until its end is known; then `code` and `signal` are those of the task
    that made its exit code, None where nobody said them. `why` it ended early: "cancelled" or "timeout".
    `used`: None until its hosts have told it. `submit_line`: what was typed for it, or its beginning."""

    name: StepName
    title: str = ""
    hosts: str = ""
    hosts_count: int = 0
    tasks: int = 0
    cpus: int = 0
    started_us: int = 0
    ended_us: int | None = None
    code: int | None = None
    signal: int | None = None
    why: str = ""
    used: StepUsed | None = None
    submit_line: str = ""


def _is_over(step: JobStep, job: Job) -> bool:
    """Has it ended, by itself or with its attempt?"""
    return step.ended_us is not None or step.name.attempt != job.attempt or job.state.final


def ended_us(step: JobStep, job: Job) -> int | None:
    """When it ended. One of whose end nothing is known ended with its attempt; of an earlier attempt that is
    not known to the microsecond unless the job's record says it."""
    if step.ended_us is not None:
        return step.ended_us
    if step.name.attempt == job.attempt:
        return job.ended_us if job.state.final else None
    return next((one.ended_us for one in job.earlier if one.attempt == step.name.attempt), None)


def state_of(step: JobStep, job: Job, coming: bool) -> JobState:
    """As of Slurm's steps; `job` is the step's job as it is now, `coming`: its host may yet tell more
    of it."""
    if not _is_over(step, job):
        return JobState.SUSPENDED if job.state is JobState.SUSPENDED else JobState.RUNNING
    if coming and step.ended_us is None:
        return JobState.COMPLETING
    if step.why == "timeout":
        return JobState.TIMEOUT
    if step.why or step.code is None or step.signal:
        return JobState.CANCELLED
    return JobState.FAILED if step.code else JobState.COMPLETED
