"""Operations on attempts of jobs: launching, starting, stopping, their logs and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from rm.protocol.request import Done, OfAttempt, Ordered, Request
from rm.protocol.scalars import (
    LIST_MAX,
    AliveUs,
    Attempt,
    AtUs,
    Bps,
    Bytes,
    DurationUs,
    Epoch,
    ExitCode,
    Job,
    Path,
    Pid,
    Rank,
    Seconds,
    Sentence,
    Signal,
    SignedUs,
    Text,
    Word,
)
from rm.protocol.used import Used

LOG_CHUNK_BYTES = 2 << 20  # no answer to `Logs` holds more
Stream = Literal["out", "err"]
SignalTo = Literal["steps", "script", "all"]
Limit = Annotated[int, Meta(ge=-1, lt=1 << 62)]
UserId = Annotated[int, Meta(ge=0, lt=1 << 32)]


class TaskState(StrEnum):
    LAUNCHING = "launching"
    PREPARED = "prepared"  # launched with `hold`, and waits for its start
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"  # its supervisor is gone, and how it ended is unknown


class Task(Struct, frozen=True, kw_only=True):
    """One rank of a launch. `output` and `error` go before those of the request; without `input` it reads
    nothing."""

    rank: Rank
    gpus: Annotated[list[Word], Meta(max_length=1_024)]  # UUIDs, or indices where there are none
    env: dict[str, str]
    output: Path | UnsetType = UNSET
    error: Path | UnsetType = UNSET
    input: Path | UnsetType = UNSET


class Fence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of the attempt: `[fence]` in rm.toml explains each field. `limits` are
    (item of limits.conf, soft, hard), -1 for unlimited."""

    gpus: bool = True
    cpus: Literal["weight", "limit", "cores", "off"] = "weight"
    processes: Annotated[int, Meta(ge=0, lt=1 << 22)] = 65_536
    private_tmp: Path = ""
    private_ipc: bool = True
    login_limits: bool = True
    limits: Annotated[list[tuple[Word, Limit, Limit]], Meta(max_length=64)] = []
    no_new_privs: bool = False
    seccomp: bool = False
    unenforced: Literal["tell", "refuse"] = "tell"


class Container(Struct, frozen=True, kw_only=True):
    """The tasks run in `image`: a name of a registry, or a path on the host. `mounts` are (path on the host,
    path in the container, flags joined by +); `workdir` is where they begin, "" as the image says. With a
    `name` the tasks on the host share its files, and steps of the job find them."""

    image: Path
    mounts: Annotated[list[tuple[Path, Path, Word]], Meta(max_length=64)] = []
    workdir: Path = ""
    name: Word = ""


class TaskStart(Struct, frozen=True, kw_only=True):
    """How one rank was started; `started_us` by the host's clock, null for one that was not."""

    rank: Rank
    state: TaskState = TaskState.RUNNING
    pid: Pid = 0
    started_us: AtUs | None = None


class AllocatedHost(Struct, frozen=True, kw_only=True):
    """What the attempt has on one of its hosts: how many tasks it asked for there, processors and GPUs."""

    host: Word
    address: Word = ""
    tasks: Annotated[int, Meta(ge=1, le=1 << 20)]
    cpus: Annotated[int, Meta(ge=0, le=1 << 20)]
    gpus: Annotated[int, Meta(ge=0, le=1_024)] = 0


class Launched(Struct, frozen=True, kw_only=True):
    """`note` says when another working directory had to be used, and what the host cannot limit.
    `master_port` is the one that was chosen, 0 when none was asked for; `cores` are the processors that the
    attempt has for itself here, none where it shares them."""

    tasks: Annotated[list[TaskStart], Meta(max_length=LIST_MAX)]
    cgroup: Path = ""
    chdir: Path = ""
    note: Sentence = ""
    master_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    cores: Annotated[list[Annotated[int, Meta(ge=0, le=65_535)]], Meta(max_length=65_536)] = []


