"""Those who hear of what the leader has made durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job
from rm.core.model.network.alignment import Alignment
from rm.core.sharing.ended import Ended


@dataclass(frozen=True, slots=True)
class Listeners:
    """What is called in the leader's thread: each takes copies and returns.

    Attributes:
        on_commit: the version that is durable now; before anybody is answered.
        on_jobs: new versions of jobs.
        on_ended: attempts that have ended, for the account of usage.
        on_alignment: the alignment, whenever it or what is aligned has changed.
        on_fatal: the leader has ended, and why.
    """

    on_commit: Callable[[int], None] = lambda version: None
    on_jobs: Sequence[Callable[[Sequence[Job]], None]] = ()
    on_ended: Callable[[Sequence[Ended]], None] = lambda ended: None
    on_alignment: Callable[[Alignment, ClusterState], None] = lambda alignment, state: None
    on_fatal: Callable[[str], None] = lambda why: None


NOBODY = Listeners()
