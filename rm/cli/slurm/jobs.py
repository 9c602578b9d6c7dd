"""Jobs as Slurm's commands list them: from the daemon, and their texts."""

from __future__ import annotations

import os
import time

from rm.api.job_rows import HELD, HELD_BY_ADMIN, JobRow, row_of
from rm.cli.output import note
from rm.cli.shown import moment as usual_moment
from rm.cli.slurm.asking import Asking
from rm.client.address import find_daemon
from rm.client.kept_ssh import at_hand
from rm.client.listing import rows_at_once
from rm.client.told import Told
from rm.file_patterns import replaced, values_of
from rm.units import fold_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rm.api.jobs import Job

NONE = "(null)"
STATES = (
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "CANCELLED", "FAILED",
    "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
)  # fmt: skip
UNFINISHED = STATES[:5]
SHORT = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING",
    "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL",
    "PR": "PREEMPTED", "OOM": "OUT_OF_MEMORY",
}  # fmt: skip
ENDED = STATES[STATES.index("COMPLETED") :]
# Slurm's states that no job of rm is ever in
NEVER = frozenset((
    "BOOT_FAIL", "DEADLINE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
    "REVOKED", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
    "BF", "DL", "RQ", "RF", "RH", "RS", "RD", "RV", "SI", "SE", "SO", "ST",
))  # fmt: skip
DROPPED_REST = {"state": "CANCELLED", "short_state": "CA", "started_us": None, "exit": None, "reason": None}


def rows(**selection: Any) -> list[JobRow]:
    """The jobs as rows, by ascending id. `selection`: keywords of `rm.client.Client.rows`."""
    address = find_daemon(None, None)
    asked = {"all" if name == "ended" else name: value for name, value in selection.items()}
    path = at_hand(address)
    found = rows_at_once(path, asked) if path else None
    if found is None:
        from rm.client import Client

        with Client(on_wait=note) as client:
            found = client.rows(**selection)
    return [line for row in found for line in _lines(row)]


def _lines(row: JobRow) -> Sequence[JobRow]:
    """Also of an array of which nothing is left: its id is known by it."""
    return (row,) if row.array_rest is None else row.lines() or (row,)


def rest_of(job: Job) -> Job:
    """An array stands for its elements without jobs: where none of them waits any more, they were cancelled:
    its own state tells of its other elements."""
    if job.array is None or job.array.waiting or not job.array.dropped:
        return job
    return _with(job, DROPPED_REST)


def _of_line(job: Job, line: JobRow) -> Job:
    """An array as one of its lines stands for it."""
    if line.array_rest and line.state == "CANCELLED":
        return _with(job, DROPPED_REST)
    held = job.array is not None and line.reason in (HELD, HELD_BY_ADMIN)
    return _with(job, {"held": True}) if held else job


def _with(job: Job, changes: Mapping[str, Any]) -> Job:
    if isinstance(job, Told):
        made: Any = Told({**job, **changes})
        return made  # type: ignore[no-any-return]
    from msgspec.structs import replace

    return replace(job, **changes)


class Whole:
    """A whole job that has the fields of its row, too: what needs no more than a row takes either. `rank` and
    `expect` put something else in the place of some."""

    priority: int
    started_us: int | None
    sched_hosts: Sequence[str]

    def __init__(self, job: Any, row: JobRow) -> None:
        self.job, self.row = job, row

    def with_row(self, row: JobRow) -> Whole:
        return Whole(self.job, row)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)


def whole(**selection: Any) -> list[Any]:
    from rm.client import Client

    def lines(job: Any) -> Sequence[JobRow]:
        reason = job.reason.code if job.reason is not None else ""
        return _lines(row_of(job, job.state, job.short_state, job.hosts, reason, job.partition or ""))

    with Client(on_wait=note) as client:
        return [Whole(_of_line(job, line), line) for job in client.jobs(**selection) for line in lines(job)]


def eligible_us(job: Any) -> int | None:
    """Since when it may start; None: nobody knows when, since it is held or waits for a job."""
    if job.state == "PENDING" and (job.held or dependency_of(job) != NONE) and not begins_us(job):
        return None
    since_us: int = max(job.submitted_us, job.spec.begin_us or 0)
    return since_us


