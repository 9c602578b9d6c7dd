"""Runs of playbooks that the daemon starts, or that shells tell it of: what was asked, what became of each
task on each host, and those that come again by cron. The store keeps all behind the port `PlaybookRuns`.

Nothing here holds a secret: private answers are named, never kept, and texts come masked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass as made_by_the_thousand
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from rm.quick_dataclass import dataclass


class RunState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"  # on a host, or before one was touched
    UNREACHABLE = "unreachable"  # a host was
    INTERRUPTED = "interrupted"

    @property
    def over(self) -> bool:
        return self not in (RunState.WAITING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """As the options of `rmx playbook run`."""

    limit: str = ""
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = True


@dataclass(frozen=True, slots=True)
class PlaybookRun:
    """`id` 0: not stored yet. `answers` are those to the survey that may be shown; `private` names the
    others. `schedule` is the one that began it, 0 = none. `told` by `rmx playbook run` in a shell of `by`:
    then `playbook` is its file, and `private` names its extra variables. `recap` are Ansible's counters by
    host; `message` says why it ended as it did, where the counters do not."""

    playbook: str
    by: str
    asked_us: int
    id: int = 0
    state: RunState = RunState.WAITING
    began_us: int = 0
    ended_us: int = 0
    options: RunOptions = RunOptions()
    answers: Mapping[str, Any] = field(default_factory=dict)
    private: tuple[str, ...] = ()
    schedule: int = 0
    told: bool = False
    message: str = ""
    notes: tuple[str, ...] = ()
    recap: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    not_reached: tuple[str, ...] = ()


@made_by_the_thousand(frozen=True, slots=True)
class TaskOutcome:
    """What one task came to on one host, `number` counted from 1 within its run. `status`: ok, changed,
    failed, unreachable, skipped, ignored or rescued. `took_us` is the time of its steps on the host, or what
    passed until the result came where the host does not say. `items` are (label, status, message)."""

    number: int
    host: str
    play: str
    task: str
    module: str
    status: str
    at_us: int
    took_us: int = 0
    message: str = ""
    output: str = ""
    diffs: tuple[str, ...] = ()
    items: tuple[tuple[str, str, str], ...] = ()
    file: str = ""
    line: int = 0
    delegated: str = ""


@dataclass(frozen=True, slots=True)
class PlaybookSchedule:
    """A playbook that is started by cron, with the answers that `by` gave. `last_us` is when it last was due
    and `last_run` the run, 0 = none; `message` says why there was none."""

    playbook: str
    cron: str
    by: str
    since_us: int
    id: int = 0
    options: RunOptions = RunOptions()
    answers: Mapping[str, Any] = field(default_factory=dict)
    last_us: int = 0
    last_run: int = 0
    message: str = ""


class PlaybookRuns(Protocol):
    """Not fenced by the lease, and from any thread; raises as `Store` does."""

    def add(self, run: PlaybookRun) -> int:
        """A new run; its id, which is not used again."""
        ...

    def put(self, run: PlaybookRun) -> bool:
        """A new version of a run that is not over as stored; False when there is no such."""
        ...

    def interrupt(self, message: str, of_told: str, at_us: int) -> int:
        """Every run that is not over becomes an interrupted one, with this message, or the other if it was
        told; counts them."""
        ...

    def get(self, id: int) -> PlaybookRun | None: ...

    def newest(self, limit: int, before: int = 0, playbook: str = "") -> list[PlaybookRun]:
        """The newest first; those with an id below `before`, 0 = all."""
        ...

    def record(self, run: int, outcomes: Collection[TaskOutcome]) -> None:
        """Adds what tasks came to; what has a number that is recorded already changes nothing."""
        ...

    def outcomes(
        self, run: int, after: int = 0, limit: int = 1000, host: str = "", statuses: Sequence[str] = ()
    ) -> list[TaskOutcome]:
        """By number, those above `after`."""
        ...

    def prune(self, before_us: int, most: int) -> int:
        """Forgets runs that were over before this instant, and all but the `most` newest that are; with what
        their tasks came to. Counts the runs."""
        ...

    def schedules(self) -> list[PlaybookSchedule]: ...

    def add_schedule(self, schedule: PlaybookSchedule) -> int: ...

    def put_schedule(self, schedule: PlaybookSchedule) -> bool: ...

    def remove_schedule(self, id: int) -> bool: ...
