"""What the web needs of the daemon about playbooks that people start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rm.core.playbook_runs import PlaybookRun, PlaybookSchedule, RunOptions, TaskOutcome

if TYPE_CHECKING:
    from rm.playbook.read.questions import Question


class Listed(Protocol):
    """A playbook that may be started."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...


class Playbooks(Protocol):
    async def listed(self) -> Sequence[Listed]: ...

    async def survey(self, name: str) -> tuple[Listed, Sequence[Question]]: ...

    async def start(
        self, name: str, options: RunOptions, given: Mapping[str, Any], by: str
    ) -> PlaybookRun: ...

    async def newest(self, limit: int, before: int, playbook: str) -> Sequence[PlaybookRun]: ...

    async def run(self, id: int) -> tuple[PlaybookRun, Mapping[str, tuple[str, int]]]:
        """With what its hosts are at: the task and since when."""
        ...

    async def outcomes(
        self, id: int, after: int, limit: int, host: str, statuses: Sequence[str]
    ) -> tuple[Sequence[TaskOutcome], int]:
        """With the `after` of those that follow, 0 = none: an answer has few that are long."""
        ...

    async def stop(self, id: int, by: str) -> PlaybookRun: ...

    async def tell(
        self, playbook: str, options: RunOptions, variables: Sequence[str], by: str
    ) -> PlaybookRun:
        """A run that begins in a shell."""
        ...

    async def progress(
        self, id: int, lines: Sequence[Mapping[str, Any]], by: str, batch: int = 0
    ) -> PlaybookRun:
        """What it has come to, as `rmx playbook work` says it; a batch that has arrived changes nothing."""
        ...

    async def schedules(self) -> Sequence[tuple[PlaybookSchedule, int | None]]:
        """Each with when it is due next."""
        ...

    async def schedule(
        self, name: str, cron: str, options: RunOptions, given: Mapping[str, Any], by: str
    ) -> tuple[PlaybookSchedule, int | None]: ...

    async def unschedule(self, id: int) -> PlaybookSchedule: ...
