"""What other threads than the leader's ask of its state: what a host has, and whether it is heard."""

from __future__ import annotations

from rm.core.jobs.state import ClusterState
from rm.core.model.job import Task


def is_heard(state: ClusterState, host: str) -> bool:
    """Has it said hello, and is the channel to it not lost since? From any thread."""
    return host in state.hosts and host not in state.silent_since


def is_stray(state: ClusterState, host: str, job: int, attempt: int) -> bool:
    """Does the host run an attempt that the state has given up? From any thread."""
    return (job, attempt) in state.strays.get(host, ())


def placed_task(state: ClusterState, host: str, job: int, attempt: int, rank: int) -> Task | None:
    """The task, if this rank of the job's current attempt is placed on the host. From any thread: jobs are
    replaced, never changed."""
    known = state.jobs.get(job)
    if known is None or known.attempt != attempt:
        return None
    if 0 <= rank < len(known.tasks) and known.tasks[rank].rank == rank:  # in rank order, as placed
        task = known.tasks[rank]
        return task if task.host == host else None
    return next((t for t in known.tasks if (t.rank, t.host) == (rank, host)), None)
