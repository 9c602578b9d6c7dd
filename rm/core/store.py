"""The store's port: one transaction holds a batch of events and the plan that follows from it.

The store is the truth; the leader's memory is rebuilt from it with `Store.load`. A commit is
acknowledged only when it is on disk. The outbox (`Batch.actions`) says what is about to be
done before it is done; an action leaves it when a later batch records its outcome.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from rm.core.history import History
from rm.core.host import Host, Zone
from rm.core.job import Job, JobState
from rm.core.network import LinkStats

# Kinds of journal entries (`rm.core.journal`); what precedes a start can be forgotten.
START, STEP = "start", "step"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal. `body` is a JSON object."""

    at_us: int
    kind: str
    body: dict[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction: all of it becomes durable, or nothing.

    `jobs`, `hosts`, `zones` and `measurements` are whole new versions that replace what is
    stored under the same key. Removals happen before upserts; removing a host also forgets the
    measurements from and to it. Actions are added before `finished_actions` are taken out;
    finishing an action that is not open does nothing. `documents` are small named JSON objects
    of the leader's own (None forgets one). A job is new when its id is at least
    `Loaded.next_job_id`; ids that were skipped can no longer be used. The same holds for actions.
    A job's `spec` is written with its first version only, since it never changes.
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


@dataclass(frozen=True, slots=True)
class Loaded:
    """One consistent view of all that the leader needs.

    `jobs` by ascending id; `hosts` and `zones` in the order in which they were first stored;
    `actions` (the open ones) by ascending id; `measurements` by source and destination.
    """

    version: int
    next_job_id: int
    next_action_id: int
    jobs: tuple[Job, ...] = ()
    hosts: tuple[Host, ...] = ()
    zones: tuple[Zone, ...] = ()
    actions: tuple[StoredAction, ...] = ()
    measurements: tuple[Measured, ...] = ()
    documents: tuple[tuple[str, dict[str, Any]], ...] = ()


class Store(Protocol):
    """Every method raises StoreError when the database refuses or cannot be reached.

    `commit` and the lease are for one writer thread; the reads may come from any thread, and so may
    everything that concerns the `history`, which is not fenced by the lease.
    """

    @property
    def history(self) -> History:
        """The history of the measured network."""
        ...

    def load(self, ended_after_us: int | None = None) -> Loaded:
        """Unfinished jobs, plus those that ended at or after `ended_after_us` (None = none)."""
        ...

    def commit(self, batch: Batch, expected_version: int) -> int:
        """Makes the batch durable and returns the new version (`expected_version` + 1).

        Raises:
            StaleLeader: this store does not hold the lease (any more), or the version has moved;
                nothing was written. Load again before deciding anything.
            StoreError: nothing was written, unless the connection broke during the commit
                itself; the version that `load` returns tells.
        """
        ...

    def acquire_lease(self, holder: str, now_us: int, ttl_us: int) -> int | None:
        """Becomes the leader and returns the new epoch; None while another live holder leads.

        The same `holder` gets a new epoch at once, so a restarted daemon need not wait; whoever
        led before under that name is fenced off. `now_us` must be comparable between holders.
        """
        ...

    def renew_lease(self, now_us: int, ttl_us: int) -> bool:
        """Prolongs the lease; False when somebody else took it (then stop deciding)."""
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
    ) -> list[Job]:
        """The newest `limit` jobs with an id below `before_id` that match, by ascending id.

        `ended_after_us` keeps the unfinished jobs and those that ended at or after it.
        """
        ...

    def job(self, id: int) -> Job | None: ...

    def journal(self, after: int = 0, limit: int = 1000) -> list[tuple[int, Entry]]:
        """The oldest `limit` entries with a sequence number above `after`, in order."""
        ...

    def journal_starts(self) -> list[tuple[int, int]]:
        """(sequence number, at_us) of every entry of the kind START, in order."""
        ...

    def prune(self, before_us: int) -> int:
        """Forgets jobs that ended before `before_us`; counts them. Jobs with an open action stay."""
        ...

    def prune_journal(self, before_us: int) -> int:
        """Forgets what precedes the last start at or before `before_us`; counts the entries.

        What is left begins with a start, so that it can be replayed. Without such a start
        nothing is forgotten.
        """
        ...

    def close(self) -> None: ...
