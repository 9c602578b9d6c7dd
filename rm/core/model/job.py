"""Jobs, their tasks and their states (Slurm's names)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rm.core.model.asked.array import Array
from rm.core.model.asked.demand import PRIORITY_HIGH, Demand, Shape
from rm.core.model.asked.dependency import (
    Dependency,
    Standing,
    free_elements,
    fulfilled_from_us,
    lost_elements,
    together,
)
from rm.core.model.asked.distribution import BLOCK
from rm.core.model.asked.interned import features_of, interned, kinds_of
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.asked.launching import BATCH, TASKS
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.earlier_attempt import EarlierAttempt
from rm.core.model.kept import WithDemand
from rm.core.model.placement import Placement as Placement
from rm.core.model.placement import TaskPlacement as TaskPlacement
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import Reason
from rm.core.model.used import HostUsed
from rm.licenses import parse
from rm.shown_ids import shown_id

PRIORITY_LOW = 0
PER_TASK, NO_BIND = "per_task", "none"


class JobState(StrEnum):
    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"  # hosts are being prepared; no task has started
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"  # the tasks are being stopped; hosts not yet released
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"

    __hash__ = str.__hash__  # Enum's own is written in Python, and states are looked up at every event

    @property
    def final(self) -> bool:
        return self in _FINAL

    @property
    def short(self) -> str:
        """Slurm's two-letter code."""
        return _SHORT[self]


_NOT_FINAL = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING")
_FINAL = frozenset(state for state in JobState if state not in _NOT_FINAL)
_OCCUPYING = frozenset({JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING})
_SHORT = {
    JobState.PENDING: "PD",
    JobState.CONFIGURING: "CF",
    JobState.RUNNING: "R",
    JobState.SUSPENDED: "S",
    JobState.COMPLETING: "CG",
    JobState.COMPLETED: "CD",
    JobState.FAILED: "F",
    JobState.CANCELLED: "CA",
    JobState.TIMEOUT: "TO",
    JobState.NODE_FAIL: "NF",
    JobState.PREEMPTED: "PR",
    JobState.OUT_OF_MEMORY: "OOM",
}


