"""Jobs: what is submitted, and what is answered of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rm.api.answer import NUMBER_MAX, Answer, Count, Number, Request, Time
from rm.api.job_rows import JobRow
from rm.api.reasons import Reason, Schedule

SignalTo = Literal["steps", "script", "all"]
State = Literal[
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED",
    "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
]  # fmt: skip
Positive = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
# patterns are Unicode's and of the whole value, as ECMA-262 has them
NO_NUL = r"^[^\u0000]*$"
Word = Annotated[str, Meta(pattern=r"^[^\u0000\n\r/]+$")]


class PhaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One communication phase; `offset_us` counts from the beginning of the iteration."""

    offset_us: Count
    duration_us: Positive
    rate_bps: Positive


class TrafficRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one iteration puts on the job's links; the phases lie within the period."""

    period_us: Positive
    phases: Sequence[PhaseRequest]


class JobRequest(Request, frozen=True, kw_only=True):
    """A job to submit. Resources are per task, or those `_per_host` once for each host, however many tasks
    are there; `hosts_min` and `hosts_max` 0 are as many as needed. With `mem_all` it has all memory of its
    hosts. A task sees its own GPUs of `gpus_per_task`, with `gpu_bind` none all of the job's on its host,
    as of `gpus_per_host`; with `ntasks_per_gpu` one of these. `partition` may be several, with commas.

    With `fence_us` its hosts end it when they have not heard the daemon for this time (0: never), before it
    is started elsewhere.

    With `warn_signal`, the number of a signal, its processes get it `warn_before_us` before the time limit;
    with `warn_batch` only the first process of each task.

    `dependency` is a list as --dependency has it: `afterok:12:13,after:7+5`; `kill_on_invalid_dep`: whether
    the job is cancelled when that can never be fulfilled (null: as rm.toml says).

    `mail_events` is a list as --mail-type has it, `mail_user` who is mailed: "" is its user.

    With `deadline_us` it is ended then, and cancelled once that leaves it less than `time_min_us`, or than
    its time limit.

    `array` makes it a job array, with a list of indices as --array has it: `0-99:2%8`.

    `constraint` and `prefer` name features of hosts, as --constraint has them; `licenses`
    are those of the cluster that it holds, as --licenses has them.

    With `container_image` the tasks run in that image; `container_mounts` is a list as --container-mounts has
    it, `container_workdir` where they begin there: "" is as the image says.

    What is left out has the defaults below; those of `launch`, `output`, `partition`, `time_limit_us` and
    `fence_us` stand in rm.toml. No `time_limit_us` is null, and no `output` file "". The user is the caller;
    an administrator may name another. `launch` is "tasks" (the script for each task), "batch" (once), or
    "auto": decided when it is submitted.
    """

    name: Word
    script: Annotated[str, Meta(min_length=1, pattern=r"^[^\u0000]*[^\s\u0000][^\u0000]*$")]
    user: str = ""
    script_args: Sequence[Annotated[str, Meta(pattern=NO_NUL)]] = ()
    launch: Literal["auto", "tasks", "batch"] | UnsetType = UNSET
    hosts_min: Count = 0
    hosts_max: Count = 0
    ntasks: Positive = 1
    tasks_per_host: Count = 0
    cpus_per_task: Positive = 1
    distribution: Literal["block", "cyclic"] = "block"
    mem_bytes_per_task: Count = 0
    mem_bytes_per_host: Count = 0
    mem_all: bool = False
    gpus_per_task: Count = 0
    gpus_per_host: Count = 0
    gpu_bind: Literal["per_task", "none"] = "per_task"
    ntasks_per_gpu: Count = 0
    gpu_type: str = ""
    gpu_mem_bytes: Count = 0
    time_limit_us: Positive | UnsetType | None = UNSET
    expected_us: Positive | None = None
    iterations: Count = 0
    partition: str | UnsetType = UNSET
    priority: Time = 0
    nice: Count = 0
    begin_us: Time | None = None
    deadline_us: Positive | None = None
    time_min_us: Positive | None = None
    dependency: str = ""
    kill_on_invalid_dep: bool | None = None
    array: str = ""
    hold: bool = False
    requeue: bool = True
    warn_signal: Annotated[int, Meta(ge=0, le=64)] = 0
    warn_before_us: Count = 0
    warn_batch: bool = False
    fence_us: Count | None = None
    env: Sequence[tuple[str, str]] = ()
    chdir: Annotated[str, Meta(pattern=r"^(/[^\u0000]*)?$")] = ""
    chdir_required: bool = False
    output: str | UnsetType = UNSET
    error: str = ""
    input: str = ""
    open_mode: Literal["", "truncate", "append"] = ""
    zone: str = ""
    constraint: str = ""
    prefer: str = ""
    licenses: str = ""
    hosts_only: Sequence[str] = ()
    hosts_excluded: Sequence[str] = ()
    exclusive: bool = False
    low_comm: bool = False
    traffic: TrafficRequest | None = None
    submit_host: str = ""
    comment: str = ""
    mail_events: str = ""
    mail_user: str = ""
    container_image: str = ""
    container_mounts: str = ""
    container_workdir: str = ""


