"""What hosts remember of attempts that they have discarded, for a database restored from a backup.

A job that had not ended in the backup is unsure (`Job.unsure`) until a host says that it runs, or how it
ended. An end that a host remembers of the job's current attempt is taken for its end. What it remembers of
later attempts, of which the database knows nothing, is told in the job's history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rm.core.jobs import events as ev
from rm.core.jobs.reconcile import Reported, ReportedTask
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job
from rm.core.model.replacing import replace

# Words of the agent for ends of which the cluster was the cause: the job was to go on elsewhere.
GIVEN_UP = frozenset({"abort", "discard", "fence", "requeue", "unstarted"})
NOTES_MAX = 1_000  # of one hello: each becomes an event, and more come at the next


def with_memory(
    state: ClusterState, tasks: Reported, remembered: Iterable[ReportedTask]
) -> tuple[Reported, list[ev.Event]]:
    """What the host reports with the ends that it remembers of current attempts; and notes of later ones."""
    by_attempt = Reported(remembered).attempts
    taken: list[ReportedTask] = []
    notes: list[ev.Event] = []
    for (job_id, attempt), told in by_attempt.items():
        job = state.jobs.get(job_id)
        if job is None or not job.unsure or (job_id, attempt) in tasks.attempts:
            continue
        if attempt == job.attempt and job.occupies:
            taken += _ends(job, told)
        elif attempt > job.attempt:
            how = ", ".join(dict.fromkeys(_how(one) for one in told))
            note = f"since the backup attempt {attempt} of it has run: {how}"
            if len(notes) < NOTES_MAX and all(said != note for _, said in job.history):
                notes.append(ev.Noted(job_id, note))
    if not taken:
        return tasks, notes
    known = [task for told in tasks.attempts.values() for task in told]
    return Reported([*known, *taken]), notes


def _ends(job: Job, told: Sequence[ReportedTask]) -> Iterator[ReportedTask]:
    """Those of one attempt on one host. Where none of them ended by itself and rm ended the rest, the attempt
    was given up, and the job may have gone on: its tasks are lost."""

    def own(task: ReportedTask) -> bool:
        decides = task.rank == 0 if job.spec.runs_once else bool(task.code or task.signal)
        return task.state == "exited" and task.why not in GIVEN_UP and decides

    decided = any(own(task) for task in told)
    for task in told:
        holds = job.spec.runs_once and task.rank != 0  # its end says nothing of the job's
        if decided or holds or task.why not in GIVEN_UP:
            yield task
        else:
            yield replace(task, state="lost", why="its attempt was given up after the backup was made")


def _how(task: ReportedTask) -> str:
    if task.state != "exited":
        return "lost"
    return f"killed by signal {task.signal}" if task.signal else f"exited with code {task.code}"
