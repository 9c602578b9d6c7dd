"""Asks the hosts of running jobs to do something; what goes wrong is logged, and the next plan mends it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from rm.adapters.hosts.pace import Pace
from rm.daemon.agents import Agents
from rm.daemon.regulation.running import Place, Running
from rm.protocol.codes import Code, code_of
from rm.protocol.request import Answer, Ordered, name_of

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 10.0
REFUSALS, REFUSALS_PER_S = 20, 0.2  # of one host, that are logged: at once, and then


class HostCalls:
    """Asks hosts, from any thread; the answers come in the fleet's."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._paces: dict[str, Pace] = {}  # of what is logged, by host; in the fleet's thread

    def ask(
        self,
        running: Running,
        place: Place,
        request: Ordered[Answer],
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        on_answer: Callable[[Answer], None] = lambda answer: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask one host of a job; `on_answer` and, in any case, `on_end` are called in the fleet's thread."""

        def answered(future: Future[Answer]) -> None:
            error = future.exception()
            if error is None:
                on_answer(future.result())
            elif code_of(error) is not Code.NO_SUCH_ATTEMPT and self._logged(place.host):
                log.warning("%s of job %d on %s: %s", name_of(type(request)), running.job, place.host, error)
            on_end()

        self._agents.call(place.host, request, timeout_s).add_done_callback(answered)

    def _logged(self, host: str) -> bool:
        if host not in self._paces:
            self._paces[host] = Pace(REFUSALS, REFUSALS_PER_S)
        return self._paces[host].take()