class Submit(Request, frozen=True, kw_only=True):
    """Either `spec`, one job, or `specs`, several, of which all are taken or none."""

    spec: JobRequest | UnsetType = UNSET
    specs: Annotated[Sequence[JobRequest], Meta(min_length=1)] | UnsetType = UNSET


class PlanRequest(Request, frozen=True, kw_only=True):
    spec: JobRequest


class ArrayLimit(Request, frozen=True, kw_only=True):
    """How many elements of the array may run at once; 0: any number."""

    limit: Annotated[int, Meta(ge=0, le=999_999_999)]


class JobUpdate(Request, frozen=True, kw_only=True):
    """Other values of fields of `JobRequest`; what is left out stays. No time limit is null, and no time of
    beginning as well. While a job runs only `name`, `comment`, `requeue`, `nice`, the mails and
    `time_limit_us` may change; an administrator may raise that limit, the user may lower it."""

    name: Word | UnsetType = UNSET
    comment: str | UnsetType = UNSET
    mail_events: str | UnsetType = UNSET
    mail_user: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    priority: Time | UnsetType = UNSET
    nice: Count | UnsetType = UNSET
    time_limit_us: Positive | UnsetType | None = UNSET
    begin_us: Time | UnsetType | None = UNSET
    deadline_us: Positive | UnsetType | None = UNSET
    time_min_us: Positive | UnsetType | None = UNSET
    requeue: bool | UnsetType = UNSET
    hosts_only: Sequence[str] | UnsetType = UNSET
    hosts_excluded: Sequence[str] | UnsetType = UNSET
    constraint: str | UnsetType = UNSET
    prefer: str | UnsetType = UNSET
    licenses: str | UnsetType = UNSET
    dependency: str | UnsetType = UNSET
    hosts_min: Count | UnsetType = UNSET
    hosts_max: Count | UnsetType = UNSET
    ntasks: Positive | UnsetType = UNSET
    tasks_per_host: Count | UnsetType = UNSET
    cpus_per_task: Positive | UnsetType = UNSET
    mem_bytes_per_task: Count | UnsetType = UNSET
    mem_bytes_per_host: Count | UnsetType = UNSET
    mem_all: bool | UnsetType = UNSET
    gpus_per_task: Count | UnsetType = UNSET
    gpus_per_host: Count | UnsetType = UNSET
    gpu_type: str | UnsetType = UNSET
    exclusive: bool | UnsetType = UNSET


class Submitted(Answer, frozen=True, kw_only=True):
    """`job` of `spec`, `jobs` of `specs`."""

    job: int | UnsetType = UNSET
    jobs: Sequence[int] | UnsetType = UNSET


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """One communication phase; `offset_us` counts from the beginning of the iteration."""

    offset_us: int
    duration_us: int
    rate_bps: int


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Declared, or measured while the job runs."""

    period_us: int
    phases: Sequence[Phase]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; `user` is the owner."""

    name: str
    user: str
    launch: str = "tasks"
    hosts_min: int
    hosts_max: int
    ntasks: int
    tasks_per_host: int
    cpus_per_task: int
    distribution: str
    mem_bytes_per_task: int
    mem_bytes_per_host: int
    mem_all: bool
    gpus_per_task: int
    gpus_per_host: int
    gpu_bind: str
    ntasks_per_gpu: int
    gpu_type: str
    gpu_mem_bytes: int
    time_limit_us: int | None
    expected_us: int | None
    iterations: int
    partition: str
    priority: int
    nice: int = 0
    begin_us: int | None
    deadline_us: int | None = None
    time_min_us: int | None = None
    dependency: str = ""
    kill_on_invalid_dep: bool | None = None
    array: str = ""
    hold: bool
    requeue: bool
    warn_signal: int = 0
    warn_before_us: int = 0
    warn_batch: bool = False
    fence_us: int | None
    chdir: str
    chdir_required: bool
    output: str
    error: str
    input: str = ""
    open_mode: str
    deliver: str
    zone: str
    constraint: str = ""
    prefer: str = ""
    licenses: str = ""
    hosts_only: Sequence[str]
    hosts_excluded: Sequence[str]
    exclusive: bool
    low_comm: bool
    traffic: Traffic | None
    submit_host: str
    comment: str
    mail_events: str = ""
    mail_user: str = ""
    container_image: str = ""
    container_mounts: str = ""
    container_workdir: str = ""


