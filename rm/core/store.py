"""The store's port: one transaction holds a batch of events and the plan that follows from it.

The store is the truth; the leader's memory is rebuilt from it with `Store.load`. A commit is
acknowledged only when it is on disk. The outbox (`Batch.actions`) says what is about to be
done before it is done; an action leaves it when a later batch records its outcome.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from rm.core.model.choice import Choice
from rm.core.model.host import Host, Zone
from rm.core.model.job import Job, JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import KeptLog
from rm.core.model.network.links import LinkStats
from rm.core.model.quickly_made import quickly_made
from rm.core.monitoring.history import History
from rm.core.monitoring.results import Results
from rm.core.people.audit import Act
from rm.core.people.token import Token
from rm.core.playbook_runs import PlaybookRuns
from rm.core.sharing.ended import Ended, Heap, Sums
from rm.core.sharing.usage_query import Asked

# Kinds of journal entries (`rm.core.journal.journal`); what precedes a start can be forgotten.
START, STEP = "start", "step"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal. `body` is a JSON object."""

    at_us: int
    kind: str
    body: dict[str, Any] = field(default_factory=dict)


@quickly_made
@dataclass(frozen=True, slots=True)
class StoredAction:
    """One intent of the outbox. Ids grow and are never used twice; `body` is a JSON object."""

    id: int
    kind: str
    job: int | None = None
    attempt: int = 0
    host: str | None = None
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """The newest measurement of one direction between two hosts."""

    source: str
    destination: str
    stats: LinkStats


@quickly_made
@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction: all of it becomes durable, or nothing.

    `jobs`, `hosts`, `zones` and `measurements` are whole new versions that replace what is
    stored under the same key. Removals happen before upserts; removing a host also forgets the
    measurements from and to it. Actions are added before `finished_actions` are taken out;
    finishing an action that is not open does nothing. `documents` are small named JSON objects
    of the leader's own (None forgets one). A job is new when its id is at least
    `Loaded.next_job_id`; ids that were skipped can no longer be used. The same holds for actions.
    A job's `spec` is written with its first version only, since it never changes; an element of an array has
    the array's. `acts` are added to the audit log; `logs` and `job_steps` replace what was recorded
    under the same names, `choices` what was recorded of the job's placement before. `ended` is added to the
    sums of usage.
    """

    events: tuple[Entry, ...] = ()
    jobs: tuple[Job, ...] = ()
    hosts: tuple[Host, ...] = ()
    removed_hosts: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    removed_zones: tuple[str, ...] = ()
    actions: tuple[StoredAction, ...] = ()
    finished_actions: tuple[int, ...] = ()
    measurements: tuple[Measured, ...] = ()
    documents: tuple[tuple[str, dict[str, Any] | None], ...] = ()
    tokens: tuple[Token, ...] = ()
    removed_tokens: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    logs: tuple[KeptLog, ...] = ()
    job_steps: tuple[JobStep, ...] = ()
    choices: tuple[tuple[int, Choice], ...] = ()
    ended: tuple[Ended, ...] = ()


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row that cannot be read: of a job, host, zone, action, measurement or document, by its key."""

    kind: str
    key: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """One consistent view of all that the leader needs.

    `jobs` by ascending id; `hosts` and `zones` in the order in which they were first stored;
    `actions` (the open ones) by ascending id; `measurements` by source and destination; `tokens` by id.
    """

    version: int
    next_job_id: int
    next_action_id: int
    cluster: str = ""  # its id, made with the database
    jobs: tuple[Job, ...] = ()
    hosts: tuple[Host, ...] = ()
    zones: tuple[Zone, ...] = ()
    actions: tuple[StoredAction, ...] = ()
    measurements: tuple[Measured, ...] = ()
    documents: tuple[tuple[str, dict[str, Any]], ...] = ()
    tokens: tuple[Token, ...] = ()
    damaged: tuple[Damaged, ...] = ()  # rows that were read around


@dataclass(frozen=True, slots=True)
class Doors:
    """Where users reach a daemon from other machines: https://host:port, and the page's URL; "" = nowhere.
    `machine` is its machine's name or address for ssh, an IPv6 address in brackets; "" = its host name."""

    https: str = ""
    page: str = ""
    machine: str = ""


