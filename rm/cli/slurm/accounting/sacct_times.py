"""Of which time `sacct` lists jobs, and in which state they were then.

Source: sacct(1) of Slurm 22.05, "DEFAULT TIME WINDOW", and _state_time_string in as_mysql_jobacct_process.c.
"""

from __future__ import annotations

from rm.cli.slurm.jobs import ENDED
from rm.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from rm.api.jobs import Job
    from rm.cli.slurm.words import Given

ENDLESS_US = 1 << 62


def times(given: Given, named: bool) -> tuple[int, int]:
    """From when to when, in microseconds. Of jobs without ids: since midnight, or with states at this moment,
    and with states and a start at the start alone. Without an end there is none: the daemon's clock may be
    ahead.

    Raises:
        UsageError: a time cannot be read, or the start is after the end.
    """
    from datetime import datetime

    from rm.submission.begin import past_moment

    now = datetime.now()
    start, end = given.options.get("starttime"), given.options.get("endtime")
    states = bool(given.words("state"))
    until = past_moment(end, now) if end else None
    if start:
        since = past_moment(start, now)
        until = since if states and not end else until
    elif named:
        since = until if states and until else datetime.fromtimestamp(0)
    else:
        since = (until or now) if states else now.replace(hour=0, minute=0, second=0, microsecond=0)
    first, last = since.astimezone(), (until or now).astimezone()
    if first > last:
        raise UsageError(
            f"Start time ({first:%Y-%m-%dT%H:%M:%S}) requested is after end time ({last:%Y-%m-%dT%H:%M:%S})."
        )
    return round(first.timestamp() * 1_000_000), round(last.timestamp() * 1_000_000) if until else ENDLESS_US


def within(states: Set[str], since_us: int, until_us: int) -> Callable[[Job], bool]:
    """Whether a job was there at that time, and if there are states whether it was in one of them then."""

    def overlaps(from_us: int | None, to_us: int | None) -> bool:
        return (
            from_us is not None
            and from_us <= until_us
            and (ENDLESS_US if to_us is None else to_us) >= since_us
        )

    def was_in(job: Job, state: str) -> bool:
        if state in ENDED:
            return job.state == state and since_us <= (job.ended_us or 0) <= until_us
        if state == "PENDING":
            return overlaps(job.submitted_us, job.ended_us if job.started_us is None else job.started_us)
        if state == "RUNNING":
            return overlaps(job.started_us, job.ended_us)
        return job.state == state and overlaps(job.submitted_us, None)

    if states:
        return lambda job: any(was_in(job, state) for state in states)
    return lambda job: overlaps(job.submitted_us, job.ended_us)
