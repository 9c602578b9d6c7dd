"""How the use cases talk to the leader from the web server's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rm.core import events as ev
from rm.core.cycle import Cycle
from rm.core.state import ClusterState
from rm.daemon.leader import Leader


class Asking:
    """Changes are answered after their commit, reads between two steps."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    async def _ask(self, question: Callable[[Cycle, int], Any]) -> Any:
        return await asyncio.wrap_future(self._leader.ask(question))

    async def _request(
        self,
        make: Callable[[ClusterState], list[ev.Event]],
        answer: Callable[[ClusterState], Any] = lambda state: None,
    ) -> Any:
        return await asyncio.wrap_future(self._leader.request(make, answer))