NO_DOORS = Doors()


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads, as stored: `holder` is "" when nobody does, and then `doors` mean nothing.

    Each renewal changes `expires_us`, by the holder's wall clock, which others do not compare with theirs,
    and each commit changes `version`: a lease is over when the whole row has stayed the same for `ttl_us` of
    their own time.
    """

    holder: str = ""
    epoch: int = 0
    expires_us: int = 0
    ttl_us: int = 0
    version: int = 0  # of the state
    doors: Doors = NO_DOORS  # of the holder


class Store(Protocol):
    """Every method raises StoreError when the database refuses, and StoreUnavailable when it cannot be
    reached, is locked or full: then the same call may succeed later.

    `commit` and the lease are for one writer thread; the reads may come from any thread, and so may
    everything that concerns the `history`, the `results` and `playbook_runs`, which are not fenced by the
    lease.
    """

    @property
    def history(self) -> History:
        """The history of the measured network."""
        ...

    @property
    def results(self) -> Results:
        """The results that archives of others are still to get."""
        ...

    @property
    def playbook_runs(self) -> PlaybookRuns:
        """The runs of playbooks that the daemon starts."""
        ...

    def load(self, ended_after_us: int | None = None) -> Loaded:
        """Unfinished jobs, plus those that ended at or after `ended_after_us` (None = none), and those by
        which pending ones are still to be judged (`rm.core.jobs.dependents.named_by`)."""
        ...

    def set_aside(self, damaged: Collection[Damaged], at_us: int) -> None:
        """Keeps these rows apart, with all that is in them: nothing reads them any more."""
        ...

    def aside(self) -> list[Damaged]:
        """The rows that were set aside, the oldest first."""
        ...

    def commit(self, batch: Batch, expected_version: int) -> int:
        """Makes the batch durable and returns the new version (`expected_version` + 1).

        Raises:
            StaleLeader: this store does not hold the lease (any more), or the version has moved;
                nothing was written. Load again before deciding anything.
            StoreUnavailable: whether it was written is not known, since the connection may have
                broken during the commit itself. Call again with the very same batch and version:
                it is written once.
            StoreError: nothing was written, and would not be the next time.
        """
        ...

    def lease(self) -> Lease:
        """The lease as it is stored now; waits for no writer."""
        ...

    def acquire_lease(
        self, holder: str, now_us: int, ttl_us: int, over: Lease | None = None, doors: Doors = NO_DOORS
    ) -> int | None:
        """Becomes the leader, which users reach at `doors`, and returns the new epoch; None while another
        holder leads.

        The same `holder` gets a new epoch at once, so a restarted daemon need not wait; an earlier
        leader of that name is fenced off. Another's lease is taken when it is still the
        one that the caller knows to be `over`.
        """
        ...

    def renew_lease(self, now_us: int, ttl_us: int) -> bool:
        """Prolongs the lease; False when somebody else took it (then stop deciding)."""
        ...

    def epoch(self) -> int:
        """The newest leader's epoch; from any thread."""
        ...

    def release_lease(self) -> None:
        """Gives the lease back; does nothing when it is not held."""
        ...

    def jobs(
        self,
        *,
        states: Collection[JobState] | None = None,
        user: str | None = None,
        name: str | None = None,
        ended_after_us: int | None = None,
        limit: int | None = None,
        before_id: int | None = None,
        by_rests: bool = False,
    ) -> list[Job]:
        """The newest `limit` jobs with an id below `before_id` that match, by ascending id.

        `ended_after_us` keeps the unfinished jobs and those that ended at or after it. `by_rests`: an array
        counts as CANCELLED as well if elements of it were cancelled before they started.
        """
        ...

    def job(self, id: int) -> Job | None: ...

    def elements(self, array: int, tasks: Collection[int] | None = None) -> list[Job]:
        """The elements of an array that have jobs of their own, by index; or only those of these indices."""
        ...

    def choice(self, job: int) -> Choice | None:
        """How the job's last placement came about; None: it never was placed, or nothing was recorded."""
        ...

    def logs(self, job: int) -> list[KeptLog]:
        """What became of the logs of the job's attempts, by their names; empty ones are not among them."""
        ...

    def job_steps(
        self, jobs: Collection[int], after: StepName | None = None, limit: int = 1000
    ) -> list[JobStep]:
        """The steps of these jobs that are recorded, by their names: the first `limit` of those that come
        `after` one."""
        ...

    def usage(self, asked: Asked) -> list[tuple[Heap, Sums]]:
        """What was added up of attempts that ended, by the names that are asked for: each heap has only
        these, and the start of the time."""
        ...

    def journal(self, after: int = 0, limit: int = 1000) -> list[tuple[int, Entry]]:
        """The oldest `limit` entries with a sequence number above `after`, in order."""
        ...

    def journal_starts(self) -> list[tuple[int, int]]:
        """(sequence number, at_us) of every entry of the kind START, in order."""
        ...

    def ids(self) -> set[int]:
        """Of all jobs that are kept."""
        ...

    def counts(self) -> dict[JobState, int]:
        """How many jobs are kept, by state."""
        ...

    def prune(self, before_us: int, most: int | None = None, most_bytes: int | None = None) -> int:
        """Forgets jobs that ended before `before_us`, all but the `most` that ended last, and of each user
        those before the last whose specifications take `most_bytes`, with how they were placed and what
        became of their logs; counts them. Those that ended in the same microsecond as the last one kept
        stay, and so do jobs with an open action, and arrays with an element that stays. In many short
        transactions."""
        ...

    def prune_journal(self, before_us: int) -> int:
        """Forgets what precedes the last start at or before `before_us`; counts the entries.

        What is left begins with a start, so that it can be replayed. Without such a start
        nothing is forgotten.
        """
        ...

    def acts(
        self, after: int = 0, limit: int = 1000, since_us: int = 0, user: str | None = None
    ) -> list[tuple[int, Act]]:
        """The oldest `limit` entries of the audit log with a number above `after`, in order: those at or
        after `since_us`, of one user when `user` is given."""
        ...

    def prune_acts(self, before_us: int) -> int:
        """Forgets the acts before `before_us`; counts them."""
        ...

    def prune_usage(self, hours_before_us: int, days_before_us: int) -> int:
        """Forgets the sums of hours and of days before these instants; counts them. What was asked for by the
        hour is then known by the day."""
        ...

    def close(self) -> None: ...
