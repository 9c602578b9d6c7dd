"""What a host says it runs, against what the state believes: the difference as events.

Used whenever a host's agent says hello: after a cut, a reboot, or a restart of the daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rm.core.jobs import events as ev
from rm.core.jobs.actions import HOLD, Action, Launch, Start, Stop
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held
from rm.core.jobs.withheld import withheld
from rm.core.model.job import Task
from rm.core.model.quickly_made import quickly_made
from rm.core.model.replacing import replace
from rm.core.model.used import Used

STRAYS_MAX = 200  # of one hello, those that run first: each becomes an action, and more come at the next
RANKS_MAX = 4_096  # of a stray, the last ones: each end of one goes over them, and no host runs more of a job
GPUS_MAX = 4_096  # that they are said to hold together: each change of one goes over all of them


@quickly_made
@dataclass(frozen=True, slots=True)
class ReportedTask:
    """One task as its host's agent knows it; times already on the daemon's clock.

    `state` is prepared, running, exited or lost (its supervisor died without an exit record). `gpus` are
    those that it was given, by UUID or index; None: the host does not know what the task was given. `ran_us`
    is how long an ended one ran by a clock that nobody sets; `used` and `whole` as of `TaskExited`.
    """

    job: int
    attempt: int
    rank: int
    state: str
    started_us: int | None = None
    ended_us: int | None = None
    code: int = 0
    signal: int = 0
    out_of_memory: bool = False
    why: str = ""
    cpus: int = 0
    mem_bytes: int = 0
    gpus: tuple[str, ...] | None = None
    ran_us: int | None = None
    epilog: str = ""
    used: Used | None = None
    whole: Used | None = None

    @property
    def runs(self) -> bool:
        return self.state in ("running", "launching")


class Reported:
    """What one host says that it runs. Sorted once, beside the leader, which then looks up what concerns it:
    a host may report tens of thousands of tasks.

    `attempts`: (job, attempt) -> its tasks by rank; those that still run come first, then by job.
    """

    def __init__(self, tasks: Iterable[ReportedTask]) -> None:
        found: dict[tuple[int, int], list[ReportedTask]] = {}
        for task in sorted(tasks, key=lambda t: (t.job, t.attempt, t.rank)):
            found.setdefault((task.job, task.attempt), []).append(task)
        running = {name: told for name, told in found.items() if any(t.runs for t in told)}
        self.attempts: Mapping[tuple[int, int], Sequence[ReportedTask]] = running | found

    def states(self, job: int, attempt: int) -> set[str]:
        return {task.state for task in self.attempts.get((job, attempt), ())}


def worth_repeating(state: ClusterState, up: ev.HostUp, reported: Reported, action: Launch | Start) -> bool:
    """Must an open launch or start be sent (again) to the host that has just said hello?

    Not when the state has given the attempt up, or its tasks there. Not after a reboot: one whose
    answer was lost may have run before it, and an attempt never runs twice. And not when the host
    knows the attempt already: then its report is the outcome, except that a prepared gang still
    waits for its start, and that who asks for one whose prolog still runs is answered when it is over.
    """
    known, job = state.hosts.get(up.host), state.jobs.get(action.job)
    if known is None or (known.boot_id and known.boot_id != up.boot_id):
        return False
    if job is None or job.attempt != action.attempt or not job.occupies:
        return False
    if job.unsure and not reported.states(action.job, action.attempt):
        return False  # it was sent before the backup was restored, and may have run
    if all(t.ended_us is not None for t in job.tasks if t.host == up.host):
        return False
    states = reported.states(action.job, action.attempt)
    if isinstance(action, Launch):
        return not states or "launching" in states
    return states == {"prepared"}


def is_end(action: Action) -> bool:
    """Does it end its attempt on its host, however far that has come?"""
    return isinstance(action, Stop) and action.why != HOLD


def before_its_end(action: Launch | Start) -> Launch | None:
    """What is sent of an action while the end of its attempt on the same host is open, too; None: nothing.

    Nothing begins that is to end. The launch is prepared all the same: from then on the host knows the
    attempt, so that a copy of the launch that is still under way begins nothing either.
    """
    return replace(action, hold=True) if isinstance(action, Launch) else None


def reconcile(
    state: ClusterState,
    host: str,
    reported: Reported,
    open_launches: Collection[tuple[int, int]],
    open_ends: Collection[tuple[int, int]],
    now_us: int,
) -> list[ev.Event]:
    """Events that bring the state in line with the host.

    `open_launches` names the (job, attempt) whose launch will be sent there (see
    `worth_repeating`): their tasks are not missed; those of `LaunchWithheld` are not to be sent after
    all. `open_ends` names those whose logs will be collected, or which will be discarded: they need no
    second, hastier end. A host that still runs
    an attempt that the state has given up gets it stopped; one that forgot a task it should run
    has lost it. An ended task of a job that goes on elsewhere is left: its log is collected last.
    """
    found: list[ev.Event] = []
    seen: set[tuple[int, int, int]] = set()
    theirs: dict[tuple[int, int], list[ReportedTask]] = {}  # of current attempts: tasks that are strays
    for name in sorted(name for name in reported.attempts if _is_current(state, *name)):
        job = state.jobs[name[0]]
        mine = {task.rank: task for task in job.tasks if task.host == host}
        theirs[name] = []
        for task in reported.attempts[name]:
            known = mine.get(task.rank)
            if known is None:
                theirs[name].append(task)
                continue
            seen.add((task.job, task.attempt, task.rank))
            if known.ended_us is not None:
                if task.state == "running":
                    theirs[name].append(task)
            elif (news := _news(host, task, known, now_us, job.unsure)) is not None:
                found.append(news)
    for job_id in sorted(state.jobs_on.get(host, ())):
        job = state.jobs[job_id]
        if (job.id, job.attempt) in open_launches:
            continue
        missing = tuple(
            t.rank
            for t in job.tasks
            if t.host == host and t.ended_us is None and (job.id, job.attempt, t.rank) not in seen
        )
        if missing:
            found.append(ev.TasksLost(job.id, job.attempt, host, missing))
    strays = list(_bounded(islice(_given_up(state, host, reported, theirs, open_ends), STRAYS_MAX)))
    unknown = {name for name in open_launches if name not in reported.attempts}
    kept_back = withheld(state, host, strays, unknown)
    return [*found, *kept_back, *strays, *_to_forget(state, strays, open_ends)]


def _is_current(state: ClusterState, job_id: int, attempt: int) -> bool:
    job = state.jobs.get(job_id)
    return job is not None and job.occupies and job.attempt == attempt


def _news(host: str, task: ReportedTask, known: Task, now_us: int, unsure: bool) -> ev.Event | None:
    """What the host says of a task that has not ended by the state; of an unsure job also that it runs."""
    if task.state == "prepared" and not known.prepared:
        return ev.TasksPrepared(task.job, task.attempt, host)
    if task.state == "running" and (known.started_us is None or unsure):
        return ev.TasksStarted(task.job, task.attempt, host, task.started_us or now_us, (task.rank,))
    if task.state == "exited":
        return ev.TaskExited(
            task.job,
            task.attempt,
            host,
            task.rank,
            task.code,
            task.signal,
            task.started_us,
            task.ended_us or now_us,
            task.out_of_memory,
            task.why,
            task.ran_us,
            task.epilog,
            used=task.used,
            whole=task.whole,
        )
    if task.state == "lost":
        return ev.TasksLost(task.job, task.attempt, host, (task.rank,), task.why, task.epilog)
    return None


def _given_up(
    state: ClusterState,
    host: str,
    reported: Reported,
    theirs: Mapping[tuple[int, int], Sequence[ReportedTask]],
    open_ends: Collection[tuple[int, int]],
) -> Iterator[ev.StrayFound]:
    """The attempts that the state does not have there, those that run first."""
    for name, told in reported.attempts.items():
        tasks = theirs.get(name, told)
        if not tasks:
            continue
        held = _held(state, tasks)
        if held is not None or name not in open_ends:
            yield ev.StrayFound(*name, host, held is not None, held)


def _bounded(strays: Iterable[ev.StrayFound]) -> Iterator[ev.StrayFound]:
    """Those behind GPUS_MAX GPUs hold nobody knows which: a host may say that each holds all."""
    left = GPUS_MAX
    for stray in strays:
        held = stray.held
        left -= len(held.gpus or ()) if held is not None else 0
        yield stray if held is None or left >= 0 else replace(stray, held=replace(held, gpus=None))


def _to_forget(
    state: ClusterState, strays: Iterable[ev.StrayFound], open_ends: Collection[tuple[int, int]]
) -> Iterator[ev.StrayFound]:
    """Of the strays that run, those that nothing else will let their host forget when they have ended:
    attempts of a newer copy of the database. A later launch of that number would take them for its own."""
    for stray in strays:
        name = stray.job, stray.attempt
        if stray.running and name not in open_ends and not _is_current(state, *name):
            yield ev.StrayFound(*name, stray.host, False)


def _held(state: ClusterState, tasks: Iterable[ReportedTask]) -> Held | None:
    """What those of an attempt's tasks hold that still run; a job that had its hosts for itself holds all."""
    running = [t for t in tasks if t.runs]
    if not running:
        return None
    job = state.jobs.get(running[0].job)
    unknown = any(t.gpus is None for t in running) or (job is not None and job.spec.exclusive)
    gpus = None if unknown else tuple(dict.fromkeys(g for t in running for g in t.gpus or ()))
    return Held(
        tuple(t.rank for t in running[-RANKS_MAX:]),
        sum(t.cpus for t in running),
        sum(t.mem_bytes for t in running),
        gpus,
    )