@quickly_made
@dataclass(frozen=True, slots=True)
class JobSpec(WithDemand):
    """What the user asked for; after the submission only `rmx set` changes it.

    `hosts_min`/`hosts_max` are Slurm's --nodes (0 = as many as the tasks need). Resources are
    per task, or those `_per_host` once for each host of the job, however many tasks it has there.
    `tasks_per_host` 0 = no limit. Times are microseconds since the epoch or durations, sizes are
    bytes.
    """

    name: str
    user: str
    script: str
    script_args: tuple[str, ...] = ()
    launch: str = TASKS  # the script once for each task, or once: rm.core.model.asked.launching
    hosts_min: int = 0
    hosts_max: int = 0
    ntasks: int = 1
    tasks_per_host: int = 0
    cpus_per_task: int = 1
    distribution: str = BLOCK  # of the ranks; rm.core.model.asked.distribution has the ways
    mem_bytes_per_task: int = 0
    mem_bytes_per_host: int = 0  # Slurm's --mem
    mem_all: bool = False  # all memory of each host: Slurm's --mem=0
    gpus_per_task: int = 0
    gpus_per_host: int = 0  # Slurm's --gpus-per-node and --gres: every task there sees all of them
    gpu_bind: str = PER_TASK  # a task sees its own of `gpus_per_task`; "none": all of the job's on its host
    ntasks_per_gpu: int = 0  # that share one of `gpus_per_host`, and see no other; 0 = they see all
    gpu_type: str = ""
    gpu_mem_bytes: int = 0  # per GPU; 0 = the GPUs for itself, else shared with others as memory allows
    time_limit_us: int | None = None
    expected_us: int | None = None  # run time if undisturbed: what srsf, lwf and backfill reckon with
    iterations: int = 0  # how many iterations it will make; 0 = not said
    partition: str = ""  # or several, "a,b": the job runs in the first of them that has room
    priority: int = PRIORITY_LOW
    nice: int = 0  # by how much the job stands lower in the queue, without another effect
    begin_us: int | None = None
    deadline_us: int | None = None  # it is ended then, and cancelled once it could not be over by then
    time_min_us: int | None = None  # with a deadline: it may start while so much of its time is left
    dependency: str = ""  # what it waits for, as rm.dependencies reads it
    kill_on_invalid_dep: bool | None = None  # cancel it when that can never be; None: as the daemon does
    array: str = ""  # a job array: its indices and limit, as rm.arrays reads them
    hold: bool = False
    requeue: bool = True
    warn_signal: int = 0  # Slurm's --signal: its number, sent before the time limit; 0 = none
    warn_before_us: int = 0  # how long before
    warn_batch: bool = False  # to the first process of each task alone
    fence_us: int | None = None  # its hosts end it that have not heard the daemon for so long; 0, None: never
    env: tuple[tuple[str, str], ...] = ()
    chdir: str = ""
    chdir_required: bool = False  # asked for by name: the host must have it
    output: str = ""  # "" = the task's own log in the spool only
    error: str = ""  # "" = merged into output
    input: str = ""  # file that each task reads; "" = nothing
    open_mode: str = ""  # of these two: truncate or append; "" = truncate, but append when it was requeued
    deliver: str = ""  # without output: the name in chdir on submit_host that the log is copied to
    zone: str = ""
    constraint: str = ""  # features that its hosts must have, as rm.features reads it
    prefer: str = ""  # instead of it, while such hosts are free
    licenses: str = ""  # that it holds while it is placed, as rm.licenses reads them
    reservation: str = ""  # of hosts, that it runs in: rm.core.model.host_reservation
    account: str = ""  # that it names; "" = its user's default
    qos: str = ""  # that it names; "" = its account's
    hosts_only: tuple[str, ...] = ()
    hosts_excluded: tuple[str, ...] = ()
    exclusive: bool = False
    exclusive_user: bool = False  # its hosts run jobs of its user alone: Slurm's --exclusive=user
    switches: int = 0  # of how few racks its hosts shall be, as long as it waits for that; 0 = of any
    switches_wait_us: int = 300_000_000  # how long it does: Slurm's `max_switch_wait`
    low_comm: bool = False
    traffic: TrafficProfile | None = None  # None and not low_comm: profiled on the run
    submit_host: str = ""
    submit_line: str = ""  # what was typed there, or its beginning
    script_path: str = ""  # of the file that the script was read from; "" = none, as with --wrap
    comment: str = ""
    mail_events: str = ""  # of which somebody is mailed, as rm.mail_events writes them
    mail_user: str = ""  # who; "" = its user
    container_image: str = ""  # its tasks run in it; "" = on the host
    container_mounts: str = ""  # what of the host they see there, as rm.containers reads it
    container_workdir: str = ""  # where they begin there; "" = as the image says
    container_name: str = ""  # by which its steps find that container again; "" = each task has its own

    @property
    def partitions(self) -> tuple[str, ...]:
        """Those that it may run in, the first choice first; none = on any host."""
        return tuple(self.partition.split(",")) if self.partition else ()

    @property
    def latest_start_us(self) -> int | None:
        """After which it could not be over by its deadline; None: it has none."""
        if self.deadline_us is None:
            return None
        return self.deadline_us - (self.time_min_us or self.time_limit_us or 0)

    @property
    def any_dependency(self) -> bool:
        """Is one of its dependencies enough?"""
        return "?" in self.dependency

    @property
    def runs_once(self) -> bool:
        """Is the script started once, by rank 0, while the other ranks hold their part of the hosts?"""
        return self.launch == BATCH

    @property
    def queue_priority(self) -> int:
        """By which the queue is ordered."""
        return self.priority - self.nice

    @property
    def is_high(self) -> bool:
        """Metronome's high class: never paused, never injected."""
        return self.priority >= PRIORITY_HIGH

    @property
    def demand(self) -> Demand:
        """What the user asked of the hosts."""
        try:
            return self._demand
        except AttributeError:
            demand = interned(_demand_of(self))
            object.__setattr__(self, "_demand", demand)
            return demand