class Launch(Ordered[Launched], frozen=True, kw_only=True, tag="launch"):
    """Start the tasks as `user`; with `hold` only prepare them. Each task runs `script`, or in its place
    rank 0 alone runs `batch` and the others hold what they were given, for the steps of the job: they end
    with rank 0, or when they are stopped. Steps are laid out over the `allocation`, the hosts of the attempt
    in the order of their ranks; this one has the `place` in it. Answered when their state is known. The
    ids of the user, where they are given, must be those on the host. `cpus` is what the attempt has on the
    host where that is more than its tasks ask for, 0 = what they ask for. `mem_bytes` is for all tasks here
    together, 0 = as `mem_bytes_per_task` says, by which agents go that do not know it. With `master_port`
    the host chooses a port at which the job's tasks meet, which is free now and no other attempt's, and no
    one can guess. Of what a task without `output` prints the host keeps the first and the newest part,
    `log_bytes` in all; logs leave `log_reserve_bytes` of the disk free, or a tenth of a small one. With
    `open_mode` "truncate" the files of `output` and `error` are emptied once, before any task of the job
    starts. With `warn_signal` every process gets this signal `warn_before_us` before the time limit, with
    `warn_batch` only the first one of each task. With `lease_us` the host ends the tasks, with `grace_us`,
    when it has not heard the leading daemon for this time; `heard_us` is when it was last heard, see
    `renew`. `prolog` and `epilog` are programs of the host that the agent runs before the tasks and when
    nothing of them is left, each for at most `program_us`; the launch fails with `prolog-failed`, the exit of
    the last task names a failed epilog."""

    user: Word
    script: Text | UnsetType = UNSET
    batch: Text | UnsetType = UNSET
    allocation: Annotated[list[AllocatedHost], Meta(max_length=65_536)] | UnsetType = UNSET
    place: Annotated[int, Meta(ge=0, le=65_535)] = 0
    args: list[Text]
    chdir: Path
    chdir_required: bool
    env: dict[str, str]
    tasks: Annotated[list[Task], Meta(min_length=1, max_length=LIST_MAX)]
    cpus_per_task: Annotated[int, Meta(ge=0, le=1 << 20)] = 1
    cpus: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    mem_bytes_per_task: Bytes
    mem_bytes: Bytes = 0
    time_limit_us: DurationUs  # 0: none
    grace_us: DurationUs
    hold: bool
    allow_root: bool
    not_after_us: AtUs  # by the host's clock: a launch that comes later is refused
    output: Path = ""
    error: Path = ""
    uid: UserId | UnsetType = UNSET
    gid: UserId | UnsetType = UNSET
    master_port: bool = False
    fence: Fence = Fence()
    open_mode: Literal["truncate", "append"] = "truncate"
    log_bytes: Bytes = 64 << 20
    log_reserve_bytes: Bytes = 0
    warn_signal: Annotated[int, Meta(ge=0, le=64)] = 0  # 0: none
    warn_before_us: DurationUs = 0
    warn_batch: bool = False
    prolog: Path = ""
    epilog: Path = ""
    program_us: DurationUs = 60_000_000
    lease_us: DurationUs = 0  # 0: none
    heard_us: AliveUs = 0
    container: Container | UnsetType = UNSET


class Follower(Struct, frozen=True, kw_only=True):
    """An attempt of a slice after its first: `env` has the variables that are other ones, null where it has
    none; `output`, `error` and `input` are its own."""

    job: Job
    attempt: Attempt
    env: dict[str, str | None] = {}
    output: Path = ""
    error: Path = ""
    input: Path = ""


class SliceTaken(Struct, frozen=True, kw_only=True):
    """The (job, attempt) that were discarded here before; all others run, or will."""

    refused: Annotated[list[tuple[Job, Attempt]], Meta(max_length=LIST_MAX)] = []


class Slice(Ordered[SliceTaken], frozen=True, kw_only=True, tag="slice"):
    """Launch attempts of one task each that share a place, one after the other, without asking back. It is
    named after the `first`. Answered as soon as one supervisor has them all; starts and ends are told as
    of any attempt, and one that waits is `prepared`. None begins later than the first may, nor `within_us`
    after the message came: such ones are given back, that is they end with `unstarted`."""

    first: Launch
    followers: Annotated[list[Follower], Meta(max_length=1_000)]
    within_us: DurationUs


class Start(Ordered[Launched], frozen=True, kw_only=True, tag="start"):
    """Start what `hold` prepared, unless it comes later than `not_after_us` by the host's clock.
    `master_port` is what the job's first host chose."""

    not_after_us: AtUs
    master_port: Annotated[int, Meta(ge=0, le=65_535)] = 0


class Stop(Ordered[Done], frozen=True, kw_only=True, tag="stop"):
    """SIGTERM to every process, SIGKILL after `grace_us`; carried out by the supervisor, so that it happens
    also if the agent goes away. `why` is `cancel`, `timeout` or `abort`; with `hold` it concerns only what
    waits in a slice, which is given back. With `warn_us`, tasks that run and have a `warn_signal` get it now,
    and the rest comes so much later."""

    grace_us: DurationUs
    why: Word
    warn_us: DurationUs = 0


class SetLimit(Ordered[Done], frozen=True, kw_only=True, tag="limit"):
    """The time limit of the attempt from now on, counted from its start; 0: none. One that has passed ends it
    at once."""

    time_limit_us: DurationUs


class Freeze(Ordered[Done], frozen=True, kw_only=True, tag="freeze"):
    """Let every process of the attempt stand still, with its time limit, or go on. An order whose number is
    not above the last one's changes nothing. While it stands still and `lends`, others may have the
    processors that it has for itself."""

    frozen: bool
    order: Annotated[int, Meta(ge=1, le=1 << 53)]
    lends: bool = False


class Signalled(Ordered[Done], frozen=True, kw_only=True, tag="signal"):
    """Send a signal, by its number, to every process of the attempt but a script that runs once (`steps`), to
    the first process of each task (`script`), or to every process (`all`)."""

    signal: Annotated[int, Meta(ge=1, le=64)]
    to: SignalTo = "steps"


class Renewed(Struct, frozen=True, kw_only=True):
    alive_us: AliveUs


