"""What the status says about the database: how many jobs it holds in each state, and what was set aside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rm.core.model.job import JobState
from rm.core.ports import Clock
from rm.core.store import Damaged, Store
from rm.daemon.services.asking import LOOK_S
from rm.errors import StoreUnavailable

AGE_US = 10_000_000  # what is pruned changes no version
ASIDE_AGE_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Held:
    """`counts` as of a version of the database, or a later one."""

    version: int
    counts: dict[JobState, int]
    aside: Sequence[Damaged]
    counted_us: int  # monotonic
    aside_us: int


class StoredCounts:
    """Asks the database only after a commit: whoever polls the status costs little.

    Args:
        version: the last commit's version.
        waiting: why the leader waits for its database, if it does.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        version: Callable[[], int],
        waiting: Callable[[], StoreUnavailable | None],
    ) -> None:
        self._store, self._clock = store, clock
        self._version, self._waiting = version, waiting
        self._held: Held | None = None
        self._looking: asyncio.Task[Held] | None = None

    async def now(self) -> Held:
        """One question at a time: a database that hangs holds up one thread, and no answer for long.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        if (trouble := self._waiting()) is not None:
            raise trouble
        wanted = self._version()
        while not self._holds(wanted):
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(asyncio.to_thread(self._look))
                # the client may have gone by the time at which it fails
                self._looking.add_done_callback(lambda looked: looked.cancelled() or looked.exception())
            looking = self._looking
            if not (await asyncio.wait({looking}, timeout=LOOK_S))[0]:
                raise self._waiting() or StoreUnavailable("The database has not answered yet.")
            looking.result()
        assert self._held is not None
        return self._held

    def _holds(self, version: int) -> bool:
        held = self._held
        if held is None or held.version < version:
            return False
        return self._clock.monotonic_us() - held.counted_us < AGE_US

    def _look(self) -> Held:
        last, version, now_us = self._held, self._version(), self._clock.monotonic_us()
        if last is not None and now_us - last.aside_us < ASIDE_AGE_US:
            aside, aside_us = last.aside, last.aside_us
        else:
            aside, aside_us = self._store.aside(), now_us
        self._held = Held(version, self._store.counts(), aside, now_us, aside_us)
        return self._held