def _demand_of(spec: JobSpec) -> Demand:
    shape = Shape(
        cpus_per_task=spec.cpus_per_task,
        mem_bytes_per_task=spec.mem_bytes_per_task,
        mem_bytes_per_host=spec.mem_bytes_per_host,
        mem_all=spec.mem_all,
        gpus_per_task=spec.gpus_per_task,
        gpus_per_host=spec.gpus_per_host,
        gpu_bind=spec.gpu_bind,
        ntasks_per_gpu=spec.ntasks_per_gpu,
        gpu_type=spec.gpu_type,
        gpu_mem_bytes=spec.gpu_mem_bytes,
        tasks_per_host=spec.tasks_per_host,
        distribution=spec.distribution,
        partitions=spec.partitions,
        zone=spec.zone,
        hosts_only=spec.hosts_only,
        hosts_excluded=spec.hosts_excluded,
        exclusive=spec.exclusive,
        features=features_of(spec.constraint, spec.prefer),
        container=bool(spec.container_image),
    )
    return Demand(
        shape=shape,
        ntasks=spec.ntasks,
        hosts_min=spec.hosts_min,
        hosts_max=spec.hosts_max,
        priority=spec.priority,
        low_comm=spec.low_comm,
        traffic=spec.traffic,
        declared_bps=spec.traffic.peak_bps if spec.traffic is not None else 0,
        licenses=parse(spec.licenses) if spec.licenses else (),
        user=spec.user,
        exclusive_user=spec.exclusive_user,
        switches=spec.switches,
        kinds=kinds_of(spec.constraint),
    )


@quickly_made
@dataclass(frozen=True, slots=True)
class Task:
    """One rank of a placed job, as last reported by its host's agent.

    `exit_code` and `exit_signal` follow Slurm's `code:signal`; both None while it runs.
    """

    rank: int
    host: str
    gpus: tuple[int, ...] = ()
    prepared: bool = False  # its host is ready and waits for the start
    started_us: int | None = None
    ended_us: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    note: str = ""
    silent: bool = False  # it has printed nothing
    cores: tuple[int, ...] = ()  # which processors of its host the job has for itself there; none: it shares


