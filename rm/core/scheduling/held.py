"""Why a job that is held waits, and what lets it go on."""

from __future__ import annotations

from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode

BY_ADMIN = Reason(ReasonCode.HELD_ADMIN, "held by an administrator, and released by one")


def why_held(job: Job) -> Reason:
    """Of one that is."""
    if job.admin_held and not job.unsure:
        return BY_ADMIN
    if job.unsure:
        said = "it may have run since the backup was made that was restored"
        if job.admin_held:
            return Reason(ReasonCode.HELD_ADMIN, f"{BY_ADMIN.message}; {said}")
        either = f"when it shall run, rmx release {job.id}, else rmx cancel {job.id}"
        return Reason(ReasonCode.HELD_USER, f"held: {said}; {either}")
    if job.losses > 1:
        lost = f"its hosts were lost {job.losses} times in a row"
        return Reason(
            ReasonCode.HOST_LOST,
            f"held: {lost}; when that was not its doing, rmx release {job.id}",
            (("losses", job.losses),),
        )
    often = f" after {job.requeues} requeues" if job.requeues else ""
    release = f"rmx release {job.id}" if job.id else "rmx release"  # it is not submitted yet
    return Reason(ReasonCode.HELD_USER, f"held{often}; release it with {release}")
