"""Jobs, as they are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from rm.api.answer import Answer, Number
from rm.api.job_rows import JobRow
from rm.api.reasons import Reason, Schedule
from rm.arrays import mask

State = Literal[
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED",
    "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
]  # fmt: skip


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
    reservation: str = ""
    account: str = ""
    qos: str = ""
    hosts_only: Sequence[str]
    hosts_excluded: Sequence[str]
    exclusive: bool
    exclusive_user: bool = False
    switches: int = 0
    switches_wait_us: int = 300_000_000
    low_comm: bool
    traffic: Traffic | None
    submit_host: str
    script_path: str = ""
    comment: str
    mail_events: str = ""
    mail_user: str = ""
    container_image: str = ""
    container_mounts: str = ""
    container_workdir: str = ""
    container_name: str = ""


class FullSpec(Spec, frozen=True, kw_only=True):
    """With what only the owner and administrators see: others do not get these fields."""

    script: str | UnsetType = UNSET
    script_args: Sequence[str] | UnsetType = UNSET
    submit_line: str | UnsetType = UNSET
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


class NetworkUsed(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of IP packets that passed an interface of the host (`lo`: that did not leave it)."""

    interface: str
    received_bytes: int
    sent_bytes: int


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: time of processors in programs and in the kernel, the most memory at once without
    file caches and with them (0: not known), bytes of disks. Of GPUs: the time that was watched, added up
    over them, how much of it they were busy, the most memory of one, and what they drew, in millijoules. Of
    all tasks on the host together: `network`, by interface."""

    user_us: int = 0
    system_us: int = 0
    mem_bytes: int = 0
    peak_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    gpu_us: int = 0
    gpu_busy_us: int = 0
    gpu_mem_bytes: int = 0
    energy_mj: int = 0
    network: Sequence[NetworkUsed] = ()


class HostUsed(msgspec.Struct, frozen=True, kw_only=True):
    """By one task, or (`rank` -1) by all that the attempt ran on the host. A task that is alone on its host
    has no line of its own."""

    host: str
    rank: int
    used: Used


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
    elements: they are in `undecided`, `met` or `lost`. `array`: that job is a job array."""

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
    array: bool = False


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the elements of a job array: sets of indices, such as `3-9,12`. `waiting` and
    `dropped` (cancelled before they started) have no job of their own; `held` are among `waiting`, and
    `admin_held` by an administrator. At most `limit` run at once; 0: any number."""

    waiting: str
    held: str
    requeued: str
    running: str
    completed: str
    failed: str
    cancelled: str
    dropped: str
    limit: int
    admin_held: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the attempt so far, and what it needs yet if nothing disturbs it."""

    served_us: int
    remaining_us: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`reason`: why it waits, or how it ended; `exit`: Slurm's `code:signal`, null while it runs;
    `losses`: attempts in a row that a lost host ended soon after their start, and `not_before_us` when the
    next one may start; `requeues`: how often it was requeued by request since it was submitted or released;
    `suspended_us`: since when it stands still, and `stood_us` for how long it did before; `yields_to`: the
    jobs that have its processors meanwhile, after which it goes on by itself;
    `mailed_share`: the last percentage of its time limit that somebody was mailed of;
    `allowed_us`: the time limit of this attempt, where the deadline leaves less than it asks for; `updates`:
    how often what it asks for was changed since it was submitted; `restarts`: how often it was started
    before; `preempted_by`: the job to which its last attempt gave its hosts up, 0 for none;
    `account` and `qos`: what it runs for and in, also where it names none;
    `dependencies`: the conditions of its list, each with its standing; `progress`: there when its iterations
    show it; `waited`: the time in microseconds from its submission, or the end of its last attempt, until it
    had hosts, as (code of the reason, time), "None" where no reason was known; in the answer for one job that
    waits, until now; `used`: by this attempt, as its hosts tell when its tasks have ended; `slowed`: the time
    in microseconds that it lost to others on its links, as (job, time), 0 for jobs without a name;
    `saved_us`: what interleaving saved it, as estimated; `partition`: there when it asks for several, and has
    hosts: the one that it runs or ran in."""

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
    yields_to: Sequence[int] = ()
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
    account: str = ""
    qos: str = ""
    dependencies: Sequence[Dependency] = ()
    array: Array | None = None
    array_job: int = 0
    array_task: int | None = None
    updates: int = 0
    restarts: int = 0
    preempted_by: int = 0
    used: Sequence[HostUsed] = ()
    waited: Sequence[tuple[str, int]] = ()
    slowed: Sequence[tuple[int, int]] = ()
    saved_us: int = 0
    short_state: str
    exit: str | None
    hosts: Sequence[str]
    progress: Progress | UnsetType = UNSET
    partition: str | UnsetType = UNSET

    def was_cancelled(self, tasks: str) -> bool:
        """Of an array: were some of these elements, "" = of all? Others may have ended before."""
        if self.array is None:
            return self.state == "CANCELLED"
        gone = mask(self.array.cancelled) | mask(self.array.dropped)
        return bool(gone & mask(tasks) if tasks else gone)


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