@quickly_made
@dataclass(frozen=True, slots=True)
class Job:
    """A job and its whole story. Only `rm.core.jobs.lifecycle` makes new versions of it."""

    id: int
    spec: JobSpec
    submitted_us: int
    state: JobState = JobState.PENDING
    held: bool = False
    admin_held: bool = False  # by an administrator, as one of whom alone it is released
    unsure: bool = False  # it may have run, or ended, since the backup was made that was restored
    attempt: int = 0  # 0 before the first launch; grows with each requeue
    placed_us: int = 0  # when this attempt was placed: nothing of it began before, whatever hosts tell
    tasks: tuple[Task, ...] = ()
    go: bool = False  # this attempt's hosts have got their start: some of it may run
    master_port: int = 0  # of this attempt's gang, chosen by its first host; for its tasks alone to know
    allowed_us: int | None = None  # this attempt's time limit, where its deadline leaves less than asked for
    freezes: int = 0  # orders to this attempt's hosts to let it stand still, or go on
    suspended_us: int | None = None  # since when it stands still
    yields_to: tuple[int, ...] = ()  # the jobs that have its processors meanwhile; it goes on after them
    stood_us: int = 0  # for how long this attempt stood still before
    mailed_share: int = 0  # percent of this attempt's time limit of which somebody was mailed
    started_us: int | None = None
    ended_us: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    reason: Reason | None = None  # why it pends, or how it ended
    traffic: TrafficProfile | None = None  # declared, or measured on the run
    cooperative: bool = False  # seen: its tasks call the iteration client library
    ending: JobState | None = None  # why it is COMPLETING: the state it will end in (PENDING: a requeue)
    failed_rank: int | None = None  # of this attempt: whose end made it fail
    launch_failures: int = 0
    host_faults: int = 0  # launches in a row that failed since the host could not write its spool
    fence_grace_us: int = 0  # from SIGTERM to SIGKILL when a lease of this attempt is over
    requeues: int = 0  # how often somebody asked for that, since it was submitted or released
    losses: int = 0  # attempts in a row that ended because a host was lost, each soon after its start
    not_before_us: int = 0  # after such a loss: when it may be tried again
    served_us: int = 0  # time that its earlier attempts ran
    avoid: tuple[str, ...] = ()  # hosts that failed to launch it
    history: tuple[tuple[int, str], ...] = field(default=())  # (at_us, what happened)
    touched_us: int = 0  # when something last happened to it; 0: only its submission
    earlier: tuple[EarlierAttempt, ...] = ()  # the newest of them, in order
    key: str = ""  # the idempotency key that it was submitted with
    account: str = ""  # that it runs for, as was found when it was submitted: rm.core.sharing.accounts
    qos: str = ""  # its quality of service, as was found then: rm.core.sharing.qos
    partition: str = ""  # of several that it may run in: where this attempt was placed, under its rules
    dependencies: tuple[Dependency, ...] = ()  # those of `spec.dependency`, in its order
    array: Array | None = None  # of the record of a whole job array
    array_job: int = 0  # of an element: the id of its array, and its index there
    array_task: int | None = None
    updates: int = 0  # how often `rmx set` has changed its specification
    own: JobUpdate | None = None  # of an element: what was changed of its array's specification for it alone
    slice_of: int = 0  # of this attempt: the first element of the slice that it was handed out in; 0: none
    preempted_by: int = 0  # the job to which its last attempt gave its hosts up
    unstarted: int = 0  # attempts that their host gave back without having started anything
    used: tuple[HostUsed, ...] = ()  # by this attempt, as far as its hosts have told it
    waited: tuple[tuple[str, int], ...] = ()  # before this attempt: (code of the reason, us)
    slowed: tuple[tuple[int, int], ...] = ()  # time (us) that it lost to other jobs on its links, by job
    saved_us: int = 0  # that interleaving saved it, as estimated

    @property
    def ref(self) -> str:
        """What users call it: `36_2` for an element of an array, `36_[3-9]` for what waits of one."""
        array = self.array
        rest = "" if array is None else array.waiting or array.dropped
        limit = array.limit if array is not None and array.waiting else 0
        return shown_id(self.id, self.array_job, self.array_task, rest, limit)

    @property
    def restarts(self) -> int:
        """How often it was started before, or may have been. One that is back in the queue counts its last
        start already, as in Slurm."""
        before = self.attempt if self.state is JobState.PENDING else self.attempt - 1
        return max(0, before - self.unstarted)

    @property
    def waits_in_slice(self) -> bool:
        """Was it handed to its host in a slice, without news that it has started?"""
        return bool(self.slice_of) and self.state is JobState.CONFIGURING and self.started_us is None

    @property
    def placement(self) -> Placement | None:
        if not self.tasks:
            return None
        return Placement(tuple([TaskPlacement(t.rank, t.host, t.gpus) for t in self.tasks]))

    @property
    def demand(self) -> Demand:
        """What it needs now: with the traffic that was measured, and the hosts that failed to launch it."""
        demand = self.spec.demand
        if self.traffic is self.spec.traffic and not self.avoid:
            return demand
        return demand._replace(traffic=self.traffic, avoid=self.avoid)

    @property
    def is_conditional(self) -> bool:
        """May anything but a lack of resources keep it from being placed: a hold, a time, a job, a limit?"""
        return bool(
            self.held
            or self.dependencies
            or self.not_before_us
            or self.spec.begin_us
            or self.array is not None
            or self.array_job
            or self.spec.reservation
        )

    @property
    def begin_us(self) -> int:
        """The earliest time at which it may be placed; 0 = any."""
        return max(self.spec.begin_us or 0, self.not_before_us, self.delayed_until_us)

    @property
    def delayed_until_us(self) -> int:
        """When the delays of its dependencies are over; 0 = there are none."""
        if not self.dependencies:
            return 0
        return fulfilled_from_us(self.dependencies, self.spec.any_dependency)

    @property
    def depends(self) -> Standing:
        """What has come of its dependencies together."""
        if not self.dependencies:
            return Standing.FULFILLED
        if self.array is None or not any(one.by_element for one in self.dependencies):
            return together(self.dependencies, self.spec.any_dependency)
        waiting = self.array.has("waiting")
        if not waiting or waiting & free_elements(self.dependencies, self.spec.any_dependency):
            return Standing.FULFILLED
        return Standing.UNFULFILLED if waiting & ~self.never else Standing.FAILED

    @property
    def ready(self) -> int:
        """The elements of an array that may be placed as soon as there is room, as a set of indices."""
        if self.array is None:
            return 0
        return self.array.ready & free_elements(self.dependencies, self.spec.any_dependency)

    @property
    def never(self) -> int:
        """The elements of an array that wait and whose dependencies can never be fulfilled."""
        if self.array is None:
            return 0
        return self.array.has("waiting") & lost_elements(self.dependencies, self.spec.any_dependency)

    @property
    def occupies(self) -> bool:
        """Does it hold its hosts' resources? Of an array only its elements do."""
        return self.array is None and self.state in _OCCUPYING
