"""What a batch of events changes, and the only ways in which their handlers change it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm.core.jobs.actions import Action
from rm.core.jobs.elements import follow
from rm.core.jobs.mailing import mails_of, next_mark
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job, JobState
from rm.core.model.logs import KeptLog
from rm.core.model.network.links import LinkStats
from rm.core.model.replacing import replace
from rm.core.sharing.accounts import Accounts
from rm.core.sharing.ended import Ended
from rm.core.sharing.fair_tree import Pair


@dataclass(slots=True)
class Changes:
    """What one batch of events changed: the store writes it, the executor carries it out. `judged` counts the
    conditions of dependents that were judged, as `rm.core.jobs.handlers.dependency` weighs them."""

    jobs: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    zones: set[str] = field(default_factory=set)
    removed_hosts: set[str] = field(default_factory=set)
    actions: list[Action] = field(default_factory=list)
    measured: list[tuple[str, str, LinkStats]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    logs: list[KeptLog] = field(default_factory=list)
    reservations: dict[str, HostReservation | None] = field(default_factory=dict)  # by name; None: gone
    accounts: Accounts | None = None  # all, where any has changed
    used: set[Pair] = field(default_factory=set)  # whose usage grows at another rate now
    ended: list[Ended] = field(default_factory=list)  # attempts that ran, for the account of usage
    judged: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """Times of the lifecycle, microseconds: the grace between SIGTERM and SIGKILL, and how
    long a host may be silent before its jobs are lost. A job is held after `max_losses` losses of
    its hosts in a row (0 = never). `cancel_never`: a job whose dependencies can never be fulfilled is
    cancelled, unless it says otherwise itself. A job that was requeued by request more than `max_requeues`
    times is held (0 = never). `judged_max`: about how many conditions of dependents one step judges: some
    milliseconds."""

    grace_us: int = 30_000_000
    down_after_us: int = 20_000_000
    max_losses: int = 2
    cancel_never: bool = True
    max_requeues: int = 0
    judged_max: int = 2_000


@dataclass(slots=True)
class Context:
    """What a handler works on: the state, and the notes of what it changes there."""

    state: ClusterState
    now_us: int
    rules: Rules
    changes: Changes

    def put(self, job: Job) -> Job:
        old = self.state.jobs.get(job.id)
        if old is not None and old.state is JobState.PENDING and job.state is not JobState.PENDING:
            waited = self.state.waits.end(old, self.now_us)
            job = job if waited == job.waited else replace(job, waited=waited)
        self.state.jobs[job.id] = job
        self.state.ended.note(job)
        self.state.touches.add(job.id)
        self.changes.jobs.add(job.id)
        self.state.dependents.note(old, job)
        if job.spec.deadline_us is not None or job.id in self.state.deadlines:
            self.state.note_deadline(job)
        if job.spec.mail_events:
            self.changes.actions += mails_of(old, job, self.now_us)
            self.state.note_mark(job.id, next_mark(job))
        if job.array_task is not None:
            follow(self, old, job)
        state = self.state
        if job.account and (pair := state.ledger.follow(job, state.hosts, self.now_us, state.qos_factor)):
            self.changes.used.add(pair)
        state.tally.count(old, job)
        return job

    def act(self, action: Action) -> None:
        self.changes.actions.append(action)

    def put_host(self, host: Host) -> None:
        """A new version of a host: what fits, and what is aligned, may have changed."""
        state = self.state
        old = state.hosts.get(host.name)
        if old is not None and old.drained_by != host.drained_by:
            host = replace(host, drained_us=self.now_us if host.drained_by else 0)
        state.hosts[host.name] = host
        state.recount(host.name)
        state.capacity_version += 1
        state.placed_version += 1  # link capacities are part of what is aligned
        self.changes.removed_hosts.discard(host.name)
        self.changes.hosts.add(host.name)