def moment(us: int | None, never: str = "N/A") -> str:
    """As `rm.cli.shown.moment`, or as SLURM_TIME_FORMAT asks. Source: squeue(1), sacct(1) of Slurm 22.05."""
    form = os.environ.get("SLURM_TIME_FORMAT", "")
    if us is None or form in ("", "standard"):
        return usual_moment(us, never)
    then = time.localtime(us // 1_000_000)
    if form != "relative":
        return time.strftime(form, then)
    from datetime import date

    now = time.localtime()
    if (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday):
        return time.strftime("%H:%M:%S", then)
    days = (date(*then[:3]) - date(*now[:3])).days
    near = {-1: "Ystday", 1: "Tomorr"}.get(days)
    if near:
        return time.strftime(f"{near} %H:%M", then)
    if abs(days) < 7:
        return time.strftime("%a %H:%M", then)
    return time.strftime("%-d %b %H:%M" if then.tm_year == now.tm_year else "%-d %b %Y", then)


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
    """Megabytes as Slurm writes them: `100M`, `3999M`, `16G`, `1.50G`. Parts of one count as a whole one.

    Source: convert_num_unit2 of Slurm 22.05 with CONVERT_NUM_UNIT_EXACT.
    """
    value, unit = float(-(-size_bytes // (1 << 20))), "M"
    for larger in "GTP":
        if value < 1024 or int(value) % 512:
            break
        value, unit = value / 1024, larger
    if not size_bytes:
        return "0"
    return f"{value:.0f}{unit}" if value == int(value) else f"{value:.2f}{unit}"


def mem_bytes_of(spec: Any, hosts: int) -> int:
    """The memory that a job has, or asks for, on this number of hosts in all."""
    held: int = spec.mem_bytes_per_host * hosts or spec.mem_bytes_per_task * spec.ntasks
    return held


def gpus_of(spec: Any, hosts: int) -> int:
    """The GPUs that a job has, or asks for, on this number of hosts in all."""
    held: int = spec.gpus_per_task * spec.ntasks + spec.gpus_per_host * hosts
    return held


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
    spec = job.spec
    pattern = replaced(pattern, values_of(job.id, job.array_job, job.array_task, spec.name, spec.user))
    return pattern if pattern.startswith("/") else f"{job.spec.chdir}/{pattern}"


def begins_us(job: Any) -> int | None:
    """Of one that waits for its `--begin`, which Slurm tells as its start. None: it waits for no time."""
    begin_us: int | None = job.spec.begin_us
    waits = job.state == "PENDING" and begin_us is not None and begin_us > time.time_ns() // 1000
    return begin_us if waits else None


def command_of(spec: Any) -> str:
    """The script's file, and its arguments where they are told, without their quotes. Source: scontrol(1)."""
    if not spec.script_path:
        return NONE
    arguments = getattr(spec, "script_args", ())
    return " ".join(
        (spec.script_path, *arguments) if isinstance(arguments, (list, tuple)) else (spec.script_path,)
    )


def dependency_of(job: Job) -> str:
    """The conditions for which a job still waits, each with its standing. Source: squeue(1), "%E"."""
    if job.state != "PENDING":
        return NONE
    said = []
    for one in job.dependencies:
        if one.standing != "fulfilled":
            whole = "_*" if one.array else ""
            tasks = f"_{one.tasks}" if one.tasks.isdigit() else f"_[{one.tasks}]" if one.tasks else whole
            delay = f"+{one.delay_us // 60_000_000}" if one.delay_us else ""
            said.append(f"{one.kind}{f':{one.job}{tasks}{delay}' if one.job else ''}({one.standing})")
    return ("?" if "?" in job.spec.dependency else ",").join(said) or NONE


def gpus_on(job: Job) -> list[tuple[str, str]]:
    """Each host of a job that has GPUs, and these as Slurm writes them: `gpu:a100:2(IDX:0-1)`."""
    from rm.arrays import text_of

    found: dict[str, set[int]] = {}
    for task in job.tasks:
        found.setdefault(task.host, set()).update(task.gpus)
    kind = f"{job.spec.gpu_type}:" if job.spec.gpu_type else ""
    return [
        (host, f"gpu:{kind}{len(gpus)}(IDX:{text_of(sum(1 << gpu for gpu in gpus))})")
        for host, gpus in found.items()
        if gpus
    ]


def priority_of(job: Any, sums: Mapping[int, float]) -> int:
    """`sums` are of jobs that wait or run, where the queue policy adds factors up; else the job's own counts.
    A held job has none."""
    if job.state == "PENDING" and job.held:
        return 0
    own: int = job.spec.priority - job.spec.nice
    return round(sums.get(job.id, own))


def priority_sums(client: Asking) -> dict[int, float]:
    return {one.job: one.sum for one in client.priorities()}


def rank(jobs: Sequence[Whole]) -> None:
    """Give them the priority that they are ordered by, as `sprio` shows it."""
    with Asking() as client:
        sums = priority_sums(client)
    for one in jobs:
        one.priority = priority_of(one.job, sums)


def expect(jobs: Sequence[Whole]) -> None:
    """Say when and where those that wait are expected to start."""
    with Asking() as client:
        found = {one.job: (one.at_us, one.hosts) for one in client.starts().starts}
    for one in jobs:
        one.started_us, one.sched_hosts = found.get(one.id, (None, ()))
