"""Of which changes of a job somebody is mailed, as --mail-type asks.

Each mail is an action of the same commit, without a host: it is sent at least once, whenever the daemon ends.
The sentences follow Slurm's subjects, which people's filters know.
"""

from __future__ import annotations

from rm.core.jobs.actions import Mail
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.mail_events import ARRAY_TASKS, BEGIN, END, FAIL, INVALID, LIMIT, REQUEUE, SHARES, mailbox
from rm.units import format_elapsed

S = JobState
_WELL = frozenset({S.COMPLETED, S.CANCELLED})


def mails_of(old: Job | None, job: Job, now_us: int) -> list[Mail]:
    """What this new version of a job, whose specification names events, is worth."""
    asked = frozenset(job.spec.mail_events.split(","))
    if job.array_task is not None and ARRAY_TASKS not in asked:
        return []  # its array is mailed of as a whole
    if job.array is not None and ARRAY_TASKS in asked:
        return []  # and its elements one by one
    return [mail_of(job, said) for event, said in _events(old, job, now_us) if event in asked]


def share_mail(job: Job, share: int) -> Mail | None:
    """The mail that a share of its time limit has passed; None: nobody asked."""
    if f"{LIMIT}_{share}" not in job.spec.mail_events.split(","):
        return None
    return mail_of(job, f"Reached {share}% of time limit")


def next_mark(job: Job) -> tuple[int, int] | None:
    """(at_us, percent) of the next share of its time limit of which somebody is to be mailed."""
    limit_us = job.allowed_us or job.spec.time_limit_us
    if job.state is not S.RUNNING or job.started_us is None or limit_us is None or job.array is not None:
        return None
    asked = job.spec.mail_events.split(",")
    if job.array_task is not None and ARRAY_TASKS not in asked:
        return None
    for share in SHARES:
        if share > job.mailed_share and f"{LIMIT}_{share}" in asked:
            return job.started_us + job.stood_us + limit_us * share // 100, share
    return None


def _events(old: Job | None, job: Job, now_us: int) -> list[tuple[str, str]]:
    was = None if old is None else old.state
    found: list[tuple[str, str]] = []
    if _has_begun(job) and not (old is not None and _has_begun(old)):
        found.append((BEGIN, f"Began, Queued time {format_elapsed(now_us - job.submitted_us)}"))
    if job.state.final and was is not None and not was.final:
        found += _end(job)
    if job.state is S.PENDING and was not in (None, S.PENDING) and job.array is None:
        found.append((REQUEUE, "Requeued"))
    return found


def _end(job: Job) -> list[tuple[str, str]]:
    ran = ""
    if job.started_us is not None and job.ended_us is not None:
        ran = f", Run time {format_elapsed(max(0, job.ended_us - job.started_us))}"
    code = f", ExitCode {job.exit_code or 0}" if job.exit_code is not None else ""
    never = job.reason is not None and job.reason.code is ReasonCode.DEPENDENCY_NEVER
    if never and job.state is S.CANCELLED:  # of an array others may have failed
        return [(INVALID, f"Invalid dependency, {job.state}")]
    if job.state in _WELL:
        return [(END, f"Ended{ran}, {job.state}{code}")]
    limit = [(LIMIT, f"Reached time limit{ran}")] if job.state is S.TIMEOUT else []
    asked = job.spec.mail_events.split(",")
    return [*limit, (FAIL if FAIL in asked else END, f"Failed{ran}, {job.state}{code}")]


def _has_begun(job: Job) -> bool:
    if job.array is None:
        return job.state is S.RUNNING or (job.started_us is not None and job.state is not S.PENDING)
    array = job.array
    return bool(array.running or array.requeued or array.completed or array.failed or array.cancelled)


def mail_of(job: Job, said: str) -> Mail:
    """To whom the job names for its mails, its user without a name."""
    spec = job.spec
    name = job.ref if job.array is None else f"{job.id}_*"
    return Mail(
        job=job.id,
        attempt=job.attempt,
        host="",
        to=mailbox(spec.mail_user or spec.user),
        subject=f"Job_id={name} Name={spec.name} {said}",
        user=spec.user,
    )