class Renew(Request[Renewed], frozen=True, kw_only=True, tag="renew"):
    """The daemon of this epoch leads: each lease on the host counts from `heard_us` on, if that is later than
    what it counts from. That is an instant by the host's clock since its boot, which the host reported in its
    hello or in an earlier answer: so a renewal that is under way for long renews no more than it should.
    0 renews nothing."""

    epoch: Epoch
    cluster: Word = ""
    heard_us: AliveUs = 0


class Discard(Ordered[Done], frozen=True, kw_only=True, tag="discard"):
    """Forget a finished or never started attempt, its files and its control group. It is remembered as
    discarded, also if the host does not know it: a late launch of it is refused."""


class Forgotten(Struct, frozen=True, kw_only=True):
    """The (job, attempt) that have not ended, and are not forgotten."""

    left: Annotated[list[tuple[Job, Attempt]], Meta(max_length=LIST_MAX)] = []


class Forget(Request[Forgotten], frozen=True, kw_only=True, tag="forget"):
    """As `discard`, of many (job, attempt)."""

    epoch: Epoch
    cluster: Word = ""
    attempts: Annotated[list[tuple[Job, Attempt]], Meta(max_length=LIST_MAX)]


class TaskReport(Struct, frozen=True, kw_only=True):
    """One task that the host knows of: instants by the host's clock, `ran_us` by one that is never set.
    `code` and `signal` are null while it runs and when it was lost. `cooperative`: it has reported
    iterations. `cpus`, `mem_bytes` and `gpus` are what it was given; without `gpus` the host does not know
    that. `used` and `whole` as of `exit`."""

    job: Job
    attempt: Attempt
    rank: Rank
    state: TaskState
    pid: Pid = 0
    started_us: AtUs | None = None
    ended_us: AtUs | None = None
    ran_us: DurationUs | None = None
    code: ExitCode | None = None
    signal: Signal | None = None
    oom: bool = False
    why: Sentence = ""
    epilog: Sentence = ""
    cooperative: bool = False
    cpus: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    mem_bytes: Bytes = 0
    gpus: Annotated[list[Word], Meta(max_length=1_024)] | None = None
    used: Used | None = None
    whole: Used | None = None


class TaskReports(Struct, frozen=True, kw_only=True):
    """`remembered`: tasks of attempts that were discarded, and how they ended; the newest 5000."""

    tasks: Annotated[list[TaskReport], Meta(max_length=LIST_MAX)]
    remembered: Annotated[list[TaskReport], Meta(max_length=LIST_MAX)] = []


class Tasks(Request[TaskReports], frozen=True, kw_only=True, tag="tasks"):
    """Every task that the host knows of. `about` names jobs whose ends the daemon may have lost, with the
    first attempt that matters: the host also tells what it remembers of these. It remembers for `keep_s`."""

    about: Annotated[Sequence[tuple[Job, Attempt]], Meta(max_length=LIST_MAX)] = ()
    keep_s: Seconds = 604_800


class LogPart(Struct, frozen=True, kw_only=True):
    """`data` in base64; `offset` is where the next part begins, `size` the file's; `done`: the task has ended
    and all was read. `kept_bytes` is how many of `size` there are: of a long log what lies between its
    beginning and its newest part is gone, and the part that begins there begins after it. null: all.
    `lacks_bytes` are missing behind the file's end: the host crashed before its disk had them."""

    data: Annotated[str, Meta(max_length=LOG_CHUNK_BYTES * 4 // 3 + 4)]
    offset: Bytes
    size: Bytes
    done: bool
    kept_bytes: Bytes | None = None
    lacks_bytes: Bytes = 0


class Logs(OfAttempt[LogPart], frozen=True, kw_only=True, tag="logs"):
    """A part of a task's log."""

    rank: Rank
    stream: Stream
    offset: Bytes
    limit: Annotated[int, Meta(ge=0, le=LOG_CHUNK_BYTES)]


ROUND_MAX = 4_096  # iterations of one round of a plan


class Grid(Struct, frozen=True, kw_only=True):
    """When a job's iterations begin, by the host's clock: see "The iteration client and the schedule"."""

    epoch_us: SignedUs = 0
    shift_us: SignedUs = 0
    period_us: DurationUs = 0
    inject_us: DurationUs = 0
    tolerance_us: DurationUs = 0
    gate: bool = False
    adjust_us: DurationUs = 0
    pause_length_us: DurationUs = 0
    pause_seq: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    starts_us: Annotated[list[DurationUs], Meta(max_length=ROUND_MAX)] = []
    length_us: DurationUs = 0
    paces_bps: Annotated[list[Bps], Meta(max_length=ROUND_MAX)] = []
    dscps: Annotated[list[Annotated[int, Meta(ge=0, le=63)]], Meta(max_length=ROUND_MAX)] = []


class Schedule(Ordered[Done], frozen=True, kw_only=True, tag="schedule"):
    """Replace the job's schedule; null removes it."""

    schedule: Grid | None


class Cancel(Request[Done], frozen=True, kw_only=True, tag="cancel"):
    """End a slow operation by the id of its request."""

    request: Annotated[int, Meta(ge=1, le=1 << 53)]
