"""How the use cases talk to the leader from the web server's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rm.core import events as ev
from rm.core.cycle import Cycle
from rm.core.state import ClusterState
from rm.daemon.leader import Leader

LOOK_S = 1.0  # between two looks whether the leader waits


class Asking:
    """Changes are answered after their commit, reads between two steps."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    async def _ask(self, question: Callable[[Cycle, int], Any]) -> Any:
        """The answer; StoreUnavailable as soon as the leader waits for its database."""
        asked = asyncio.wrap_future(self._leader.ask(question))
        try:
            while not (await asyncio.wait({asked}, timeout=LOOK_S))[0]:
                if (waiting := self._leader.waiting()) is not None:
                    raise waiting
            return asked.result()
        finally:
            asked.cancel()

    async def _request(
        self,
        make: Callable[[ClusterState], list[ev.Event]],
        answer: Callable[[ClusterState], Any] = lambda state: None,
    ) -> Any:
        return await asyncio.wrap_future(self._leader.request(make, answer))