class FullSpec(Spec, frozen=True, kw_only=True):
    """With what only the owner and administrators see: others do not get these fields."""

    script: str | UnsetType = UNSET
    script_args: Sequence[str] | UnsetType = UNSET
    env: Mapping[str, str] | UnsetType = UNSET


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; exit code and signal are both null while it runs. `cores` are the processors of its host that
    the job has for itself there; none: it shares them."""

    rank: int
    host: str
    gpus: Sequence[int]
    prepared: bool
    started_us: int | None
    ended_us: int | None
    exit_code: int | None
    exit_signal: int | None
    note: str
    cores: Sequence[int] = ()


class EarlierAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One that a requeue followed; `started_us` is null when it never started."""

    attempt: int
    hosts: Sequence[str]
    started_us: int | None
    ended_us: int | None
    exit_code: int | None
    exit_signal: int | None
    why: str


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the list. `job` is 0 for `singleton`; `delay_us` counts from that job's start, and
    `from_us` is when it is over (0: it has none, or it is not known yet). `ended`: the state in which that
    job ended, once that decided; "" if nobody knows it any more. `tasks`: the elements of that job array that
    are named, such as `3-9,12`; "" = all. `aftercorr` of a job array is one condition for each of its
    elements: they are in `undecided`, `met` or `lost`."""

    kind: Literal["after", "afterany", "afterok", "afternotok", "singleton", "aftercorr"]
    job: int
    delay_us: int
    standing: Literal["unfulfilled", "fulfilled", "failed"]
    from_us: int
    ended: str
    tasks: str = ""
    undecided: str = ""
    met: str = ""
    lost: str = ""


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the elements of a job array: sets of indices, such as `3-9,12`. `waiting` and
    `dropped` (cancelled before they started) have no job of their own; `held` are among `waiting`. At most
    `limit` run at once; 0: any number."""

    waiting: str
    held: str
    requeued: str
    running: str
    completed: str
    failed: str
    cancelled: str
    dropped: str
    limit: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the attempt so far, and what it needs yet if nothing disturbs it."""

    served_us: int
    remaining_us: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`reason`: why it waits, or how it ended; `exit`: Slurm's `code:signal`, null while it runs;
    `losses`: attempts in a row that a lost host ended soon after their start, and `not_before_us` when the
    next one may start; `requeues`: how often it was requeued by request since it was submitted or released;
    `suspended_us`: since when it stands still, and `stood_us` for how long it did before;
    `mailed_share`: the last percentage of its time limit that somebody was mailed of;
    `allowed_us`: the time limit of this attempt, where the deadline leaves less than it asks for; `updates`:
    how often what it asks for was changed since it was submitted; `restarts`: how often it was started
    before; `dependencies`: the conditions of its list, each with its standing; `progress`: there when its
    iterations show it; `partition`: there when it asks for several, and has hosts: the one that it runs or
    ran in."""

    id: int
    spec: Spec
    submitted_us: int
    state: State
    held: bool
    attempt: int
    tasks: Sequence[Task]
    go: bool
    allowed_us: int | None = None
    mailed_share: int = 0
    suspended_us: int | None = None
    stood_us: int = 0
    started_us: int | None
    ended_us: int | None
    exit_code: int | None
    exit_signal: int | None
    reason: Reason | None
    traffic: Traffic | None
    cooperative: bool
    ending: State | None
    launch_failures: int
    losses: int
    requeues: int = 0
    not_before_us: int
    served_us: int
    avoid: Sequence[str]
    history: Sequence[tuple[int, str]]
    earlier: Sequence[EarlierAttempt]
    dependencies: Sequence[Dependency] = ()
    array: Array | None = None
    array_job: int = 0
    array_task: int | None = None
    updates: int = 0
    restarts: int = 0
    short_state: str
    exit: str | None
    hosts: Sequence[str]
    progress: Progress | UnsetType = UNSET
    partition: str | UnsetType = UNSET


class FullJob(Job, frozen=True, kw_only=True):
    """`schedule`: there when the job is aligned."""

    spec: FullSpec
    schedule: Schedule | UnsetType = UNSET


class OneJob(Answer, frozen=True, kw_only=True):
    job: Job


class WholeJob(Answer, frozen=True, kw_only=True):
    job: FullJob


class Jobs(Answer, frozen=True, kw_only=True):
    """Some jobs; `more`: there are older ones; get them with `before` = the first job's id."""

    jobs: Sequence[Job]
    more: bool = False


class JobRows(Answer, frozen=True, kw_only=True):
    """Some jobs, each as a list of the values of `columns`; `more` as in `Jobs`."""

    columns: Sequence[str]
    rows: Sequence[JobRow]
    more: bool = False


class NotCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Another user's job."""

    job: int
    message: str


class Cancelled(Answer, frozen=True, kw_only=True):
    """The matching jobs that had not ended, as they are now; `refused`: other users' jobs."""

    jobs: Sequence[Job]
    refused: Sequence[NotCancelled]


class Waited(Answer, frozen=True, kw_only=True):
    """The job as it is; `final`: whether it has ended."""

    job: Job
    final: bool


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration of the job begins at epoch + shift + n·period."""

    epoch_us: int
    shift_us: int
    period_us: int


class Iterations(Answer, frozen=True, kw_only=True):
    """An item is [start, duration, time paused, time of communication or null], in microseconds; the last
    1,000 are kept."""

    baseline_us: Number | None
    mean_us: Number | None
    p90_us: Number | None
    p99_us: Number | None
    count: int
    pauses: int
    items: Sequence[tuple[int, int, int, int | None]]
    slot: Slot | None = None
