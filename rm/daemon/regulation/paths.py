"""Brings the code points by which switches choose the paths of jobs in line with the plan."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from rm.core.model.paths import JobPath
from rm.daemon.agents import Agents
from rm.daemon.regulation.asking import ask
from rm.daemon.regulation.rules import Rules
from rm.daemon.regulation.running import Place, Running
from rm.protocol.line import shown
from rm.protocol.network import PathSet, SetPath, UnsetPath

log = logging.getLogger(__name__)


class Paths(Rules[JobPath]):
    """`dscp` are the code points of the spines."""

    def __init__(self, agents: Agents, dscp: Sequence[int], epoch: int) -> None:
        super().__init__()
        self._agents = agents
        self._dscp = dscp
        self._epoch = epoch

    def set_on(self, running: Running, place: Place, rule: JobPath) -> None:
        request = SetPath(
            job=running.job,
            attempt=running.attempt,
            epoch=self._epoch,
            interface=place.interface,
            dscp=self._dscp[rule.spine],
        )
        ask(self._agents, running, place, request, on_answer=partial(_warn_unless_verified, running, place))

    def unset_on(self, running: Running, place: Place) -> None:
        request = UnsetPath(
            job=running.job, attempt=running.attempt, epoch=self._epoch, interface=place.interface
        )
        ask(self._agents, running, place, request)


def _warn_unless_verified(running: Running, place: Place, answer: PathSet) -> None:
    if not answer.verified:
        missing = shown(", ".join(answer.missing)) or "a working classifier"
        log.warning("the path of job %d on %s has no effect: no %s", running.job, place.host, missing)
