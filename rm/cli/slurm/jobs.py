"""Jobs as Slurm's commands list them: from the daemon, and their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rm.api.job_rows import JobRow, row_of
from rm.arrays import JobId, mask, text_of
from rm.cli.shown import ends_by_us
from rm.client.address import find_daemon
from rm.client.kept_ssh import at_hand
from rm.client.listing import rows_at_once
from rm.units import fold_hosts

if TYPE_CHECKING:
    from rm.api.jobs import Job

NONE = "(null)"
STATES = (
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "CANCELLED", "FAILED",
    "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
)  # fmt: skip
SHORT = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING",
    "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL",
    "PR": "PREEMPTED", "OOM": "OUT_OF_MEMORY",
}  # fmt: skip
ENDED = STATES[STATES.index("COMPLETED") :]
# Slurm's states that no job of rm is ever in
NEVER = ("BOOT_FAIL", "DEADLINE", "REQUEUED", "RESIZING", "REVOKED", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED")


def rows(**selection: Any) -> list[JobRow]:
    """The jobs as rows, by ascending id. `selection`: keywords of `rm.client.Client.rows`."""
    address = find_daemon(None, None)
    asked = {"all" if name == "ended" else name: value for name, value in selection.items()}
    path = at_hand(address)
    found = rows_at_once(path, asked) if path else None
    if found is None:
        from rm.client import Client

        with Client() as client:
            found = client.rows(**selection)
    return [_of_rest(row) for row in found]


def _of_rest(row: JobRow) -> JobRow:
    """An array stands for its elements without jobs: none of them waits any more, so they were cancelled."""
    if not row.array_rest or row.state == "PENDING":
        return row
    return row._replace(state="CANCELLED", short_state="CA", started_us=None)


def rest_of(job: Job) -> Job:
    """The same of a whole job."""
    if job.array is None or job.array.waiting or not job.array.dropped:
        return job
    from msgspec.structs import replace

    return replace(job, state="CANCELLED", short_state="CA", started_us=None, exit=None, reason=None)


def tasks_of(job: JobRow, ids: Sequence[JobId]) -> str | None:
    """What of a listed job is meant by `ids`, which are all jobs where there are none: "" the job, or of an
    array that is listed those elements that have no jobs of their own; None: nothing."""
    rest = job.array_rest or ""
    array = job.array_job or job.id
    if not ids or any(not one.tasks and one.job in (job.id, array) for one in ids):
        return rest
    mine = mask(rest) if rest else 0 if job.array_task is None else 1 << job.array_task
    chosen = 0
    for one in ids:
        if one.job == array and one.tasks:
            chosen |= mask(one.tasks) & mine
    if not chosen:
        return None
    return text_of(chosen) if rest else ""


class Whole:
    """A whole job that has the fields of its row, too: what needs no more than a row takes either."""

    def __init__(self, job: Any, row: JobRow) -> None:
        self.job, self.row = job, row

    def with_row(self, row: JobRow) -> Whole:
        return Whole(self.job, row)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)


def whole(**selection: Any) -> list[Any]:
    from rm.client import Client

    def row(job: Any) -> JobRow:
        reason = job.reason.code if job.reason is not None else ""
        return _of_rest(row_of(job, job.state, job.short_state, job.hosts, reason, job.partition or ""))

    with Client() as client:
        return [Whole(job, row(job)) for job in client.jobs(**selection)]


def clock(us: int) -> str:
    """`HH:MM:SS`, `D-HH:MM:SS`, as reports write a time."""
    days, rest = divmod(max(0, us) // 1_000_000, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def clock_limit(us: int | None) -> str:
    return "UNLIMITED" if us is None else clock(us)


def hosts_of(job: JobRow) -> str:
    return fold_hosts(job.hosts) if job.hosts else ""


def size(size_bytes: int) -> str:
    """Megabytes as Slurm writes them: `100M`, `16G`, `1.50G`."""
    value, unit = size_bytes / (1 << 20), "M"
    for larger in "GTP":
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if not size_bytes:
        return "0"
    return f"{value:.0f}{unit}" if value == int(value) else f"{value:.2f}{unit}"


def spec_of(whole: Any) -> Any:
    """What the user asked for."""
    return whole.job.spec


def oversubscribed(spec: Any) -> str:
    """Who may be beside a job on its hosts, as OverSubscribe says it."""
    return "NO" if spec.exclusive else "USER" if spec.exclusive_user else "OK"


def output_path(pattern: str, job: Job) -> str:
    """The file of a job's output, where its name is known without the host."""
    if not pattern:
        return NONE
    array = job.array_job or job.id
    known = {"%j": job.id, "%A": array, "%a": job.array_task, "%x": job.spec.name, "%u": job.spec.user}
    for letter, value in known.items():
        if value is not None:
            pattern = pattern.replace(letter, str(value))
    return pattern if pattern.startswith("/") else f"{job.spec.chdir}/{pattern}"


def dictionary(job: JobRow) -> Mapping[str, Any]:
    """The fields of Slurm's JSON that rm knows."""
    limit_us = job.time_limit_us

    def second(us: int | None) -> int:
        return 0 if us is None else us // 1_000_000

    return {
        "job_id": job.id,
        "name": job.name,
        "user_name": job.user,
        "partition": job.partition,
        "job_state": job.state,
        "state_reason": job.reason or "None",
        "array_job_id": job.array_job or (job.id if job.array_rest is not None else 0),
        "array_task_id": job.array_task,
        "array_task_string": job.array_rest or "",
        "array_max_tasks": job.array_limit,
        "submit_time": second(job.submitted_us),
        "start_time": second(job.started_us),
        "end_time": second(ends_by_us(job, limit_us)),
        "time_limit": None if limit_us is None else -(-limit_us // 60_000_000),
        "nodes": hosts_of(job),
        "node_count": len(job.hosts) or job.hosts_min,
        "cpus": job.cpus,
        "tasks": job.tasks,
        "priority": job.priority,
        "current_working_directory": job.chdir,
        "comment": job.comment,
    }


class Expecting:
    """A job that waits, with when and where it is expected to start."""

    def __init__(self, row: Any, at_us: int | None, hosts: Sequence[str]) -> None:
        self.row, self.started_us, self.sched_hosts = row, at_us, hosts

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)


def expecting(rows: Sequence[Any]) -> list[Any]:
    from rm.client import Client

    with Client() as client:
        found = {one.job: (one.at_us, one.hosts) for one in client.starts().starts}
    return [Expecting(row, *found.get(row.id, (None, ()))) for row in rows]
