"""The use cases of playbooks on the page: what may be started, runs and their reports, schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rm.adapters.playbook.catalogue import Listed
from rm.core.playbook_runs import PlaybookRun, PlaybookRuns, PlaybookSchedule, RunOptions, TaskOutcome
from rm.core.ports import Clock
from rm.daemon.fair_pool import FairPool
from rm.daemon.playbooks.runner import Runner, size_of
from rm.daemon.playbooks.schedules import Schedules
from rm.daemon.playbooks.starting import Starting
from rm.daemon.playbooks.telling import Telling
from rm.errors import Conflict, NotFound, UsageError

if TYPE_CHECKING:
    from rm.playbook.read.questions import Question

ANSWER_MOST = 4 << 20  # characters of the outcomes of one answer, about
READ_AT_ONCE = 50
CHECKERS, TELLERS = 2, 3  # threads
T = TypeVar("T")


class Playbooks:
    """Files and the database are read, and the runner is asked, in threads: nothing here keeps the event loop
    waiting."""

    def __init__(
        self, *, starting: Starting, runs: PlaybookRuns, runner: Runner, schedules: Schedules, clock: Clock,
        telling: Telling,
    ) -> None:  # fmt: skip
        self._starting, self._runs, self._runner = starting, runs, runner
        self._telling = telling
        self._schedules, self._clock = schedules, clock
        # answers are compared with patterns here, which takes seconds where somebody wants it to
        self._checkers = FairPool(CHECKERS, 1, 1, "answers")
        self._tellers = FairPool(TELLERS, 1, 2, "told")  # who tells much waits for the database here

    def take_up(self) -> None:
        """Before anything is asked: mark what an earlier daemon left unfinished, and follow the stored
        schedules. It may be tried again. Raises StoreError."""
        self._runner.mark_interrupted()
        self._schedules.follow_all()

    # -- what there is

    async def listed(self) -> Sequence[Listed]:
        return await asyncio.to_thread(self._starting.listed)

    async def survey(self, name: str) -> tuple[Listed, Sequence[Question]]:
        return await asyncio.to_thread(self._starting.survey, name)

    # -- runs

    async def start(self, name: str, options: RunOptions, given: Mapping[str, Any], by: str) -> PlaybookRun:
        return await self._checked(by, partial(self._starting.start, name, options, given, by))

    async def _checked(self, by: str, work: Callable[[], T]) -> T:
        """Work with answers, in one of the threads that nobody has all of."""
        return await asyncio.wrap_future(self._checkers.ask(by, by, work))

    async def newest(self, limit: int, before: int, playbook: str) -> Sequence[PlaybookRun]:
        def newest() -> Sequence[PlaybookRun]:
            found = self._runs.newest(limit, before, playbook)
            return [self._current(one)[0] for one in found]

        return await asyncio.to_thread(newest)

    async def run(self, id: int) -> tuple[PlaybookRun, Mapping[str, tuple[str, int]]]:
        """With what its hosts are at: the task and since when. Raises NotFound."""
        found = await asyncio.to_thread(self._runs.get, id)
        if found is None:
            raise NotFound(f"There is no run {id} of a playbook.", "`rmx playbook runs` lists them.")
        return await asyncio.to_thread(self._current, found)

    def _current(self, run: PlaybookRun) -> tuple[PlaybookRun, Mapping[str, tuple[str, int]]]:
        return (self._telling.runner if run.told else self._runner).current(run)

    async def outcomes(
        self, id: int, after: int, limit: int, host: str, statuses: Sequence[str]
    ) -> tuple[Sequence[TaskOutcome], int]:
        """At most `limit`, and fewer where they are long; and the `after` of those that follow, 0 = none.
        Raises NotFound."""
        await self.run(id)
        return await asyncio.to_thread(self._outcomes, id, after, limit, host, statuses)

    def _outcomes(
        self, id: int, after: int, limit: int, host: str, statuses: Sequence[str]
    ) -> tuple[list[TaskOutcome], int]:
        found: list[TaskOutcome] = []
        size = 0
        while True:
            some = self._runs.outcomes(id, after, READ_AT_ONCE, host, statuses)
            for one in some:
                size += size_of(one)
                if len(found) == limit or (found and size > ANSWER_MOST):
                    return found, found[-1].number if found else 0
                found.append(one)
            if len(some) < READ_AT_ONCE:
                return found, 0
            after = some[-1].number

    async def stop(self, id: int, by: str) -> PlaybookRun:
        found, _ = await self.run(id)
        if found.told and not found.state.over:
            raise Conflict(f"Run {id} runs in a shell of {found.by}.", "Ctrl-C there ends it.")
        if not found.state.over:
            await asyncio.to_thread(self._runner.stop, id, by)
        return (await self.run(id))[0]

    async def tell(
        self, playbook: str, options: RunOptions, variables: Sequence[str], by: str
    ) -> PlaybookRun:
        return await asyncio.to_thread(self._telling.begin, playbook, options, variables, by)

    async def progress(
        self, id: int, lines: Sequence[Mapping[str, Any]], by: str, batch: int = 0
    ) -> PlaybookRun:
        work = partial(self._telling.progress, id, lines, by, batch)
        await asyncio.wrap_future(self._tellers.ask(by, by, work))
        return (await self.run(id))[0]

    # -- schedules

    async def schedules(self) -> Sequence[tuple[PlaybookSchedule, int | None]]:
        """Each with when it is due next."""
        found = await asyncio.to_thread(self._runs.schedules)
        return [(one, self._schedules.next_us(one.id)) for one in found]

    async def schedule(
        self, name: str, cron: str, options: RunOptions, given: Mapping[str, Any], by: str
    ) -> tuple[PlaybookSchedule, int | None]:
        """Raises UsageError also where private answers are given: nobody may keep them."""
        found, answers = await self._checked(by, partial(self._starting.asked, name, options, given))
        if kept := [one for one in answers.private if given.get(one) not in (None, "")]:
            raise UsageError(
                f"A schedule cannot keep the private answers {', '.join(kept)}: they are never stored.",
                "Let the playbook read them from the vault, or give them defaults.",
            )
        wanted = {name: value for name, value in answers.shown.items() if given.get(name) not in (None, "")}
        made = PlaybookSchedule(found.name, cron, by, self._clock.now_us(), options=options, answers=wanted)
        made = await asyncio.to_thread(self._schedules.add, made)
        return made, self._schedules.next_us(made.id)

    async def unschedule(self, id: int) -> PlaybookSchedule:
        return await asyncio.to_thread(self._schedules.remove, id)

    def prune(self, keep_us: int, most: int) -> int:
        return self._runs.prune(self._clock.now_us() - keep_us, most)

    def look(self) -> None:
        """Now and then."""
        self._telling.look()

    def close(self) -> None:
        self._checkers.close()
        self._tellers.close()
        self._telling.runner.close()
        self._runner.close()
