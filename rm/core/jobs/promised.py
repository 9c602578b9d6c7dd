"""What the requests of one turn are promised before any of their events is applied."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm.core.jobs.state import ClusterState

Submitted = tuple[str, str]  # a user, and the idempotency key of a submission


@dataclass(slots=True)
class Promised:
    """Ids and idempotency keys: two submissions of one turn get different ids, unless they are the same one.

    It belongs to one turn, and is read and written in the leader's thread. A turn that fails breaks its
    promises, and its requests are made anew.
    """

    state: ClusterState
    _next_job: int = 0
    _submissions: dict[Submitted, list[int]] = field(default_factory=dict)

    def submitted(self, by: Submitted) -> list[int]:
        """The ids that a submission of this key has got, in earlier turns and in this one."""
        return [*self.state.submissions.get(by, ()), *self._submissions.get(by, ())]

    def new_jobs(self, count: int, by: Submitted | None) -> range:
        """The ids of `count` new jobs; they count as submitted `by` this user and key."""
        first = max(self.state.next_job, self._next_job)
        self._next_job = first + count
        made = range(first, self._next_job)
        if by is not None:
            self._submissions.setdefault(by, []).extend(made)
        return made
