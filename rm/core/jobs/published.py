"""What other threads than the leader's know of its state: copies, which the leader renews after each step."""

from __future__ import annotations

from rm.core.jobs.changes import Changes
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, Task


class Published:
    """`renew` is called by the thread that steps the state; the rest from any thread.

    Jobs are replaced, never changed, and so are the sets here. `renew` comes before the commit: a host that
    the state counts as silent must not be taken for one that is heard, however long the database takes.
    """

    def __init__(self, state: ClusterState) -> None:
        self._jobs: dict[int, Job] = {}  # that were placed
        self._unsure: dict[int, Job] = {}  # that may have run since a restored backup was made
        self._known = 0  # jobs of the state
        self._hosts: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._strays: frozenset[tuple[str, int, int]] = frozenset()
        self.renew_all(state)

    def renew_all(self, state: ClusterState) -> None:
        self._jobs = {job.id: job for job in state.jobs.values() if job.tasks}
        self._unsure = {job.id: job for job in state.jobs.values() if _is_unsure(job)}
        self._known = len(state.jobs)
        self._hosts = frozenset(state.hosts)
        self._renew_hosts(state)

    def renew(self, state: ClusterState, changes: Changes) -> None:
        if len(state.jobs) < self._known:  # some that have ended were forgotten
            self.renew_all(state)
            return
        self._known = len(state.jobs)
        for job_id in changes.jobs:
            job = state.jobs[job_id]
            if job.tasks:
                self._jobs[job_id] = job
            else:
                self._jobs.pop(job_id, None)
        if sure := {n for n in changes.jobs & self._unsure.keys() if not _is_unsure(state.jobs[n])}:
            self._unsure = {known: one for known, one in self._unsure.items() if known not in sure}
        if changes.hosts or changes.removed_hosts:
            self._hosts = frozenset(state.hosts)
        self._renew_hosts(state)

    def _renew_hosts(self, state: ClusterState) -> None:
        if self._silent != state.silent_since.keys():
            self._silent = frozenset(state.silent_since)
        if state.strays or self._strays:
            self._strays = frozenset(
                (h, *attempt) for h, strays in state.strays.items() for attempt in strays
            )

    def task(self, host: str, job: int, attempt: int, rank: int) -> Task | None:
        """The task, if this rank of the job's current attempt is placed on the host."""
        known = self._jobs.get(job)
        if known is None or known.attempt != attempt:
            return None
        if 0 <= rank < len(known.tasks) and known.tasks[rank].rank == rank:  # in rank order, as placed
            task = known.tasks[rank]
            return task if task.host == host else None
        return next((t for t in known.tasks if (t.rank, t.host) == (rank, host)), None)

    def hosts_of(self, job: int, attempt: int) -> tuple[str, ...]:
        """The hosts of the job's current attempt, in the order of their ranks; none of another one."""
        known = self._jobs.get(job)
        if known is None or known.attempt != attempt or not known.occupies:
            return ()
        return tuple(dict.fromkeys(task.host for task in known.tasks))

    def user_of(self, host: str, job: int, attempt: int) -> str:
        """Whose job has this current attempt and tasks on the host; "" where none has."""
        known = self._jobs.get(job)  # once: other threads renew it
        if known is None or known.attempt != attempt or not known.occupies:
            return ""
        return known.spec.user if any(task.host == host for task in known.tasks) else ""

    def unsure(self) -> list[tuple[int, int]]:
        """Of which jobs it is not known what has become of them, and from which attempt on."""
        return [(job.id, job.attempt if job.occupies else job.attempt + 1) for job in self._unsure.values()]

    def is_heard(self, host: str) -> bool:
        """Has it said hello, and is the channel to it not lost since?"""
        return host in self._hosts and host not in self._silent

    def is_stray(self, host: str, job: int, attempt: int) -> bool:
        """Does the host run an attempt that the state has given up?"""
        return (host, job, attempt) in self._strays


def _is_unsure(job: Job) -> bool:
    return job.unsure and not job.state.final
