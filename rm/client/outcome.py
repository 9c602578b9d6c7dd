"""How a job has ended, in one number."""

from __future__ import annotations

from rm.api.jobs import Job


def exit_code(job: Job) -> int:
    """The job's code as a shell would say it: its own, or 128 + signal; never 0 unless COMPLETED."""
    code = 128 + job.exit_signal if job.exit_signal else job.exit_code or 0
    return code if code or job.state == "COMPLETED" else 1
