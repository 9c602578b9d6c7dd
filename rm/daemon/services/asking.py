"""How the use cases talk to the leader from the web server's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from rm.adapters.asker import ASKER
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.scheduling.cycle import Cycle
from rm.daemon.fair_pool import FairPool
from rm.daemon.leading.leader import Leader

T = TypeVar("T")
Copy = TypeVar("Copy")
LOOK_S = 1.0  # between two looks whether the leader waits
SCANNED = 2_000  # jobs that a question to the leader goes over


class Asking:
    """Changes are answered after their commit, reads between two steps."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        # one thread: policies remember what they saw last
        self._thinkers = FairPool(1, 0, 1, "think")
        self._scanners = FairPool(1, 0, 1, "scan")

    async def ask(self, question: Callable[[Cycle, int], Any]) -> Any:
        """The answer; StoreUnavailable as soon as the leader waits for its database."""
        asked = asyncio.wrap_future(self._leader.ask(question))
        try:
            while not (await asyncio.wait({asked}, timeout=LOOK_S))[0]:
                if (waiting := self._leader.waiting()) is not None:
                    raise waiting
            return asked.result()
        finally:
            asked.cancel()

    async def request(
        self,
        make: Callable[[ClusterState], list[ev.Event]],
        answer: Callable[[ClusterState], Any] = lambda state: None,
        weight: int = 1,
        alone: bool = False,
    ) -> Any:
        return await asyncio.wrap_future(self._leader.request(make, answer, weight, alone))

    async def think_of(
        self, whose: str, question: Callable[[Cycle, int], Copy], work: Callable[[Copy], T]
    ) -> T:
        """As `think`, of what the question finds: it is asked when the turn has come, so that nobody has
        copies of the state waiting."""
        return await self.think(whose, lambda: work(self._now(question)))

    def _now(self, question: Callable[[Cycle, int], Copy]) -> Copy:
        """The answer, in the thread that thinks."""
        asked = self._leader.ask(question)
        while True:
            try:
                found: Copy = asked.result(LOOK_S)
                return found
            except TimeoutError:
                if (waiting := self._leader.waiting()) is not None:
                    asked.cancel()
                    raise waiting from None

    async def think(self, whose: str, work: Callable[[], T]) -> T:
        """Work it out beside the leader, from copies, in turns: of who asks, or of `whose` job it is where
        nobody is known to ask; "" = of what is worked out for all."""
        asker = whose and (ASKER.get() or whose)
        return await asyncio.wrap_future(self._thinkers.ask("", asker, work))

    async def scan(self, question: Callable[[Cycle, int], Copy], work: Callable[[Copy], T]) -> T:
        """As `think_of`, of what takes some milliseconds where very many jobs are, and needs no policy: who
        thinks for long is not waited for."""
        return await asyncio.wrap_future(
            self._scanners.ask("", ASKER.get(), lambda: work(self._now(question)))
        )

    def close(self) -> None:
        self._thinkers.close()
        self._scanners.close()
