"""What of a job its owner alone may see, apart from operators."""

from __future__ import annotations

from dataclasses import replace

from rm.core.job import Job, JobState

HIDDEN = "Only the job's owner may read this."


def veiled(job: Job) -> Job:
    """The job as other users see it: without its paths, comment, story and the texts of its errors. Why it
    waits stays: that concerns everybody in the queue."""
    spec = replace(
        job.spec, chdir="", output="", error="", deliver="", comment="", submit_host="", script="",
        script_args=(), env=(),
    )  # fmt: skip
    reason = job.reason
    if reason is not None and (job.state is not JobState.PENDING or job.launch_failures):
        reason = replace(reason, message=HIDDEN, numbers=())
    tasks = tuple(replace(task, note="") if task.note else task for task in job.tasks)
    return replace(job, spec=spec, reason=reason, tasks=tasks, history=())
