"""Why a job that is held, or waits for another or its time, may not be tried now, and what lets it go on."""

from __future__ import annotations

from rm.core.jobs.handlers.dependency import why_not
from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode
from rm.shown_ids import shown_id

BY_ADMIN = Reason(ReasonCode.HELD_ADMIN, "held by an administrator, and released by one")


def why_held(job: Job) -> Reason:
    """Of one that is."""
    if job.admin_held and not job.unsure:
        return BY_ADMIN
    if job.unsure:
        said = "it may have run since the backup was made that was restored"
        if job.admin_held:
            return Reason(ReasonCode.HELD_ADMIN, f"{BY_ADMIN.message}; {said}")
        either = f"when it shall run, rmx release {_called(job)}, else rmx cancel {_called(job)}"
        return Reason(ReasonCode.HELD_USER, f"held: {said}; {either}")
    if job.losses > 1:
        lost = f"its hosts were lost {job.losses} times in a row"
        return Reason(
            ReasonCode.HOST_LOST,
            f"held: {lost}; when that was not its doing, rmx release {_called(job)}",
            (("losses", job.losses),),
        )
    often = f" after {job.requeues} requeues" if job.requeues else ""
    release = f"rmx release {_called(job)}" if job.id else "rmx release"  # it is not submitted yet
    return Reason(ReasonCode.HELD_USER, f"held{often}; release it with {release}")


def _called(job: Job) -> str:
    return shown_id(job.id, job.array_job, job.array_task)


def not_yet(job: Job, now_us: int) -> Reason | None:
    """Why a job may not be tried now, even if everything is free."""
    if job.held:
        return why_held(job)
    if job.dependencies and (waits_for := why_not(job, now_us)) is not None:
        return waits_for
    if job.array is not None and not job.ready:
        if job.array.kept and job.array.kept == job.array.has("held"):
            return BY_ADMIN
        said = f"those elements that do not wait for others are held; release them with rmx release {job.id}"
        return Reason(ReasonCode.HELD_USER, said)
    if now_us < job.begin_us:
        wait_s = (job.begin_us - now_us) / 1e6
        waits = f"may not begin for another {wait_s:.0f} s"
        if job.reason is not None and job.begin_us == job.not_before_us:
            waits += f": {job.reason.message}"
        return Reason(ReasonCode.BEGIN_TIME, waits, (("wait_s", round(wait_s)),))
    return None
