"""Events: everything that may knock at the door of the state. Facts, never requests to mutate.

All times are microseconds since the epoch of the daemon's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.jobs.dependents import PastJob
from rm.core.jobs.host_events import (
    GpusIdle as GpusIdle,
)
from rm.core.jobs.host_events import (
    HostAdded as HostAdded,
)
from rm.core.jobs.host_events import (
    HostDown as HostDown,
)
from rm.core.jobs.host_events import (
    HostDrained as HostDrained,
)
from rm.core.jobs.host_events import (
    HostMisbehaved as HostMisbehaved,
)
from rm.core.jobs.host_events import (
    HostRemoved as HostRemoved,
)
from rm.core.jobs.host_events import (
    HostResumed as HostResumed,
)
from rm.core.jobs.host_events import (
    HostSilent as HostSilent,
)
from rm.core.jobs.host_events import (
    HostUp as HostUp,
)
from rm.core.jobs.host_events import (
    LeaseOver as LeaseOver,
)
from rm.core.jobs.host_events import (
    ReservationDeleted as ReservationDeleted,
)
from rm.core.jobs.host_events import (
    ReservationPlayed as ReservationPlayed,
)
from rm.core.jobs.host_events import (
    ReservationRenewed as ReservationRenewed,
)
from rm.core.jobs.host_events import (
    ReservationSet as ReservationSet,
)
from rm.core.jobs.host_events import (
    ReservationTurned as ReservationTurned,
)
from rm.core.jobs.host_events import (
    SpoolWritable as SpoolWritable,
)
from rm.core.jobs.host_events import (
    StrayEnded as StrayEnded,
)
from rm.core.jobs.host_events import (
    StrayFound as StrayFound,
)
from rm.core.jobs.network_events import (
    AlignmentRecomputed as AlignmentRecomputed,
)
from rm.core.jobs.network_events import (
    JobsManaged as JobsManaged,
)
from rm.core.jobs.network_events import (
    JobsProgressed as JobsProgressed,
)
from rm.core.jobs.network_events import (
    JobsReleased as JobsReleased,
)
from rm.core.jobs.network_events import (
    JobsSlowed as JobsSlowed,
)
from rm.core.jobs.network_events import (
    Measured as Measured,
)
from rm.core.jobs.network_events import (
    ProfileMeasured as ProfileMeasured,
)
from rm.core.jobs.network_events import (
    ZoneMeasured as ZoneMeasured,
)
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobSpec, Placement
from rm.core.model.logs import KeptLog
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import Reason
from rm.core.model.used import Used
from rm.core.sharing.accounts import Accounts
from rm.protocol.codes import Code


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """`key`: the submission's idempotency key, "" without one; `past`: the jobs that its dependencies name
    and that may have left the state."""

    job: int
    spec: JobSpec
    key: str = ""
    past: tuple[PastJob, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountsSet:
    """The accounts are these from now on."""

    accounts: Accounts
    by: str


@quickly_made
@dataclass(frozen=True, slots=True)
class JobPlaced:
    """The engine's decision: it comes from inside. With an `array_job` it makes the job: its waiting element
    `array_task` gets this id, and is placed; with `slice_of`, the id of the first of them, as one of several
    that their host starts one after the other. `partition`: of several, the one that it is placed in."""

    job: int
    placement: Placement
    note: str = ""
    array_job: int = 0
    array_task: int = 0
    slice_of: int = 0
    partition: str = ""


@dataclass(frozen=True, slots=True)
class JobMoved:
    """Another decision from inside: a running job gives up its hosts, to be placed elsewhere."""

    job: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class JobPreempted:
    """Another decision from inside: the job gives its hosts up to `by`, which waits (or some of it does), or
    stands still for it. `partition`: of several that `by` may run in."""

    job: int
    by: int
    partition: str = ""


@dataclass(frozen=True, slots=True)
class DeadlineMissed:
    """A pending job could not be over by its deadline any more: the cycle sees it by the clock."""

    job: int


@dataclass(frozen=True, slots=True)
class SharePassed:
    """`share` percent of a running job's time limit have passed, and somebody is to be mailed."""

    job: int
    share: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """`array_tasks`: which elements of an array, as rm.arrays writes them; "" = all."""

    job: int
    by: str
    array_tasks: str = ""


@dataclass(frozen=True, slots=True)
class HoldRequested:
    """`as_admin`: by somebody who may change the jobs of others; its owner cannot release it then."""

    job: int
    by: str
    array_tasks: str = ""
    as_admin: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """`as_admin`: also of what was held so."""

    job: int
    by: str
    array_tasks: str = ""
    as_admin: bool = False


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    """The job stands still, with all that it holds, until it is resumed."""

    job: int
    by: str
    array_tasks: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    job: int
    by: str
    array_tasks: str = ""


@dataclass(frozen=True, slots=True)
class RequeueRequested:
    """`failed`: of an array only what ended otherwise than it should. `hold`: it waits until it is
    released."""

    job: int
    by: str
    array_tasks: str = ""
    failed: bool = False
    hold: bool = False


