"""What a host says it runs, against what the state believes: the difference as events.

Used whenever a host's agent says hello: after a cut, a reboot, or a restart of the daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Launch, Start
from rm.core.jobs.state import ClusterState
from rm.core.jobs.strays import Held

STRAYS_MAX = 1_000  # of one hello, those that run first: each becomes an action, and more come at the next


@dataclass(frozen=True, slots=True)
class ReportedTask:
    """One task as its host's agent knows it; times already on the daemon's clock.

    `state` is prepared, running, exited or lost (its supervisor died without an exit record). `gpus` are
    those that it was given, by UUID or index; None: the host does not know what the task was given. `ran_us`
    is how long an ended one ran by a clock that nobody sets.
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


def worth_repeating(
    state: ClusterState, up: ev.HostUp, reported: Iterable[ReportedTask], action: Launch | Start
) -> bool:
    """Must an open launch or start be sent (again) to the host that has just said hello?

    Not when the state has given the attempt up, or its tasks there. Not after a reboot: one whose
    answer was lost may have run before it, and an attempt never runs twice. And not when the host
    knows the attempt already: then its report is the outcome, except that a prepared gang still
    waits for its start.
    """
    known, job = state.hosts.get(up.host), state.jobs.get(action.job)
    if known is None or (known.boot_id and known.boot_id != up.boot_id):
        return False
    if job is None or job.attempt != action.attempt or not job.occupies:
        return False
    if all(t.ended_us is not None for t in job.tasks if t.host == up.host):
        return False
    states = {t.state for t in reported if (t.job, t.attempt) == (action.job, action.attempt)}
    return not states if isinstance(action, Launch) else states == {"prepared"}


def reconcile(
    state: ClusterState,
    host: str,
    reported: Iterable[ReportedTask],
    open_launches: Collection[tuple[int, int]],
    open_ends: Collection[tuple[int, int]],
    now_us: int,
) -> list[ev.Event]:
    """Events that bring the state in line with the host.

    `open_launches` names the (job, attempt) whose launch will be sent there (see
    `worth_repeating`): their tasks are not missed. `open_ends` names those whose logs will be
    collected, or which will be discarded: they need no second, hastier end. A host that still runs
    an attempt that the state has given up gets it stopped; one that forgot a task it should run
    has lost it. An ended task of a job that goes on elsewhere is left: its log is collected last.
    """
    found: list[ev.Event] = []
    seen: set[tuple[int, int, int]] = set()
    strays: dict[tuple[int, int], list[ReportedTask]] = {}
    for task in sorted(reported, key=lambda t: (t.job, t.attempt, t.rank)):
        job = state.jobs.get(task.job)
        current = job is not None and job.occupies and job.attempt == task.attempt
        mine = current and any(t.rank == task.rank and t.host == host for t in job.tasks)  # type: ignore[union-attr]
        if not mine:
            strays.setdefault((task.job, task.attempt), []).append(task)
            continue
        assert job is not None
        seen.add((task.job, task.attempt, task.rank))
        known = next(t for t in job.tasks if t.rank == task.rank)
        if known.ended_us is not None:
            if task.state == "running":
                strays.setdefault((task.job, task.attempt), []).append(task)
        elif task.state == "prepared" and not known.prepared:
            found.append(ev.TasksPrepared(task.job, task.attempt, host))
        elif task.state == "running" and known.started_us is None:
            found.append(
                ev.TasksStarted(task.job, task.attempt, host, task.started_us or now_us, (task.rank,))
            )
        elif task.state == "exited":
            found.append(
                ev.TaskExited(
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
                )
            )
        elif task.state == "lost":
            found.append(ev.TasksLost(task.job, task.attempt, host, (task.rank,), task.why))
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
    given_up = [
        ev.StrayFound(*name, host, held is not None, held)
        for name, held in ((name, _held(state, tasks)) for name, tasks in strays.items())
        if held is not None or name not in open_ends
    ]
    given_up.sort(key=lambda stray: (not stray.running, stray.job, stray.attempt))
    return found + given_up[:STRAYS_MAX]


def _held(state: ClusterState, tasks: Iterable[ReportedTask]) -> Held | None:
    """What those of an attempt's tasks hold that still run; a job that had its hosts for itself holds all."""
    running = [t for t in tasks if t.state in ("running", "launching")]
    if not running:
        return None
    job = state.jobs.get(running[0].job)
    unknown = any(t.gpus is None for t in running) or (job is not None and job.spec.exclusive)
    gpus = None if unknown else tuple(dict.fromkeys(g for t in running for g in t.gpus or ()))
    return Held(
        tuple(t.rank for t in running), sum(t.cpus for t in running), sum(t.mem_bytes for t in running), gpus
    )