@dataclass(frozen=True, slots=True)
class ArrayLimitSet:
    """At most `limit` elements of the array run at once from now on; 0: any number."""

    job: int
    by: str
    limit: int


@dataclass(frozen=True, slots=True)
class JobUpdated:
    """Other values of what a job asked for, from now on. `past`: as of `JobSubmitted`, for a new list of
    dependencies; `may_raise`: also the time limit of a job that runs.

    `array_tasks`: of an array these elements alone. Those that wait in its record get jobs of their own, the
    first of them the id `first_job`."""

    job: int
    by: str
    update: JobUpdate
    past: tuple[PastJob, ...] = ()
    may_raise: bool = False
    array_tasks: str = ""
    first_job: int = 0


@dataclass(frozen=True, slots=True)
class JobsRecalled:
    """Ended jobs that had left the state are in it again, as the store has them."""

    jobs: tuple[Job, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class TasksPrepared:
    """`host` has everything ready for its tasks of this attempt and waits for the start."""

    job: int
    attempt: int
    host: str
    notes: tuple[tuple[int, str], ...] = ()  # (rank, note)
    master_port: int = 0  # what the job's first host chose
    cores: tuple[int, ...] = ()  # which processors it keeps for the job; none: it shares them


@quickly_made
@dataclass(frozen=True, slots=True)
class TasksStarted:
    job: int
    attempt: int
    host: str
    started_us: int
    ranks: tuple[int, ...]
    notes: tuple[tuple[int, str], ...] = ()
    cores: tuple[int, ...] = ()  # as of `TasksPrepared`


@quickly_made
@dataclass(frozen=True, slots=True)
class TaskExited:
    """`code`/`signal` as Slurm's `code:signal`; `why` is "", "cancel", "timeout", "abort" or a sentence.
    `ran_us` is how long it ran by a clock that nobody sets, None where the host does not say it; `epilog` how
    the administrator's program failed that ran after the last one, "" = it did not. `silent`:
    its host says that it printed nothing. `used`: by it alone, where it is one of several on its host;
    `whole`: by all of the attempt there, which comes with the last."""

    job: int
    attempt: int
    host: str
    rank: int
    code: int
    signal: int
    started_us: int | None
    ended_us: int
    out_of_memory: bool = False
    why: str = ""
    ran_us: int | None = None
    epilog: str = ""
    silent: bool = False
    used: Used | None = None
    whole: Used | None = None


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The agent of `host` refused or failed to prepare or start the tasks; nothing runs there."""

    job: int
    attempt: int
    host: str
    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class LaunchWithheld:
    """`host` is back and has not begun the attempt, whose launch is not repeated: attempts that were given up
    still hold the place that it was given there."""

    job: int
    attempt: int
    host: str


@dataclass(frozen=True, slots=True)
class TasksLost:
    """`host` answers, but how these ranks ended nobody knows: it booted, its disk was wiped, or the
    process that watched over them there is gone. `why` is its sentence, when it has one; `epilog` how the
    epilog failed."""

    job: int
    attempt: int
    host: str
    ranks: tuple[int, ...]
    why: str = ""
    epilog: str = ""


@quickly_made
@dataclass(frozen=True, slots=True)
class ActionSettled:
    """The outcome of an outbox action is known; whatever it changed came as another event. `logs`: what
    became of those that were to be collected."""

    action: int
    logs: tuple[KeptLog, ...] = ()


@dataclass(frozen=True, slots=True)
class Noted:
    """One more line in the job's story; it changes nothing else."""

    job: int
    what: str


@dataclass(frozen=True, slots=True)
class ClockStepped:
    """The clock of the daemon's machine was set, by so much forwards. Instants from which durations are
    counted that are under way move with it."""

    by_us: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: something in the state is due."""


Event = (
    JobSubmitted
    | JobPlaced
    | JobMoved
    | JobPreempted
    | DeadlineMissed
    | SharePassed
    | GpusIdle
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | SuspendRequested
    | ResumeRequested
    | RequeueRequested
    | ArrayLimitSet
    | JobUpdated
    | JobsRecalled
    | TasksPrepared
    | TasksStarted
    | TaskExited
    | LaunchFailed
    | LaunchWithheld
    | TasksLost
    | StrayFound
    | StrayEnded
    | HostAdded
    | HostRemoved
    | HostUp
    | HostSilent
    | HostDown
    | LeaseOver
    | HostDrained
    | HostMisbehaved
    | SpoolWritable
    | HostResumed
    | ReservationSet
    | ReservationDeleted
    | ReservationRenewed
    | ReservationTurned
    | ReservationPlayed
    | AccountsSet
    | ProfileMeasured
    | JobsProgressed
    | JobsSlowed
    | Measured
    | ZoneMeasured
    | AlignmentRecomputed
    | JobsReleased
    | JobsManaged
    | ActionSettled
    | Noted
    | ClockStepped
    | Tick
)

DECISIONS = (JobPlaced, JobMoved, JobPreempted)  # what a cycle adds after the events of its batch

__all__ = ["DECISIONS", "Event", "Reason", *(t.__name__ for t in Event.__args__)]
